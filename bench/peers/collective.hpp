// SPDX-License-Identifier: Apache-2.0
// What is compared: the collectives by name, a cell of the table, and what a library must be able to do.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace rondo::peers {

enum class Collective {
  all_reduce,
  all_gather,
  broadcast,
  reduce_scatter,
  all_to_all,
  barrier,
  reduce,
  gather,
  scatter
};

inline constexpr std::array<const char*, 9> kNames = {
    "all_reduce", "all_gather", "broadcast", "reduce_scatter", "all_to_all", "barrier", "reduce", "gather", "scatter"};

inline Collective collective_of(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    std::fprintf(stderr, "%s is no collective\n", name.c_str());
    std::exit(2);
  }
  return static_cast<Collective>(found - kNames.begin());
}

// `count` floats in the larger buffer of a rank, as nccl-tests count; a multiple of np where there are blocks.
// The root of a rooted collective is rank 0.
struct Cell {
  Collective collective{};
  std::size_t count = 0;
  int rank = 0, np = 1;

  const char* name() const { return kNames[static_cast<std::size_t>(collective)]; }
  std::size_t block() const { return count / static_cast<std::size_t>(np); }
  bool is(Collective other) const { return collective == other; }
  bool reduces() const {
    return is(Collective::all_reduce) || is(Collective::reduce) || is(Collective::reduce_scatter);
  }
  bool rooted() const {
    return is(Collective::broadcast) || is(Collective::reduce) || is(Collective::gather) || is(Collective::scatter);
  }
  bool has_blocks() const {
    return !is(Collective::all_reduce) && !is(Collective::reduce) && !is(Collective::broadcast);
  }
  bool gathers() const { return is(Collective::all_gather) || is(Collective::gather); }
  // Elements that this rank puts in, and that it must find in its result.
  std::size_t input() const {
    if (is(Collective::broadcast) || is(Collective::scatter)) return rank == 0 ? count : 0;
    return gathers() ? block() : count;
  }
  std::size_t output() const {
    if ((is(Collective::reduce) || is(Collective::gather)) && rank != 0) return 0;
    return is(Collective::reduce_scatter) || is(Collective::scatter) ? block() : count;
  }
};

class Library {
 public:
  virtual ~Library() = default;
  // Page-aligned memory for `count` floats, until release(). Not timed.
  virtual float* allocate(std::size_t count) {
    memory_.push_back(pages(count));
    return memory_.back().get();
  }
  virtual void release() { memory_.clear(); }
  // Called by all ranks; broadcast works on `out` alone. Not timed.
  virtual void prepare(const Cell& cell, float* in, float* out) = 0;
  virtual void load() {}  // `in` has been written: whoever works in place copies it now
  virtual void run() = 0;
  virtual const float* result() = 0;  // where run() leaves it
  virtual void finish() {}
  virtual void progress() {}  // called now and then while this rank waits in the harness

 protected:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<float, Free>;
  static Memory pages(std::size_t count) {
    constexpr std::size_t kPage = 4096;
    return Memory(static_cast<float*>(std::aligned_alloc(kPage, (count * 4 + 2 * kPage) / kPage * kPage)));
  }

 private:
  std::vector<Memory> memory_;
};

}  // namespace rondo::peers
