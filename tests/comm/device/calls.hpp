// SPDX-License-Identifier: Apache-2.0
// One call of a collective with all its buffers in one arena per rank, so that the same call can be made by another
// communicator and the arenas be compared byte by byte: what must be written, and what must not.
#pragma once
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <rondo/device.hpp>

#include "tests/support/ranks.hpp"

namespace rondo::test {

// All but messages, and every name that an algorithm has on the host or on devices.
inline constexpr Collective kCollectives[] = {
    Collective::all_reduce,     Collective::reduce,     Collective::broadcast, Collective::all_gather,
    Collective::reduce_scatter, Collective::all_to_all, Collective::gather,    Collective::scatter,
    Collective::all_gather_v,   Collective::gather_v,   Collective::scatter_v, Collective::all_to_all_v,
    Collective::barrier};
inline constexpr const char* kAlgorithms[] = {
    "", "ring", "tree", "recursive_doubling", "halving_doubling", "one_shot", "two_shot", "direct", "pairwise"};

using Bytes = std::vector<std::byte>;

struct CallCase {
  Collective collective{};
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  std::size_t misalignment = 0;  // elements
  bool exact = true;             // values whose sums and products have no rounding; else any
};

inline void store_value(DataType dtype, std::byte* to, double value) {
  const auto put = [&](auto typed) { std::memcpy(to, &typed, sizeof typed); };
  const auto as_float = static_cast<float>(value);
  switch (dtype) {
    case DataType::i8:
      return put(static_cast<std::int8_t>(value));
    case DataType::u8:
      return put(static_cast<std::uint8_t>(value));
    case DataType::i32:
      return put(static_cast<std::int32_t>(value));
    case DataType::u32:
      return put(static_cast<std::uint32_t>(value));
    case DataType::i64:
      return put(static_cast<std::int64_t>(value));
    case DataType::u64:
      return put(static_cast<std::uint64_t>(value));
    case DataType::f16:
      return put(float16(as_float));
    case DataType::bf16:
      return put(bfloat16(as_float));
    case DataType::f32:
      return put(as_float);
    case DataType::f64:
      return put(value);
    case DataType::f8e4m3:
      return put(float8_e4m3(as_float));
    case DataType::f8e5m2:
      return put(float8_e5m2(as_float));
  }
}

// The arena of one rank, before the call, and where the call's buffers lie in it.
class Arena {
 public:
  Arena(const CallCase& c, int rank, int world) : case_(c), rank_(static_cast<std::size_t>(rank)), world_(world) {
    const CollectiveRow& row = row_of(c.collective);
    const auto n = static_cast<std::size_t>(world);
    for (std::size_t r = 0; r < n; ++r) counts_.push_back(uneven(r));
    if (row.send == Extent::counts) send_counts_ = counts_;
    if (row.recv == Extent::counts) recv_counts_ = counts_;
    if (c.collective == Collective::all_to_all_v) {
      for (std::size_t peer = 0; peer < n; ++peer) {
        send_counts_[peer] = uneven(rank_ + 2 * peer);
        recv_counts_[peer] = uneven(peer + 2 * rank_);
      }
    }
    own_count_ = send_counts_.empty() && recv_counts_.empty() ? c.count : counts_[rank_];
    if (c.collective == Collective::all_to_all_v) own_count_ = 0;
    const std::size_t element = size_of(c.dtype);
    const std::size_t send = elements(row.send, send_counts_), recv = elements(row.recv, recv_counts_);
    send_at_ = kGuard + c.misalignment * element;
    recv_at_ = c.in_place ? send_at_ : send_at_ + send * element + kGuard;
    std::size_t end = std::max(send_at_ + send * element, recv_at_ + recv * element);
    if (c.in_place) place_in_one(element, send, recv, end);
    bytes_.assign(end + kGuard, std::byte{0xA5});
    std::mt19937 random(static_cast<unsigned>(rank * 977 + static_cast<int>(c.collective)));
    for (std::size_t i = 0; i < send; ++i) store_value(c.dtype, &bytes_[send_at_ + i * element], value(random, i));
  }

  const Bytes& bytes() const { return bytes_; }
  Call call(std::byte* base) const {
    return {.collective = case_.collective,
            .send = base + send_at_,
            .recv = base + recv_at_,
            .count = own_count_,
            .dtype = case_.dtype,
            .op = case_.op,
            .root = row_of(case_.collective).rooted ? case_.root : -1,
            .send_counts = send_counts_,
            .recv_counts = recv_counts_};
  }

 private:
  static constexpr std::size_t kGuard = 64;

  std::size_t uneven(std::size_t seed) const { return case_.count == 0 ? 0 : (case_.count * (seed % 4)) / 2; }
  std::size_t elements(Extent extent, const std::vector<std::size_t>& counts) const {
    std::size_t total = 0;
    for (const std::size_t count : counts) total += count;
    switch (extent) {
      case Extent::none:
        return 0;
      case Extent::one:
        return own_count_;
      case Extent::world:
        return own_count_ * static_cast<std::size_t>(world_);
      case Extent::counts:
        return total;
    }
    return 0;
  }

  // A block of the larger buffer is the smaller one; else they are the same.
  void place_in_one(std::size_t element, std::size_t send, std::size_t recv, std::size_t& end) {
    std::size_t before = own_count_ * rank_;
    if (!counts_.empty() && (!send_counts_.empty() || !recv_counts_.empty())) {
      before = 0;
      for (std::size_t r = 0; r < rank_; ++r) before += counts_[r];
    }
    if (recv > send || (recv == send && before != 0 && row_of(case_.collective).recv == Extent::counts)) {
      send_at_ += before * element;
    } else if (send > recv) {
      recv_at_ += before * element;
    }
    end = std::max(send_at_ + send * element, recv_at_ + recv * element);
  }

  double value(std::mt19937& random, std::size_t index) const {
    const bool is_product = case_.op.kind() == ReduceOp::product;
    if (case_.exact) return static_cast<double>((index + rank_) % 2 + (is_product ? 1 : 0));
    return std::uniform_real_distribution<>(0.01, 3.0)(random);
  }

  CallCase case_;
  std::size_t rank_;
  int world_;
  std::vector<std::size_t> counts_, send_counts_, recv_counts_;
  std::size_t own_count_ = 0, send_at_ = 0, recv_at_ = 0;
  Bytes bytes_;
};

// Only where verbs.hpp allows it.
inline bool may_be_in_place(Collective c) {
  return c != Collective::all_to_all && c != Collective::all_to_all_v && c != Collective::barrier &&
         c != Collective::gather_v && c != Collective::scatter_v && c != Collective::gather && c != Collective::scatter;
}

// The arenas of all ranks after the call, made on the communicator's own kind of memory.
inline Bytes after_call(Communicator& comm, const CallCase& c) {
  Arena arena(c, comm.rank(), comm.world_size());
  Bytes bytes = arena.bytes();
  if (comm.device().kind == Device::Kind::cpu) {
    comm.submit(arena.call(bytes.data()));
    return bytes;
  }
  DeviceMemory memory(comm.device(), bytes.size());
  memory.copy_from(bytes.data(), bytes.size());
  comm.submit(arena.call(static_cast<std::byte*>(memory.data())));
  comm.synchronize();
  memory.copy_to(bytes.data(), bytes.size());
  return bytes;
}

inline std::vector<Bytes> run_case(int world, const Options& options, const CallCase& c) {
  std::vector<Bytes> arenas(static_cast<std::size_t>(world));
  on_ranks(
      world, [&](Communicator& comm) { arenas[static_cast<std::size_t>(comm.rank())] = after_call(comm, c); }, options);
  return arenas;
}

}  // namespace rondo::test
