// SPDX-License-Identifier: Apache-2.0
#include "bench/cases.hpp"

#include <stdexcept>

#include "tests/support/catch.hpp"

namespace {

using rondo::bench::Cell;
using rondo::bench::find_case;

Cell cell(const char* program, int rank, int root = -1) {
  return {.what = &find_case(program), .rank = rank, .world_size = 4, .root = root, .count = 10};
}

}  // namespace

TEST_CASE("a size counts the larger buffer: the whole of what is gathered, scattered or exchanged") {
  const auto count = [](const char* program) {
    return rondo::bench::count_for(find_case(program), 4096, rondo::DataType::f32, 4);
  };
  CHECK(count("all_reduce_perf") == 1024);
  CHECK(count("broadcast_perf") == 1024);
  CHECK(count("sendrecv_perf") == 1024);
  for (const char* program :
       {"all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "gather_perf", "scatter_perf"}) {
    CHECK(count(program) == 256);
    CHECK(cell(program, 1, 1).bytes() == 160);
  }
  CHECK(cell("barrier_perf", 0).bytes() == 0);
  CHECK_THROWS_AS(find_case("x_perf"), std::out_of_range);
}

TEST_CASE("in place, the block lies at the rank's own position, at the root alone where only the root has blocks") {
  CHECK(cell("all_reduce_perf", 2).in_place_offset(true) == 0);
  CHECK(cell("all_gather_perf", 2).in_place_offset(true) == 20);
  CHECK(cell("all_gather_perf", 2).in_place_offset(false) == 0);
  CHECK(cell("reduce_scatter_perf", 3).in_place_offset(false) == 30);
  CHECK(cell("reduce_scatter_perf", 3).in_place_offset(true) == 0);
  CHECK(cell("gather_perf", 2, 2).in_place_offset(true) == 20);
  CHECK(cell("gather_perf", 2, 1).in_place_offset(true) == 0);
  CHECK(cell("scatter_perf", 2, 2).in_place_offset(false) == 20);
  CHECK(cell("scatter_perf", 2, 1).in_place_offset(false) == 0);
}

TEST_CASE("who has input and output in a rooted collective") {
  CHECK(cell("broadcast_perf", 1, 1).has_input());
  CHECK_FALSE(cell("broadcast_perf", 0, 1).has_input());
  CHECK(cell("broadcast_perf", 0, 1).has_output());
  CHECK_FALSE(cell("reduce_perf", 0, 1).has_output());
  CHECK(expected_output(cell("reduce_perf", 0, 1), 1).empty());
  CHECK(expected_output(cell("gather_perf", 1, 1), 1).size() == 4);
}

TEST_CASE("expected output names the right part of the right rank") {
  const auto exchanged = expected_output(cell("alltoall_perf", 2), 7);
  REQUIRE(exchanged.size() == 4);
  CHECK(exchanged[3].offset == 30);
  CHECK(exchanged[3].source.rank == 3);
  CHECK(exchanged[3].source.first == 20);
  const auto scattered = expected_output(cell("scatter_perf", 2, 1), 7);
  CHECK(scattered.at(0).source.rank == 1);
  CHECK(scattered.at(0).source.first == 20);
  CHECK(expected_output(cell("sendrecv_perf", 0), 7).at(0).source.rank == 3);
  CHECK(expected_output(cell("reduce_scatter_perf", 3), 7).at(0).source.first == 30);
}

TEST_CASE("traffic on one memory is every input once and every output once") {
  const auto of = [](const char* program, bool in_place = false, bool ring = false) {
    return rondo::bench::traffic_of(cell(program, 0, 1), in_place, ring).bytes();
  };
  const double n = 4, block = 40;  // bytes; the larger buffer of what is gathered or scattered has n of them
  CHECK(of("all_reduce_perf") == 2 * n * block);
  CHECK(of("all_reduce_perf", true) == 2 * n * block);
  CHECK(of("all_reduce_perf", false, true) == (6 * n - 4) * block);
  CHECK(of("all_gather_perf") == (n + 1) * n * block);
  CHECK(of("all_gather_perf", true) == n * n * block);
  CHECK(of("reduce_scatter_perf") == (n + 1) * n * block);
  CHECK(of("alltoall_perf") == 2 * n * n * block);
  CHECK(of("broadcast_perf") == (n + 1) * block);
  CHECK(of("broadcast_perf", true) == n * block);
  CHECK(of("reduce_perf") == (n + 1) * block);
  CHECK(of("gather_perf") == 2 * n * block);
  CHECK(of("gather_perf", true) == 2 * (n - 1) * block);
  CHECK(of("scatter_perf", true) == 2 * (n - 1) * block);
  CHECK(of("sendrecv_perf") == 2 * n * block);
  CHECK(of("barrier_perf") == 0);
  const auto written = [](const char* program, bool in_place) {
    return rondo::bench::traffic_of(cell(program, 0, 1), in_place, false).written;
  };
  CHECK(written("all_reduce_perf", false) == n * block);
  CHECK(written("all_gather_perf", false) == n * n * block);
  CHECK(written("all_gather_perf", true) == (n - 1) * n * block);
  CHECK(written("reduce_scatter_perf", false) == n * block);
  CHECK(written("broadcast_perf", false) == n * block);
  CHECK(written("broadcast_perf", true) == (n - 1) * block);
  CHECK(written("gather_perf", true) == (n - 1) * block);
}

TEST_CASE("traffic takes as long as what takes longest: all of it copied, or what is read, or written, alone") {
  const rondo::bench::MemoryRates rates{.copy = 10, .load = 8, .store = 4};
  CHECK(rondo::bench::least_us({.read = 40'000, .written = 40'000}, {.copy = 10}) == 8);
  CHECK(rondo::bench::least_us({.read = 40'000, .written = 20'000}, rates) == 6);
  CHECK(rondo::bench::least_us({.read = 80'000, .written = 0}, rates) == 10);
  CHECK(rondo::bench::least_us({.read = 0, .written = 40'000}, rates) == 10);
}
