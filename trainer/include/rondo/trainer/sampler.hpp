// SPDX-License-Identifier: Apache-2.0
// Which samples a rank sees in an epoch, in the order that PyTorch's DistributedSampler gives: a permutation that
// depends on seed + epoch alone, dealt out like cards. So the ranks' next b samples are together the next
// world_size * b of the permutation, whatever the world size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/export.hpp>

namespace rondo::trainer {

// What happens to samples that do not divide by the number of ranks.
enum class Tail : std::uint8_t {
  pad,    // ranks get equally many; the first samples of the permutation are repeated to fill up
  drop,   // ranks get equally many; what does not divide is left out this epoch
  exact,  // every sample exactly once: the first ranks may get one more. For evaluation
};

// Of a DistributedSampler; the same on every rank.
struct SamplerOptions {
  bool shuffle = true;     // else in order
  std::uint64_t seed = 0;  // of the permutation, with the epoch
  Tail tail = Tail::pad;   // see there
};

// One rank's samples. Talks to nobody. One thread at a time.
class RONDO_API DistributedSampler {
 public:
  // Error(invalid_argument) unless 0 <= rank < world_size, for a tail that is none, and more samples than memory holds.
  DistributedSampler(std::size_t sample_count, int rank, int world_size, SamplerOptions options = {});

  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }  // from 0; another one is another permutation
  std::size_t size() const;                                // samples of this rank per epoch
  std::vector<std::size_t> indices() const;                // of this rank in this epoch; the same until set_epoch()
  std::vector<std::size_t> next_epoch();  // indices(), and the next call gives the next epoch's: nothing to forget

 private:
  std::size_t sample_count_;
  std::size_t rank_;
  std::size_t world_size_;
  SamplerOptions options_;
  std::uint64_t epoch_ = 0;
};

// The same dealing for an order of one's own (weighted, by length, of a part of the samples), equal on every rank.
RONDO_API std::vector<std::size_t> deal(std::span<const std::size_t> order, int rank, int world_size,
                                        Tail tail = Tail::pad);

// torch.randperm(count) of a CPU generator with this seed: Mersenne Twister, modulo, swap with a later one.
RONDO_API std::vector<std::size_t> random_permutation(std::size_t count, std::uint64_t seed);

}  // namespace rondo::trainer
