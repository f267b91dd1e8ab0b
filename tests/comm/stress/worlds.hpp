// SPDX-License-Identifier: Apache-2.0
// Worlds of every kind, with ranks as threads: over one mapping, or met through a store over memfds and sockets.
#pragma once
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/support/queue_transport.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

namespace rondo::test {

// pairs: nodes of two ranks, shared memory within, sockets between. uneven: nodes of 1, 3, 2 and the rest. woven: ranks
// take turns between two nodes. queue, queue_pairs: as tcp and pairs, all links through the transport of the tests.
// sim: local, on simulated devices.
enum class Kind { local, shm, tcp, pairs, uneven, woven, queue, queue_pairs, sim };
inline const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"local", "shm", "tcp", "pairs", "uneven", "woven", "queue", "queue_pairs", "sim"};
  return kNames[static_cast<std::size_t>(kind)];
}
inline std::ostream& operator<<(std::ostream& out, Kind kind) { return out << name_of(kind); }

// A tuning file for the life of this object, which other users' processes may read.
class TuningFile {
 public:
  explicit TuningFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("tuning_" + std::to_string(::getpid()))),
        setting_("RONDO_TUNING", path_) {
    std::ofstream(path_) << text;
    using std::filesystem::perms;
    std::filesystem::permissions(path_, perms::group_read | perms::others_read, std::filesystem::perm_options::add);
  }
  ~TuningFile() { std::filesystem::remove(path_); }

 private:
  std::string path_;
  Setting setting_;
};

using Body = std::function<void(Communicator&)>;

// By rank, the name of its node; empty: the node that it finds itself on.
using NodeNames = std::vector<std::string>;

inline std::vector<std::exception_ptr> run_on_nodes(const NodeNames& nodes, const Options& options, const Body& body,
                                                    const comm::Transports& transports = comm::transports()) {
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Options own = options;
        own.node = nodes[rank];
        Bootstrap bootstrap;
        bootstrap.rank = static_cast<int>(rank);
        bootstrap.world_size = static_cast<int>(nodes.size());
        bootstrap.store = store;
        bootstrap.transports = &transports;
        Communicator comm = make_communicator(std::move(bootstrap), own);
        try {
          body(comm);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::string node_of(Kind kind, int rank) {
  const auto node = [](int number) { return "node" + std::to_string(number); };
  switch (kind) {
    case Kind::tcp:
    case Kind::queue:
      return node(rank);
    case Kind::pairs:
    case Kind::queue_pairs:
      return node(rank / 2);
    case Kind::uneven:
      return node(rank == 0 ? 0 : rank < 4 ? 1 : rank < 6 ? 2 : 3);
    case Kind::woven:
      return node(rank % 2);
    default:
      return {};
  }
}

inline std::vector<std::exception_ptr> run_world(Kind kind, int size, Options options, const Body& body) {
  if (kind == Kind::sim) options.device = Device::sim();
  if (kind == Kind::local || kind == Kind::sim) return run_ranks(size, options, body);
  NodeNames nodes;
  for (int rank = 0; rank < size; ++rank) nodes.push_back(node_of(kind, rank));
  const bool queues = kind == Kind::queue || kind == Kind::queue_pairs;
  return run_on_nodes(nodes, options, body, queues ? queue_before_all() : comm::transports());
}

}  // namespace rondo::test
