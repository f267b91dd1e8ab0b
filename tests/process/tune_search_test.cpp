// SPDX-License-Identifier: Apache-2.0
// The search of rondo-tune, with times that are made up.
#include "tools/tune/device_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::tune;
using comm::Tuning;

namespace {

constexpr std::uint64_t kBest = 64 << 10;

// chunk_bytes is best at kBest; over links, rings win above 64 KiB and trees below; nothing else matters.
std::vector<double> made_up(const Tuning& tuning, bool over_sockets, std::span<const Cell> cells) {
  std::vector<double> times;
  for (const Cell& cell : cells) {
    double time = 1 + std::abs(std::log2(static_cast<double>(tuning.chunk_bytes) / kBest));
    if (over_sockets && !tuning.links.empty() && cell.collective == Collective::broadcast) {
      const bool wants_ring = cell.bytes > 64 << 10;
      if ((tuning.links.back().algorithm == "ring") == wants_ring) time /= 2;
    }
    times.push_back(time);
  }
  return times;
}

}  // namespace

TEST_CASE("the search finds what is faster, and leaves alone what makes no difference") {
  std::vector<std::string> said;
  const Tuning found = search({.rounds = 1}, made_up, [&](const std::string& line) { said.push_back(line); });
  CHECK(found.chunk_bytes == kBest);
  for (const comm::TuningField& field : comm::tuning_fields()) {
    if (field.name == "chunk_bytes") continue;
    INFO(field.name);
    CHECK(found.*field.value == Tuning{}.*field.value);
  }
  const double gain = 1 + std::log2(static_cast<double>(Tuning{}.chunk_bytes) / kBest);
  CHECK(std::find(said.begin(), said.end(), fmt::format("chunk_bytes becomes 64K: {:.2f} times as fast", gain)) !=
        said.end());

  const auto without_copies = [](const Tuning& tuning, bool, std::span<const Cell> cells) {
    return std::vector<double>(cells.size(), tuning.single_copy_bytes == UINT64_MAX ? 1.0 : 2.0);
  };
  const Tuning never = search({.rounds = 1, .only = {"single_copy_bytes"}}, without_copies, [](const auto&) {});
  CHECK(never.single_copy_bytes == UINT64_MAX);
  CHECK(never.single_copy_sum_bytes == UINT64_MAX);  // what follows it went along

  std::vector<kernels::TunerRow> broadcasts;
  for (const auto& row : found.links) {
    if (row.pattern == kernels::Pattern::broadcast) broadcasts.push_back(row);
  }
  REQUIRE(broadcasts.size() == 2);
  CHECK(broadcasts[0].algorithm == "tree");
  CHECK(broadcasts[0].max_bytes > 64 << 10);
  CHECK(broadcasts[0].max_bytes < 512 << 10);
  CHECK(broadcasts[1].algorithm == "ring");
  CHECK(broadcasts[1].max_bytes == kernels::kAnyBytes);
}

namespace {

// Pushes win up to 8 KiB, windows up to 1 MiB, and a push takes no more than 16 KiB.
std::vector<Took> made_up_device(const Tuning& tuning, bool, std::span<const Cell> cells) {
  std::vector<Took> all;
  for (const Cell& cell : cells) {
    const bool short_call = cell.bytes <= 8 << 10, middle = cell.bytes <= 1 << 20;
    if (cell.bytes <= std::min<std::uint64_t>(tuning.device_push_bytes, 16 << 10)) {
      all.push_back({short_call ? 1.0 : 3.0, "push one_shot"});
    } else if (cell.bytes <= tuning.device_window_bytes) {
      all.push_back({middle ? 2.0 : 4.0, "window two_shot"});
    } else {
      all.push_back({middle ? 3.0 : 2.0, "simple ring"});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a device's threshold lies where the sides change places, and what is the same on either side is left") {
  std::vector<std::string> said;
  const Say say = [&](const std::string& line) { said.push_back(line); };
  const auto has = [&](std::string_view line) { return std::find(said.begin(), said.end(), line) != said.end(); };
  const Tuning found = search_device({.world_size = 4, .rounds = 3}, made_up_device, say);
  CHECK(found.device_push_bytes == 8 << 10);
  CHECK(found.device_window_bytes == 1 << 20);
  CHECK(found.device_one_shot_bytes == Tuning{}.device_one_shot_bytes);
  CHECK(found.device_ll_bytes == Tuning{}.device_ll_bytes);
  CHECK(found.chunk_bytes == Tuning{}.chunk_bytes);
  CHECK(has("device_push_bytes: all_reduce of 16K: up to it push one_shot 3.00 us, beyond it window two_shot 2.00 us"));
  CHECK(has("device_push_bytes: all_reduce of 32K: window two_shot 2.00 us on either side"));
  CHECK(has("device_one_shot_bytes stays 128K"));

  said.clear();
  search_device({.world_size = 9, .rounds = 1, .only = {"device_push_bytes"}}, made_up_device, say);
  CHECK(has("device_push_bytes makes no difference among 9 ranks"));
  CHECK(said.size() == 1);
}

TEST_CASE("a difference within the noise changes nothing") {
  const auto slightly = [](const Tuning& tuning, bool, std::span<const Cell> cells) {
    return std::vector<double>(cells.size(), tuning.chunk_bytes == kBest ? 0.98 : 1.0);
  };
  CHECK(search({.world_size = 4, .rounds = 1}, slightly, [](const std::string&) {}).chunk_bytes ==
        Tuning{}.chunk_bytes);
}
