// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/explore/messages.hpp"

#include <algorithm>

namespace rondo::test {

MessageGroup::MessageGroup(const WorldShape& shape, simt::Random& random) {
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  const std::uint64_t count = 1 + random.below(2 * ranks);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t from = random.below(ranks);
    const std::uint64_t to = (from + 1 + random.below(ranks - 1)) % ranks;
    const std::size_t bytes = random.one_in(4) ? random.below(9) : random.below(6 * shape.fifo.slot_bytes);
    Letter letter{static_cast<int>(from),
                  static_cast<int>(to),
                  GuardedBuffer(bytes, random.below(17)),
                  GuardedBuffer(bytes, random.below(17)),
                  std::vector<std::byte>(bytes),
                  static_cast<std::uint8_t>(1 + random.below(static_cast<std::uint64_t>(shape.blocks)))};
    for (std::byte& byte : letter.given) byte = static_cast<std::byte>(random.bits());
    std::copy(letter.given.begin(), letter.given.end(), letter.sent.data());
    letters_.push_back(std::move(letter));
  }
}

// In random order, but over each link in the order of the letters.
std::vector<device::Message> MessageGroup::list_of(int rank, simt::Random& random) const {
  std::vector<device::Message> list;
  for (std::size_t i = 0; i < letters_.size(); ++i) {
    const Letter& letter = letters_[i];
    if (letter.from != rank && letter.to != rank) continue;
    const bool sends = letter.from == rank;
    const device::Message message{.data = sends ? letter.sent.data() : letter.received.data(),
                                  .bytes = letter.sent.size(),
                                  .key = 1000 + i,
                                  .count = letter.sent.size(),
                                  .kind = 1000 + i,
                                  .peer = sends ? letter.to : letter.from,
                                  .sends = sends,
                                  .channels = letter.channels};
    const auto same_link = [&](const device::Message& m) { return m.peer == message.peer && m.sends == sends; };
    const auto after = std::find_if(list.rbegin(), list.rend(), same_link).base();
    const auto room = static_cast<std::uint64_t>(list.end() - after) + 1;
    list.insert(after + static_cast<std::ptrdiff_t>(random.below(room)), message);
  }
  return list;
}

void MessageGroup::add_to(std::vector<device::Launch>& launches, simt::Random& random) const {
  for (device::Launch& launch : launches) {
    const std::vector<device::Message> list = list_of(launch.team->rank, random);
    launch.messages = static_cast<std::int32_t>(list.size());
    std::copy(list.begin(), list.end(), launch.message);
  }
}

std::string MessageGroup::check(int rank) const {
  for (std::size_t i = 0; i < letters_.size(); ++i) {
    const Letter& letter = letters_[i];
    if (letter.to != rank) continue;
    const bool same = std::equal(letter.given.begin(), letter.given.end(), letter.received.data());
    if (same && letter.received.guards_are_intact()) continue;
    return "message " + std::to_string(i) + " from rank " + std::to_string(letter.from) + " to " +
           std::to_string(letter.to) + (same ? " wrote beyond its buffer" : " came with other bytes");
  }
  return "";
}

void MessageGroup::spoil(int rank) {
  for (Letter& letter : letters_) {
    if (letter.from == rank) letter.sent.poison();
    if (letter.to == rank) letter.received.poison();
  }
}

}  // namespace rondo::test
