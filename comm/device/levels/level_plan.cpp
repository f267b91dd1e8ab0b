// SPDX-License-Identifier: Apache-2.0
#include "comm/device/levels/level_plan.hpp"

#include <algorithm>

#include "comm/call/algorithms.hpp"
#include "comm/call/blocks.hpp"
#include "comm/call/shape.hpp"
#include "kernels/algorithms/tuner.hpp"

namespace rondo::comm::device {
namespace {

using kernels::kAnyBytes;
using kernels::kKiB;
using kernels::Pattern;

// How a pattern is cut.
enum class Scheme : std::uint8_t {
  whole,    // each rail carries all of it: one step less, and more bytes
  shares,   // each rail carries a share
  leaders,  // one rail carries all of it, for nodes of any size and ranks in any order
  gates,    // of a rooted collective: the rail that the root is on
  blocks,   // each rail carries the blocks of its ranks
};
enum class Place : std::uint8_t { any, even, in_order };

struct Row {
  Pattern pattern;
  Place place;            // that the ranks must have
  std::size_t max_bytes;  // of the larger buffer of a rank
  Scheme scheme;
};
// The first that fits wins; a pattern without a row goes over links between all ranks. Nothing here is measured.
constexpr Row kTable[] = {
    {Pattern::all_reduce, Place::even, 16 * kKiB, Scheme::whole},
    {Pattern::all_reduce, Place::even, kAnyBytes, Scheme::shares},
    {Pattern::all_reduce, Place::any, kAnyBytes, Scheme::leaders},
    {Pattern::reduce, Place::any, kAnyBytes, Scheme::gates},
    {Pattern::broadcast, Place::any, kAnyBytes, Scheme::gates},
    {Pattern::all_gather, Place::in_order, kAnyBytes, Scheme::blocks},
    {Pattern::all_gather, Place::any, kAnyBytes, Scheme::leaders},
    {Pattern::reduce_scatter, Place::in_order, kAnyBytes, Scheme::blocks},
    {Pattern::barrier, Place::even, kAnyBytes, Scheme::whole},
    {Pattern::barrier, Place::any, kAnyBytes, Scheme::leaders},
};

bool is_at(Place place, const LevelShape& shape) {
  return place == Place::any || (place == Place::even ? shape.even() : shape.in_order());
}

int world_of(const LevelShape& shape) { return static_cast<int>(shape.nodes.node_of.size()); }

const Row* find_row(const Call& call, const LevelShape& shape) {
  const CallShape what = shape_of(call, world_of(shape));
  const auto* const row = std::ranges::find_if(kTable, [&](const Row& each) {
    return each.pattern == what.pattern && what.bytes <= each.max_bytes && is_at(each.place, shape);
  });
  return row == std::end(kTable) ? nullptr : row;
}

class Planner {
 public:
  Planner(const Call& call, const LevelShape& shape)
      : call_(call), shape_(shape), nodes_(shape.nodes), element_(size_of(call.dtype)) {}

  std::vector<LevelStep> run(const Row& row) {
    switch (row.pattern) {
      case Pattern::all_reduce:
        row.scheme == Scheme::whole    ? all_reduce_whole()
        : row.scheme == Scheme::shares ? all_reduce_in_shares()
                                       : all_reduce_by_leaders();
        break;
      case Pattern::reduce:
        reduce();
        break;
      case Pattern::broadcast:
        broadcast();
        break;
      case Pattern::all_gather:
        row.scheme == Scheme::blocks ? all_gather_on_rails() : all_gather_by_leaders();
        break;
      case Pattern::reduce_scatter:
        reduce_scatter();
        break;
      case Pattern::all_to_all:
      case Pattern::gather:
      case Pattern::scatter:
      case Pattern::barrier:
        barrier(row.scheme == Scheme::leaders);
        break;
    }
    return std::move(steps_);
  }

 private:
  const std::byte* send(std::size_t element) const {
    return static_cast<const std::byte*>(call_.send) + element * element_;
  }
  std::byte* recv(std::size_t element) const { return static_cast<std::byte*>(call_.recv) + element * element_; }
  std::byte* scratch(std::size_t element) const { return shape_.scratch + element * element_; }
  int index() const { return nodes_.index; }
  bool leads() const { return index() == 0; }

  struct Part {
    Collective collective;
    const std::byte* send = nullptr;
    std::byte* recv = nullptr;
    std::size_t count = 0;
    int root = -1;
  };
  void add(Level level, const Part& part, ReduceOp op) {
    steps_.push_back({level, Call{.collective = part.collective,
                                  .send = part.send,
                                  .recv = part.recv,
                                  .count = part.count,
                                  .dtype = call_.dtype,
                                  .op = op,
                                  .root = part.root}});
  }
  // Who multiplies does so on the first level; an average is divided on both.
  void in_node(const Part& part) { add(Level::node, part, call_.op); }
  void on_rail(const Part& part) {
    add(Level::rail, part, call_.op == ReduceOp::premultiplied_sum ? ReduceOp(ReduceOp::sum) : call_.op);
  }

  void all_reduce_whole() {
    in_node({.collective = Collective::all_reduce, .send = send(0), .recv = recv(0), .count = call_.count});
    on_rail({.collective = Collective::all_reduce, .send = recv(0), .recv = recv(0), .count = call_.count});
  }

  // What does not divide among the ranks is the leaders'. Steps of a level in a row are one launch where they can be.
  void all_reduce_in_shares() {
    const std::size_t ranks = nodes_.own().size(), share = call_.count / ranks, rest = call_.count % ranks;
    const std::size_t mine = static_cast<std::size_t>(index()) * share, tail = ranks * share;
    if (share != 0)
      in_node({.collective = Collective::reduce_scatter, .send = send(0), .recv = recv(mine), .count = share});
    if (rest != 0) reduce_to_leader(tail, rest);
    if (share != 0)
      on_rail({.collective = Collective::all_reduce, .send = recv(mine), .recv = recv(mine), .count = share});
    if (rest != 0 && leads())
      on_rail({.collective = Collective::all_reduce, .send = recv(tail), .recv = recv(tail), .count = rest});
    if (share != 0)
      in_node({.collective = Collective::all_gather, .send = recv(mine), .recv = recv(0), .count = share});
    if (rest != 0) share_leaders(tail, rest);
  }

  void all_reduce_by_leaders() {
    reduce_to_leader(0, call_.count);
    if (leads())
      on_rail({.collective = Collective::all_reduce, .send = recv(0), .recv = recv(0), .count = call_.count});
    share_leaders(0, call_.count);
  }

  void reduce_to_leader(std::size_t first, std::size_t count) {
    in_node({.collective = Collective::reduce,
             .send = send(first),
             .recv = leads() ? recv(first) : nullptr,
             .count = count,
             .root = 0});
  }
  void share_leaders(std::size_t first, std::size_t count) {
    in_node({.collective = Collective::broadcast, .send = recv(first), .recv = recv(first), .count = count, .root = 0});
  }

  int root_node() const { return nodes_.node_of[static_cast<std::size_t>(call_.root)]; }
  int gate() const { return nodes_.index_of[static_cast<std::size_t>(call_.root)]; }
  bool at_root() const { return nodes_.mine == root_node() && index() == gate(); }

  // A node's sum waits in scratch, as much at a time as fits.
  void reduce() {
    const std::size_t step = std::max<std::size_t>(shape_.scratch_bytes / element_, 1);
    for (std::size_t first = 0; first < call_.count; first += step) {
      const std::size_t count = std::min(step, call_.count - first);
      std::byte* const sum = at_root() ? recv(first) : scratch(0);
      const bool is_gate = index() == gate();
      in_node({.collective = Collective::reduce,
               .send = send(first),
               .recv = is_gate ? sum : nullptr,
               .count = count,
               .root = gate()});
      if (!is_gate) continue;
      on_rail({.collective = Collective::reduce,
               .send = sum,
               .recv = at_root() ? sum : nullptr,
               .count = count,
               .root = root_node()});
    }
  }

  void broadcast() {
    if (index() == gate())
      on_rail({.collective = Collective::broadcast,
               .send = at_root() ? send(0) : nullptr,
               .recv = recv(0),
               .count = call_.count,
               .root = root_node()});
    in_node(
        {.collective = Collective::broadcast, .send = recv(0), .recv = recv(0), .count = call_.count, .root = gate()});
  }

  std::byte* block(int rank) const { return recv(static_cast<std::size_t>(rank) * call_.count); }

  // Blocks cross to where they belong; then every node puts together what its ranks have of each.
  void all_gather_on_rails() {
    for (int node = 0; node < nodes_.count(); ++node) {
      const bool own = node == nodes_.mine;
      on_rail({.collective = Collective::broadcast,
               .send = own ? send(0) : nullptr,
               .recv = block(nodes_.at(node, index())),
               .count = call_.count,
               .root = node});
    }
    for (int node = 0; node < nodes_.count(); ++node)
      in_node({.collective = Collective::all_gather,
               .send = block(nodes_.at(node, index())),
               .recv = block(nodes_.at(node, 0)),
               .count = call_.count});
  }

  void all_gather_by_leaders() {
    for (std::size_t i = 0; i < nodes_.own().size(); ++i) {
      const bool own = static_cast<int>(i) == index();
      in_node({.collective = Collective::broadcast,
               .send = own ? send(0) : nullptr,
               .recv = block(nodes_.own()[i]),
               .count = call_.count,
               .root = static_cast<int>(i)});
    }
    const auto for_each_run = [&](auto&& f) {  // of ranks that follow each other in a node
      for (int first = 0, last = 0; first < world_of(shape_); first = last) {
        const auto node_of = [&](int rank) { return nodes_.node_of[static_cast<std::size_t>(rank)]; };
        while (last < world_of(shape_) && node_of(last) == node_of(first)) ++last;
        f(node_of(first), block(first), static_cast<std::size_t>(last - first) * call_.count);
      }
    };
    for_each_run([&](int node, std::byte* at, std::size_t count) {
      if (leads()) on_rail({.collective = Collective::broadcast, .send = at, .recv = at, .count = count, .root = node});
    });
    for_each_run([&](int node, std::byte* at, std::size_t count) {
      if (node != nodes_.mine)
        in_node({.collective = Collective::broadcast, .send = at, .recv = at, .count = count, .root = 0});
    });
  }

  // The node's sums of this rail's blocks wait in scratch.
  void reduce_scatter() {
    for (int node = 0; node < nodes_.count(); ++node) {
      in_node({.collective = Collective::reduce_scatter,
               .send = send(static_cast<std::size_t>(nodes_.at(node, 0)) * call_.count),
               .recv = scratch(static_cast<std::size_t>(node) * call_.count),
               .count = call_.count});
    }
    on_rail({.collective = Collective::reduce_scatter, .send = scratch(0), .recv = recv(0), .count = call_.count});
  }

  // Where each rank is on a rail, nobody gets behind it before all have come.
  void barrier(bool by_leaders) {
    in_node({.collective = Collective::barrier});
    if (!by_leaders || leads()) on_rail({.collective = Collective::barrier});
    if (by_leaders) in_node({.collective = Collective::barrier});
  }

  const Call& call_;
  const LevelShape& shape_;
  const Nodes& nodes_;
  std::size_t element_;
  std::vector<LevelStep> steps_;
};

}  // namespace

bool LevelShape::in_order() const {
  for (std::size_t rank = 0; rank < nodes.node_of.size(); ++rank) {
    if (rank / static_cast<std::size_t>(nodes.most) != static_cast<std::size_t>(nodes.node_of[rank])) return false;
  }
  return even();
}

std::string_view why_not_levels(const Call& call, const LevelShape& shape, Determinism determinism,
                                std::string_view wanted) {
  if (!wanted.empty() && wanted != kTwoLevel.name) return "RONDO_ALGORITHM";
  const CollectiveRow& collective = rondo::row_of(call.collective);
  const CallShape what = shape_of(call, world_of(shape));
  if (what.pattern == Pattern::barrier) return {};
  if (what.variable_counts || find_row(call, shape) == nullptr) return "no row for two levels";
  if (collective.rooted && shape.nodes.index_of[static_cast<std::size_t>(call.root)] >= shape.nodes.least)
    return "the root is on no rail";
  if (what.pattern == Pattern::reduce_scatter &&
      static_cast<std::size_t>(shape.nodes.count()) * call.count * size_of(call.dtype) > shape.scratch_bytes)
    return "the nodes' sums are too long";
  if (!collective.reduces) return {};
  if (determinism == Determinism::reproducible) return "(a + b) + (c + d) is not ((a + b) + c) + d";
  const bool divides_twice = call.op == ReduceOp::average;
  if (!divides_twice) return {};
  const bool is_wide = call.dtype == DataType::f32 || call.dtype == DataType::f64;
  if (what.one_fold || !is_wide) return "an average of that type is divided once";
  return shape.even() ? "" : "an average over nodes of different sizes is divided once";
}

std::vector<LevelStep> plan_levels(const Call& call, const LevelShape& shape) {
  return Planner(call, shape).run(*find_row(call, shape));
}

}  // namespace rondo::comm::device
