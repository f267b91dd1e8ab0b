// SPDX-License-Identifier: Apache-2.0
// Gradients through simulated devices: in device memory, averaged where they lie, by kernels that run on the host.
#include <rondo/device.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

#include <atomic>
#include <chrono>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
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

TEST_CASE(
    "in device memory: a bucket's time ends when the last rank has come, and is known on a stream of the caller's") {
  const bool own_stream = GENERATE(true, false);
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::rep> last_came{0};
  std::atomic<bool> first_waits{false};
  rondo::test::on_ranks(
      kRanks,
      [&](Communicator& comm) {
        Model model(comm.device(), 0);
        GradientSynchronizer synchronizer(
            comm, model.parameters(),
            {.first_bucket_bytes = 64, .bucket_bytes = 256, .stream = own_stream ? model.stream.get() : nullptr});
        const bool first = comm.rank() == 0;
        if (!first) first_waits.wait(false);
        if (!first) last_came = Clock::now().time_since_epoch().count();
        for (std::size_t p = 0; p < kCounts.size(); ++p) synchronizer.ready(p);
        first_waits = true;
        first_waits.notify_one();
        synchronizer.finish();
        const rondo::trainer::StepRecord& record = synchronizer.last_step();
        rondo::test::expect(record.buckets.size() > 1, "one bucket alone");
        Clock::time_point before{};
        for (const rondo::trainer::BucketRecord& bucket : record.buckets) {
          if (!own_stream) rondo::test::expect(bucket.started == bucket.finished, "times of a stream nobody named");
          if (!own_stream) continue;
          rondo::test::expect(bucket.submitted <= bucket.started && bucket.started < bucket.finished &&
                                  bucket.finished <= record.end && before <= bucket.started,
                              "a bucket outside its step, or before another");
          rondo::test::expect(bucket.finished.time_since_epoch().count() > last_came, "done before the last rank came");
          before = bucket.finished;
        }
        const double seconds = synchronizer.statistics().communication_seconds;
        rondo::test::expect(own_stream ? seconds > 0 : seconds == 0, "communication time");
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
  int refused = 0;  // the rank that is first aborts the others
  for (const auto& error : errors) {
    INFO(rondo::test::sentence_of(error));
    const bool named = rondo::test::sentence_of(error).find("'lost'") != std::string::npos;
    refused += named && rondo::test::code_of(error) == rondo::ErrorCode::invalid_argument;
    CHECK((named || rondo::test::code_of(error) == rondo::ErrorCode::aborted));
  }
  CHECK(refused >= 1);
}

TEST_CASE("a gradient on another device than the communicator's is refused with both numbers") {
  REQUIRE(rondo::device_count(rondo::Device::Kind::sim) > 1);
  const auto errors = rondo::test::run_ranks(1, {.device = rondo::Device::sim(0)}, [&](Communicator& comm) {
    const DeviceArray<float> gradient(rondo::Device::sim(1), 100);
    GradientSynchronizer synchronizer(comm, {{"far", nullptr, gradient.data(), gradient.size()}});
    synchronizer.ready(0);
  });
  const std::string sentence = rondo::test::sentence_of(errors[0]);
  INFO(sentence);
  CHECK(sentence.find("device 1, and the communicator is on device 0") != std::string::npos);
  CHECK(sentence.find("(gradients of 'far')") != std::string::npos);
}

namespace {

// One rank's gradients in device memory, in the caller's arrays or in the buckets, and what they should become.
class Usage {
 public:
  Usage(Communicator& comm, bool in_buckets) : comm_(comm), stream_(comm.device()) {
    std::vector<Parameter> parameters;
    for (const std::size_t count : kCounts) {
      gradients_.emplace_back(comm.device(), count);
      parameters.push_back({std::string("p").append(std::to_string(parameters.size())), nullptr,
                            in_buckets ? nullptr : gradients_.back().data(), count});
    }
    synchronizer_.emplace(comm, parameters,
                          rondo::trainer::SynchronizerOptions{.first_bucket_bytes = 64,
                                                              .bucket_bytes = 256,
                                                              .stream = stream_.get(),
                                                              .gradients_in_buckets = in_buckets});
  }

  static bool uses(int rank, std::size_t p, int step) {
    return (p * 5 + static_cast<std::size_t>(step * 3 + rank * 7)) % 4 < 2;
  }
  void step(int step) {
    for (std::size_t p = 0; p < kCounts.size(); ++p) {
      write(p, value(comm_.rank(), p, step));
      if (uses(comm_.rank(), p, step)) synchronizer_->ready(p);
    }
    synchronizer_->finish();
    for (std::size_t p = 0; p < kCounts.size(); ++p) check(p, expected(comm_.rank(), p, step));
  }
  void step_of_rank_1(int step) {
    for (std::size_t p = 0; p < kCounts.size(); ++p) {
      write(p, value(1, p, step));
      if (uses(1, p, step)) synchronizer_->ready(p);
    }
    synchronizer_->finish();
    for (std::size_t p = 0; p < kCounts.size(); ++p) check(p, value(1, p, step) / (uses(1, p, step) ? 2 : 1));
  }
  void join(int from, int steps) {
    const float before = -3;
    for (int step = from;; ++step) {
      for (std::size_t p = 0; p < kCounts.size(); ++p) write(p, before);
      const bool others_train = synchronizer_->join_step();
      if (others_train != (step < steps)) throw std::runtime_error("joined for the wrong number of steps");
      for (std::size_t p = 0; p < kCounts.size(); ++p) {
        const bool used = others_train && uses(1, p, step);
        check(p, used ? value(1, p, step) / 2 : before);
      }
      if (!others_train) return;
    }
  }

 private:
  static float value(int rank, std::size_t p, int step) {
    return static_cast<float>(2 * (rank + 1) * static_cast<int>(p + 1) + 16 * step);
  }
  static float expected(int rank, std::size_t p, int step) {
    float sum = 0;
    for (int r = 0; r < kRanks; ++r) sum += uses(r, p, step) ? value(r, p, step) : 0;
    return sum == 0 ? value(rank, p, step) : sum / kRanks;
  }
  void* place(std::size_t p) const { return synchronizer_->parameters()[p].gradient; }
  void write(std::size_t p, float value) {
    const std::vector<float> host(kCounts[p], value);
    rondo::copy_on(comm_.device(), stream_.get(), place(p), host.data(), host.size() * sizeof(float));
    stream_.synchronize();
  }
  void check(std::size_t p, float value) const {
    std::vector<float> host(kCounts[p]);
    rondo::copy_on(comm_.device(), stream_.get(), host.data(), place(p), host.size() * sizeof(float));
    stream_.synchronize();
    if (host != std::vector<float>(kCounts[p], value)) throw std::runtime_error("p" + std::to_string(p) + " is wrong");
  }

  Communicator& comm_;
  rondo::DeviceStream stream_;
  std::vector<DeviceArray<float>> gradients_;
  std::optional<GradientSynchronizer> synchronizer_;
};

}  // namespace

TEST_CASE("in device memory: unused parameters, gradients in the buckets") {
  for (const bool in_buckets : {false, true}) {
    rondo::test::on_ranks(
        kRanks,
        [&](Communicator& comm) {
          Usage usage(comm, in_buckets);
          for (int step = 0; step < 6; ++step) usage.step(step);
        },
        kOptions);
  }
}

TEST_CASE("in device memory: a rank whose batches end sooner gets the others' averages") {
  for (const bool in_buckets : {false, true}) {
    rondo::test::on_ranks(
        kRanks,
        [&](Communicator& comm) {
          Usage usage(comm, in_buckets);
          const int steps = comm.rank() == 0 ? 2 : 5;
          for (int step = 0; step < 2; ++step) usage.step(step);
          for (int step = 2; step < steps; ++step) usage.step_of_rank_1(step);
          usage.join(steps, 5);
        },
        kOptions);
  }
}
