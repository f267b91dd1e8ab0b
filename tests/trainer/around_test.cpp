// SPDX-License-Identifier: Apache-2.0
// Gathering values, rank 0 first.
#include <rondo/trainer/gather.hpp>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include <rondo/trainer/rank_zero_first.hpp>
#include <rondo/trainer/sampler.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::expect;
using rondo::test::no_errors;
using namespace rondo::trainer;

struct Prediction {
  std::string name;
  std::vector<float> scores;
  bool operator==(const Prediction&) const = default;
};

}  // namespace

template <>
struct rondo::trainer::Serial<Prediction> {
  static void write(std::vector<std::byte>& to, const Prediction& p) {
    Serial<std::string>::write(to, p.name);
    Serial<std::vector<float>>::write(to, p.scores);
  }
  static Prediction read(std::span<const std::byte>& from) {
    std::string name = Serial<std::string>::read(from);
    return {std::move(name), Serial<std::vector<float>>::read(from)};
  }
};

TEST_CASE("values of any type are gathered in rank order") {
  CHECK(each_rank(3, [](Communicator& comm) {
          const auto of = [](int rank) {
            const auto r = static_cast<std::size_t>(rank);
            return std::vector<Prediction>(r, {std::string(r * 3, 'x'), std::vector<float>(r, 0.5F)});
          };
          const auto all = all_gather_value(comm, of(comm.rank()));
          expect(all.size() == 3, "size");
          for (int r = 0; r < 3; ++r) expect(all[static_cast<std::size_t>(r)] == of(r), "value");
          const auto pairs = all_gather_value(comm, std::pair<int, std::string>(comm.rank(), "epoch"));
          expect(pairs[2].first == 2 && pairs[2].second == "epoch", "pair");
        }) == no_errors(3));
}

TEST_CASE("ranks that gather different types hear of it") {
  for (const std::string& error : each_rank(2, [](Communicator& comm) {
         if (comm.rank() == 0) all_gather_value(comm, 1.0);
         if (comm.rank() == 1) all_gather_value(comm, 'x');
       }))
    CHECK_FALSE(error.empty());
}

TEST_CASE("what an exact sampler dealt out comes back complete and in order, for any numbers") {
  for (const int world_size : {1, 2, 3, 5}) {
    for (const std::size_t samples : {0U, 1U, 4U, 5U, 23U, 100U}) {
      CHECK(each_rank(world_size, [samples](Communicator& comm) {
              const auto mine =
                  DistributedSampler(samples, comm.rank(), comm.world_size(), {.shuffle = false, .tail = Tail::exact})
                      .indices();
              std::vector<std::int32_t> predictions;
              for (const std::size_t i : mine) predictions.push_back(static_cast<std::int32_t>(i * i % 7));
              const auto all = gather_all(comm, predictions, GatherOrder::dealt);
              expect(all.size() == samples, "number");
              for (std::size_t i = 0; i < samples; ++i) expect(all[i] == static_cast<std::int32_t>(i * i % 7), "order");
              auto by_rank = gather_all(comm, mine);
              std::sort(by_rank.begin(), by_rank.end());
              for (std::size_t i = 0; i < samples; ++i) expect(by_rank[i] == i, "each once");
            }) == no_errors(world_size));
    }
  }
}

TEST_CASE("rank 0 goes first, the others after it") {
  std::atomic<bool> made = false;
  std::atomic<int> found = 0;
  CHECK(each_rank(4, [&](Communicator& comm) {
          {
            const RankZeroFirst order(comm);
            if (comm.rank() == 0) {
              std::this_thread::yield();
              made = true;
            } else {
              found += made;
            }
          }
          comm.barrier();
        }) == no_errors(4));
  CHECK(found == 3);
}

TEST_CASE("an exception in rank 0's part releases the others, with an error") {
  std::atomic<int> went_through = 0;
  const auto errors = each_rank(3, [&](Communicator& comm) {
    try {
      const RankZeroFirst order(comm);
      if (comm.rank() == 0) throw std::runtime_error("no disk space");
      ++went_through;
    } catch (const std::exception&) {
      comm.barrier();  // the communicator is as good as before
      throw;
    }
  });
  CHECK(went_through == 0);
  CHECK(errors[0] == "no disk space");
  for (const std::size_t r : {1U, 2U}) CHECK(errors[r].find("rank 0's part") != std::string::npos);
}
