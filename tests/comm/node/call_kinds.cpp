// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/node/call_kinds.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rondo::test::call_kinds {
namespace {

int sum_of(int world, int call, std::size_t at) {
  int sum = 0;
  for (int from = 0; from < world; ++from) sum += value(from, call, at);
  return sum;
}

// Of different lengths, one after the other; none is longer than block_count.
class Blocks {
 public:
  explicit Blocks(int world) {
    for (int rank = 0; rank < world; ++rank)
      counts_.push_back(block_count - block_count / 13 * static_cast<std::size_t>(rank));
  }
  std::span<const std::size_t> span() const { return counts_; }
  std::size_t of(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::size_t own(const Communicator& comm) const { return of(comm.rank()); }
  std::size_t before(int rank) const {
    return std::accumulate(counts_.begin(), counts_.begin() + rank, std::size_t{0});
  }
  std::size_t total() const { return before(static_cast<int>(counts_.size())); }
  std::pair<int, std::size_t> find(std::size_t at) const {  // beyond all of them: as many as there are
    int rank = 0;
    for (; rank < static_cast<int>(counts_.size()) && at >= of(rank); ++rank) at -= of(rank);
    return {rank, at};
  }

 private:
  std::vector<std::size_t> counts_;
};

std::span<int> own_block(const Communicator& comm, std::span<int> all) {
  return all.subspan(static_cast<std::size_t>(comm.rank()) * block_count, block_count);
}

const Blocks& blocks_of(int world) {
  static const std::vector<Blocks> all = {Blocks(0), Blocks(1), Blocks(2), Blocks(3), Blocks(4), Blocks(5)};
  return all.at(static_cast<std::size_t>(world));
}

// Elements from one rank to another of an all_to_all_v.
std::size_t sent(int from, int to, int world) {
  return block_count - block_count / 13 * static_cast<std::size_t>((from + 2 * to) % world);
}

}  // namespace

const std::vector<Kind>& all() {
  static const std::vector<Kind> rows = {
      {"broadcast", 1, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         if (comm.rank() == kRoot) std::copy(send.begin(), send.end(), recv.begin());
         comm.broadcast(recv, kRoot);
       },
       [](int, int, int call, std::size_t at) { return value(kRoot, call, at); }},
      {"scatter", 0, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) { comm.scatter(send, recv, kRoot); },
       [](int rank, int, int call, std::size_t at) {
         return value(kRoot, call, static_cast<std::size_t>(rank) * block_count + at);
       }},
      {"gather", 1, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) { comm.gather(send, recv, kRoot); },
       [](int rank, int, int call, std::size_t at) {
         return rank == kRoot ? value(static_cast<int>(at / block_count), call, at % block_count) : kUntouched;
       }},
      {"reduce", 1, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         comm.reduce(send, recv, ReduceOp::sum, kRoot);
       },
       [](int rank, int world, int call, std::size_t at) {
         return rank == kRoot ? sum_of(world, call, at) : kUntouched;
       }},
      {"all_reduce", 1, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         comm.all_reduce(send, recv, ReduceOp::sum);
       },
       [](int, int world, int call, std::size_t at) { return sum_of(world, call, at); }},
      {"reduce_scatter", 0, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         comm.reduce_scatter(send, recv, ReduceOp::sum);
       },
       [](int rank, int world, int call, std::size_t at) {
         return sum_of(world, call, static_cast<std::size_t>(rank) * block_count + at);
       }},
      {"all_gather", 1, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) { comm.all_gather(send, recv); },
       [](int, int, int call, std::size_t at) {
         return value(static_cast<int>(at / block_count), call, at % block_count);
       }},
      {"all_gather_v", 1, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         const Blocks& blocks = blocks_of(comm.world_size());
         comm.all_gather_v(send.first(blocks.own(comm)), recv.first(blocks.total()), blocks.span());
       },
       [](int, int world, int call, std::size_t at) {
         const auto [rank, within] = blocks_of(world).find(at);
         return rank < world ? value(rank, call, within) : kUntouched;
       }},
      {"gather_v", 1, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         const Blocks& blocks = blocks_of(comm.world_size());
         comm.gather_v(send.first(blocks.own(comm)), recv.first(blocks.total()), blocks.span(), kRoot);
       },
       [](int rank, int world, int call, std::size_t at) {
         const auto [of, within] = blocks_of(world).find(at);
         return rank == kRoot && of < world ? value(of, call, within) : kUntouched;
       }},
      {"scatter_v", 0, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         const Blocks& blocks = blocks_of(comm.world_size());
         comm.scatter_v(send.first(blocks.total()), recv.first(blocks.own(comm)), blocks.span(), kRoot);
       },
       [](int rank, int world, int call, std::size_t at) {
         const Blocks& blocks = blocks_of(world);
         return at < blocks.of(rank) ? value(kRoot, call, blocks.before(rank) + at) : kUntouched;
       }},
      {"all_to_all", 0, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) { comm.all_to_all(send, recv); },
       [](int rank, int, int call, std::size_t at) {
         return value(static_cast<int>(at / block_count), call,
                      static_cast<std::size_t>(rank) * block_count + at % block_count);
       }}};
  return rows;
}

const Kind& of(std::string_view name) { return *std::ranges::find(all(), name, &Kind::name); }

const std::vector<Kind>& in_place() {
  static const std::vector<Kind> rows = {
      {"reduce", 1, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         std::copy(send.begin(), send.end(), recv.begin());
         comm.reduce(recv, recv, ReduceOp::sum, kRoot);
       },
       [](int rank, int world, int call, std::size_t at) {
         return rank == kRoot ? sum_of(world, call, at) : value(rank, call, at);
       }},
      {"all_reduce", 1, 1,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         std::copy(send.begin(), send.end(), recv.begin());
         comm.all_reduce(recv, recv, ReduceOp::sum);
       },
       [](int, int world, int call, std::size_t at) { return sum_of(world, call, at); }},
      {"gather", 1, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         const bool at_root = comm.rank() == kRoot;
         if (at_root) std::copy(send.begin(), send.end(), own_block(comm, recv).begin());
         comm.gather(at_root ? own_block(comm, recv) : send, recv, kRoot);
       },
       of("gather").expected},
      {"scatter", 0, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         if (comm.rank() == kRoot) std::copy(send.begin(), send.end(), recv.begin());
         comm.scatter(recv, own_block(comm, recv), kRoot);
       },
       [](int rank, int, int call, std::size_t at) {
         const bool own = at / block_count == static_cast<std::size_t>(rank);
         return own || rank == kRoot ? value(kRoot, call, at) : kUntouched;
       }},
      {"reduce_scatter", 0, 0,
       [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
         std::copy(send.begin(), send.end(), recv.begin());
         comm.reduce_scatter(recv, own_block(comm, recv), ReduceOp::sum);
       },
       [](int rank, int world, int call, std::size_t at) {
         const bool own = at / block_count == static_cast<std::size_t>(rank);
         return own ? sum_of(world, call, at) : value(rank, call, at);
       }}};
  return rows;
}

const Kind& counted() {
  static const Kind kind = {"all_to_all_v", 0, 0,
                            [](Communicator& comm, std::span<const int> send, std::span<int> recv) {
                              std::vector<std::size_t> to, from;
                              for (int peer = 0; peer < comm.world_size(); ++peer) {
                                to.push_back(sent(comm.rank(), peer, comm.world_size()));
                                from.push_back(sent(peer, comm.rank(), comm.world_size()));
                              }
                              comm.all_to_all_v(send.data(), to, recv.data(), from, DataType::i32);
                            },
                            [](int rank, int world, int call, std::size_t at) {
                              for (int from = 0; from < world; ++from) {
                                const std::size_t count = sent(from, rank, world);
                                if (at >= count) {
                                  at -= count;
                                  continue;
                                }
                                for (int to = 0; to < rank; ++to) at += sent(from, to, world);
                                return value(from, call, at);
                              }
                              return kUntouched;
                            }};
  return kind;
}

}  // namespace rondo::test::call_kinds
