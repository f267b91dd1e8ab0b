// SPDX-License-Identifier: Apache-2.0
// The smallest training: y = w x + b, mean squared error, each rank its share of the points.
//   rondorun --nproc-per-node 4 linear_regression
#include <cstdio>
#include <exception>
#include <rondo/rondo.hpp>
#include <rondo/trainer.hpp>
#include <span>
#include <vector>

namespace {

constexpr std::size_t kPoints = 120;
constexpr int kSteps = 200;
constexpr double kRate = 0.4;

double x_of(std::size_t point) { return static_cast<double>(point) / kPoints; }
double y_of(std::size_t point) { return 3 * x_of(point) - 2; }

// The gradient of the mean over this rank's points; returns the mean itself.
double backward(std::span<const std::size_t> points, const std::vector<double>& model, std::vector<double>& gradient) {
  gradient = {0, 0};
  double loss = 0;
  const auto count = static_cast<double>(points.size());
  for (const std::size_t point : points) {
    const double error = model[0] * x_of(point) + model[1] - y_of(point);
    loss += error * error / count;
    gradient[0] += 2 * error * x_of(point) / count;
    gradient[1] += 2 * error / count;
  }
  return loss;
}

void train(rondo::Communicator& comm) {
  std::vector<double> model{static_cast<double>(comm.rank()), 1}, gradient(2);  // rank 0's start is everybody's
  rondo::trainer::GradientSynchronizer synchronizer(
      comm, {rondo::trainer::parameter("line", std::span(model), std::span(gradient))});
  const rondo::trainer::DistributedSampler sampler(kPoints, comm.rank(), comm.world_size());
  const auto points = sampler.indices();
  for (int step = 0; step < kSteps; ++step) {
    double loss = backward(points, model, gradient);
    synchronizer.ready(0);
    synchronizer.finish();
    for (std::size_t i = 0; i < model.size(); ++i) model[i] -= kRate * gradient[i];
    if (step % 50 != 0 && step + 1 != kSteps) continue;
    comm.all_reduce(std::span(&loss, 1), rondo::ReduceOp::average);
    if (comm.rank() == 0) std::printf("step %d: loss %.3g\n", step, loss);
  }
  std::printf("rank %d of %d: y = %.4f x + %.4f\n", comm.rank(), comm.world_size(), model[0], model[1]);
}

}  // namespace

int main() {
  try {
    auto comm = rondo::Communicator::from_environment();
    train(comm);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
