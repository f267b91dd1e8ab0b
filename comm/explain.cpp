// SPDX-License-Identifier: Apache-2.0
// Why a call goes the way it goes, in words, for the log.
#include <fmt/format.h>

#include "comm/communicator_impl.hpp"

namespace rondo::detail {
namespace {

using comm::PreparedCall;
using comm::Tuning;
using comm::Way;

struct Threshold {
  std::string_view name;
  std::uint64_t Tuning::*value;
};

// What a call of several nodes hangs on.
constexpr Threshold threshold_of(kernels::Pattern pattern) {
  switch (pattern) {
    case kernels::Pattern::all_reduce:
      return {"two_level_leader_bytes", &Tuning::two_level_leader_bytes};
    case kernels::Pattern::reduce:
      return {"two_level_reduce_bytes", &Tuning::two_level_reduce_bytes};
    case kernels::Pattern::gather:
    case kernels::Pattern::scatter:
      return {"two_level_gather_bytes", &Tuning::two_level_gather_bytes};
    default:
      return {"", nullptr};
  }
}

std::string in_words(const Threshold& threshold, const Tuning& tuning) {
  if (threshold.value == nullptr) return {};
  return fmt::format("; {} is {}", threshold.name, comm::bytes_text(tuning.*threshold.value));
}

}  // namespace

void CommunicatorImpl::explain(const PreparedCall& prepared, const Call& call, bool direct) {
  const bool is_short = prepared.way == Way::short_call;
  const std::string_view way = direct     ? board_.direct_name()
                               : is_short ? comm::ShortCalls::kName
                                          : prepared.chosen.name;
  const std::size_t bytes = comm::larger_count(call, world_size()) * size_of(call.dtype);
  choices_.explain(call.collective, bytes, way, [&] { return why(prepared, call, direct); });
}

std::string CommunicatorImpl::why(const PreparedCall& prepared, const Call& call, bool direct) const {
  const std::string named = fmt::format("RONDO_ALGORITHM={}", config_.algorithm);
  const bool obeys = !config_.algorithm.empty();
  if (direct && board_.direct_name() == comm::CopiedCollectives::kName)
    return "one copy by the kernel is tried, or was faster" +
           in_words({"single_copy_bytes", &Tuning::single_copy_bytes}, config_.tuning);
  if (direct)
    return "all that it needs is within reach" + in_words({"direct_bytes", &Tuning::direct_bytes}, config_.tuning);
  switch (prepared.way) {
    case Way::short_call:
      return "what a rank brings comes with its arrival";
    case Way::board:
      return fmt::format("{}; not straight: {}", why_board(call), obeys ? named : board_.why_not_direct());
    case Way::counted:
      return fmt::format("all ranks share memory, and counts come with the arrivals; not straight: {}",
                         obeys ? named : "its blocks are short, or not within reach");
    case Way::two_level: {
      const auto pattern = comm::shape_of(call, world_size()).pattern;
      return (obeys ? named : "ranks share memory within their nodes") +
             in_words(threshold_of(pattern), config_.tuning);
    }
    case Way::links:
      break;
  }
  if (obeys) return fmt::format("{}; not board: {}", prepared.chosen.why, named);
  if (board_.spans_team()) return fmt::format("{}; not board: too many ranks", prepared.chosen.why);
  return fmt::format("{}; not board: not all ranks share memory; not two_level: {}", prepared.chosen.why,
                     two_level_.why_not(call, options_.determinism, config_.algorithm));
}

std::string CommunicatorImpl::why_board(const Call& call) const {
  const auto [name, value] = board_.chooser().whole_limit(call.collective);
  if (name == nullptr) return "all ranks share memory";
  return fmt::format("all ranks share memory; {} is {}", name, comm::bytes_text(value));
}

}  // namespace rondo::detail
