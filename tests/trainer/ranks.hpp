// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, for the trainer's tests: every rank's outcome is kept, none hides another's.
#pragma once
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <rondo/communicator.hpp>

// Runs `body` on every rank; returns what each threw, empty where nothing. A rank that throws aborts nobody.
inline std::vector<std::string> each_rank(int world_size, const std::function<void(rondo::Communicator&)>& body) {
  std::vector<rondo::Communicator> ranks =
      rondo::Communicator::local(world_size, {.timeout = std::chrono::seconds(30)});
  std::vector<std::string> errors(ranks.size());
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(ranks[r]);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  threads.clear();  // joins
  return errors;
}

inline std::vector<std::string> no_errors(int world_size) {
  return std::vector<std::string>(static_cast<std::size_t>(world_size));
}
