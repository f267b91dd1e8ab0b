// SPDX-License-Identifier: Apache-2.0
// The trainer as processes, on a small data set of the test's own. What it claims must hold, and must fail when the
// all_reduce is left out.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/examples/trainings.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;

TEST_CASE("worlds of any size learn the same from the same global batches, and prove it") {
  const Data data;
  double first_loss = 0;
  std::string first_f1;
  for (const int world_size : {1, 2, 4}) {
    const Ended ended = train(data, world_size, {"--epochs", "2", "--min-accuracy", "85"});
    INFO(ended.out << ended.err);
    REQUIRE(ended.code == 0);
    auto result = result_of(ended.out);
    CHECK(result["world"] == std::to_string(world_size));
    CHECK(result["replicas"] == "identical");
    CHECK(result["shards"] == "exact");
    CHECK(contains(ended.out, "each of the 503 test images was judged once: yes"));
    CHECK(std::stod(result["accuracy"]) >= 85);
    CHECK(std::abs(std::stod(result["f1"]) - std::stod(result["accuracy"]) / 100) < 0.02);  // classes of like size
    if (world_size == 1) first_f1 = result["f1"];
    CHECK(result["f1"] == first_f1);
    const double loss = std::stod(result["first_epoch_loss"]);
    CHECK(std::stod(result["loss"]) < loss);
    if (world_size == 1) first_loss = loss;
    CHECK(std::abs(loss - first_loss) <= 1e-4 * first_loss);
    CHECK_FALSE(contains(ended.out, "NO"));
  }
}

TEST_CASE("without the all_reduce every claim fails, and so does the program") {
  const Data data;
  auto alone = result_of(train(data, 1, {"--epochs", "1"}).out);
  const Ended ended = train(data, 2, {"--epochs", "1", "--min-accuracy", "85", "--no-sync"});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 1);
  auto result = result_of(ended.out);
  CHECK(result["replicas"] == "different");
  CHECK(result["shards"] == "wrong");
  CHECK(contains(ended.out, "cover all 2400 images: NO"));
  CHECK(contains(ended.out, "each of the 503 test images was judged once: NO"));
  CHECK(contains(ended.out, "same bits on all ranks: NO"));
  CHECK(contains(ended.out, "at least 85 %: NO"));
  const double loss = std::stod(alone["first_epoch_loss"]);
  CHECK(std::abs(std::stod(result["first_epoch_loss"]) - loss) > 1e-2 * loss);
}

TEST_CASE("ranks as threads learn what processes learn") {
  const Data data;
  const Ended threads = run({tool("fashion_mnist"), "--threads", "2", "--epochs", "1", "--data", data.path()});
  const Ended processes = train(data, 2, {"--epochs", "1"});
  INFO(threads.err);
  CHECK(threads.code == 0);
  CHECK(result_of(threads.out)["loss"] == result_of(processes.out)["loss"]);
}

// A sum of two does not depend on its order, and the average is divided once at the end: so all bits must be equal.
TEST_CASE("through simulated devices two ranks learn the very bits that they learn on the CPU") {
  const Data data;
  const std::vector<std::string> flags = {"--epochs", "2", "--limit", "960"};
  auto on_device = flags;
  on_device.insert(on_device.end(), {"--device", "sim"});
  const Ended cpu = train(data, 2, flags), simulated = train(data, 2, on_device);
  INFO(cpu.err << simulated.out << simulated.err);
  REQUIRE(cpu.code == 0);
  REQUIRE(simulated.code == 0);
  auto expected = result_of(cpu.out), result = result_of(simulated.out);
  CHECK(result["replicas"] == "identical");
  CHECK(result["device"] == "simulated");
  for (const char* field : {"first_epoch_loss", "loss", "accuracy", "parameters"})
    CHECK(result[field] == expected[field]);
  for (const std::string& out : {cpu.out, simulated.out}) {
    CHECK(contains(out, "# a step on rank 0, mean: backward "));
    CHECK(contains(out, " ms, communication "));
    CHECK_FALSE(contains(out, "communication 0.000 ms"));
  }
  std::istringstream lines(simulated.out);
  for (std::string line; std::getline(lines, line);)
    if (contains(line, "images/s") || contains(line, "images_per_second") || contains(line, " ms"))
      CHECK(contains(line, "simulated"));
}

TEST_CASE("what cannot be trained is refused in a sentence") {
  const Data data;
  const Ended missing = run({tool("fashion_mnist"), "--data", "/nonexistent"});
  CHECK(missing.code == 1);
  CHECK(contains(missing.err, "cannot open /nonexistent/train-images-idx3-ubyte.gz; install the package"));
  const Ended indivisible = train(data, 3, {"--limit", "2399"});
  CHECK(indivisible.code == 1);
  CHECK(
      contains(indivisible.err + indivisible.out, "2399 images in global batches of 240 do not divide among 3 ranks"));
  const Ended device = run({tool("fashion_mnist"), "--device", "cuda", "--data", data.path()},
                           {.environment = {"CUDA_VISIBLE_DEVICES="}});
  CHECK(device.code == 1);
  CHECK(std::count(device.err.begin(), device.err.end(), '\n') == 1);
  const Ended flag = run({tool("fashion_mnist"), "--epoch", "3"});
  CHECK(flag.code == 2);
  CHECK(contains(flag.err, "--epoch"));
}

TEST_CASE("a line is found by worlds of any size, the same one on every rank") {
  for (const int world_size : {1, 2, 3, 5}) {
    const Ended ended = run(rondorun({"--nproc-per-node", std::to_string(world_size), tool("linear_regression")}));
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    for (int rank = 0; rank < world_size; ++rank) {
      CHECK(contains(ended.out, "rank " + std::to_string(rank) + " of " + std::to_string(world_size) +
                                    ": y = 2.9999 x + -2.0000"));
    }
    CHECK(contains(ended.out, "step 0: loss 3.04\n"));
    CHECK(contains(ended.out, "step 199: loss 4.62e-10\n"));
  }
}

TEST_CASE("the twenty-line example sums over the ranks") {
  const Ended ended = run(rondorun({"--nproc-per-node", "3", tool("all_reduce")}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  for (const char* rank : {"0", "1", "2"})
    CHECK(contains(ended.out, std::string("rank ") + rank + " of 3: the sum is 6"));
  CHECK(contains(run({tool("all_reduce")}).out, "rank 0 of 1: the sum is 1"));
}
