// SPDX-License-Identifier: Apache-2.0
#include <rondo/store.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <rondo/error.hpp>

#include "comm/base/bytes.hpp"
#include "comm/base/duration.hpp"

namespace rondo {
namespace {

void check_index(std::string_view call, std::string_view name, int index, int participants) {
  if (index >= 0 && index < participants) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} {}: index {} is not one of {} participants", call, name, index, participants));
}

}  // namespace

Store::~Store() = default;
void Store::missing(std::string_view, std::span<const int>) {}

std::vector<Store::Bytes> Store::exchange(std::string_view name, int index, int participants,
                                          std::span<const std::byte> value, Deadline deadline) {
  check_index("exchange", name, index, participants);
  const auto key = [&](int i) { return fmt::format("exchange/{}/{}", name, i); };
  set(key(index), value);
  std::vector<Bytes> values;
  for (int i = 0; i < participants; ++i) {
    try {
      values.push_back(get(key(i), deadline));
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) throw;
      std::vector<int> missing;
      for (int j = i; j < participants; ++j) {
        if (!try_get(key(j))) missing.push_back(j);
      }
      throw Error(
          ErrorCode::timeout,
          fmt::format("exchange {}: rank {} waited in vain for rank(s) {}", name, index, fmt::join(missing, ", ")),
          missing.empty() ? -1 : missing.front());
    }
  }
  return values;
}

// Whoever first knows an answer writes it; everybody takes what was written.
std::vector<int> Store::survivors(std::string_view name, int index, std::span<const int> members, Deadline deadline) {
  check_index("survivors", name, index, static_cast<int>(members.size()));
  deadline = at_most_for_ever(deadline);
  const auto asked = [&](int i) { return fmt::format("survivors/{}/{}", name, i); };
  const std::string answer = fmt::format("survivors/{}", name);
  set(asked(index), {});
  ByteWriter survivors;
  for (int i = 0; i < static_cast<int>(members.size()); ++i) {
    try {
      if (!try_get(answer)) get(asked(i), deadline);
    } catch (const Error& error) {
      if (error.error_code() != ErrorCode::timeout) throw;
      continue;  // not a survivor
    }
    survivors.number(i);
  }
  compare_and_set(answer, std::nullopt, survivors.take());
  const Bytes agreed = get(answer, deadline + std::chrono::seconds(1));
  ByteReader reader(agreed);
  std::vector<int> indices(agreed.size() / sizeof(int));
  std::generate(indices.begin(), indices.end(), [&] { return reader.number<int>(); });
  if (!std::binary_search(indices.begin(), indices.end(), index)) {
    throw Error(ErrorCode::peer_lost, fmt::format("the survivors of {} went on without rank {}", name, index));
  }
  return indices;
}

}  // namespace rondo
