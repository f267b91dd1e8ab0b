// SPDX-License-Identifier: Apache-2.0
// A rank that stood still for longer than its calls may wait, as its process was stopped or its host suspended, looks
// at what the others have done meanwhile before it blames them.
#include <csignal>

#include "comm/base/process_state.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds kTimeout = 1s;
constexpr std::chrono::seconds kLimit{60};

// Rank 0 waits in it, and what rank 1 does there ends its wait.
struct Wait {
  const char* name;
  void (*rank_0)(Communicator&);
  void (*rank_1)(Communicator&);
};
constexpr Wait kWaits[] = {
    {"a collective", [](Communicator& comm) { comm.barrier(); }, [](Communicator& comm) { comm.barrier(); }},
    {"a message",
     [](Communicator& comm) {
       float value = 0;
       comm.recv(std::span(&value, 1), 1);
     },
     [](Communicator& comm) {
       const float value = 1;
       comm.send(std::span(&value, 1), 0);
     }},
};

template <class Condition>
void await(Condition condition, const char* what) {
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (!condition()) {
    expect(std::chrono::steady_clock::now() < limit, what);
    std::this_thread::yield();
  }
}

bool sleeps(pid_t pid) {
  const auto state = read_process(pid);
  return state && state->state == 'S';
}

}  // namespace

TEST_CASE("a rank that was stopped for longer than its deadline takes what has come before it blames anybody") {
  for (const char* transport : {"shm", "tcp"}) {
    const Setting over("RONDO_TRANSPORT", transport);
    for (const Wait& wait : kWaits) {
      const auto ended = fork_ranks(2, kLimit, [&](int rank, const auto& store) {
        Options options;
        options.timeout = kTimeout;
        Communicator comm = join_forked(rank, 2, store, options);
        if (rank == 0) {
          const auto pid = std::to_string(::getpid());
          store->set("pid", std::as_bytes(std::span(pid)));
          wait.rank_0(comm);
        } else {
          const Store::Bytes bytes = store->get("pid", std::chrono::steady_clock::now() + kLimit);
          const pid_t pid = std::stoi(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
          await([&] { return sleeps(pid); }, "rank 0 does not wait");
          ::kill(pid, SIGSTOP);
          await([&] { return is_halted(pid); }, "rank 0 is not stopped");
          const auto until = std::chrono::steady_clock::now() + 2 * kTimeout;
          wait.rank_1(comm);
          await([&] { return std::chrono::steady_clock::now() >= until; }, "time stands still");
          ::kill(pid, SIGCONT);
        }
        comm.barrier();
      });
      for (int rank = 0; rank < 2; ++rank) {
        CAPTURE(transport, wait.name, rank);
        CHECK(ended[static_cast<std::size_t>(rank)].failure == "");
      }
    }
  }
}
