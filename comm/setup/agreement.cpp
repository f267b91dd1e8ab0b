// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "comm/base/log.hpp"
#include "comm/base/majority.hpp"
#include "comm/call/algorithms.hpp"
#include "comm/device/launch/device_tuner.hpp"
#include "comm/setup/transport_choice.hpp"
#include "comm/setup/tuning.hpp"

namespace rondo::comm {
namespace {

std::string_view name_of(Device::Kind kind) {
  constexpr std::string_view kNames[] = {"cpu", "cuda", "sim"};
  return kNames[static_cast<std::size_t>(kind)];
}

void check_devices(std::span<const Card> cards) {
  std::vector<Device::Kind> devices;
  for (const Card& card : cards) devices.push_back(card.device);
  const Majority majority = find_majority_of(devices);
  if (majority.others.empty()) return;
  const int usual = majority.most.front(), odd = majority.others.front();
  throw mismatch_of(
      majority, fmt::format("rank {} asked for a {} device and rank {} for a {} device: all ranks take the same kind",
                            usual, name_of(devices[static_cast<std::size_t>(usual)]), odd,
                            name_of(devices[static_cast<std::size_t>(odd)])));
}

// Never plain where somebody asked for more.
void check_encryption(std::span<const Card> cards) {
  std::vector<int> encrypt;
  for (const Card& card : cards) encrypt.push_back(card.encrypts ? 1 : 0);
  const Majority majority = find_majority_of(encrypt);
  if (majority.others.empty()) return;
  const bool most = cards[static_cast<std::size_t>(majority.most.front())].encrypts;
  const int usual = majority.most.front(), odd = majority.others.front();
  throw mismatch_of(majority,
                    fmt::format("rank {} encrypts its connections and rank {} does not: start all ranks of a job with "
                                "RONDO_ENCRYPT=1, or none",
                                most ? usual : odd, most ? odd : usual));
}

std::string differences(const Card& first, const Config& config, const Options& options) {
  std::vector<std::string_view> names;
  const auto compare = [&](bool same, std::string_view name) {
    if (!same) names.push_back(name);
  };
  compare(first.transport == config.transport, "transport");
  compare(first.algorithm == config.algorithm, "algorithm");
  compare(first.protocol == config.protocol, "protocol");
  compare(first.tuning == to_text(config.tuning), "tuning");
  compare(first.determinism == options.determinism, "determinism");
  compare(first.slice_bytes == config.slice_bytes, "RONDO_SLICE_BYTES");
  compare(first.slots == config.slots, "RONDO_FIFO_SLOTS");
  compare(first.segment_bytes == config.segment_bytes, "RONDO_SEGMENT_BYTES");
  compare(first.link_patience_ms == config.link_patience_ms, "RONDO_LINK_PATIENCE_MS");
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void agree(std::span<const Card> cards, int rank, const Transports& known, Config& config, Options& options) {
  check_devices(cards);
  check_encryption(cards);
  const Card& first = cards.front();
  if (const std::string others = differences(first, config, options); !others.empty())
    log::warn("rank {}: rank 0 was told otherwise, and what it was told holds: {}", rank, others);
  check_transport_name(first.transport, known);
  if (!first.algorithm.empty()) check_algorithm_name(first.algorithm);
  if (!first.protocol.empty()) device::check_protocol_name(first.protocol);
  config.transport = first.transport;
  config.algorithm = first.algorithm;
  config.protocol = first.protocol;
  if (rank != 0) config.tuning = parse_tuning(first.tuning, "rank 0's tuning");
  options.determinism = first.determinism;
  config.slice_bytes = first.slice_bytes;
  config.slots = first.slots;
  config.segment_bytes = first.segment_bytes;
  config.link_patience_ms = first.link_patience_ms;
}

}  // namespace rondo::comm
