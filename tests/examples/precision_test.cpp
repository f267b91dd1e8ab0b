// SPDX-License-Identifier: Apache-2.0
// Mixed precision learns what float32 learns.
#include <cmath>
#include <filesystem>

#include "tests/examples/trainings.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::test;

namespace {

using Fields = std::map<std::string, std::string>;
using Flags = std::vector<std::string>;

Fields learnt(const std::string& data, int world_size, Flags flags) {
  const Ended ended = run(training(data, world_size, flags));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  auto result = result_of(ended.out);
  CHECK(result["replicas"] == "identical");
  return result;
}

void within_a_point(const std::string& data, const Flags& flags) {
  const double expected = std::stod(learnt(data, 2, flags)["accuracy"]);
  for (const char* precision : {"f16", "bf16"}) {
    auto more = flags;
    more.insert(more.end(), {"--precision", precision});
    auto result = learnt(data, 2, more);
    CHECK(result["precision"] == precision);
    CHECK(std::stod(result["accuracy"]) >= expected - 1);
  }
}

}  // namespace

TEST_CASE("with 16-bit weights and gradients the accuracy is within one point of float32's") {
  const Data data;
  within_a_point(data.path(), {"--epochs", "2", "--min-accuracy", "85"});
}

TEST_CASE("the same on Fashion-MNIST itself", "[.full]") {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: the package dataset-fashion-mnist is not installed");
    return;
  }
  within_a_point(folder, {"--epochs", "2"});
}

TEST_CASE("a loss scale too large costs the steps in which it is halved, the same ones on every rank") {
  const Data data;
  const Flags flags = {"--epochs", "2", "--min-accuracy", "85", "--precision", "f16", "--loss-scale"};
  const auto with_scale = [&](const char* scale) {
    auto all = flags;
    all.emplace_back(scale);
    return learnt(data.path(), 3, all);
  };
  auto large = with_scale("16777216"), small = with_scale("1024");
  CHECK(std::stoi(large["skipped"]) > 3);
  CHECK(std::stod(large["loss_scale"]) < 16777216);
  CHECK(small["skipped"] == "0");
  CHECK(small["loss_scale"] == "1024");
}

TEST_CASE("16-bit gradients in device memory give the very bits that they give on the CPU") {
  const Data data;
  const Flags flags = {"--epochs", "1", "--limit", "960", "--precision", "f16"};
  auto on_device = flags;
  on_device.insert(on_device.end(), {"--device", "sim"});
  CHECK(learnt(data.path(), 2, on_device)["parameters"] == learnt(data.path(), 2, flags)["parameters"]);
}
