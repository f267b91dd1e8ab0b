// SPDX-License-Identifier: Apache-2.0
// A graph that is said to be the same in every step, and is or is not.
#include <array>

#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/trainer/arrays.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::BucketMemory;
using rondo::test::expect;
using rondo::test::Memory;
using rondo::test::run_over;
using rondo::test::sentences;
using rondo::trainer::GradientSynchronizer;

using Used = std::vector<std::size_t>;

// Three parameters of one element in buckets of two, their gradients rank + 1.
class Fixture {
 public:
  explicit Fixture(Communicator& comm)
      : comm_(comm),
        synchronizer(comm, {{"a", nullptr, nullptr, 1}, {"b", nullptr, nullptr, 1}, {"c", nullptr, nullptr, 1}},
                     {.first_bucket_bytes = 8, .bucket_bytes = 8, .gradients_in_buckets = true, .static_graph = true}) {
  }
  void ready(const Used& used) {
    for (const std::size_t index : used) {
      BucketMemory(comm_, nullptr, synchronizer.parameters()[index].gradient)
          .write(std::vector<float>{static_cast<float>(comm_.rank() + 1)});
      synchronizer.ready(index);
    }
  }
  void step(const Used& used) {
    ready(used);
    synchronizer.finish();
  }

 private:
  Communicator& comm_;

 public:
  GradientSynchronizer synchronizer;
};

// Rank 1 uses other parameters than rank 0, and in step 2 those of `changed`.
std::vector<std::string> changes(const std::string& transport, const Used& changed) {
  return sentences(run_over(transport, 2, [&](Communicator& comm) {
    Fixture fixture(comm);
    for (int step = 0; step < 4; ++step) fixture.step(comm.rank() == 0 ? Used{0, 1} : step == 2 ? changed : Used{1, 2});
  }));
}

}  // namespace

TEST_CASE("a static graph may be another one on every rank; steps that are joined or add up are no change") {
  for (const std::string transport : {"shm", "tcp", "sim"}) {
    const auto said = sentences(run_over(transport, 2, [](Communicator& comm) {
      Fixture fixture(comm);
      const Used used = comm.rank() == 0 ? Used{0} : Used{0, 1};
      for (int step = 0; step < (comm.rank() == 0 ? 2 : 4); ++step) {
        fixture.step(used);
        expect(fixture.synchronizer.unused_everywhere() == std::vector<std::size_t>{2}, "unused");
      }
      fixture.synchronizer.join([] {});
      {
        const auto paused = fixture.synchronizer.no_sync();
        fixture.ready({0});
        fixture.synchronizer.finish();
      }
      fixture.step(comm.rank() == 0 ? Used{} : Used{1});  // what was used before counts
      fixture.step(used);
      expect(fixture.synchronizer.statistics().steps == 6, "steps");
    }));
    CHECK(said == rondo::test::no_errors(2));
  }
}

TEST_CASE("a static graph that changes on one rank is told on all, by the names of parameters") {
  for (const std::string transport : {"shm", "tcp", "sim"}) {
    INFO(transport);
    for (const std::string& said : changes(transport, {0, 1, 2}))
      CHECK_THAT(said, Catch::Contains("the graph is static") && Catch::Contains("rank 1: 'a' (now used)") &&
                           Catch::Contains("step 2") && !Catch::Contains("rank 0:"));
    for (const std::string& said : changes(transport, {0, 1}))
      CHECK_THAT(said, Catch::Contains("rank 1: 'a' (now used), 'c' (now unused)"));
    for (const std::string& said : changes(transport, {1}))
      CHECK_THAT(said, Catch::Contains("rank 1: 'c' (now unused)"));
  }
  const auto both = sentences(run_over("shm", 2, [&](Communicator& comm) {
    Fixture fixture(comm);
    fixture.step({0, 1, 2});
    fixture.step(comm.rank() == 0 ? Used{0} : Used{1});
  }));
  for (const std::string& said : both)
    CHECK_THAT(said, Catch::Contains("rank 0: 'b' (now unused), 'c' (now unused); rank 1: 'a' (now unused)"));
}

TEST_CASE("whether the graph is static is the same on every rank") {
  const auto errors = sentences(run_over("shm", 2, [](Communicator& comm) {
    float gradient = 0;
    GradientSynchronizer synchronizer(comm, {{"a", nullptr, &gradient, 1}}, {.static_graph = comm.rank() == 1});
  }));
  for (const std::string& said : errors)
    CHECK_THAT(said, Catch::Contains("changing graph") && Catch::Contains("static graph"));
}
