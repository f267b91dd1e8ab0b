// SPDX-License-Identifier: Apache-2.0
// A rank with much memory is killed: the others are told while the kernel still frees it.
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace std::chrono_literals;

namespace {

// So much that to free it takes far longer than a look takes to come.
void take_memory() {
  constexpr std::size_t kBytes = std::size_t{2} << 30, kPage = 4096;
  void* const taken = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (taken == MAP_FAILED) throw std::runtime_error("no memory for the test");
  ::madvise(taken, kBytes, MADV_NOHUGEPAGE);
  for (std::size_t at = 0; at < kBytes; at += kPage) static_cast<volatile std::byte*>(taken)[at] = std::byte{1};
}

bool has_ended(const Fd& process) {
  pollfd ended{process.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) > 0;
}

}  // namespace

TEST_CASE("a killed rank is named before the kernel has freed its memory") {
  const auto row =
      GENERATE(table<std::string, std::string>({{"tcp", "all_reduce"}, {"shm", "recv"}, {"shm", "monitored_barrier"}}));
  const std::string transport = std::get<0>(row), call = std::get<1>(row);  // clang captures no structured bindings
  CAPTURE(transport, call);
  const test::Setting chosen("RONDO_TRANSPORT", transport);
  const auto ended = test::fork_ranks(2, 60s, [&](int rank, const std::shared_ptr<Store>& store) {
    Communicator comm = test::join_forked(rank, 2, store);
    std::vector<int> pids(2);
    const int own = ::getpid();
    comm.all_gather(std::span(&own, 1), std::span(pids));
    if (rank == 1) take_memory();
    if (rank == 1) {
      comm.barrier();
      ::raise(SIGKILL);
    }
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pids[1], 0)));
    std::vector<float> data(4);
    try {
      comm.barrier();
      if (call == "all_reduce") comm.all_reduce(data, ReduceOp::sum);
      if (call == "recv") comm.recv(std::span(data), 1);
      if (call == "monitored_barrier") comm.monitored_barrier(60s, true);
    } catch (const Error& error) {
      if (has_ended(process)) throw std::runtime_error("it had ended when the other was told");
      if (error.error_code() == ErrorCode::peer_lost && error.culprit() == 1) return;
      throw;
    }
    throw std::runtime_error("nothing was said");
  });
  CHECK(ended[0].failure == "");
  CHECK(ended[1].signal == SIGKILL);
}
