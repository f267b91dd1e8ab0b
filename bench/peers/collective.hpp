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
#include <string_view>
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
  scatter,
  all_gather_v,
  all_to_all_v,
  gather_v,
  scatter_v
};

inline constexpr std::array<const char*, 13> kNames = {
    "all_reduce", "all_gather", "broadcast",    "reduce_scatter", "all_to_all", "barrier",  "reduce",
    "gather",     "scatter",    "all_gather_v", "all_to_all_v",   "gather_v",   "scatter_v"};
inline constexpr std::string_view kInPlace = "_in_place";  // behind a name

// `count` floats in the larger buffer of a rank, as nccl-tests count; a multiple of np where there are blocks, which
// differ in the _v forms: rank r's is 2 r + 1 parts of np squared.
// The root of a rooted collective is rank 0. In place: a rank's input lies in its output, where MPI's lies.
struct Cell {
  Collective collective{};
  std::size_t count = 0;
  int rank = 0, np = 1;
  bool in_place = false;

  std::string name() const {
    return std::string(kNames[static_cast<std::size_t>(collective)]) + std::string(in_place ? kInPlace : "");
  }
  std::size_t block() const { return count / static_cast<std::size_t>(np); }
  bool is(Collective other) const { return collective == other; }
  bool is_variable() const {
    return is(Collective::all_gather_v) || is(Collective::all_to_all_v) || is(Collective::gather_v) ||
           is(Collective::scatter_v);
  }
  // Where blocks differ: where the first `blocks` of them end, and the one with that index.
  std::size_t end_of(int blocks) const {
    const auto squared = [](int n) { return static_cast<std::size_t>(n) * static_cast<std::size_t>(n); };
    return count * squared(blocks) / squared(np);
  }
  std::size_t block_of(int index) const { return end_of(index + 1) - end_of(index); }
  // all_to_all_v: from rank to rank, so that all send and receive `count`.
  std::size_t between(int from, int to) const { return block_of((from + to) % np); }
  // Of this rank's blocks for each, or from each: offset and length.
  std::vector<std::size_t> counts() const {
    std::vector<std::size_t> all;
    for (int other = 0; other < np; ++other)
      all.push_back(is(Collective::all_to_all_v) ? between(rank, other) : block_of(other));
    return all;
  }
  bool reduces() const {
    return is(Collective::all_reduce) || is(Collective::reduce) || is(Collective::reduce_scatter);
  }
  bool rooted() const { return is(Collective::broadcast) || is(Collective::reduce) || to_root() || from_root(); }
  bool has_blocks() const {
    return !is(Collective::all_reduce) && !is(Collective::reduce) && !is(Collective::broadcast);
  }
  bool to_root() const { return is(Collective::gather) || is(Collective::gather_v); }
  bool from_root() const { return is(Collective::scatter) || is(Collective::scatter_v); }
  bool gathers() const { return to_root() || is(Collective::all_gather) || is(Collective::all_gather_v); }
  // This rank's own, where each has one.
  std::size_t own_block() const { return is_variable() ? block_of(rank) : block(); }
  std::size_t own_offset() const { return is_variable() ? end_of(rank) : static_cast<std::size_t>(rank) * block(); }
  // Elements that this rank puts in, and that it must find in its result.
  std::size_t input() const {
    if (is(Collective::broadcast) || from_root()) return rank == 0 ? count : 0;
    return gathers() ? own_block() : count;
  }
  std::size_t output() const {
    if ((is(Collective::reduce) || to_root()) && rank != 0) return 0;
    return is(Collective::reduce_scatter) || from_root() ? own_block() : count;
  }
};

inline bool has_in_place(const Cell& cell) {
  return cell.reduces() || (!cell.is_variable() && (cell.gathers() || cell.from_root()));
}

// "all_reduce", "all_reduce_in_place"; of 0 floats.
inline Cell cell_named(std::string_view name) {
  Cell cell;
  cell.in_place = name.ends_with(kInPlace);
  const std::string_view collective = name.substr(0, name.size() - (cell.in_place ? kInPlace.size() : 0));
  const auto found = std::find(kNames.begin(), kNames.end(), collective);
  if (found != kNames.end()) cell.collective = static_cast<Collective>(found - kNames.begin());
  if (found == kNames.end() || (cell.in_place && !has_in_place(cell))) {
    std::fprintf(stderr, "%s is no collective\n", std::string(name).c_str());
    std::exit(2);
  }
  return cell;
}

class Library {
 public:
  virtual ~Library() = default;
  // Page-aligned memory for `count` floats, until release(). Not timed.
  virtual float* allocate(std::size_t count) {
    memory_.push_back(pages(count));
    return memory_.back().get();
  }
  virtual void release() { memory_.clear(); }
  // Called by all ranks; broadcast works on `out` alone; in place `in` lies in `out`, as MPI has it. Not timed.
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
