// SPDX-License-Identifier: Apache-2.0
// The kernels of `floors` and `anatomy` and their arguments, compiled twice as the library's own: by nvcc, and for the
// host executor. All take one argument by value.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/device/layout.hpp"

namespace rondo::gpu_check {

struct SmallArgument {
  std::uint64_t word;
};
struct LargeArgument {  // as large as the library's kernels take
  std::byte bytes[sizeof(kernels::device::Launch)];
};

inline constexpr std::uint64_t kPatienceNs = 2'000'000'000;  // of every wait below; then `failed` is written

// all_reduce of `words` pairs of floats by lines {data, flag, data, flag}: each rank writes its own to all at once and
// folds everybody's in rank order. As little as such a call can do, and without a check of anything.
inline constexpr int kPingRanks = 8;
struct Ping {
  std::byte* inbox[kPingRanks];  // of every rank: [parity of the epoch][rank][word], 16 bytes each
  const std::uint64_t* input;
  std::uint64_t* output;
  std::uint64_t *epoch, *failed;  // this rank's own
  std::int32_t rank, ranks;
  std::uint32_t words;
};
constexpr std::size_t inbox_bytes(int ranks, std::size_t words) {
  return std::size_t{2} * static_cast<std::size_t>(ranks) * words * 16;
}

// Two blocks of one grid hand a number to and fro, `rounds` times each way.
enum class HopBy : std::uint32_t { system, gpu, lines };  // release and acquire at this scope; or lines as above
struct Hop {
  std::uint64_t* words;  // two, kHopApart words apart, zeroed before the first launch
  std::uint64_t* failed;
  std::uint32_t rounds;
  HopBy by;
};
inline constexpr std::size_t kHopApart = 32;

// One thread stores a word and fences, `rounds` times.
enum class Fence : std::uint32_t { none, gpu, system };
struct Fences {
  std::uint64_t* words;  // kFenceWords
  std::uint32_t rounds;
  Fence fence;
};
inline constexpr std::size_t kFenceWords = 256;

struct Copy {
  const std::byte* from;
  std::byte* to;
  std::uint64_t vectors;  // of 16 bytes
};

struct FloorKernels {
  const void *small, *large;  // do nothing
  const void *ping, *hop, *fences, *copy;
};

// The library's kernels with stamps; see kernels/device/stamps.hpp.
struct StampedKernels {
  const void *ll, *window, *push;  // window, push: of sums of f32
};

// Of this process's libcudart; where nvcc was found.
[[gnu::visibility("default")]] FloorKernels cuda_floor_kernels();
[[gnu::visibility("default")]] StampedKernels cuda_stamped_kernels();
// Addresses of soft::Kernel.
FloorKernels soft_floor_kernels();
StampedKernels soft_stamped_kernels();

}  // namespace rondo::gpu_check
