// SPDX-License-Identifier: Apache-2.0
// What a tuned value decides, and that others have no say in it.
#include "comm/node/policy/chooser.hpp"

#include <algorithm>

#include "tests/support/catch.hpp"

using namespace rondo;
using comm::Chooser;
using comm::RingSum;

namespace {

constexpr std::size_t M = 1 << 20;

Chooser chooser(int ranks, int cores, const comm::Tuning& tuning) {
  const bool crowded = ranks > cores;
  return {{.ranks = ranks, .cores = cores, .crowded = crowded, .ring = comm::lay_out_ring(6 * M, ranks, crowded)},
          tuning};
}

Call sum(Collective collective, std::size_t bytes) {
  static std::byte here{};  // nobody looks at it
  return {.collective = collective, .send = &here, .recv = &here, .count = bytes, .root = 0};
}

}  // namespace

TEST_CASE("poured_bytes alone says how long a reduce is poured into the root") {
  comm::Tuning tuning;
  tuning.cached_bytes = 0;
  tuning.poured_bytes = 2 * M;
  const Chooser two = chooser(2, 2, tuning);
  CHECK(two.sum_of(sum(Collective::reduce, 2 * M)) == RingSum::whole);
  CHECK(two.sum_of(sum(Collective::reduce, 2 * M + 1)) == RingSum::parts);
}

TEST_CASE("cold_bytes alone says which sums in place of ranks that share cores go past the caches") {
  comm::Tuning tuning;
  tuning.cached_bytes = 0;
  tuning.streaming_bytes = M;
  tuning.cold_bytes = 64 * M;
  const Chooser four = chooser(4, 2, tuning);
  const auto stores = [&](std::size_t bytes) {
    const Call call = sum(Collective::all_reduce, bytes);
    return four.stores({.call = call, .larger = bytes, .longest = bytes}).result;
  };
  CHECK(stores(16 * M - 1) == kernels::Stores::plain);
  CHECK(stores(16 * M) == kernels::Stores::streaming);
}

namespace {

// Two ranks or more whose memory the kernel may copy, cheaply.
Chooser copier(int ranks, int cores, const comm::Tuning& tuning) {
  comm::NodeFacts facts = chooser(ranks, cores, tuning).facts();
  facts.copies_memory = true;
  facts.copied_page_us = 0.1;
  return {facts, tuning};
}

// Another value for one of them, which is one that no call reaches.
template <class... Others>
comm::Tuning without(std::uint64_t comm::Tuning::*one, Others... others) {
  comm::Tuning tuning;
  for (const auto other : {one, others...}) tuning.*other = UINT64_MAX;
  return tuning;
}

}  // namespace

TEST_CASE("each threshold of single copy has a say in its own calls alone") {
  using comm::Tuning;
  struct Own {
    std::uint64_t Tuning::*value;
    int ranks, cores;
    Call call;  // of the least length that is tried by default
  };
  const auto [value, ranks, cores, call] =
      GENERATE(Own{&Tuning::single_copy_bytes, 4, 4, sum(Collective::broadcast, 32 << 10)},
               Own{&Tuning::single_copy_root_bytes, 2, 2, sum(Collective::broadcast, 8 << 10)},
               Own{&Tuning::single_copy_sum_bytes, 2, 2, sum(Collective::all_reduce, 128 << 10)},
               Own{&Tuning::single_copy_crowd_bytes, 4, 2, sum(Collective::gather, 32 << 10)},
               Own{&Tuning::single_copy_crowd_bytes_of_two, 2, 1, sum(Collective::gather, 128 << 10)},
               Own{&Tuning::single_copy_crowd_block_bytes, 8, 2, sum(Collective::all_to_all, 32 << 10)});
  Call shorter = call;
  --shorter.count;
  CHECK(copier(ranks, cores, {}).may_copy(call));
  CHECK_FALSE(copier(ranks, cores, {}).may_copy(shorter));
  if (value != &Tuning::single_copy_crowd_block_bytes) {
    const std::string_view told = copier(ranks, cores, {}).why_copied(call).threshold;
    CHECK(std::ranges::find(comm::tuning_fields(), told, &comm::TuningField::name)->value == value);
  }
  CHECK_FALSE(copier(ranks, cores, without(value)).may_copy(call));
  for (const comm::TuningField& field : comm::tuning_fields()) {
    const bool has_part = field.value == &Tuning::single_copy_crowd_bytes && call.collective == Collective::all_to_all;
    if (field.value == value || has_part) continue;
    INFO(field.name);
    CHECK(copier(ranks, cores, without(field.value)).may_copy(call));
  }
}

TEST_CASE("direct_crowd_bytes and direct_crowd_reduce_bytes say when short calls of ranks that share cores ask") {
  comm::Tuning tuning;
  tuning.direct_crowd_bytes = 3 << 10;
  tuning.direct_crowd_reduce_bytes = 5 << 10;
  const auto asks = [&](Collective collective, std::size_t bytes) {
    return chooser(4, 2, tuning).start(sum(collective, bytes), {}).asks;
  };
  CHECK_FALSE(asks(Collective::broadcast, 3 << 10));
  CHECK(asks(Collective::broadcast, (3 << 10) + 1));
  CHECK_FALSE(asks(Collective::reduce, 5 << 10));
  CHECK(asks(Collective::reduce, (5 << 10) + 1));
}

TEST_CASE("a value of streaming_bytes's followers moves what it names") {
  comm::Tuning tuning;
  tuning.streaming_bytes = 2 * M;
  tuning.streaming_in_place_bytes = 8 * M;
  const auto in_place = [&](std::size_t bytes) {
    return chooser(2, 2, tuning).stores_in_place(sum(Collective::all_reduce, bytes));
  };
  CHECK(in_place(4 * M - 1) == kernels::Stores::plain);
  CHECK(in_place(4 * M) == kernels::Stores::streaming);

  const auto window = [](std::uint64_t warm) {  // of a broadcast's 256 KiB chunks
    comm::Tuning of_crowd;
    of_crowd.warm_bytes = warm;
    const Chooser four = chooser(4, 2, of_crowd);
    const Call call = sum(Collective::broadcast, 16 * M);
    return four.course(four.plan({.call = call, .larger = 16 * M, .longest = 16 * M})).ahead;
  };
  CHECK(window(2 * M) == 2 * window(M));

  const auto step = [](std::uint64_t few) {
    comm::Tuning of_few;
    of_few.few_sum_chunk_bytes = few;
    const Call call = sum(Collective::all_reduce, 16 * M);
    return chooser(4, 2, of_few).plan({.call = call, .larger = 16 * M, .longest = 16 * M}).step;
  };
  CHECK(step(128 << 10) == 128 << 10);
  CHECK(step(UINT64_MAX) == comm::Tuning{}.chunk_bytes);
  CHECK(step(64 << 10) == 64 << 10);

  const auto hands_over = [](std::uint64_t handed) {
    comm::Tuning of_two;
    of_two.handed_bytes = handed;
    const Chooser two = chooser(2, 2, of_two);
    const Call call = sum(Collective::all_gather, 2 * M);
    return two.hands_over(two.plan({.call = call, .larger = 4 * M, .longest = 2 * M}));
  };
  CHECK(hands_over(2 * M));
  CHECK_FALSE(hands_over(2 * M - 1));
}
