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

// The limit behind an error's number and what raises it, as the end of a sentence; mostly empty.
std::string remedy_of(int error);

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
