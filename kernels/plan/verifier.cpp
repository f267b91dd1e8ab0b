// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan/verifier.hpp"

#include <algorithm>
#include <memory>

#include "kernels/plan/step_rules.hpp"
#include "kernels/plan/text.hpp"

namespace rondo::kernels {
namespace {

struct Slice {
  std::vector<Value> values;
  RankSet heard = 0;  // ranks that had come when it was sent
};

class Link {
 public:
  std::size_t used() const { return slices_.size() - first_; }
  void put(Slice slice) { slices_.push_back(std::move(slice)); }
  Slice take() {
    Slice slice = std::move(slices_[first_++]);
    if (used() == 0) {
      slices_.clear();
      first_ = 0;
    }
    return slice;
  }

 private:
  std::vector<Slice> slices_;
  std::size_t first_ = 0;
};

struct RankState {
  RankState(const Plan& plan, int rank)
      : blocks(blocks_of(plan.problem, rank)),
        work(work_of(plan.problem, rank, blocks)),
        memory(plan.problem, work, plan.scratch_count),
        heard(set_of(rank)) {}
  RankState(const RankState&) = delete;
  Where where() const { return {work.rank, static_cast<int>(step)}; }

  RankBlocks blocks;  // what work points to
  Work work;
  SymbolicMemory memory;
  RankSet heard;
  std::size_t step = 0;
  std::vector<std::size_t> done{};  // elements, per Move of the current step; empty: not begun
};

class Run {
 public:
  explicit Run(const Plan& plan)
      : plan_(plan),
        rules_(plan.problem, algorithm_row(plan.algorithm).canonical_order, findings_),
        links_(plan.ranks.size() * plan.ranks.size()) {
    ranks_.reserve(plan.ranks.size());
    for (int rank = 0; rank < plan.problem.size; ++rank) ranks_.push_back(std::make_unique<RankState>(plan, rank));
  }

  std::vector<Finding> verdict() {
    bool progress = true;
    while (progress && !hopeless_ && !findings_.full()) {
      progress = false;
      for (auto& rank : ranks_) progress |= advance(*rank);
    }
    if (!hopeless_ && !findings_.full()) check_end();
    return findings_.take();
  }

 private:
  const std::vector<PlanStep>& steps_of(const RankState& rank) const {
    return plan_.ranks[static_cast<std::size_t>(rank.work.rank)];
  }
  bool finished(const RankState& rank) const { return rank.step == steps_of(rank).size(); }
  Link& link(int from, int to) {
    return links_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }
  bool has_slice(int from, int to) { return link(from, to).used() > 0; }
  bool has_room(int from, int to) { return link(from, to).used() < static_cast<std::size_t>(plan_.layout.slots); }

  // As far as the rank gets without another rank's doing anything.
  bool advance(RankState& rank) {
    bool any = false;
    while (!finished(rank) && !hopeless_) {
      const PlanStep& step = steps_of(rank)[rank.step];
      if (rank.done.empty()) begin(rank, step);
      bool progress = true;
      while (progress && !hopeless_) {
        progress = step.is_fold ? advance_fold(rank, step.fold) : advance_moves(rank, step);
        any |= progress;
      }
      if (hopeless_ || !is_done(rank, step)) break;
      ++rank.step;
      rank.done.clear();
      any = true;
    }
    return any;
  }

  static bool is_done(const RankState& rank, const PlanStep& step) {
    if (step.is_fold) return rank.done[0] == step.fold.count;
    for (std::size_t i = 0; i < step.moves.size(); ++i) {
      if (rank.done[i] != step.moves[i].count) return false;
    }
    return true;
  }

  void begin(RankState& rank, const PlanStep& step) {
    rank.done.assign(std::max<std::size_t>(1, step.moves.size()), 0);
    hopeless_ = !check_step(plan_, step, rank.memory, rank.where(), findings_);
  }

  // Moves over one link keep their order.
  static bool may_go(const RankState& rank, const PlanStep& step, std::size_t index) {
    const Move& move = step.moves[index];
    for (std::size_t i = 0; i < index; ++i) {
      const Move& earlier = step.moves[i];
      if (rank.done[i] == earlier.count) continue;
      if (earlier.to == move.to && move.to != kNobody) return false;
      if (earlier.from == move.from && move.from != kNobody) return false;
    }
    return true;
  }

  bool advance_moves(RankState& rank, const PlanStep& step) {
    bool any = false;
    for (std::size_t i = 0; i < step.moves.size() && !hopeless_; ++i) {
      if (may_go(rank, step, i)) any |= advance_move(rank, step.moves[i], rank.done[i]);
    }
    return any;
  }

  // One slice of one Move: both ends of a fused Move at once.
  bool advance_move(RankState& rank, const Move& move, std::size_t& done) {
    if (done == move.count) return false;
    const int me = rank.work.rank;
    if (move.from != kNobody && !has_slice(move.from, me)) return false;
    if (move.to != kNobody && !has_room(me, move.to)) return false;
    const std::size_t count = std::min(plan_.layout.slice, move.count - done);
    Slice slice;
    if (move.from != kNobody) slice = receive(rank, move.from, count);
    if (hopeless_) return false;
    slice.values.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      Value& value = slice.values[i];
      if (move.local.buffer != Buffer::none) {
        const Value local = rules_.read(rank.memory, at(move.local, done + i), rank.where());
        value = move.from == kNobody ? local : rules_.combine(value, local, rank.where());
      }
      if (move.complete) value = rules_.complete(value, rank.where());
      if (move.store.buffer != Buffer::none) rank.memory.at(at(move.store, done + i)) = value;
    }
    slice.heard = rank.heard;
    if (move.to != kNobody) link(me, move.to).put(std::move(slice));
    done += count;
    return true;
  }

  bool advance_fold(RankState& rank, const Fold& fold) {
    std::size_t& done = rank.done[0];
    if (done == fold.count) return false;
    const int me = rank.work.rank;
    for (int peer = 0; peer < plan_.problem.size; ++peer) {
      if (peer != me && !has_slice(peer, me)) return false;
    }
    const std::size_t count = std::min(plan_.layout.slice, fold.count - done);
    std::vector<Slice> slices(ranks_.size());
    for (int peer = 0; peer < plan_.problem.size && !hopeless_; ++peer) {
      if (peer != me) slices[static_cast<std::size_t>(peer)] = receive(rank, peer, count);
    }
    for (std::size_t i = 0; i < count && !hopeless_; ++i) {
      std::vector<Value> by_rank;
      for (int peer = 0; peer < plan_.problem.size; ++peer) {
        by_rank.push_back(peer == me ? rules_.read(rank.memory, at(fold.local, done + i), rank.where())
                                     : slices[static_cast<std::size_t>(peer)].values[i]);
      }
      rank.memory.at(at(fold.store, done + i)) = rules_.fold(by_rank, rank.where());
    }
    done += count;
    return true;
  }

  static Location at(Location place, std::size_t index) { return {place.buffer, place.offset + index}; }

  Slice receive(RankState& rank, int from, std::size_t count) {
    Slice slice = link(from, rank.work.rank).take();
    rank.heard |= slice.heard;
    if (slice.values.size() != count) {
      hopeless_ = true;
      findings_.add(
          Fault::wrong_count, rank.where(),
          text("expects a slice of ", count, " elements from rank ", from, " and gets ", slice.values.size()));
    }
    return slice;
  }

  void check_end() {
    bool stuck = false;
    for (const auto& rank : ranks_) {
      if (finished(*rank)) continue;
      stuck = true;
      findings_.add(Fault::deadlock, rank->where(), waits_for(*rank));
    }
    if (stuck) return;
    for (int from = 0; from < plan_.problem.size; ++from) {
      for (int to = 0; to < plan_.problem.size; ++to) {
        if (!has_slice(from, to)) continue;
        findings_.add(Fault::leftover, {from, -1},
                      text(link(from, to).used(), " slices that rank ", to, " never received are left on the link"));
      }
    }
    for (const auto& rank : ranks_) check_rank(*rank);
    const PatternRow& row = row_of(plan_.problem.pattern);
    const bool all_get_the_same = row.reduces && !row.sends_blocks() && !row.recv_at_root;
    if (all_get_the_same && findings_.empty()) check_same_bits();
  }

  void check_rank(RankState& rank) {
    const std::size_t count = rank.memory.count_of(Buffer::output);
    for (std::size_t i = 0; i < count; ++i) {
      if (!rules_.check_output(rank.work, rank.memory.at({Buffer::output, i}), i)) return;
    }
    const RankSet silent = all_ranks(plan_.problem.size) & ~rank.heard;
    if (plan_.problem.pattern == Pattern::barrier && silent != 0) {
      findings_.add(Fault::early_leave, {rank.work.rank, -1},
                    text("leaves the barrier before it heard of ", describe(silent)));
    }
  }

  void check_same_bits() {
    for (std::size_t i = 0; i < plan_.problem.count; ++i) {
      const Location place{Buffer::output, i};
      for (const auto& rank : ranks_) {
        if (rank->memory.at(place).order == ranks_[0]->memory.at(place).order) continue;
        return findings_.add(Fault::different_bits, {rank->work.rank, -1},
                             text("output[", i, "] was added up in another order than on rank 0"));
      }
    }
  }

  std::string waits_for(const RankState& rank) {
    const int me = rank.work.rank;
    const PlanStep& step = steps_of(rank)[rank.step];
    const auto named = [&](int peer) {
      return text("rank ", peer, finished(*ranks_[static_cast<std::size_t>(peer)]) ? ", which has ended" : "");
    };
    if (step.is_fold) {
      for (int peer = 0; peer < plan_.problem.size; ++peer) {
        if (peer != me && !has_slice(peer, me)) return text("waits to fold a slice from ", named(peer));
      }
    }
    for (std::size_t i = 0; i < step.moves.size(); ++i) {
      const Move& move = step.moves[i];
      if (rank.done[i] == move.count || !may_go(rank, step, i)) continue;
      if (move.from != kNobody && !has_slice(move.from, me)) return text("waits for a slice from ", named(move.from));
      return text("waits for one of the ", plan_.layout.slots, " slots to ", named(move.to));
    }
    return "waits";
  }

  const Plan& plan_;
  Findings findings_;
  ValueRules rules_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::vector<Link> links_;
  bool hopeless_ = false;  // the plan cannot be run on
};

constexpr std::string_view kFaultNames[] = {
    "bad_peer",
    "out_of_range",
    "oversized_move",
    "race",
    "wrong_count",
    "deadlock",
    "leftover",
    "unwritten_read",
    "overwritten_input",
    "lost_contribution",
    "duplicate_contribution",
    "wrong_element",
    "wrong_first_touch",
    "wrong_completion",
    "wrong_order",
    "different_bits",
    "early_leave",
};

}  // namespace

std::string_view name_of(Fault fault) { return kFaultNames[static_cast<std::size_t>(fault)]; }

std::vector<Finding> verify(const Plan& plan) { return Run(plan).verdict(); }

}  // namespace rondo::kernels
