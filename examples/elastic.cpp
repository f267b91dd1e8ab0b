// SPDX-License-Identifier: Apache-2.0
// A training that outlives its ranks: when one is lost the others go on at once, a spare takes its place, and nobody
// who lives starts again. A launcher starts the spare where a rank is lost:
//   rondorun --nproc-per-node 4 --replace 3 elastic
// Or four ranks and a spare, each in a shell or on a host of its own:
//   elastic file:///tmp/meeting 0 4      and so for ranks 1, 2 and 3
//   elastic file:///tmp/meeting          the spare: it may come before the others or when it is needed
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <rondo/rondo.hpp>
#include <rondo/trainer.hpp>
#include <span>
#include <string>
#include <vector>

#include "examples/command_line.hpp"

namespace {

constexpr std::size_t kPoints = 120;
constexpr std::int64_t kSteps = 10'000;
constexpr double kRate = 0.1, kMomentum = 0.9;

// All that a step depends on, so all that a rank must have to take part in it.
struct State {
  std::vector<double> model{0, 0}, velocity{0, 0};
  std::int64_t step = 0;
};

double x_of(std::size_t point) { return static_cast<double>(point) / kPoints; }
double y_of(std::size_t point) { return 3 * x_of(point) - 2; }

void backward(std::span<const std::size_t> points, const std::vector<double>& model, std::vector<double>& gradient) {
  gradient = {0, 0};
  for (const std::size_t point : points) {
    const double error = 2 * (model[0] * x_of(point) + model[1] - y_of(point)) / static_cast<double>(points.size());
    gradient[0] += error * x_of(point);
    gradient[1] += error;
  }
}

// From rank 0's state on, which is everybody's: who joins has none, and survivors may be a step apart.
void train(rondo::Communicator& comm, State& state) {
  comm.broadcast(std::span(&state.step, 1), 0);
  comm.broadcast(std::span(state.velocity), 0);
  std::vector<double> gradient(2);
  rondo::trainer::GradientSynchronizer synchronizer(  // takes rank 0's model
      comm, {rondo::trainer::parameter("line", std::span(state.model), std::span(gradient))});
  const rondo::trainer::DistributedSampler sampler(kPoints, comm.rank(), comm.world_size());
  const auto points = sampler.indices();
  std::printf("rank %d of %d goes on at step %lld\n", comm.rank(), comm.world_size(),
              static_cast<long long>(state.step));
  std::fflush(stdout);
  for (; state.step < kSteps; ++state.step) {
    backward(points, state.model, gradient);
    synchronizer.ready(0);
    synchronizer.finish();  // a rank that is lost shows here, before the state has changed
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      state.velocity[i] = kMomentum * state.velocity[i] - kRate * gradient[i];
      state.model[i] += state.velocity[i];
    }
    if (comm.rank() != 0 || state.step % 1000 != 0) continue;
    std::printf("step %lld done\n", static_cast<long long>(state.step));
    std::fflush(stdout);
  }
}

void train_to_the_end(rondo::Communicator& comm) {
  const int world_size = comm.world_size();
  for (State state;;) {
    try {
      train(comm, state);
      std::vector<double> all(2 * static_cast<std::size_t>(world_size));
      comm.all_gather(std::span<const double>(state.model), std::span(all));
      bool equal = true;
      for (std::size_t i = 0; i < all.size(); ++i) equal = equal && all[i] == state.model[i % 2];
      std::printf("rank %d of %d: y = %.4f x + %.4f, %s\n", comm.rank(), world_size, state.model[0], state.model[1],
                  equal ? "equal on all ranks" : "not equal on all ranks");
      return;
    } catch (const rondo::Error& error) {
      if (error.error_code() != rondo::ErrorCode::peer_lost) throw;
      std::fprintf(stderr, "%s\n", error.what());
    }
    comm = comm.shrink();
    comm = comm.grow(world_size);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string place;
  int rank = -1, world_size = 0;
  CLI::App app("A training that outlives its ranks.");
  app.add_option("PLACE", place, "where the ranks meet: file:// or tcp://; alone, a spare joins there");
  auto* const numbers = app.add_option("RANK", rank, "of a rank that begins the training")->check(CLI::Range(0, 1023));
  numbers->needs(app.add_option("WORLD_SIZE", world_size, "of those that begin it")->check(CLI::Range(1, 1024)));
  if (const auto code = examples::parse(app, "elastic", argc, argv)) return *code;
  try {
    auto comm = place.empty()     ? rondo::Communicator::from_environment()  // of the spare, too: it joins
                : world_size == 0 ? rondo::Communicator::join({.url = place})
                                  : rondo::Communicator::create({.rank = rank, .world_size = world_size, .url = place});
    train_to_the_end(comm);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
