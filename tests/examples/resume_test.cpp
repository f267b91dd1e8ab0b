// SPDX-License-Identifier: Apache-2.0
// A training that was killed and started again ends as if nothing had happened.
#include "tests/examples/trainings.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;

namespace {

using Flags = std::vector<std::string>;
constexpr int kRanks = 2;

Flags operator+(Flags left, const Flags& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// Until `epochs` are done, wherever the training is then.
void train_and_kill(const Data& data, const Flags& flags, std::size_t epochs) {
  Running running(training(data.path(), kRanks, flags));
  running.lines("epoch ", epochs);
  running.signal(SIGKILL);
  CHECK(running.wait().signal == SIGKILL);
}

}  // namespace

TEST_CASE("killed twice and resumed, a training ends with the bits of one that was left alone") {
  const Data data;
  const std::string precision = GENERATE("f32", "f16");
  const Flags flags = {"--epochs", "4", "--precision", precision};
  const Flags kept = flags + Flags{"--checkpoint", data.path() + "/progress.safetensors"};
  auto expected = result_of(train(data, kRanks, flags).out);
  train_and_kill(data, kept, 1);
  train_and_kill(data, kept, 1);
  const Ended ended = train(data, kRanks, kept);
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  CHECK((contains(ended.out, "# going on after epoch 2 ") || contains(ended.out, "# going on after epoch 3 ") ||
         contains(ended.out, "# going on after epoch 4 ")));
  CHECK_FALSE(contains(ended.out, "epoch 1:"));
  auto result = result_of(ended.out);
  for (const char* field :
       {"epochs", "first_epoch_loss", "loss", "accuracy", "f1", "parameters", "replicas", "loss_scale"})
    CHECK(result[field] == expected[field]);
}

TEST_CASE("a checkpoint of another run is not gone on from") {
  const Data data;
  const Flags kept = {"--epochs", "1", "--checkpoint", data.path() + "/progress.safetensors"};
  CHECK(train(data, kRanks, kept).code == 0);
  const Ended other = train(data, kRanks, kept + Flags{"--seed", "5"});
  CHECK(other.code == 1);
  CHECK(contains(other.err, "is of another run (seed 0, 2400 images"));
}

TEST_CASE("a rank that is killed is started again by the launcher, with the others, and the bits are the same") {
  const Data data;
  const Flags flags = {"--epochs", "4"};
  auto expected = result_of(train(data, kRanks, flags).out);
  auto command = training(data.path(), kRanks, flags + Flags{"--checkpoint", data.path() + "/progress.safetensors"});
  command.insert(command.begin() + 1, {"--max-restarts", "1"});
  Running running(command);
  const auto pids = running.lines("# rank 0 is process ", 1);
  running.lines("epoch ", 1);
  ::kill(std::stoi(pids[0]), SIGKILL);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  CHECK(contains(ended.err, "starting again: restart 1 of 1"));
  CHECK(contains(ended.out, "# going on after epoch "));
  auto result = result_of(ended.out);
  for (const char* field : {"epochs", "loss", "accuracy", "parameters"}) CHECK(result[field] == expected[field]);
}
