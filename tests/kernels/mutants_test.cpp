// SPDX-License-Identifier: Apache-2.0
// Plans broken on purpose: the verifier must name the fault, the rank and the step.
#include <algorithm>
#include <functional>

#include "kernels/plan/text.hpp"
#include "kernels/plan/verifier.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::kernels;

namespace {

constexpr LinkLayout kLayout{.slice = 2, .slices_per_chunk = 2, .slots = 3};

Plan plan_of(Pattern pattern, std::string_view algorithm, Problem problem, LinkLayout layout = kLayout) {
  problem.pattern = pattern;
  const int id = find_algorithm(pattern, algorithm);
  REQUIRE(id != kNoAlgorithm);
  return record(id, problem, layout);
}

Move& move_of(Plan& plan, std::size_t rank, std::size_t step, std::size_t move = 0) {
  return plan.ranks[rank].at(step).moves.at(move);
}

void check_found(const Plan& plan, Fault fault) {
  const std::vector<Finding> findings = verify(plan);
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.fault == fault; });
  for (const Finding& finding : findings) UNSCOPED_INFO(name_of(finding.fault) << ": " << finding.sentence);
  INFO("expected " << name_of(fault));
  REQUIRE(found != findings.end());
  const std::string at = found->step < 0 ? "at the end" : text("step ", found->step);
  CHECK(found->sentence.find(text("rank ", found->rank, " ", at, ": ")) == 0);
}

}  // namespace

TEST_CASE("mutants: a reduction dropped") {
  Plan plan = plan_of(Pattern::all_reduce, "ring", {.size = 4, .count = 16});
  REQUIRE(verify(plan).empty());
  move_of(plan, 2, 1).local = {};
  check_found(plan, Fault::lost_contribution);
}

TEST_CASE("mutants: the wrong peer") {
  Plan plan = plan_of(Pattern::broadcast, "ring", {.size = 4, .count = 3});
  move_of(plan, 1, 0).to = 3;
  check_found(plan, Fault::deadlock);
  plan = plan_of(Pattern::scatter, "direct", {.size = 3, .count = 4});
  std::swap(move_of(plan, 0, 1).to, move_of(plan, 0, 2).to);
  check_found(plan, Fault::wrong_element);
  plan = plan_of(Pattern::all_gather, "ring", {.size = 3, .count = 4});
  move_of(plan, 0, 0).to = 0;
  check_found(plan, Fault::bad_peer);
}

TEST_CASE("mutants: a FIFO below the invariant") {
  // A full ring turns only with one slot more than a chunk's slices.
  for (const int slices : {1, 2, 3}) {
    const LinkLayout tight{.slice = 1, .slices_per_chunk = slices, .slots = slices};
    const LinkLayout sound{.slice = 1, .slices_per_chunk = slices, .slots = slices + 1};
    CHECK_FALSE(tight.is_sound());
    CHECK(sound.is_sound());
    for (const Pattern pattern : {Pattern::all_reduce, Pattern::reduce_scatter, Pattern::all_gather}) {
      check_found(plan_of(pattern, "ring", {.size = 4, .count = 40}, tight), Fault::deadlock);
      CHECK(verify(plan_of(pattern, "ring", {.size = 4, .count = 40}, sound)).empty());
    }
  }
  // Send-then-receive needs the whole chunk in the FIFO.
  const LinkLayout one_slot{.slice = 1, .slices_per_chunk = 2, .slots = 1};
  check_found(plan_of(Pattern::all_reduce, "recursive_doubling", {.size = 4, .count = 8}, one_slot), Fault::deadlock);
}

TEST_CASE("an exchange needs one slot, however long the chunk") {
  const LinkLayout one_slot{.slice = 1, .slices_per_chunk = 5, .slots = 1};
  CHECK(verify(plan_of(Pattern::all_reduce, "halving_doubling", {.size = 8, .count = 40}, one_slot)).empty());
  for (const int size : {2, 5, 8}) {
    CHECK(verify(plan_of(Pattern::all_to_all, "pairwise", {.size = size, .count = 17}, one_slot)).empty());
  }
  // The same exchange as two runs waits for ever.
  Plan plan = plan_of(Pattern::all_to_all, "pairwise", {.size = 2, .count = 4}, one_slot);
  for (auto& steps : plan.ranks) {
    const PlanStep both = steps.at(1);
    steps[1].moves = {both.moves[0]};
    steps.insert(steps.begin() + 2, PlanStep{.moves = {both.moves[1]}});
  }
  check_found(plan, Fault::deadlock);
}

TEST_CASE("mutants: read before write") {
  Plan plan = plan_of(Pattern::broadcast, "tree", {.size = 4, .count = 3});
  std::swap(plan.ranks[2].at(0), plan.ranks[2].at(1));  // sends on before it receives
  check_found(plan, Fault::unwritten_read);
  plan = plan_of(Pattern::reduce, "tree", {.size = 8, .count = 3});
  move_of(plan, 4, 0).local = {Buffer::scratch, 0};
  check_found(plan, Fault::unwritten_read);
}

TEST_CASE("mutants: a contribution twice") {
  Plan plan = plan_of(Pattern::all_reduce, "recursive_doubling", {.size = 4, .count = 3});
  for (std::size_t rank = 0; rank < 4; ++rank) {  // the second partner is the first again
    move_of(plan, rank, 2).to = move_of(plan, rank, 0).to;
    move_of(plan, rank, 3).from = move_of(plan, rank, 1).from;
  }
  check_found(plan, Fault::duplicate_contribution);
}

TEST_CASE("mutants: two sends of a link swapped") {
  Plan plan = plan_of(Pattern::all_gather, "ring", {.size = 4, .count = 4});
  std::swap(plan.ranks[1].at(1), plan.ranks[1].at(2));
  check_found(plan, Fault::wrong_element);
  plan = plan_of(Pattern::gather, "direct", {.size = 3, .count = 5});
  std::swap(plan.ranks[1].at(0), plan.ranks[1].at(1));  // chunks of 4 elements and 1
  check_found(plan, Fault::wrong_count);
}

TEST_CASE("mutants: the last touch") {
  Plan plan = plan_of(Pattern::all_reduce, "ring", {.size = 4, .count = 16});
  move_of(plan, 0, 3).complete = false;
  check_found(plan, Fault::wrong_completion);  // forgotten
  plan = plan_of(Pattern::all_reduce, "ring", {.size = 4, .count = 16});
  move_of(plan, 0, 4).complete = true;
  check_found(plan, Fault::wrong_completion);  // twice
  plan = plan_of(Pattern::all_reduce, "ring", {.size = 4, .count = 16});
  move_of(plan, 0, 1).complete = true;
  check_found(plan, Fault::wrong_completion);  // too early
}

TEST_CASE("mutants: the first touch") {
  Plan plan = plan_of(Pattern::all_reduce, "ring", {.size = 4, .count = 16, .in_place = true});
  REQUIRE(verify(plan).empty());
  move_of(plan, 3, 0).local.buffer = Buffer::output;  // the same memory, but premul_sum would not multiply
  check_found(plan, Fault::wrong_first_touch);
}

TEST_CASE("mutants: in place, input is read too late") {
  for (const bool in_place : {true, false}) {
    Plan plan = plan_of(Pattern::all_reduce, "recursive_doubling", {.size = 4, .count = 3, .in_place = in_place});
    REQUIRE(verify(plan).empty());
    move_of(plan, 1, 2).local.buffer = Buffer::input;  // instead of what has been reduced so far
    check_found(plan, in_place ? Fault::overwritten_input : Fault::lost_contribution);
  }
}

TEST_CASE("mutants: Moves of one run that race") {
  for (const bool in_place : {true, false}) {  // the textbook's exchange, which needs a second buffer when in place
    Plan plan = plan_of(Pattern::all_reduce, "recursive_doubling", {.size = 2, .count = 3, .in_place = in_place});
    for (auto& steps : plan.ranks) {
      steps.at(0).moves.push_back(steps.at(1).moves[0]);
      steps.pop_back();
    }
    if (in_place) {
      check_found(plan, Fault::race);
    } else {
      CHECK(verify(plan).empty());
    }
  }
}

TEST_CASE("mutants: sizes and places") {
  Plan plan = plan_of(Pattern::broadcast, "ring", {.size = 3, .count = 8});
  for (auto& steps : plan.ranks) {
    steps.pop_back();
    steps.at(0).moves[0].count = 8;
  }
  check_found(plan, Fault::oversized_move);
  plan = plan_of(Pattern::broadcast, "ring", {.size = 3, .count = 8});
  move_of(plan, 2, 1).store.offset = 5;
  check_found(plan, Fault::out_of_range);
  plan = plan_of(Pattern::all_reduce, "ring", {.size = 3, .count = 8});
  move_of(plan, 2, 2).store.buffer = Buffer::input;
  check_found(plan, Fault::out_of_range);
  plan = plan_of(Pattern::broadcast, "ring", {.size = 3, .count = 8});
  plan.ranks[2].at(1) = {};
  check_found(plan, Fault::leftover);
}

TEST_CASE("mutants: a promise of rank order not kept") {
  Plan plan = plan_of(Pattern::all_reduce, "ring", {.size = 4, .count = 16});
  plan.algorithm = find_algorithm(Pattern::all_reduce, "two_shot");
  check_found(plan, Fault::wrong_order);
  plan = plan_of(Pattern::all_reduce, "one_shot", {.size = 3, .count = 2});
  REQUIRE(verify(plan).empty());
}

TEST_CASE("mutants: every rank adds up in an order of its own") {
  Plan plan = plan_of(Pattern::all_reduce, "ring", {.size = 3, .count = 2});
  for (int rank = 0; rank < 3; ++rank) {
    const Location in{Buffer::input, 0};
    const Location out{Buffer::output, 0};
    const int next = (rank + 1) % 3;
    const int last = (rank + 2) % 3;
    plan.ranks[static_cast<std::size_t>(rank)] = {
        {.moves = {{.count = 2, .to = next, .local = in}}},
        {.moves = {{.count = 2, .to = last, .local = in}}},
        {.moves = {{.count = 2, .from = next, .local = in, .store = out}}},
        {.moves = {{.count = 2, .from = last, .local = out, .store = out, .complete = true}}}};
  }
  check_found(plan, Fault::different_bits);
}

TEST_CASE("mutants: a barrier left too early") {
  Plan plan = plan_of(Pattern::barrier, "dissemination", {.size = 5});
  REQUIRE(verify(plan).empty());
  for (auto& steps : plan.ranks) steps.pop_back();
  check_found(plan, Fault::early_leave);
}

namespace {

// Each changes one thing about one Move; false where there is nothing of the kind to change.
struct Mutation {
  const char* name;
  std::function<bool(Move&, int size)> apply;
};

const Mutation kMutations[] = {
    {"drop the Move", [](Move& m, int) { return std::exchange(m.count, 0) != 0; }},
    {"drop what is added",
     [](Move& m, int) { return m.from != kNobody && std::exchange(m.local, {}).buffer != Buffer::none; }},
    {"drop the store", [](Move& m, int) { return std::exchange(m.store, {}).buffer != Buffer::none; }},
    {"send on to the next rank but one",
     [](Move& m, int size) { return m.to != kNobody && (m.to = (m.to + 1) % size, true); }},
    {"receive from another rank",
     [](Move& m, int size) { return m.from != kNobody && (m.from = (m.from + 1) % size, true); }},
    {"read one element off", [](Move& m, int) { return m.local.buffer != Buffer::none && (++m.local.offset, true); }},
    {"write one element off", [](Move& m, int) { return m.store.buffer != Buffer::none && (++m.store.offset, true); }},
    {"one element less", [](Move& m, int) { return m.count > 1 && (--m.count, true); }},
    {"complete, or not", [](Move& m, int) { return m.count > 0 && (m.complete = !m.complete, true); }},
};

}  // namespace

TEST_CASE("mutants: every single change of every algorithm's plan is found") {
  int mutants = 0;
  for (int id = 0; id < kAlgorithmCount; ++id) {
    const AlgorithmRow& row = algorithm_row(id);
    for (const int size : {2, 4, 5}) {
      const Plan original = record(id, {.pattern = row.pattern, .size = size, .root = 1, .count = 9}, kLayout);
      REQUIRE(verify(original).empty());
      for (const Mutation& mutation : kMutations) {
        for (std::size_t rank = 0; rank < original.ranks.size(); ++rank) {
          for (std::size_t step = 0; step < original.ranks[rank].size(); ++step) {
            for (std::size_t move = 0; move < original.ranks[rank][step].moves.size(); ++move) {
              Plan mutant = original;
              Move& victim = move_of(mutant, rank, step, move);
              if (victim.count == 0 || !mutation.apply(victim, size)) continue;
              ++mutants;
              if (!verify(mutant).empty()) continue;
              INFO(row_of(row.pattern).name << " by " << row.name << ", " << size << " ranks: " << mutation.name
                                            << " at rank " << rank << " step " << step << ": "
                                            << describe(original.ranks[rank][step]));
              CHECK(false);
            }
          }
        }
      }
    }
  }
  CHECK(mutants > 1000);
}
