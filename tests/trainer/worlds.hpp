// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that meet over a chosen transport, and what each of them threw.
#pragma once
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/support/ranks.hpp"

namespace rondo::test {

inline constexpr std::chrono::seconds kDeadline{20};

// "shm": memory of this process; "sim": that of simulated devices; "tcp": every rank a node of its own.
template <class Body>
std::vector<std::exception_ptr> run_over(const std::string& transport, int world_size, Body body) {
  if (transport == "shm") return run_ranks(world_size, {.timeout = kDeadline}, body);
  if (transport == "sim") return run_ranks(world_size, {.device = Device::sim(), .timeout = kDeadline}, body);
  ::setenv("RONDO_TRANSPORT", transport.c_str(), 1);
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      errors[static_cast<std::size_t>(r)] = thrown_by([&] {
        Bootstrap bootstrap;
        bootstrap.rank = r;
        bootstrap.world_size = world_size;
        bootstrap.store = store;
        Communicator comm = make_communicator(
            std::move(bootstrap), {.timeout = kDeadline, .node = std::string("node").append(std::to_string(r))});
        body(comm);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  ::unsetenv("RONDO_TRANSPORT");
  return errors;
}

// What each rank threw, empty where nothing.
inline std::vector<std::string> sentences(const std::vector<std::exception_ptr>& errors) {
  std::vector<std::string> all;
  for (const auto& error : errors) all.push_back(sentence_of(error));
  return all;
}
inline std::vector<std::string> each_rank(int world_size, const std::function<void(Communicator&)>& body) {
  return sentences(run_over("shm", world_size, body));
}
inline std::vector<std::string> no_errors(int world_size) {
  return std::vector<std::string>(static_cast<std::size_t>(world_size));
}

}  // namespace rondo::test
