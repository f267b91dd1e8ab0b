// SPDX-License-Identifier: Apache-2.0
// A rank of a job in which one rank calls something else, or comes too late: odd KIND SEED TRIALS [NODE]. KIND:
// "mismatch" or "deadline". Each trial has a communicator of its own; what it is, all ranks draw from the seed.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using rondo::Collective;
constexpr auto kDeadline = std::chrono::milliseconds(1500);
constexpr std::size_t kMost = 50'000;
constexpr Collective kCollectives[] = {Collective::all_reduce,     Collective::reduce,     Collective::broadcast,
                                       Collective::all_gather,     Collective::gather,     Collective::scatter,
                                       Collective::reduce_scatter, Collective::all_to_all, Collective::barrier};

struct Trial {
  rondo::Call call, odd_call;
  int odd = 0;
  std::string what;

  Trial(std::mt19937& random, int world, bool mismatch) {
    const auto draw = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    odd = static_cast<int>(draw(static_cast<std::size_t>(world)));
    call.collective = kCollectives[draw(std::size(kCollectives))];
    call.count = 1 + draw(draw(2) == 0 ? 100 : kMost);
    call.dtype = rondo::DataType::f32;
    call.op = rondo::ReduceOp::sum;
    call.root = static_cast<int>(draw(static_cast<std::size_t>(world)));
    odd_call = call;
    if (mismatch) differ(draw, world);
    what = fmt::format("{} of {} at root {}; rank {} {}", name_of(call.collective), call.count, call.root, odd,
                       mismatch ? what : "comes too late");
  }

 private:
  // By what the collective has: the others' turn comes otherwise.
  template <class Draw>
  void differ(const Draw& draw, int world) {
    const auto& row = row_of(call.collective);
    const bool has_data = call.collective != Collective::barrier;
    for (;;) {
      const auto field = draw(5);
      if (field == 0) {
        odd_call.collective = kCollectives[draw(std::size(kCollectives))];
        if (odd_call.collective == call.collective) continue;
        what = fmt::format("calls {}", name_of(odd_call.collective));
      } else if (field == 1 && has_data) {
        odd_call.count = call.count + 1 + draw(1000);
        what = fmt::format("has {} elements", odd_call.count);
      } else if (field == 2 && has_data) {
        odd_call.dtype = rondo::DataType::i32;
        what = "has i32";
      } else if (field == 3 && row.reduces) {
        odd_call.op = rondo::ReduceOp::max;
        what = "takes the maximum";
      } else if (field == 4 && row.rooted) {
        odd_call.root =
            static_cast<int>((static_cast<std::size_t>(call.root) + 1 + draw(static_cast<std::size_t>(world) - 1)) %
                             static_cast<std::size_t>(world));
        what = fmt::format("has root {}", odd_call.root);
      } else {
        continue;
      }
      return;
    }
  }
};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// The call, and where it has returned all the same, the next one of the communicator.
void run(rondo::Communicator& comm, const Trial& trial, bool mismatch) {
  const std::size_t most = (kMost + 2000) * static_cast<std::size_t>(comm.world_size());
  std::vector<float> send(most), recv(most);
  const bool odd = comm.rank() == trial.odd;
  if (odd && !mismatch) std::this_thread::sleep_for(kDeadline + std::chrono::milliseconds(500));
  rondo::Call call = odd ? trial.odd_call : trial.call;
  call.send = send.data();
  call.recv = recv.data();
  comm.submit(call);
  comm.barrier();
}

void report(const rondo::Error& error, int rank, const Trial& trial, std::chrono::duration<double, std::milli> took) {
  int culprit = error.culprit();
  if (culprit < 0 && error.culprits().size() == 1) culprit = error.culprits().front();
  say(fmt::format("said {} {} {} {:.1f} {} | {}", rank, trial.odd, culprit, took.count(), trial.what, error.what()));
}

}  // namespace

int main(int count, char** argv) {
  if (count < 4) return 2;
  const bool mismatch = std::string_view(argv[1]) == "mismatch";
  std::mt19937 random(static_cast<unsigned>(std::stoul(argv[2])));
  try {
    auto comm =
        rondo::Communicator::from_environment({.timeout = std::chrono::seconds(30), .node = count > 4 ? argv[4] : ""});
    for (int i = 0; i < std::stoi(argv[3]); ++i) {
      const Trial trial(random, comm.world_size(), mismatch);
      auto child = comm.split(0, comm.rank());
      if (!mismatch) child.set_timeout(kDeadline);
      comm.barrier();
      const auto begun = std::chrono::steady_clock::now();
      try {
        run(child, trial, mismatch);
        say(fmt::format("silent {} {}", comm.rank(), trial.what));
      } catch (const rondo::Error& error) {
        report(error, comm.rank(), trial, std::chrono::steady_clock::now() - begun);
      }
      comm.barrier();
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
