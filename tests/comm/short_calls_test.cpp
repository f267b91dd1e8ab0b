// SPDX-License-Identifier: Apache-2.0
// Calls of few bytes: every collective at the lengths where what a rank brings leaves the line of its flag, or no
// longer fits.
#include <rondo/communicator.hpp>

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/node/policy/chooser.hpp"
#include "comm/setup/placement.hpp"
#include "comm/team/segment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using test::on_ranks;

namespace {

using comm::Arrival;

constexpr std::size_t kLineful = Arrival::kPayload / 4;

// Of one rank, different from place to place.
std::int32_t value(int rank, std::size_t at) { return static_cast<std::int32_t>((at * 7 + 13) % 1000) * (rank + 1); }

template <class T>
std::vector<T> values(int rank, std::size_t first, std::size_t count) {
  std::vector<T> all;
  for (std::size_t i = first; i < first + count; ++i) all.push_back(static_cast<T>(value(rank, i)));
  return all;
}
template <class T>
std::vector<T> sums(int world, std::size_t first, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (int r = 0; r < world; ++r) all[i] = static_cast<T>(all[i] + value(r, first + i));
  }
  return all;
}

template <class T>
void expect(const std::vector<T>& got, const std::vector<T>& wanted, const std::string& what) {
  if (got != wanted) throw std::runtime_error(what);
}

template <class T>
void every_collective(Communicator& comm, std::size_t count) {
  const int world = comm.world_size(), rank = comm.rank(), root = world - 1;
  const auto n = static_cast<std::size_t>(world), me = static_cast<std::size_t>(rank);
  const std::vector<T> mine = values<T>(rank, 0, count), long_one = values<T>(rank, 0, n * count);
  std::vector<T> got(count, T(-1)), all(n * count, T(-1)), gathered, exchanged;
  for (int r = 0; r < world; ++r) {
    for (const T v : values<T>(r, 0, count)) gathered.push_back(v);
    for (const T v : values<T>(r, me * count, count)) exchanged.push_back(v);
  }
  const auto says = [&](const char* name) { return fmt::format("{} of {} on {} ranks", name, count, world); };

  comm.all_reduce(mine, got, ReduceOp::sum);
  expect(got, sums<T>(world, 0, count), says("all_reduce"));
  std::vector<T> in_place = mine;
  comm.all_reduce(in_place, ReduceOp::sum);
  expect(in_place, got, says("all_reduce in place"));
  comm.all_reduce(mine, got, ReduceOp::premul_sum(2));
  std::vector<T> twice = sums<T>(world, 0, count);
  for (T& v : twice) v = static_cast<T>(v * 2);
  expect(got, twice, says("all_reduce of multiples"));
  comm.reduce(mine, got, ReduceOp::max, root);
  if (rank == root) expect(got, values<T>(root, 0, count), says("reduce"));
  comm.reduce_scatter(long_one, got, ReduceOp::sum);
  expect(got, sums<T>(world, me * count, count), says("reduce_scatter"));
  got = mine;
  comm.broadcast(got, root);
  expect(got, values<T>(root, 0, count), says("broadcast"));
  comm.all_gather(mine, all);
  expect(all, gathered, says("all_gather"));
  all.assign(n * count, T(-1));
  comm.gather(mine, all, root);
  if (rank == root) expect(all, gathered, says("gather"));
  comm.scatter(long_one, got, root);
  expect(got, values<T>(root, me * count, count), says("scatter"));
  comm.all_to_all(long_one, all);
  expect(all, exchanged, says("all_to_all"));
  comm.barrier();
}

}  // namespace

TEST_CASE("calls of few bytes fill the line of the flag, and go on behind it") {
  const int world = GENERATE(1, 2, 3, 4);
  const test::FewCores cores(GENERATE(std::size_t{1}, test::FewCores::kAll));
  const std::size_t count = GENERATE(1u, kLineful / 3, kLineful / 2, kLineful - 1, kLineful, kLineful + 1, 61u);
  on_ranks(world, [&](Communicator& comm) {
    every_collective<std::int32_t>(comm, count);
    every_collective<double>(comm, count / 2 + 1);
  });
}

TEST_CASE("calls of few bytes move the same as others at every length") {
  const int world = GENERATE(1, 2, 3, 4);
  const std::size_t most_cores = GENERATE(std::size_t{1}, test::FewCores::kAll);
  const test::FewCores cores(most_cores);
  const bool crowded = world > comm::usable_cores();
  const comm::Chooser chooser({.ranks = world, .crowded = crowded}, {});
  const auto most_of = [&](Collective c) { return chooser.most_of_short_block(c) / 4; };
  const Collective limit =
      GENERATE(Collective::all_reduce, Collective::all_gather, Collective::broadcast, Collective::gather,
               Collective::reduce, Collective::scatter, Collective::all_to_all);
  const std::size_t most = most_of(limit);
  const std::size_t count = GENERATE_COPY(most / 4, most / 4 + 1, most - 1, most, most + 1);
  on_ranks(world, [&](Communicator& comm) {
    every_collective<std::int32_t>(comm, count);
    every_collective<double>(comm, count / 2 + 1);
  });
}

TEST_CASE("a shape that is known is still refused without a buffer") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(4, 1), other(4);
    for (int i = 0; i < 2; ++i) comm.all_to_all(data.data(), other.data(), 2, DataType::f32);
    const auto refused = [&](auto call) {
      if (test::code_of(test::thrown_by(call)) != ErrorCode::invalid_argument) throw std::runtime_error("it went on");
    };
    refused([&] { comm.all_to_all(data.data(), data.data(), 2, DataType::f32); });
    refused([&] { comm.all_to_all(nullptr, other.data(), 2, DataType::f32); });
    refused([&] { comm.all_to_all(data.data(), nullptr, 2, DataType::f32); });
    comm.all_to_all(data.data(), other.data(), 2, DataType::f32);
  });
}

TEST_CASE("ranks that disagree on a short call are told in what") {
  const auto errors = test::run_ranks(2, {}, [](Communicator& comm) {
    std::vector<float> data(2000);
    comm.all_reduce(std::span(data).first(2), ReduceOp::sum);
    comm.all_reduce(std::span(data).first(comm.rank() == 0 ? 100 : 900), ReduceOp::sum);
  });
  for (const auto& error : errors) {
    CHECK(test::code_of(error) == ErrorCode::mismatch);
    CHECK(test::sentence_of(error).find("disagree on the count of all_reduce #2") != std::string::npos);
  }
}

// Whether the rank waited, and however it did.
TEST_CASE("a short call has ended, says its record, before the next one begins") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<std::int32_t> one(1, 1), sum(1), many(1000, 1), sums(1000);
    for (int turn = 0; turn < 10; ++turn) {
      comm.all_reduce(one, sum, ReduceOp::sum);
      comm.broadcast(one, turn % 2);
      comm.barrier();
      comm.all_reduce(many, sums, ReduceOp::sum);
    }
    const auto record = nlohmann::json::parse(comm.flight_record());
    if (record["calls"].size() != 40) throw std::runtime_error("not all calls are recorded");
    double past = 0;
    for (const auto& call : record["calls"]) {
      const double begun = call["begun_us"], ended = call["ended_us"];
      if (begun < past || ended < begun) throw std::runtime_error(fmt::format("{} to {} after {}", begun, ended, past));
      past = ended;
    }
  });
}
