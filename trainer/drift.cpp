// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/drift.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <vector>

#include <rondo/device.hpp>

#include "comm/base/majority.hpp"
#include "trainer/arguments.hpp"
#include "trainer/host_memory.hpp"

namespace rondo::trainer {
namespace {

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;

std::uint64_t mix(std::uint64_t h, std::uint64_t word) {
  h = (h ^ word) * kOdd;
  return h ^ h >> 29;
}

// Four sums side by side, so that one multiplication need not wait for another. Each step is a bijection of h and of
// the word, so one changed word always changes the result.
std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, 4> lanes = {1, 2, 3, 4};
  constexpr std::size_t kRow = sizeof lanes;
  std::array<std::uint64_t, 4> words{};
  std::size_t at = 0;
  for (; at + kRow <= bytes.size(); at += kRow) {
    std::memcpy(words.data(), bytes.data() + at, kRow);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = mix(lanes[lane], words[lane]);
  }
  words = {};
  if (at < bytes.size()) std::memcpy(words.data(), bytes.data() + at, bytes.size() - at);
  std::uint64_t all = bytes.size();
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) all = mix(all, mix(lanes[lane], words[lane]));
  return all;
}

std::vector<std::uint64_t> to_words(const std::vector<std::byte>& bytes) {
  std::vector<std::uint64_t> words(bytes.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(std::uint64_t));
  return words;
}

}  // namespace

std::uint64_t hash_values(const Parameter& parameter, Device device) {
  check_parameter("hash_values", parameter);
  const std::size_t bytes = parameter.count * size_of(parameter.dtype);
  if (parameter.values == nullptr) return 0;
  if (device.kind == Device::Kind::cpu && !host_can_reach(parameter.values, bytes)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the values of '{}' are where the CPU cannot reach them; say on which device they are",
                            parameter.name));
  }
  if (device.kind == Device::Kind::cpu) return hash_bytes({static_cast<const std::byte*>(parameter.values), bytes});
  std::vector<std::byte> host(bytes);
  const DeviceStream stream(device);
  copy_on(device, stream.get(), host.data(), parameter.values, bytes);
  stream.synchronize();
  return hash_bytes(host);
}

DriftCheck::DriftCheck(Communicator& communicator, std::size_t every) : communicator_(communicator), every_(every) {
  if (every == 0) refuse_argument("DriftCheck", "every 0 steps is never; check every step, or every so many");
}

void DriftCheck::after_step(std::span<const Parameter> parameters) {
  if (++steps_ % every_ == 0) check(parameters);
}

void DriftCheck::check(std::span<const Parameter> parameters) {
  check_parameters("DriftCheck", parameters);
  communicator_.synchronize();
  std::vector<std::uint64_t> hashes;
  std::uint64_t all = 0;
  for (const Parameter& p : parameters) {
    hashes.push_back(hash_values(p, communicator_.device()));
    all = mix(all, hashes.back());
  }
  const auto sums = communicator_.all_gather_bytes(std::as_bytes(std::span(&all, 1)));
  if (std::equal(sums.begin() + 1, sums.end(), sums.begin())) return;
  std::vector<std::vector<std::uint64_t>> each;
  for (const auto& bytes : communicator_.all_gather_bytes(std::as_bytes(std::span(hashes))))
    each.push_back(to_words(bytes));
  const auto find_odd = [&](auto value_of) {
    std::vector<std::uint64_t> values;
    for (const auto& of_rank : each) values.push_back(value_of(of_rank));
    return find_majority_of(values);
  };
  const Majority by_count = find_odd([](const auto& of_rank) { return of_rank.size(); });
  if (!by_count.others.empty()) {
    throw mismatch_of(
        by_count, fmt::format("DriftCheck: another number of tensors is passed on the ranks {} than on rank {}; pass "
                              "the same",
                              fmt::join(by_count.others, ", "), by_count.most.front()));
  }
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const Majority majority = find_odd([i](const auto& of_rank) { return of_rank[i]; });
    if (majority.others.empty()) continue;
    throw mismatch_of(majority,
                      fmt::format("DriftCheck: after {} steps '{}' has other bits on the ranks {} than on rank {}; it "
                                  "was changed by something else than the averaged gradients",
                                  steps_, parameters[i].name, fmt::join(majority.others, ", "), majority.most.front()));
  }
}

}  // namespace rondo::trainer
