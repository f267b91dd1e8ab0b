// SPDX-License-Identifier: Apache-2.0
// What the chooser answers for one call on a stated machine, in words.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include <rondo/collective.hpp>

namespace rondo::test {

// All of a machine that choices hang on.
struct Machine {
  std::string_view name;
  std::size_t streaming_bytes;  // the tuning's default there
  double copied_page_us;
  bool copies_as_strings;
};

enum class Memory { ordinary, copied, window };  // copied: ordinary, and the kernel copies between the processes

struct Cell {
  Machine machine;
  int ranks = 1;
  int cores = 1;
  Collective collective{};
  bool in_place = false;
  Memory memory = Memory::ordinary;
};

// Equal answers for sizes in a row are one line of the file; so the chunks are told apart: it says what all have in
// common, their number or their length.
struct Answer {
  std::string before;
  std::size_t chunks = 0, chunk_bytes = 0;  // 0: it has none
  std::string after;
  bool operator==(const Answer&) const = default;
};

// bytes: of a rank's larger buffer, of f32; what does not divide is cut off. has_size(): not all of it.
bool has_size(const Cell& cell, std::size_t bytes);
Answer answer_of(const Cell& cell, std::size_t bytes);
// Which way it goes straight between buffers when only some of them are within reach; empty: never.
std::string ways_by_reach(const Cell& cell);

}  // namespace rondo::test
