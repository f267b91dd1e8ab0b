// SPDX-License-Identifier: Apache-2.0
// Worlds of every kind, with ranks as threads: over one mapping, or met through a store over memfds and sockets.
#pragma once
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/bootstrap.hpp"
#include "comm/local_store.hpp"
#include "tests/support/ranks.hpp"

namespace rondo::test {

// pairs: nodes of two ranks, shared memory within, sockets between. sim: local, on simulated devices.
enum class Kind { local, shm, tcp, pairs, sim };
inline const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"local", "shm", "tcp", "pairs", "sim"};
  return kNames[static_cast<std::size_t>(kind)];
}
inline std::ostream& operator<<(std::ostream& out, Kind kind) { return out << name_of(kind); }

// An environment variable for the life of this object; set while no other thread runs.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (!value.empty()) ::setenv(name, value.c_str(), 1);
  }
  Setting(const Setting&) = delete;
  ~Setting() { ::unsetenv(name_); }

 private:
  const char* name_;
};

using Body = std::function<void(Communicator&)>;

inline std::vector<std::exception_ptr> run_world(Kind kind, int size, Options options, const Body& body) {
  if (kind == Kind::sim) options.device = Device::sim();
  if (kind == Kind::local || kind == Kind::sim) return run_ranks(size, options, body);
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Options own = options;
        if (kind == Kind::tcp) own.node = "node" + std::to_string(rank);
        if (kind == Kind::pairs) own.node = "node" + std::to_string(rank / 2);
        Bootstrap bootstrap;
        bootstrap.rank = rank;
        bootstrap.world_size = size;
        bootstrap.store = store;
        Communicator comm = make_communicator(std::move(bootstrap), own);
        try {
          body(comm);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace rondo::test
