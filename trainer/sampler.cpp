// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/sampler.hpp>

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include <rondo/error.hpp>

namespace rondo::trainer {
namespace {

// Modulo of a 32-bit draw is uneven for counts near 2^32; PyTorch then draws 64 bits, high word first, and builds the
// permutation inside out.
std::vector<std::size_t> huge_permutation(std::size_t count, std::mt19937& engine) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t high = engine();
    const std::size_t other = (high << 32 | engine()) % (i + 1);
    order[i] = i;
    std::swap(order[i], order[other]);
  }
  return order;
}

void check_rank(int rank, int world_size) {
  if (rank >= 0 && rank < world_size) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("DistributedSampler: rank {} is outside a world of {}; pass the communicator's rank() and "
                          "world_size()",
                          rank, world_size));
}

// One that was negative became larger than any memory.
void check_count(std::size_t count) {
  if (count <= static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(std::size_t)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("DistributedSampler: {} samples are beyond all memory; is the number negative?", count));
}

void check_tail(Tail tail) {
  if (tail <= Tail::exact) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("DistributedSampler: the tail is {}: it is pad, drop or exact", static_cast<int>(tail)));
}

std::size_t share(std::size_t samples, std::size_t rank, std::size_t world_size, Tail tail) {
  const std::size_t whole = samples / world_size;
  const std::size_t rest = samples % world_size;
  switch (tail) {
    case Tail::pad:
      return whole + (rest != 0);
    case Tail::drop:
      return whole;
    case Tail::exact:
      return whole + (rank < rest);
  }
  return 0;
}

}  // namespace

std::vector<std::size_t> random_permutation(std::size_t count, std::uint64_t seed) {
  check_count(count);
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  if (count >= std::numeric_limits<std::uint32_t>::max() / 20) return huge_permutation(count, engine);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i + 1 < count; ++i) std::swap(order[i], order[i + engine() % (count - i)]);
  return order;
}

DistributedSampler::DistributedSampler(std::size_t sample_count, int rank, int world_size, SamplerOptions options)
    : sample_count_(sample_count), options_(options) {
  check_rank(rank, world_size);
  check_count(sample_count);
  check_tail(options.tail);
  rank_ = static_cast<std::size_t>(rank);
  world_size_ = static_cast<std::size_t>(world_size);
}

std::size_t DistributedSampler::size() const { return share(sample_count_, rank_, world_size_, options_.tail); }

std::vector<std::size_t> DistributedSampler::indices() const {
  std::vector<std::size_t> order(sample_count_);
  if (options_.shuffle) {
    order = random_permutation(sample_count_, options_.seed + epoch_);
  } else {
    std::iota(order.begin(), order.end(), std::size_t{0});
  }
  return deal(order, static_cast<int>(rank_), static_cast<int>(world_size_), options_.tail);
}

std::vector<std::size_t> DistributedSampler::next_epoch() {
  std::vector<std::size_t> mine = indices();
  ++epoch_;
  return mine;
}

std::vector<std::size_t> deal(std::span<const std::size_t> order, int rank, int world_size, Tail tail) {
  check_rank(rank, world_size);
  check_tail(tail);
  const auto first = static_cast<std::size_t>(rank), stride = static_cast<std::size_t>(world_size);
  std::vector<std::size_t> mine(share(order.size(), first, stride, tail));
  for (std::size_t i = 0; i < mine.size(); ++i)
    mine[i] = order[(first + i * stride) % order.size()];  // pads from the start
  return mine;
}

}  // namespace rondo::trainer
