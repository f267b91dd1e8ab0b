// SPDX-License-Identifier: Apache-2.0
// Every collective on the board: rings that many chunks go round in, chunks of any size, calls on each other's heels.
#include <algorithm>
#include <array>
#include <cstring>

#include "comm/call/communicator_impl.hpp"
#include "comm/transport/memory.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/package/job.hpp"
#include "tests/package/step.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/pairwise.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr std::array kWorlds{1, 2, 3, 4, 5, 7, 8};
constexpr std::array<std::size_t, 7> kCounts{0, 1, 3, 1000, 12'345, 100'000, 600'000};
constexpr std::array kTypes{DataType::f32, DataType::f64, DataType::bf16, DataType::u8};
constexpr std::array kOps{ReduceOp::sum, ReduceOp::average, ReduceOp::premultiplied_sum, ReduceOp::max};
// Of the built-in values; tiny rings; chunks of which a ring holds two; results past the caches, and a window of one.
struct Shape {
  const char *segment_bytes, *tuning;
};
constexpr std::array kShapes{Shape{"", "# as built in\n"}, Shape{"65536", "chunk_bytes 4K\n"},
                             Shape{"1048576", "flat_bytes never\n"},
                             Shape{"",
                                   "ahead_bytes 4K\ncached_bytes 0\npoured_bytes 0\ncold_bytes 0\nstreaming_bytes "
                                   "0\nflat_bytes_of_two 0\nflat_bytes 0\n"}};
constexpr std::array kCores{std::size_t{1}, std::size_t{2}, FewCores::kAll};

// What a call of that shape may be, as far as the collective has it.
consumer::Step make_step(const std::vector<int>& chosen, std::uint64_t seed) {
  consumer::Random random(seed);
  const auto collective = static_cast<Collective>(chosen[0]);
  const int size = kWorlds[static_cast<std::size_t>(chosen[1])];
  consumer::Step step = consumer::draw_step(random, size, consumer::Style::untyped);
  while (step.collective != collective) step = consumer::draw_step(random, size, consumer::Style::untyped);
  const bool never_in_place = !step.parts.empty() || collective == Collective::all_to_all;
  step.in_place = chosen[4] != 0 && !never_in_place;
  step.dtype = kTypes[static_cast<std::size_t>(chosen[3])];
  step.op = kOps[static_cast<std::size_t>(chosen[5])];
  if (!is_supported(step.dtype, step.op)) step.op = ReduceOp::sum;
  step.rough = false;
  step.count = kCounts[static_cast<std::size_t>(chosen[2])];
  const CollectiveRow& row = row_of(collective);
  if (row.send == Extent::world || row.recv == Extent::world) step.count /= static_cast<std::size_t>(size);
  step.offset = chosen[6] != 0 ? 3 : 0;
  const std::size_t bound = step.count / static_cast<std::size_t>(size) + 2;
  for (std::size_t& part : step.parts) part = random.chance(25) ? 0 : random.below(bound);
  return step;
}

// The call three times on the heels of each other, with a short one between: what lies in the rings is still being
// read by some when others go on.
void run_case(Communicator& comm, const consumer::Step& step, std::uint64_t seed) {
  std::vector<std::unique_ptr<consumer::Job>> jobs;
  for (int turn = 0; turn < 3; ++turn) {
    consumer::Step again = step;
    again.seed = seed + static_cast<std::uint64_t>(turn);
    jobs.push_back(consumer::make_job(again, comm));
  }
  for (const auto& job : jobs) {
    job->start(comm);
    std::array<int, 300> values{};
    values.fill(comm.rank());
    comm.all_reduce(values, ReduceOp::max);
    if (values.back() != comm.world_size() - 1) throw std::runtime_error("the short call between");
  }
  for (const auto& job : jobs) job->verify(comm);
}

struct Sum {
  std::vector<std::uint32_t> bits;
  bool made_once = false;  // for all, by whoever claimed its pieces
};

Sum sum_of(int world, std::size_t count) {
  const Setting by_name("RONDO_ALGORITHM", "board");
  Sum of{.bits = std::vector<std::uint32_t>(count)};
  const auto errors = run_world(Kind::local, world, {.timeout = 60s}, [&](Communicator& comm) {
    consumer::Step step;
    step.collective = Collective::all_reduce;
    step.rough = true;
    const auto input = consumer::input_of<float>(step, comm.rank(), count);
    std::vector<float> sum(count);
    comm.all_reduce(std::span<const float>(input), std::span<float>(sum), ReduceOp::sum);
    if (comm.rank() != world - 1) return;
    std::memcpy(of.bits.data(), sum.data(), count * sizeof(float));
    of.made_once = detail::impl_of(comm).team().segment().claims().piece(0) != 0;
  });
  for (const auto& error : errors) CHECK(sentence_of(error).empty());
  return of;
}

// Calls of two ranks that turn in a window of the rings, each on the heels of another, in places alike or not. One rank
// has nothing to read, and is done with a call while the other still reads, into memory that nobody has touched, which
// is slow.
void gather_at_once(Communicator& comm, consumer::Random random) {
  struct Gather {
    std::vector<int> send;
    std::vector<std::size_t> counts{1, 1};
    Mapping recv;
    std::span<int> received() const { return {reinterpret_cast<int*>(recv.data()), counts[0] + counts[1]}; }
  };
  const auto self = static_cast<std::size_t>(comm.rank()), writer = random.below(2);
  const auto number = [](std::size_t turn, std::size_t i) { return static_cast<int>(i * 16 + turn + 1); };
  std::vector<Gather> calls(8);
  for (std::size_t turn = 0; turn < calls.size(); ++turn) {
    Gather& call = calls[turn];
    call.counts[writer] = 300'000 + random.below(3) * 50'000;
    for (std::size_t i = 0; i < call.counts[self]; ++i) call.send.push_back(number(turn, i));
    call.recv = map_anonymous(call.received().size_bytes());
    if (self == writer) std::fill(call.received().begin(), call.received().end(), -1);
  }
  for (Gather& call : calls) comm.all_gather_v(std::span<const int>(call.send), call.received(), call.counts);
  for (std::size_t turn = 0; turn < calls.size(); ++turn) {
    const Gather& call = calls[turn];
    bool right = true;
    for (std::size_t at = 0, r = 0; r < 2; at += call.counts[r++]) {
      for (std::size_t i = 0; i < call.counts[r]; ++i) right = right && call.received()[at + i] == number(turn, i);
    }
    expect(right, "all_gather_v");
  }
}

}  // namespace

TEST_CASE("board: calls that turn in the same window of the rings wait for each other's readers") {
  static const std::uint64_t seed = rotating_seed();
  INFO("seed " << seed);
  for (const char* text : {"# as built in\n", "ahead_bytes 512K\n", "ahead_bytes 256K\n"}) {
    const Setting by_name("RONDO_ALGORITHM", "board");
    const TuningFile tuning(text);
    const auto errors = run_world(Kind::local, 2, {.timeout = 60s}, [&](Communicator& comm) {
      for (std::uint64_t round = 0; round < 2; ++round) gather_at_once(comm, consumer::Random(seed + round));
    });
    for (const auto& error : errors) {
      INFO(text);
      CHECK(sentence_of(error).empty());
    }
  }
}

TEST_CASE(
    "board: every collective, world, count, type, place, shape of rings, ranks that outnumber their cores or not") {
  static const std::uint32_t seed = rotating_seed();
  PairwiseCases cases({kCollectiveCount, static_cast<int>(kWorlds.size()), static_cast<int>(kCounts.size()),
                       static_cast<int>(kTypes.size()), 2, static_cast<int>(kOps.size()), 2,
                       static_cast<int>(kShapes.size()), static_cast<int>(kCores.size())},
                      seed);
  for (const auto& chosen : cases.all()) {
    const auto collective = static_cast<Collective>(chosen[0]);
    if (collective == Collective::send || collective == Collective::recv) continue;
    const Shape& shape = kShapes[static_cast<std::size_t>(chosen[7])];
    const Setting by_name("RONDO_ALGORITHM", "board"), segment("RONDO_SEGMENT_BYTES", shape.segment_bytes);
    const TuningFile tuning(shape.tuning);
    const std::size_t most_cores = kCores[static_cast<std::size_t>(chosen[8])];
    const FewCores cores(most_cores);
    const consumer::Step step = make_step(chosen, seed);
    const auto errors = run_world(Kind::local, step.size, {.timeout = 60s}, [&](Communicator& comm) {
      try {
        const bool crowded = detail::impl_of(comm).team().crowded();
        expect(crowded || static_cast<std::size_t>(step.size) <= most_cores, "ranks do not know that they share cores");
        run_case(comm, step, seed);
      } catch (...) {
        comm.abort();
        throw;
      }
    });
    for (const auto& error : errors) {
      INFO(step.size << " ranks, at most " << most_cores << " cores, " << consumer::describe(step) << ", segment "
                     << shape.segment_bytes << ", " << shape.tuning << sentence_of(error));
      CHECK_FALSE(error);
    }
  }
}

TEST_CASE("board: sums have the same bits in chunks of any size, in rings of any size, made once for all or not") {
  const int world = GENERATE(2, 3, 4, 5, 8);
  const std::size_t kCount = GENERATE(3'001, 60'001);
  const auto expected = [&] {
    const TuningFile whole("flat_bytes_of_two never\nflat_bytes never\nchunk_bytes 1G\n");
    return sum_of(world, kCount).bits;
  }();
  for (const char* text : {"# as built in\n", "flat_bytes_of_two 0\n", "chunk_bytes 4K\n",
                           "ahead_bytes 4K\ncached_bytes 0\npoured_bytes 0\ncold_bytes 0\nstreaming_bytes 0\n"}) {
    const TuningFile tuning(text);
    for (const char* segment_bytes : {"", "65536"}) {
      const Setting segment("RONDO_SEGMENT_BYTES", segment_bytes);
      INFO(world << " ranks, " << text << segment_bytes);
      CHECK(sum_of(world, kCount).bits == expected);
    }
  }
  const FewCores two(2);
  const Sum sum = sum_of(world, kCount);
  INFO(world << " ranks on two cores");
  CHECK(sum.bits == expected);
  CHECK(sum.made_once == (world > 4 || (world > 2 && kCount == 3'001)));
}
