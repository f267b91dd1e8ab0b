// SPDX-License-Identifier: Apache-2.0
// One collective on the FIFO kernels: its buffers, its launches, and what must come out, bit for bit. Rows in canonical
// order get random values and the host's fold as reference; others values whose results are exact in any order.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <rondo/reduce_op.hpp>

#include "kernels/algorithms/table.hpp"
#include "tests/kernels/device/world.hpp"

namespace rondo::test {

struct FifoCase {
  int row = 0;  // of kAlgorithms
  device::Protocol protocol = device::Protocol::simple;
  DataType dtype = DataType::f32;
  ReduceOp::Kind op = ReduceOp::sum;
  int ranks = 2;
  std::size_t count = 1;
  std::size_t misalignment = 0;  // elements
  bool in_place = false;
  int channels = 1;
  int root = 0;
  bool variable_counts = false;
  device::FifoShape fifo{4, 1024};
  int threads = 64;
  bool on_threads = false;  // else all ranks under one scheduler

  std::string describe() const;
  bool makes_sense() const;
};

// The ranks' buffers of one case. fill() may be called again for another launch.
class FifoBuffers {
 public:
  explicit FifoBuffers(const FifoCase& c);
  void fill(std::uint32_t seed);
  // Makes operation `index` of each launch.
  void add_to(std::vector<device::Launch>& launches, int index = 0) const;
  std::string check() const;  // what is wrong, or ""
  std::string check(int rank) const;
  void spoil(int rank);  // what a caller may do with its buffers once its own kernel has ended

 private:
  struct Rank {
    GuardedBuffer send, recv;  // in place the smaller is not used
    std::byte *input = nullptr, *output = nullptr;
    std::size_t input_bytes = 0, output_bytes = 0;
    std::vector<std::byte> given, expected;
    bool has_output = true;
    double factor = 1;
  };
  std::size_t block_count(int from, int to) const;  // elements that `from` sends to `to`, or has for everybody
  std::size_t block_offset(int rank, int of, bool sends) const;
  std::size_t blocks(int rank, bool sends) const;
  void allocate(int rank);
  void fill_values(Rank& rank, std::mt19937& random);
  void expect_reduced();
  void expect_moved();
  void copy_block(int from, std::size_t from_offset, int to, std::size_t to_offset, std::size_t count);

  FifoCase case_;
  kernels::Pattern pattern_;
  std::size_t element_;
  std::vector<Rank> ranks_;
};

// World, launches and checks: `launches` kernels one after the other. What went wrong, or "".
std::string run_case(const FifoCase& c, std::uint32_t seed, int launches = 2);

}  // namespace rondo::test
