// SPDX-License-Identifier: Apache-2.0
// Gradients averaged as float32, and through the hook that sends f16 or bf16: the time of a step without a backward
// pass, of the slowest rank. The formats take turns, so that what disturbs one disturbs all.
//   rondorun --nproc-per-node 2 wire_perf
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <rondo/rondo.hpp>
#include <rondo/trainer.hpp>
#include <string>
#include <vector>

#include "tools/command_line.hpp"

namespace {

using rondo::trainer::GradientSynchronizer;

constexpr std::size_t kParameters = 16;
constexpr int kWarmUp = 2;

// A model of equal parameters, whose gradients are 1 everywhere, and so are their averages in every format.
class Format {
 public:
  Format(rondo::Communicator& comm, std::string name, std::size_t count,
         std::shared_ptr<rondo::trainer::BucketHook> hook)
      : name_(std::move(name)), values_(count), gradients_(count, 1.0F) {
    std::vector<rondo::trainer::Parameter> parameters;
    const std::size_t part = count / kParameters;
    for (std::size_t p = 0; p < kParameters; ++p)
      parameters.push_back(rondo::trainer::parameter(fmt::format("p{}", p), std::span(values_).subspan(p * part, part),
                                                     std::span(gradients_).subspan(p * part, part)));
    synchronizer_.emplace(comm, parameters, rondo::trainer::SynchronizerOptions{.hook = std::move(hook)});
  }
  double step_seconds(rondo::Communicator& comm) {
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t p = kParameters; p-- > 0;) synchronizer_->ready(p);
    synchronizer_->finish();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    comm.all_reduce(std::span(&seconds, 1), rondo::ReduceOp::max);
    return seconds;
  }
  void measure(rondo::Communicator& comm) { samples_.push_back(step_seconds(comm)); }
  bool right() const {
    return std::all_of(gradients_.begin(), gradients_.end(), [](float g) { return g == 1.0F; });
  }
  const std::string& name() const { return name_; }
  double quantile(double at) const {
    auto sorted = samples_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(std::lround(at * static_cast<double>(sorted.size() - 1)))];
  }

 private:
  std::string name_;
  std::vector<float> values_, gradients_;
  std::optional<GradientSynchronizer> synchronizer_;
  std::vector<double> samples_;
};

bool run(rondo::Communicator& comm, std::size_t count, int rounds) {
  std::vector<std::unique_ptr<Format>> formats;
  formats.push_back(std::make_unique<Format>(comm, "f32", count, nullptr));
  for (const auto dtype : {rondo::DataType::f16, rondo::DataType::bf16})
    formats.push_back(
        std::make_unique<Format>(comm, std::string(rondo::name_of(dtype)), count, rondo::trainer::compress_to(dtype)));
  for (int step = 0; step < kWarmUp; ++step)
    for (const auto& format : formats) format->step_seconds(comm);
  for (int round = 0; round < rounds; ++round)
    for (const auto& format : formats) format->measure(comm);
  bool right = true;
  for (const auto& format : formats) {
    right &= format->right();
    if (comm.rank() != 0) continue;
    fmt::print("wire ranks={} mib={} rounds={} format={} ms_p10={:.2f} ms_median={:.2f} ms_p90={:.2f} of_f32={:.2f}\n",
               comm.world_size(), count * sizeof(float) >> 20, rounds, format->name(), 1e3 * format->quantile(0.1),
               1e3 * format->quantile(0.5), 1e3 * format->quantile(0.9),
               format->quantile(0.5) / formats.front()->quantile(0.5));
  }
  std::fflush(stdout);
  comm.barrier();
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t mib = 16;
  int rounds = 15;
  CLI::App app("Times the averaging of gradients as f32, f16 and bf16.");
  app.add_option("--mib", mib, "float32 gradients in MiB (16)")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", rounds, "samples of each format (15)")->check(CLI::Range(1, 1'000'000));
  if (const auto code = rondo::parse(app, "wire_perf", argc, argv)) return *code;
  try {
    auto comm = rondo::Communicator::from_environment();
    if (run(comm, (mib << 20) / sizeof(float), rounds)) return 0;
    std::fprintf(stderr, "wire_perf: a gradient is not the average\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wire_perf: %s\n", error.what());
  }
  return 1;
}
