// SPDX-License-Identifier: Apache-2.0
// Heat that spreads along a rod, of which every rank computes a piece: points travel to the neighbours in groups, and
// the whole rod lies in a window. docs/programs.md explains it.
//   rondorun --nproc-per-node 4 heat       ranks are processes
//   heat 4                                 ranks are threads
//   heat 4 1                               rank 1 goes halfway, and the others finish without it
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <numeric>
#include <rondo/rondo.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "examples/command_line.hpp"

namespace {

constexpr std::size_t kPoints = 1000;
constexpr int kSteps = 1000, kStepsBetweenCopies = 100;

struct State {
  int step = 0;
  std::vector<double> points = std::vector<double>(kPoints);
};

// Which points a rank computes: a rod of kPoints is cut into pieces of almost equal length.
std::vector<std::size_t> piece_lengths(int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  if (ranks > kPoints) throw std::invalid_argument("there are more ranks than points");
  std::vector<std::size_t> lengths(ranks, kPoints / ranks);
  for (std::size_t rank = 0; rank < kPoints % ranks; ++rank) ++lengths[rank];
  return lengths;
}

// From state.step to the end. `leaves`: the rank that goes halfway, -1 for none.
void compute(rondo::Communicator& comm, State& state, int leaves) {
  const int rank = comm.rank(), last = comm.world_size() - 1;
  const std::vector<std::size_t> lengths = piece_lengths(comm.world_size());
  const std::size_t first = std::accumulate(lengths.begin(), lengths.begin() + rank, std::size_t{0});
  const std::size_t count = lengths[static_cast<std::size_t>(rank)];

  const rondo::Window<double> window = comm.allocate<double>(kPoints);
  const std::span<double> rod = window.span();
  const std::span<double> own = rod.subspan(first, count);
  std::copy(state.points.begin(), state.points.end(), rod.begin());
  std::vector<double> next(count);

  for (int step = state.step; step < kSteps; ++step) {
    if (rank == leaves && step == kSteps / 2) return;
    rondo::Group group = comm.group();
    if (rank > 0) {
      group.send(own.first(1), rank - 1);
      group.recv(rod.subspan(first - 1, 1), rank - 1);
    }
    if (rank < last) {
      group.send(own.last(1), rank + 1);
      group.recv(rod.subspan(first + count, 1), rank + 1);
    }
    group.end();

    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = first + i;
      const bool is_end = at == 0 || at == kPoints - 1;
      next[i] = is_end ? rod[at] : (rod[at - 1] + 2 * rod[at] + rod[at + 1]) / 4;
    }
    std::copy(next.begin(), next.end(), own.begin());

    if ((step + 1) % kStepsBetweenCopies != 0) continue;
    comm.all_gather_v(std::span<const double>(own), rod, lengths);
    double hottest = *std::max_element(own.begin(), own.end());
    rondo::Work work = comm.async().all_reduce(std::span(&hottest, 1), rondo::ReduceOp::max);
    state.points.assign(rod.begin(), rod.end());
    state.step = step + 1;
    work.wait();
    if (rank == 0) std::printf("step %d of %d, the hottest point has %g\n", state.step, kSteps, hottest);
  }
}

// Survivors may be one copy of the rod apart. All go on from the oldest.
void agree(rondo::Communicator& comm, State& state) {
  std::vector<int> steps(static_cast<std::size_t>(comm.world_size()));
  comm.all_gather(std::array{state.step}, steps);
  const int oldest = static_cast<int>(std::min_element(steps.begin(), steps.end()) - steps.begin());
  comm.broadcast(std::span(&state.step, 1), oldest);
  comm.broadcast(state.points, oldest);
}

void run(rondo::Communicator comm, int leaves) {
  State state;
  if (comm.rank() == 0) state.points[0] = 100;
  comm.broadcast(state.points, 0);
  try {
    compute(comm, state, leaves);
  } catch (const rondo::Error& error) {
    if (error.error_code() != rondo::ErrorCode::peer_lost) throw;
    std::fprintf(stderr, "%s\n", error.what());
    comm = comm.shrink();
    agree(comm, state);
    compute(comm, state, -1);
  }
  if (state.step < kSteps || comm.rank() != 0) return;
  std::uint64_t hash = 0;
  for (const double point : state.points) hash = hash * 31 + static_cast<std::uint64_t>(point * 1e12);
  std::printf("result ranks=%d hash=%llx\n", comm.world_size(), static_cast<unsigned long long>(hash));
}

int run_threads(int world_size, int leaves) {
  std::vector<rondo::Communicator> ranks = rondo::Communicator::local(world_size);
  std::vector<std::thread> threads;
  int failed = 0;
  std::mutex mutex;
  for (rondo::Communicator& rank : ranks) {
    threads.emplace_back([&] {
      try {
        run(std::move(rank), leaves);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        std::fprintf(stderr, "%s\n", error.what());
        failed = 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0, leaves = -1;
  CLI::App app("Heat that spreads along a rod, of which every rank computes a piece.");
  app.add_option("THREADS", threads, "ranks as threads of this process, without a launcher")
      ->check(CLI::Range(1, 1024));
  app.add_option("LEAVES", leaves, "the rank that goes halfway")->check(CLI::Range(0, 1023));
  if (const auto code = examples::parse(app, "heat", argc, argv)) return *code;
  if (threads > 0 && leaves >= threads) {
    examples::complain("heat", fmt::format("rank {} cannot go halfway: there are {} ranks", leaves, threads));
    return 2;
  }
  try {
    if (threads > 0) return run_threads(threads, leaves);
    run(rondo::Communicator::from_environment(), -1);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
