// SPDX-License-Identifier: Apache-2.0
// A process that forks while a thread of it makes communicators: racing_forker URL ROUNDS. The thread is rank 0 of a
// world of one at URL, again and again; whoever has the place still when it comes back is a child, and children stay.
// Each child tries a communicator that it inherits, which has to be refused, and makes one of its own.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include <rondo/rondo.hpp>

namespace {

using namespace std::chrono_literals;
using rondo::Communicator;

void check_sum(Communicator& comm) {
  std::vector<int> one(100, 1);
  comm.all_reduce(one, rondo::ReduceOp::sum);
  if (one.back() != comm.world_size()) throw std::runtime_error("a wrong sum");
}

// What a child does first: 0 when its parent's communicator is refused.
int try_inherited(Communicator& inherited) {
  try {
    check_sum(inherited);
  } catch (const rondo::Error& error) {
    return std::string(error.what()).find("forked child") != std::string::npos ? 0 : 2;
  }
  return 1;
}

class Children {
 public:
  ~Children() {
    while (!pids_.empty()) end_oldest();
  }
  void add(Communicator& inherited) {
    if (pids_.size() == kMost) end_oldest();
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char code = static_cast<char>(try_inherited(inherited));
      if (::write(ends[1], &code, 1) == 1) ::pause();
      ::_exit(9);
    }
    pids_.push_back(pid);
    char code = 9;
    ::close(ends[1]);
    const bool told = ::read(ends[0], &code, 1) == 1;
    ::close(ends[0]);
    if (!told || code != 0) throw std::runtime_error(fmt::format("a child was not refused: {}", int{code}));
    ++made_;
  }
  int made() const { return made_; }

 private:
  static constexpr std::size_t kMost = 40;
  void end_oldest() {
    ::kill(pids_.front(), SIGKILL);
    ::waitpid(pids_.front(), nullptr, 0);
    pids_.pop_front();
  }
  std::deque<pid_t> pids_;
  int made_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string url = argv[1];
  const int rounds = std::atoi(argv[2]);
  std::atomic<bool> done{false};
  std::string failure;
  Communicator inherited = std::move(Communicator::local(1).front());
  std::thread maker([&] {
    try {
      for (int round = 0; round < rounds; ++round) {
        Communicator comm = Communicator::create({.rank = 0, .world_size = 1, .url = url}, {.join_timeout = 5s});
        check_sum(comm);
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
    done = true;
  });
  int code = 0;
  Children children;
  try {
    while (!done) children.add(inherited);
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    code = 1;
  }
  maker.join();
  check_sum(inherited);
  fmt::print("{} children\n", children.made());
  if (!failure.empty()) fmt::print("{}\n", failure);
  return failure.empty() ? code : 1;
}
