// SPDX-License-Identifier: Apache-2.0
// Do the addresses in every rank's table mean the same memory? Each rank writes a word of its own wherever its table
// lets it write to a peer; the peer looks for it at the place where its own table has it.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "tests/comm/device/world.hpp"
#include "tests/support/expect.hpp"

namespace rondo::test {

inline std::uint64_t stamp(int from, int to, int what) {
  return 0x5700'0000u + static_cast<std::uint64_t>(what) * 65536 + static_cast<std::uint64_t>(from) * 256 +
         static_cast<std::uint64_t>(to);
}

inline void expect_word(const void* at, std::uint64_t wanted, int device, const std::string& what) {
  std::uint64_t word = 0;
  copy(&word, at, sizeof word, device);
  expect(word == wanted, fmt::format("{}: {:#x}, not {:#x}", what, word, wanted));
}

// Links of all ranks of this node, and staging areas where all reach them.
inline void expect_regions_meet(SimRank& rank, int device) {
  using comm::device::Route;
  const auto is_near = [&](int peer) { return rank.regions().route(peer) != Route::proxy; };
  const bool stages = !rank.regions().in_pairs();
  using kernels::device::Mailbox;
  using kernels::device::Protocol;
  const auto team = rank.team();
  const int self = team->rank;
  const auto& layout = team->layout;
  for (int peer = 0; peer < team->world_size; ++peer) {
    if (peer == self || !is_near(peer)) continue;
    expect_word(team->mine[peer] + layout.mailbox_offset(peer, 0, Protocol::simple), 0, device, "a fresh mailbox");
  }
  rank.barrier();
  for (int peer = 0; peer < team->world_size; ++peer) {
    if (peer == self || !is_near(peer)) continue;
    const std::uint64_t words[] = {stamp(self, peer, 0), stamp(self, peer, 1)};
    const int last = layout.channels - 1;
    copy(team->theirs[peer] + layout.mailbox_offset(self, last, Protocol::simple), &words[0], 8, device);
    if (stages) copy(team->windows[0][peer] + 8 * self, &words[1], 8, device);
  }
  rank.barrier();
  for (int peer = 0; peer < team->world_size; ++peer) {
    if (peer == self || !is_near(peer)) continue;
    const int last = layout.channels - 1;
    expect_word(team->mine[peer] + layout.mailbox_offset(peer, last, Protocol::simple), stamp(peer, self, 0), device,
                fmt::format("the link from rank {}", peer));
    if (!stages) continue;
    expect_word(team->windows[0][self] + 8 * peer, stamp(peer, self, 1), device,
                fmt::format("the staging area, from rank {}", peer));
  }
  rank.barrier();
}

// A window: every rank reads what every other wrote into its own memory, at both ends.
inline void expect_window_meets(SimRank& rank, const comm::device::Windows::Allocation& own, int device) {
  const auto team = rank.team();
  const std::size_t last = own.bytes / 8 * 8 - 8;
  for (const std::size_t at : {std::size_t{0}, last}) {
    const std::uint64_t word = stamp(team->rank, static_cast<int>(at % 251), own.window);
    copy(own.data + at, &word, 8, device);
  }
  rank.barrier();
  for (int peer = 0; peer < team->world_size; ++peer) {
    const std::byte* theirs = team->windows[own.window][peer];
    expect(theirs != nullptr, fmt::format("window {} of rank {} is not there", own.window, peer));
    for (const std::size_t at : {std::size_t{0}, last}) {
      expect_word(theirs + at, stamp(peer, static_cast<int>(at % 251), own.window), device,
                  fmt::format("window {} of rank {} at {}", own.window, peer, at));
    }
  }
  rank.barrier();
}

}  // namespace rondo::test
