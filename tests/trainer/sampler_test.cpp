// SPDX-License-Identifier: Apache-2.0
#include <rondo/trainer/sampler.hpp>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include <rondo/error.hpp>

#include "tests/support/catch.hpp"

namespace {

using rondo::trainer::DistributedSampler;
using rondo::trainer::Tail;
using Indices = std::vector<std::size_t>;

Indices indices(std::size_t samples, int rank, int world_size, rondo::trainer::SamplerOptions options) {
  return DistributedSampler(samples, rank, world_size, options).indices();
}

// What the ranks' lists are when dealt back into one: position i of the epoch is rank i % world_size, place i / it.
Indices dealt_back(std::size_t samples, int world_size, rondo::trainer::SamplerOptions options) {
  std::vector<Indices> lists;
  for (int r = 0; r < world_size; ++r) lists.push_back(indices(samples, r, world_size, options));
  Indices all;
  for (std::size_t place = 0; place < lists[0].size(); ++place) {
    for (const Indices& list : lists) {
      if (place < list.size()) all.push_back(list[place]);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("ten samples on three ranks, padded and dropped") {
  CHECK(indices(10, 0, 3, {.shuffle = false}) == Indices{0, 3, 6, 9});
  CHECK(indices(10, 1, 3, {.shuffle = false}) == Indices{1, 4, 7, 0});
  CHECK(indices(10, 2, 3, {.shuffle = false}) == Indices{2, 5, 8, 1});
  CHECK(indices(10, 0, 3, {.shuffle = false, .tail = Tail::drop}) == Indices{0, 3, 6});
  CHECK(indices(10, 1, 3, {.shuffle = false, .tail = Tail::drop}) == Indices{1, 4, 7});
  CHECK(indices(10, 2, 3, {.shuffle = false, .tail = Tail::drop}) == Indices{2, 5, 8});
}

TEST_CASE("fewer samples than ranks: padding repeats them as often as needed, dropping leaves none") {
  for (int rank = 0; rank < 7; ++rank) {
    CHECK(indices(2, rank, 7, {.shuffle = false}) == Indices{static_cast<std::size_t>(rank % 2)});
    CHECK(indices(2, rank, 7, {.shuffle = false, .tail = Tail::drop}).empty());
    CHECK(indices(0, rank, 7, {}).empty());
  }
}

TEST_CASE("every tail gives size() indices and covers what it promises") {
  for (std::size_t samples = 0; samples <= 40; ++samples) {
    for (int world_size = 1; world_size <= 9; ++world_size) {
      const Indices exact = dealt_back(samples, world_size, {.tail = Tail::exact});
      CHECK(std::is_permutation(exact.begin(), exact.end(), rondo::trainer::random_permutation(samples, 0).begin()));
      CHECK(exact == rondo::trainer::random_permutation(samples, 0));
      const Indices padded = dealt_back(samples, world_size, {.tail = Tail::pad});
      CHECK(padded.size() == (samples + static_cast<std::size_t>(world_size) - 1) /
                                 static_cast<std::size_t>(world_size) * static_cast<std::size_t>(world_size));
      CHECK(std::equal(exact.begin(), exact.end(), padded.begin()));
      const Indices dropped = dealt_back(samples, world_size, {.tail = Tail::drop});
      CHECK(dropped.size() == samples / static_cast<std::size_t>(world_size) * static_cast<std::size_t>(world_size));
      CHECK(std::equal(dropped.begin(), dropped.end(), exact.begin()));
    }
  }
}

TEST_CASE("the ranks' next samples are the same set whatever the world size") {
  const Indices one = dealt_back(240, 1, {.seed = 3});
  CHECK(dealt_back(240, 2, {.seed = 3}) == one);
  CHECK(dealt_back(240, 8, {.seed = 3}) == one);
}

// The lists below were made with PyTorch 1.13.1: torch.randperm with a Generator seeded so, and
// torch.utils.data.distributed.DistributedSampler.
TEST_CASE("the shuffle is torch.randperm's") {
  CHECK(rondo::trainer::random_permutation(10, 0) == Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
  CHECK(rondo::trainer::random_permutation(13, 7) == Indices{6, 5, 3, 9, 8, 4, 12, 0, 11, 10, 1, 7, 2});
  std::uint64_t hash = 14695981039346656037U;
  for (const std::uint64_t value : rondo::trainer::random_permutation(60000, 1)) hash = (hash ^ value) * 1099511628211U;
  CHECK(hash == 0x770ba5c353fc61fU);
}

TEST_CASE("the ranks' lists are those of PyTorch's DistributedSampler") {
  const std::vector<Indices> padded = {{8, 12, 16, 9}, {15, 4, 6, 1}, {3, 10, 7, 8}, {2, 13, 14, 15}, {11, 0, 5, 3}};
  const std::vector<Indices> dropped = {{8, 12, 16}, {15, 4, 6}, {3, 10, 7}, {2, 13, 14}, {11, 0, 5}};
  for (int rank = 0; rank < 5; ++rank) {
    DistributedSampler pads(17, rank, 5, {.seed = 42});
    pads.set_epoch(3);
    CHECK(pads.indices() == padded[static_cast<std::size_t>(rank)]);
    DistributedSampler drops(17, rank, 5, {.seed = 42, .tail = Tail::drop});
    drops.set_epoch(3);
    CHECK(drops.indices() == dropped[static_cast<std::size_t>(rank)]);
  }
  const Indices few = {1, 2, 0, 1, 2, 0, 1};  // three samples, seven ranks
  for (int rank = 0; rank < 7; ++rank) {
    DistributedSampler pads(3, rank, 7);
    pads.set_epoch(1);
    CHECK(pads.indices() == Indices{few[static_cast<std::size_t>(rank)]});
  }
}

// data/make_sampler_lists.py has made them.
TEST_CASE("lists of ten kinds, shuffled or not, padded or dropped, are PyTorch's") {
  std::ifstream in(RONDO_TRAINER_DATA "/sampler_lists.json");
  REQUIRE(in);
  const auto rows = nlohmann::json::parse(in);
  CHECK(rows.size() == 36);
  for (const auto& row : rows) {
    for (int rank = 0; rank < row["world_size"]; ++rank) {
      DistributedSampler sampler(
          row["samples"], rank, row["world_size"],
          {.shuffle = row["shuffle"], .seed = row["seed"], .tail = row["drop_last"] ? Tail::drop : Tail::pad});
      sampler.set_epoch(row["epoch"]);
      INFO(row["samples"] << " samples, rank " << rank << " of " << row["world_size"] << ", seed " << row["seed"]);
      CHECK(sampler.indices() == row["ranks"][static_cast<std::size_t>(rank)].get<Indices>());
    }
  }
}

TEST_CASE("next_epoch goes through the epochs by itself") {
  DistributedSampler by_itself(50, 1, 3, {.seed = 9}), by_hand = by_itself;
  by_itself.set_epoch(4);
  for (std::uint64_t epoch = 4; epoch < 8; ++epoch) {
    by_hand.set_epoch(epoch);
    CHECK(by_itself.next_epoch() == by_hand.indices());
  }
}

TEST_CASE("an order of one's own is dealt out like the sampler's") {
  const Indices order = {7, 7, 3, 9, 1};
  CHECK(rondo::trainer::deal(order, 0, 2) == Indices{7, 3, 1});
  CHECK(rondo::trainer::deal(order, 1, 2) == Indices{7, 9, 7});
  CHECK(rondo::trainer::deal(order, 1, 2, Tail::exact) == Indices{7, 9});
  CHECK(rondo::trainer::deal(order, 0, 2, Tail::drop) == Indices{7, 3});
  CHECK_THROWS_AS(rondo::trainer::deal(order, 2, 2), rondo::Error);
}

TEST_CASE("set_epoch gives another shuffle, which seed + epoch decides") {
  DistributedSampler sampler(100, 0, 1, {.seed = 5});
  const Indices first = sampler.indices();
  CHECK(sampler.indices() == first);
  sampler.set_epoch(2);
  CHECK(sampler.indices() != first);
  CHECK(sampler.indices() == rondo::trainer::random_permutation(100, 7));
}

TEST_CASE("a rank outside the world is refused") {
  CHECK_THROWS_AS(DistributedSampler(10, 3, 3), rondo::Error);
  CHECK_THROWS_AS(DistributedSampler(10, -1, 3), rondo::Error);
}
