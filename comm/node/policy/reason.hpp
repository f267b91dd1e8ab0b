// SPDX-License-Identifier: Apache-2.0
// Why a call goes its way, as whoever chooses it says: clauses for the log, put together only when they are written.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo::comm {

// The texts live as long as the communicator.
struct Reason {
  std::string_view why{};
  std::string_view threshold{};  // of the tuning, that decided, and its value; empty: there is none
  std::uint64_t value = 0;
  std::string_view not_board{}, not_two_level{},
      not_straight{};  // ways that would have come first; empty: no word of it
};
std::string in_words(const Reason& reason);

}  // namespace rondo::comm
