// SPDX-License-Identifier: Apache-2.0
// Gradients through simulated devices: in device memory, averaged where they lie, by kernels that run on the host.
#include <rondo/device.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"

namespace {

using rondo::Communicator;
using rondo::DeviceArray;
using rondo::trainer::GradientSynchronizer;
using rondo::trainer::Parameter;

constexpr int kRanks = 2;
const rondo::Options kOptions{.device = rondo::Device::sim(), .timeout = std::chrono::seconds(20)};
const std::vector<std::size_t> kCounts = {3, 200, 0, 64, 17};

float element(std::size_t parameter, std::size_t i, int step) {
  return static_cast<float>((parameter * 31 + i * 7 + static_cast<std::size_t>(step) * 3) % 101) - 50;
}

struct Model {
  explicit Model(rondo::Device device, float value) : stream(device) {
    for (const std::size_t count : kCounts) {
      values.emplace_back(device, std::vector<float>(count, value));
      gradients.emplace_back(device, count);
    }
  }
  std::vector<Parameter> parameters() {
    std::vector<Parameter> all;
    for (std::size_t i = 0; i < kCounts.size(); ++i)
      all.push_back(
          rondo::trainer::parameter(std::string("p").append(std::to_string(i)), values[i].span(), gradients[i].span()));
    return all;
  }
  // The average of rank + 1 over two ranks is 1.5, and halves of even numbers are exact.
  void compute(std::size_t p, int rank, int step) {
    std::vector<float> host(kCounts[p]);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = 2 * element(p, i, step) * static_cast<float>(rank + 1);
    gradients[p].copy_from(host);
  }
  bool is_average(std::size_t p, int step) const {
    const std::vector<float> host = gradients[p].to_host();
    for (std::size_t i = 0; i < host.size(); ++i)
      if (host[i] != 3 * element(p, i, step)) return false;
    return true;
  }

  std::vector<DeviceArray<float>> values, gradients;
  rondo::DeviceStream stream;
};

}  // namespace

TEST_CASE("gradients in device memory are averaged in place, step after step, in buckets of any size") {
  const std::size_t bucket_bytes = GENERATE(std::size_t{8}, std::size_t{256}, std::size_t{1} << 20);
  rondo::test::on_ranks(
      kRanks,
      [&](Communicator& comm) {
        Model model(comm.device(), 0);
        GradientSynchronizer synchronizer(
            comm, model.parameters(),
            {.first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes * 2, .stream = model.stream.get()});
        bool good = true;
        for (int step = 0; step < 3; ++step) {
          for (std::size_t i = 0; i < kCounts.size(); ++i) {
            const std::size_t p = comm.rank() == 0 ? i : kCounts.size() - 1 - i;  // each rank in its own order
            model.compute(p, comm.rank(), step);
            synchronizer.ready(p);
          }
          synchronizer.finish();
          for (std::size_t p = 0; p < kCounts.size(); ++p) good &= model.is_average(p, step);
        }
        if (!good) throw std::runtime_error("a gradient is not the average");
      },
      kOptions);
}

TEST_CASE("rank 0's parameters come to every device") {
  rondo::test::on_ranks(
      kRanks,
      [&](Communicator& comm) {
        Model model(comm.device(), static_cast<float>(comm.rank() + 5));
        const GradientSynchronizer synchronizer(comm, model.parameters(), {.stream = model.stream.get()});
        for (std::size_t p = 0; p < kCounts.size(); ++p)
          if (model.values[p].to_host() != std::vector<float>(kCounts[p], 5)) throw std::runtime_error("not rank 0's");
      },
      kOptions);
}

TEST_CASE("a gradient in host memory is refused where the communicator is on a device") {
  const auto errors = rondo::test::run_ranks(kRanks, kOptions, [&](Communicator& comm) {
    std::vector<float> gradient(100);
    GradientSynchronizer synchronizer(comm,
                                      {{"lost", nullptr, gradient.data(), gradient.size(), rondo::DataType::f32}});
    synchronizer.ready(0);
    synchronizer.finish();
  });
  for (const auto& error : errors) CHECK(rondo::test::code_of(error) == rondo::ErrorCode::invalid_argument);
}
