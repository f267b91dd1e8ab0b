// SPDX-License-Identifier: Apache-2.0
// What the system allows this process, and how a sentence says that it is too little.
#pragma once
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

namespace rondo {

// Sees that `count` more descriptors may be opened, and raises the soft limit as far as that needs; Error(system) with
// the numbers when the hard limit is lower. `who`: "the rendezvous server of 64 ranks".
void reserve_descriptors(std::size_t count, std::string_view who);

// What strangers may hold of this process's descriptors: a quarter of what its limit leaves beyond those that are open
// and `reserved` more, from kFewestStrangers to `most`.
std::size_t descriptors_for_strangers(std::size_t reserved, std::size_t most);
inline constexpr std::size_t kFewestStrangers = 4;

// To the hard limit. For processes of our own alone: programs that call select() may have no descriptor above 1,023,
// and nothing that a stranger does is to change a program's limits.
bool raise_descriptor_limit();

// The limit behind an error's number and what raises it, as the end of a sentence; mostly empty.
std::string remedy_of(int error);

// " and 7 others" behind what is told of one; empty for none.
std::string and_others(int left_out);

// True at most once a second, for lines of a log that would be many; tells how many were left out since.
class OncePerSecond {
 public:
  bool now(int& left_out);

 private:
  std::mutex mutex_;
  std::chrono::steady_clock::time_point next_{};
  int left_out_ = 0;
};

}  // namespace rondo
