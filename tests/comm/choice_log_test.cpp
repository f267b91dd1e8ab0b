// SPDX-License-Identifier: Apache-2.0
// At debug level every way that calls take is one line of the log, however many calls and ranks there are.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/soft/settings.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;

namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

class Log {
 public:
  Log() : file_(::memfd_create("log", 0)) { REQUIRE(file_ >= 0); }
  ~Log() { ::close(file_); }
  Log(const Log&) = delete;
  void take_stderr() const { ::dup2(file_, STDERR_FILENO); }

  // That are about choices of that collective, without what is before its name.
  std::vector<std::string> lines(std::string_view collective) const {
    std::string text(static_cast<std::size_t>(::lseek(file_, 0, SEEK_END)), '\0');
    REQUIRE(::pread(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    const std::string wanted = ": " + std::string(collective) + " of ";
    std::vector<std::string> found;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::size_t start = text.find(wanted, at);
      if (start < end) found.push_back(text.substr(start + 2, end - start - 2));
      at = end + 1;
    }
    return found;
  }

 private:
  int file_;
};

// Processes whose stderr is the log. The logger reads its level when it is first used: in the children.
void run_processes(
    const Log& log, Settings settings, const std::function<void(Communicator&)>& body,
    const std::function<Options(int)>& options = [](int) { return Options{}; }, int ranks = 2) {
  settings.emplace_back("RONDO_LOG", "debug");
  const auto ended = test::fork_ranks(ranks, 30s, [&](int rank, const std::shared_ptr<Store>& store) {
    log.take_stderr();
    for (const auto& [name, value] : settings) ::setenv(name.c_str(), value.c_str(), 1);
    {
      Communicator comm = test::join_forked(rank, ranks, store, options(rank));
      body(comm);
    }
    soft::reset();  // joins the simulated device's threads: this process ends without destructors
  });
  test::check_ended_well(ended);
}

void sum(Communicator& comm, std::size_t count, int times) {
  std::vector<float> values(count);
  for (int i = 0; i < times; ++i) comm.all_reduce(values, ReduceOp::sum);
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("every way of a collective and size is told once, with the reason") {
  const Log log;
  run_processes(log, {}, [](Communicator& comm) {
    for (int i = 0; i < 3; ++i) comm.barrier();
    sum(comm, 2, 5);
    sum(comm, 3, 1);  // 8 and 12 bytes are of a class
    sum(comm, 16 << 10, 3);
    const auto window = comm.allocate<float>(64 << 10);
    for (int i = 0; i < 3; ++i) comm.all_reduce(window.span().first(16 << 10), ReduceOp::sum);
    sum(comm, 16 << 10, 3);  // over the board again, which was told
    std::vector<float> beside(64 << 10);
    comm.all_reduce(window.span(), std::span(beside), ReduceOp::sum);
  });
  CHECK(log.lines("barrier") ==
        Lines{"barrier of 0 bytes takes short_call: what a rank brings comes with its arrival"});
  CHECK(log.lines("all_reduce") ==
        Lines{"all_reduce of 8 bytes takes short_call: what a rank brings comes with its arrival",
              "all_reduce of 65536 bytes takes board: all ranks share memory; flat_bytes_of_two is 32K; not straight: "
              "no window was ever allocated",
              "all_reduce of 65536 bytes takes zero_copy: all that it needs is within reach; direct_bytes is 4K",
              "all_reduce of 262144 bytes takes board: all ranks share memory; flat_bytes_of_two is 32K; not straight: "
              "not all of its buffers are within reach"});
}

TEST_CASE("blocks of different lengths are short calls where all know them, else their lengths come first") {
  const Log log;
  run_processes(log, {}, [](Communicator& comm) {
    const std::vector<std::size_t> counts{3, 5};
    std::vector<float> values(8), others(8);
    const std::span<const float> own(values.data(), counts[static_cast<std::size_t>(comm.rank())]);
    for (int i = 0; i < 2; ++i) {
      comm.all_gather_v(own, std::span(others), counts);
      comm.gather_v(own, std::span(others), counts, 1);
      comm.scatter_v(std::span<const float>(values), std::span(others).first(own.size()), counts, 1);
      const std::vector<std::size_t> alike{4, 4};
      comm.all_to_all_v(values.data(), alike, others.data(), alike, DataType::f32);
    }
  });
  for (const std::string name : {"all_gather_v", "gather_v", "scatter_v"}) {
    CHECK(log.lines(name) == Lines{name + " of 32 bytes takes short_call: what a rank brings comes with its arrival"});
  }
  CHECK(log.lines("all_to_all_v") ==
        Lines{"all_to_all_v of 32 bytes takes board: all ranks share memory, and counts come with the arrivals; not "
              "straight: its blocks are short, or not within reach"});
}

TEST_CASE("what was asked for by name is told to have been asked for") {
  const Log log;
  run_processes(log, {{"RONDO_ALGORITHM", "ring"}}, [](Communicator& comm) { sum(comm, 1000, 2); });
  CHECK(log.lines("all_reduce") ==
        Lines{"all_reduce of 4000 bytes takes ring: it was asked for; not board: RONDO_ALGORITHM=ring"});
}

TEST_CASE("ranks without common memory are told to have none") {
  const Log log;
  run_processes(log, {{"RONDO_TRANSPORT", "tcp"}}, [](Communicator& comm) {
    std::vector<float> values(1000);
    for (int i = 0; i < 2; ++i) comm.broadcast(values, 1);
  });
  CHECK(log.lines("broadcast") ==
        Lines{"broadcast of 4000 bytes takes tree: a row of the built-in table; not board: not all ranks share memory; "
              "not two_level: no rank shares memory with another"});
}

TEST_CASE("what several nodes do is told with its threshold") {
  const Log log;
  run_processes(
      log, {},
      [](Communicator& comm) {
        sum(comm, 1000, 2);
        comm.barrier();
        std::vector<float> values(1000);
        comm.reduce(std::span<const float>(values), std::span(values), ReduceOp::sum, 0);
        std::vector<float> blocks(3000);
        comm.gather(std::span<const float>(values), std::span(blocks), 0);
        comm.all_gather(std::span<const float>(values), std::span(blocks));
      },
      [](int rank) {
        Options options;
        options.node = rank == 2 ? "other" : "one";
        return options;
      },
      3);
  const std::string shared = "takes two_level: ranks share memory within their nodes";
  CHECK(log.lines("all_reduce") == Lines{"all_reduce of 4000 bytes " + shared + "; two_level_leader_bytes is 256K"});
  CHECK(log.lines("barrier") == Lines{"barrier of 0 bytes " + shared});
  CHECK(log.lines("gather") == Lines{"gather of 12000 bytes " + shared + "; two_level_gather_bytes is 64K"});
  CHECK(log.lines("all_gather") == Lines{"all_gather of 12000 bytes " + shared});
  CHECK(log.lines("reduce") ==
        Lines{"reduce of 4000 bytes takes tree: a row of the built-in table; not board: not all ranks share memory; "
              "not two_level: less than two_level_reduce_bytes"});
}

TEST_CASE("kernels on devices are told, too") {
  const Log log;
  run_processes(
      log, {},
      [](Communicator& comm) {
        const auto window = comm.allocate<float>(1000);
        for (int i = 0; i < 2; ++i) comm.all_reduce(window.span(), ReduceOp::sum);
        comm.synchronize();
      },
      [](int) {
        Options options;
        options.device = Device::sim();
        return options;
      });
  CHECK(log.lines("all_reduce") ==
        Lines{"all_reduce of 4000 bytes takes one_shot by push: a row of the table for devices"});
}

TEST_CASE("two levels on devices are told with the kernels of both") {
  const Log log;
  run_processes(
      log, {},
      [](Communicator& comm) {
        const auto window = comm.allocate<float>(40'000);
        comm.all_reduce(window.data(), window.data(), 1000, DataType::f32, ReduceOp::sum);
        comm.all_reduce(window.span(), ReduceOp::sum);
        comm.all_to_all(window.data(), window.data() + 20'000, 1000, DataType::f32);
        comm.synchronize();
      },
      [](int rank) {
        Options options;
        options.device = Device::sim();
        options.node = rank < 2 ? "a" : "b";
        return options;
      },
      4);
  const std::string levels = ": ranks of a node reach each other's memory";
  CHECK(log.lines("all_reduce") ==
        Lines{"all_reduce of 4000 bytes takes two_level by push, simple" + levels,
              "all_reduce of 160000 bytes takes two_level by window, simple, window" + levels});
  CHECK(log.lines("all_to_all") == Lines{"all_to_all of 16000 bytes takes pairwise by simple: a row of the table for "
                                         "devices; not in two levels: no row for two levels"});
}
