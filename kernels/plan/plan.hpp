// SPDX-License-Identifier: Apache-2.0
// A plan: what every rank does in one collective, written down by running the algorithm over RecordingPrimitives.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "kernels/algorithms/link_layout.hpp"
#include "kernels/plan/problem.hpp"

namespace rondo::kernels {

struct PlanStep {  // one call of run, or of fold, or several steps together
  std::vector<Move> moves{};
  bool has_steps = false;  // its moves may be longer than a chunk: they are in no order
  bool is_fold = false;
  Fold fold{};
};

struct Plan {
  int algorithm = kNoAlgorithm;
  Problem problem{};
  LinkLayout layout{};
  std::size_t scratch_count = 0;  // the most any rank asked for
  std::vector<std::vector<PlanStep>> ranks{};
};

class RecordingPrimitives {
 public:
  RecordingPrimitives(const LinkLayout& layout, std::vector<PlanStep>& steps) : layout_(layout), steps_(&steps) {}
  void run(std::span<const Move> moves) { steps_->push_back({.moves = {moves.begin(), moves.end()}}); }
  void fold(const Fold& fold) { steps_->push_back({.is_fold = true, .fold = fold}); }
  std::size_t chunk_capacity() const { return layout_.chunk_capacity(); }

 protected:
  void add(PlanStep step) { steps_->push_back(std::move(step)); }

 private:
  LinkLayout layout_;
  std::vector<PlanStep>* steps_;
};

// As devices have it: steps that do not need each other progress together.
class RecordingSteps : public RecordingPrimitives {
 public:
  using RecordingPrimitives::RecordingPrimitives;
  template <class F>
  void run_steps(int last, F&& moves_of) {
    PlanStep all{.has_steps = true};
    for (int step = 1; step <= last; ++step) {
      for (const Move& move : moves_of(step)) all.moves.push_back(move);
    }
    add(std::move(all));
  }
};

enum class Steps : unsigned char { one_by_one, together };
Plan record(int algorithm, const Problem& problem, const LinkLayout& layout, Steps steps = Steps::one_by_one);

std::string describe(const Move& move);
std::string describe(const PlanStep& step);

// What the plan moves, in elements and FIFO steps.
struct Traffic {
  std::size_t elements = 0;
  std::size_t fifo_steps = 0;
};
struct PlanCost {
  std::vector<std::vector<Traffic>> links;  // [from][to]
  std::vector<Traffic> sent, received;      // per rank
  std::vector<std::size_t> steps;           // per rank: runs and folds
};
PlanCost cost_of(const Plan& plan);

}  // namespace rondo::kernels
