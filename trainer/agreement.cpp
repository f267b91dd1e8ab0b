// SPDX-License-Identifier: Apache-2.0
#include "trainer/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include <rondo/trainer/gather.hpp>

#include "comm/base/majority.hpp"
#include "trainer/text.hpp"

namespace rondo::trainer {
namespace {

std::string describe(const Parameter& p) {
  return fmt::format("'{}' with {} elements of {}{}{}", p.name, p.count, name_of(p.dtype),
                     p.shape ? fmt::format(" in shape [{}]", fmt::join(*p.shape, ", ")) : "",
                     p.values == nullptr ? ", without values" : "");
}

// A line each for the options and every parameter; a name's own line breaks do not matter, lines are only compared.
std::string describe(const std::vector<Parameter>& parameters, const SynchronizerOptions& options) {
  std::string text = fmt::format(
      "{} parameters, {} buffers, buckets of {} and {} bytes, broadcast {}, buffers at each step {}, gradients {} "
      "buckets, "
      "{}, {} graph\n",
      parameters.size(), options.buffers.size(), options.first_bucket_bytes, options.bucket_bytes,
      options.broadcast_parameters ? "on" : "off", options.broadcast_buffers_each_step ? "on" : "off",
      options.gradients_in_buckets ? "in" : "outside", options.hook ? options.hook->description() : "no hook",
      options.static_graph ? "static" : "changing");
  for (const Parameter& p : parameters) text += describe(p) + "\n";
  for (const Parameter& p : options.buffers) text += "buffer " + describe(p) + "\n";
  return text;
}

std::vector<std::string_view> lines(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string_view> result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    result.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return result;
}

std::string_view line_or_nothing(const std::vector<std::string_view>& all, std::size_t index) {
  return index < all.size() ? all[index] : std::string_view("nothing more");
}

// Line 0 holds the options, so it is told last: a parameter says more than a count of them.
std::string difference(int one, const std::vector<std::string_view>& mine, int other,
                       const std::vector<std::string_view>& theirs) {
  const std::size_t most = std::max(mine.size(), theirs.size());
  for (std::size_t i = 1; i < most; ++i) {
    const std::string_view a = line_or_nothing(mine, i);
    const std::string_view b = line_or_nothing(theirs, i);
    if (a == b) continue;
    return fmt::format(
        "GradientSynchronizer: rank {} registered as parameter {}: {}, but rank {}: {}; register the same parameters "
        "in the same order on every rank",
        one, i - 1, a, other, b);
  }
  return fmt::format("GradientSynchronizer: rank {} has {}, but rank {} has {}; pass the same options on every rank",
                     one, mine.at(0), other, theirs.at(0));
}

}  // namespace

void check_same_list(Communicator& communicator, const std::string& title, const std::vector<std::string>& mine,
                     const std::string& advice) {
  const auto all = all_gather_value(communicator, mine);
  const Majority majority = find_majority_of(all);
  if (majority.others.empty()) return;
  const int one = majority.most.front(), other = majority.others.front();
  const auto &a = all[static_cast<std::size_t>(one)], &b = all[static_cast<std::size_t>(other)];
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const auto nth = [i](const auto& list) { return i < list.size() ? list[i] : "nothing more"; };
  throw mismatch_of(
      majority, fmt::format("{}: rank {} has {}, but rank {} has {}; {}", title, one, nth(a), other, nth(b), advice));
}

void check_agreement(Communicator& communicator, const std::vector<Parameter>& parameters,
                     const SynchronizerOptions& options) {
  const std::string mine = describe(parameters, options);
  const auto all = communicator.all_gather_bytes(std::as_bytes(std::span(mine)));
  if (const Majority majority = find_majority_of(all); !majority.others.empty()) {
    const int one = majority.most.front();
    const int other = majority.others.front();
    const auto lines_of = [&](int rank) { return lines(all[static_cast<std::size_t>(rank)]); };
    throw mismatch_of(majority, difference(one, lines_of(one), other, lines_of(other)));
  }
  // Now, on every rank, and not when the first checkpoint is written.
  for (const Parameter& p : parameters) check_utf8("the parameter's name", p.name);
  for (const Parameter& p : options.buffers) check_utf8("the buffer's name", p.name);
}

}  // namespace rondo::trainer
