// SPDX-License-Identifier: Apache-2.0
// A rank that says when its job fails: patient MODE SECONDS. All ranks call check() while they do something else
// (idle), reduce (busy), or wait in a barrier for rank 0, which is idle (wait); then they reduce once more. Or they are
// idle until rank 1 has broadcast and left (left), or aborts and ends (abort).
#include <unistd.h>

#include <fmt/format.h>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using Clock = std::chrono::steady_clock;

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(1, whole.data(), whole.size()) < 0) ::_exit(9);
}

void reduce(rondo::Communicator& comm) {
  constexpr std::size_t kCount = 50'000;
  std::vector<float> data(kCount, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(data, rondo::ReduceOp::sum);
  const int n = comm.world_size();
  for (const float value : data)
    if (value != static_cast<float>(n * (n + 1) / 2)) throw std::logic_error("a sum is wrong");
}

// Between looks a program would compute.
void be_idle(rondo::Communicator& comm, Clock::time_point until) {
  while (Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    comm.check();
  }
}

// Until rank 0 says that it is enough.
long be_busy(rondo::Communicator& comm, Clock::time_point until) {
  for (long calls = 0;; ++calls) {
    std::vector<int> goes_on{Clock::now() < until ? 1 : 0};
    comm.broadcast(goes_on, 0);
    if (goes_on[0] == 0) return calls;
    reduce(comm);
  }
}

void end(rondo::Communicator& comm, const std::string& mode) {
  if (mode == "abort") return comm.rank() == 1 ? comm.abort() : comm.barrier();
  if (mode != "left") return reduce(comm);
  std::vector<int> data(50'000, comm.rank());
  comm.broadcast(data, 1);
  if (data != std::vector<int>(data.size(), 1)) throw std::logic_error("what was broadcast is wrong");
}

}  // namespace

int main(int, char** argv) {
  const std::string mode = argv[1];
  try {
    auto comm = rondo::Communicator::from_environment(
        {.timeout = std::chrono::seconds(120), .join_timeout = std::chrono::seconds(60)});
    reduce(comm);
    say(fmt::format("joined {}", ::getpid()));
    const auto until = Clock::now() + std::chrono::milliseconds(static_cast<long>(std::stod(argv[2]) * 1000));
    long calls = 0;
    if (mode == "busy") calls = be_busy(comm, until);
    if ((mode != "busy" && mode != "wait") || comm.rank() == 0) be_idle(comm, until);
    if (mode == "wait") comm.barrier();
    end(comm, mode);
    say(fmt::format("done {}", calls));
    return 0;
  } catch (const rondo::Error& error) {
    const auto now = Clock::now().time_since_epoch();
    say(fmt::format("error {} {} {}", std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                    error.culprit(), error.what()));
    return 1;
  }
}
