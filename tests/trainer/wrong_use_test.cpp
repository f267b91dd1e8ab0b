// SPDX-License-Identifier: Apache-2.0
// What goes wrong in programs: each has its sentence on every rank, soon, and none hangs. (Different models:
// gradient_synchronizer_test.cpp.)
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <array>
#include <stdexcept>

#include "tests/support/catch.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::no_errors;
using rondo::trainer::GradientSynchronizer;
using namespace std::chrono_literals;

class Fixture {
 public:
  explicit Fixture(Communicator& comm) : gradient(100, 1.0F), comm_(comm) {
    synchronizer.emplace(comm,
                         std::vector<rondo::trainer::Parameter>{{"first", nullptr, gradient.data(), 60},
                                                                {"second", nullptr, gradient.data() + 60, 40}},
                         rondo::trainer::SynchronizerOptions{.first_bucket_bytes = 64, .bucket_bytes = 64});
  }
  void step() {
    synchronizer->ready(1);
    synchronizer->ready(0);
    synchronizer->finish();
  }
  int rank() const { return comm_.rank(); }

  std::vector<float> gradient;
  std::optional<GradientSynchronizer> synchronizer;

 private:
  Communicator& comm_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The test's own bound is far below the deadline of a collective.
template <class Body>
std::vector<std::string> soon(int world_size, Body body) {
  const auto begin = std::chrono::steady_clock::now();
  auto errors = each_rank(world_size, body);
  CHECK(std::chrono::steady_clock::now() - begin < rondo::test::kDeadline / 2);
  return errors;
}

}  // namespace

TEST_CASE("an exception in the backward pass of one rank ends the others' step, which say whose") {
  for (const int at : {0, 1}) {
    const auto errors = soon(3, [at](Communicator& comm) {
      Fixture f(comm);
      f.step();
      if (comm.rank() == 1) {
        if (at == 1) f.synchronizer->ready(1);
        throw std::runtime_error("out of numbers");
      }
      f.step();
    });
    INFO(errors[0] << "\n" << errors[2]);
    CHECK(errors[1] == "out of numbers");
    for (const std::size_t r : {0U, 2U}) {
      CHECK(has(errors[r], "rank 1"));
      CHECK(has(errors[r], "step 1 of a GradientSynchronizer"));
    }
  }
}

TEST_CASE("a rank that catches the exception and goes on with the next batch is aborted all the same") {
  const auto errors = soon(2, [](Communicator& comm) {
    Fixture f(comm);
    if (comm.rank() == 1) {
      f.synchronizer->ready(1);
      try {
        throw std::runtime_error("a bad batch");
      } catch (const std::exception&) {
      }
      f.step();  // says ready a second time
    }
    f.step();
  });
  INFO(errors[0] << "\n" << errors[1]);
  CHECK(has(errors[1], "'second' was made ready twice in step 0"));
  CHECK(has(errors[0], "rank 1"));
}

TEST_CASE("a rank that skips a step is missed by the others in their last one") {
  const auto errors = soon(3, [](Communicator& comm) {
    Fixture f(comm);
    for (int step = 0; step < 5; ++step) {
      if (step == 2 && comm.rank() == 1) continue;
      f.step();
    }
  });
  for (const std::size_t r : {0U, 2U}) {
    INFO(errors[r]);
    CHECK(has(errors[r], "rank 1"));
    CHECK(has(errors[r], "step 4 of a GradientSynchronizer, where every rank calls finish() once after each backward"));
  }
}

TEST_CASE("a rank that skips a step is found in the next one where batches have numbers") {
  for (const std::string transport : {"shm", "tcp", "tcp", "tcp"}) {
    std::array<int, 3> good{};
    const auto errors = rondo::test::sentences(rondo::test::run_over(transport, 3, [&good](Communicator& comm) {
      Fixture f(comm);
      for (std::uint64_t batch = 0; batch < 8; ++batch) {
        if (batch == 5 && comm.rank() == 1) continue;
        f.synchronizer->begin_forward(batch);
        f.step();
        ++good[static_cast<std::size_t>(comm.rank())];
      }
    }));
    CHECK(good == std::array{5, 5, 5});
    for (const std::string& error : errors) {
      INFO(transport << ": " << error);
      CHECK(has(error,
                "gradients of different steps have met: step 5 of ranks 0, 2, step 6 of rank 1; no rank may skip"));
    }
  }
}

TEST_CASE("ranks with as many batches as numbers say train on, also with join and numbers from anywhere") {
  const auto errors = soon(3, [](Communicator& comm) {
    Fixture f(comm);
    for (std::uint64_t batch = 0; batch < 20; ++batch) {
      f.synchronizer->begin_forward(1000 * batch);
      f.step();
    }
    for (int more = 0; more < 3 * comm.rank(); ++more) f.step();
    f.synchronizer->join([] {});
  });
  CHECK(errors == no_errors(3));
}

TEST_CASE("ranks in different steps are named") {
  const auto errors = soon(3, [](Communicator& comm) {
    Fixture first(comm);
    first.step();
    Fixture second(comm);
    // The same model twice, so that nothing but the number of the step tells the calls apart.
    if (comm.rank() == 1) {
      first.step();
    } else {
      second.step();
    }
  });
  INFO(errors[0] << "\n" << errors[1]);
  for (const std::string& error : errors)
    CHECK(has(error, "gradients of different steps have met: step 0 of ranks 0, 2, step 1 of rank 1"));
}

TEST_CASE("uneven batches without join: every rank hears of it, with the remedy") {
  for (const bool says_more : {false, true}) {
    const auto errors = soon(2, [says_more](Communicator& comm) {
      Fixture f(comm);
      for (int batch = 0; batch < 2 + comm.rank(); ++batch) f.step();
      std::int64_t correct = 1;
      if (says_more) comm.all_reduce(std::span(&correct, 1), rondo::ReduceOp::sum);
    });
    INFO(errors[0] << "\n" << errors[1]);
    CHECK(has(errors[1], "join() when its batches end before others'"));
    CHECK(has(errors[1], "rank 0"));
    if (says_more) CHECK(has(errors[0], "all_reduce"));
  }
}

TEST_CASE("finish() while a thread still says ready, no_sync or join inside a step are refused") {
  const auto errors = each_rank(1, [](Communicator& comm) {
    Fixture f(comm);
    f.synchronizer->ready(0);
    const auto refused = [](auto&& call, const std::string& part) {
      const std::string sentence = rondo::test::sentence_of(rondo::test::thrown_by(call));
      if (!has(sentence, part)) throw std::runtime_error("not refused: " + sentence);
    };
    refused([&] { const auto pause = f.synchronizer->no_sync(); }, "no_sync() in the middle of step 0");
    refused([&] { f.synchronizer->join_step(); }, "join() in the middle of step 0");
    refused([&] { (void)f.synchronizer->gradient<double>(0); }, "is f32, not f64");
    f.synchronizer->finish();
  });
  CHECK(errors == no_errors(1));
}

TEST_CASE("gradients of one's own and gradients in buckets exclude each other, and a model has parameters") {
  const auto errors = each_rank(1, [](Communicator& comm) {
    std::vector<float> gradient(3);
    const auto refused = [&](std::vector<rondo::trainer::Parameter> parameters, bool in_buckets,
                             const std::string& part) {
      const std::string sentence = rondo::test::sentence_of(rondo::test::thrown_by(
          [&] { const GradientSynchronizer s(comm, std::move(parameters), {.gradients_in_buckets = in_buckets}); }));
      if (!has(sentence, part)) throw std::runtime_error("not refused: " + sentence);
    };
    refused({{"p", nullptr, gradient.data(), 3}}, true, "'p' has a gradient array");
    refused({{"p", nullptr, nullptr, 3}}, false, "'p' has no gradient array");
    refused({}, false, "no parameters");
    refused({{"once", nullptr, gradient.data(), 3}, {"again", nullptr, gradient.data(), 3}}, false,
            "parameters 'once' and 'again' share gradient memory; register a parameter that is used twice once");
    refused({{"end", nullptr, gradient.data() + 2, 1}, {"all", nullptr, gradient.data(), 3}}, false, "'end' and 'all'");
    refused({{"all", nullptr, gradient.data(), 3}, {"end", nullptr, gradient.data() + 2, 1}}, false, "'all' and 'end'");
  });
  CHECK(errors == no_errors(1));
}
