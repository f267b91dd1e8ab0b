// SPDX-License-Identifier: Apache-2.0
// Ordinary memory of processes, which the kernel copies once: right however the calls go, where it is refused, and when
// a rank is killed in the middle.
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "comm/node/ways/way_times.hpp"
#include "comm/setup/placement.hpp"
#include "comm/transport/memory.hpp"
#include "tests/comm/node/call_kinds.hpp"
#include "tests/comm/stress/worlds.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using comm::WayTimes;
using test::expect;
using test::call_kinds::block_count, test::call_kinds::Buffers, test::call_kinds::kCount, test::call_kinds::Kind,
    test::call_kinds::kRoot;
namespace call_kinds = test::call_kinds;

namespace {

constexpr auto kLimit = 60s;
constexpr std::size_t kShort = 3'001;  // of a block that a rank copies alone
constexpr int kCalls = 40;             // both ways are tried
constexpr int kBefore = 600;           // where copies promise nothing, the first one is among so many
constexpr int kFirst = comm::threshold::kFirstCopies;

template <class Body>
std::vector<test::Ended> run_processes(
    int world_size, Body body, const std::function<void(int)>& before = [](int) {}) {
  const test::TuningFile both_ways("single_copy_bytes 0\ndirect_bytes 512\n");  // for calls of a few pages
  return test::fork_ranks(world_size, kLimit, [&](int rank, const std::shared_ptr<Store>& store) {
    before(rank);
    Communicator comm = test::join_forked(rank, world_size, store);
    body(comm);
  });
}

bool single_copy(const Communicator& comm) { return test::last_algorithm(comm) == "single_copy"; }

// What everybody reads from everybody, or from a root: not where ranks share cores. Sums: by two with a core each,
// those for both where the kernel's copies are cheap.
bool never_copied(const Kind& kind, int world, bool cheap) {
  const bool for_both = kind.name == "all_reduce" || kind.name == "reduce_scatter";
  if (for_both || kind.name == "reduce") return world != 2 || comm::usable_cores() < 2 || (for_both && !cheap);
  return world > comm::usable_cores() && (kind.name == "broadcast" || kind.name.starts_with("all_gather"));
}

// Says how many of the calls were single copies.
int check_calls(Communicator& comm, const Kind& kind, Buffers& buffers, int calls) {
  const std::span<int> in = buffers.send(), out = buffers.recv();
  int copied = 0;
  for (int call = 0; call < calls; ++call) {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = call_kinds::value(comm.rank(), call, i);
    std::ranges::fill(out, call_kinds::kUntouched);
    kind.run(comm, in, out);
    copied += single_copy(comm) ? 1 : 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const int wanted = kind.expected(comm.rank(), comm.world_size(), call, i);
      if (out[i] != wanted) expect(false, fmt::format("{}, call {}, element {}", kind.name, call, i));
    }
  }
  return copied;
}

// Buffers begin anywhere in a page. Says how many of the calls were single copies, from when the other way is tried on
// or, where none is, after as many as go another way before copies are tried.
int call_often(Communicator& comm, const Kind& kind, int calls) {
  Buffers buffers(kind, comm.world_size(), 3 + static_cast<std::size_t>(comm.rank()));
  const auto run = [&] { kind.run(comm, buffers.send(), buffers.recv()); };
  int before = 0;
  do run();
  while (++before < kBefore && !single_copy(comm));
  if (before == 1) {  // copies promise more
    for (; before < kFirst - kCalls / 2; ++before) run();
  }
  return check_calls(comm, kind, buffers, calls);
}

// Whether they promise more here, which the first gather of a length tells.
bool copies_are_cheap(Communicator& comm) {
  const Kind& kind = call_kinds::of("gather");
  Buffers buffers(kind, comm.world_size());
  kind.run(comm, buffers.send(), buffers.recv());
  return single_copy(comm);
}

// As somebody who may not read others' memory; and this process's not even if it is the same one.
void drop_privileges(bool dumpable) {
  constexpr uid_t kNobody = 65534;
  if (::getuid() == 0) expect(::setresuid(kNobody, kNobody, kNobody) == 0, "it is still root");
  expect(::prctl(PR_SET_DUMPABLE, dumpable ? 1 : 0) == 0, "prctl");
}

// From here on this thread writes into no other process.
void write_nowhere() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(rules)), rules};
  expect(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  expect(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "no filter");
}

}  // namespace

void check_kinds(Communicator& comm, const std::vector<Kind>& kinds, std::size_t count) {
  const bool cheap = copies_are_cheap(comm);
  block_count = count;
  for (const Kind& kind : kinds) {
    const int copied = call_often(comm, kind, kCalls);
    const bool right = never_copied(kind, comm.world_size(), cheap) ? copied == 0 : copied >= 3;
    expect(right, fmt::format("{}: {} of {} calls were copied", kind.name, copied, kCalls));
    expect(copied < kCalls, fmt::format("{}: all calls were copied", kind.name));
  }
}

TEST_CASE("calls that the kernel copies, and the same ones through rings, give what they must") {
  const int world = GENERATE(2, 3, 5);
  const std::size_t count = GENERATE(kShort, kCount);
  test::check_ended_well(
      run_processes(world, [count](Communicator& comm) { check_kinds(comm, call_kinds::all(), count); }));
}

TEST_CASE("calls in place that are copied give what they must") {
  const std::size_t count = GENERATE(kShort, kCount);
  test::check_ended_well(
      run_processes(2, [count](Communicator& comm) { check_kinds(comm, call_kinds::in_place(), count); }));
}

TEST_CASE("longer calls are copied from the back and from the front by turns, and give what they must") {
  constexpr std::size_t kLong = 262'000;  // several pieces; the longest sum for both that is copied
  constexpr int kTurns = 4;
  test::check_ended_well(run_processes(2, [](Communicator& comm) {
    const bool copies = copies_are_cheap(comm) && comm::usable_cores() >= 2;
    block_count = kLong;
    for (const std::string_view name : {"all_to_all", "scatter", "gather", "all_reduce"}) {
      Buffers buffers(call_kinds::of(name), comm.world_size());
      const int copied = check_calls(comm, call_kinds::of(name), buffers, kTurns);
      expect(!copies || copied == kTurns, fmt::format("{}: {} were copied", name, copied));
    }
  }));
}

// Rank 1 alone has a block to fetch, until rank 0 brings it a part, which then shows because it may not.
TEST_CASE("of two ranks the one that has less to copy does some of what is the other's") {
  constexpr int kEnough = 20;  // calls that were copied, for rank 0 to have begun
  const Mapping memory = map_anonymous(sizeof(std::atomic<bool>));
  auto& shown = *new (memory.data()) std::atomic<bool>(false);
  test::check_ended_well(run_processes(2, [&shown](Communicator& comm) {
    constexpr std::size_t kLong = 1 << 18;
    const std::size_t counts[] = {kLong, 1};
    std::vector<int> recv(kLong + 1);
    const std::span own = comm.rank() == 0 ? std::span(recv).first(kLong) : std::span(recv).last(1);
    if (comm.rank() == 0) write_nowhere();
    int copied = 0;
    const auto error = test::thrown_by([&] {
      for (int call = 0; call < kBefore; ++call) {
        comm.all_gather_v(std::span<const int>(own), std::span(recv), counts);
        copied += single_copy(comm) ? 1 : 0;
      }
    });
    expect(error != nullptr || copied < kEnough || comm::usable_cores() < 2, fmt::format("{} were copied", copied));
    if (error == nullptr) return;
    const std::string sentence = test::sentence_of(error);
    expect(sentence.find("cannot write rank 1's memory") != std::string::npos, sentence);
    shown = true;
  }));
  if (!shown.load()) WARN("not shown: copies promise nothing here, or there is one core");
}

TEST_CASE("an all_to_all_v of long blocks is copied where copies promise more, and gives what it must") {
  const int world = GENERATE(2, 3, 5);
  test::check_ended_well(run_processes(world, [](Communicator& comm) {
    const auto blocks = block_count * static_cast<std::size_t>(comm.world_size());
    const std::vector<int> send(blocks);
    std::vector<int> recv(blocks);
    comm.all_to_all(std::span<const int>(send), std::span(recv));
    const bool promising = single_copy(comm);  // else the first goes through rings
    for (const std::size_t count : {kCount, std::size_t{5}, 3 * kCount}) {
      block_count = count;
      const int copied = call_often(comm, call_kinds::counted(), kCalls);
      expect(copied == (promising && count != 5 ? kCalls : 0), fmt::format("{} of {} were copied", copied, kCalls));
    }
  }));
}

TEST_CASE("processes of one user copy without any privilege") {
  test::check_ended_well(run_processes(
      2, [](Communicator& comm) { expect(call_often(comm, call_kinds::all().back(), kCalls) >= 3, "none was copied"); },
      [](int) { drop_privileges(true); }));
}

TEST_CASE("where one process does not let others at its memory, all calls go through rings") {
  test::check_ended_well(run_processes(
      3,
      [](Communicator& comm) {
        for (const Kind& kind : call_kinds::all()) expect(call_often(comm, kind, kCalls) == 0, "it was copied");
        expect(call_often(comm, call_kinds::counted(), kCalls) == 0, "an all_to_all_v was copied");
      },
      [](int rank) { drop_privileges(rank != 2); }));
}

TEST_CASE("a buffer in a window beside ordinary ones is not copied so") {
  test::check_ended_well(run_processes(3, [](Communicator& comm) {
    const auto window = comm.allocate<int>(3 * kCount);
    std::vector<int> ordinary(3 * kCount), all(3 * kCount);
    const std::span<int> send = comm.rank() == 2 ? window.span() : std::span(ordinary);
    for (int call = 0; call < kBefore; ++call) {
      std::fill(send.begin(), send.end(), comm.rank() + call);
      comm.all_to_all(std::span<const int>(send), std::span(all));
      expect(!single_copy(comm), "it was copied");
      for (std::size_t i = 0; i < all.size(); ++i)
        expect(all[i] == static_cast<int>(i / kCount) + call, "a wrong value");
    }
  }));
}

TEST_CASE("who copies from or to a root waits for the root alone, and that one for all") {
  const Mapping memory = map_anonymous(sizeof(std::atomic<int>));
  auto& left = *new (memory.data()) std::atomic<int>(0);  // calls that rank 0 has left
  test::check_ended_well(run_processes(3, [&left](Communicator& comm) {
    int calls = 0;
    for (const std::string_view name : {"scatter", "gather", "scatter_v", "gather_v"}) {
      const Kind& kind = call_kinds::of(name);
      Buffers buffers(kind, 3);
      const auto run = [&] { kind.run(comm, buffers.send(), buffers.recv()); };
      run();                           // which tells whether copies promise more
      if (!single_copy(comm)) return;  // then all wait for all
      for (int call = 0; call < 5; ++call) {
        ++calls;
        if (comm.rank() == 2) {
          while (left.load() < calls) std::this_thread::yield();
        }
        run();
        if (comm.rank() == kRoot) expect(left.load() == calls, "the root did not wait for all");
        if (comm.rank() == 0) ++left;
      }
    }
  }));
  if (left.load() == 0) WARN("not shown: copies promise nothing here");
}

TEST_CASE("a disagreement about what is copied from a root names the rank and the call") {
  const int other = GENERATE(0, kRoot, 2);
  test::check_ended_well(run_processes(3, [other](Communicator& comm) {
    const std::vector<int> send(3 * kCount);
    std::vector<int> recv(kCount);
    const auto scatter = [&](std::size_t count) {
      comm.scatter(std::span(send).first(3 * count), std::span(recv).first(count), kRoot);
    };
    const auto error = test::thrown_by([&] {
      for (int call = 0; call < 5; ++call) scatter(kCount);
      scatter(comm.rank() == other ? kCount - 1 : kCount);
      comm.barrier();
    });
    const std::string sentence = test::sentence_of(error);
    expect(test::code_of(error) == ErrorCode::mismatch, sentence);
    expect(sentence.find("scatter #6") != std::string::npos, sentence);
    expect(sentence.find(fmt::format("rank {}", other)) != std::string::npos, sentence);
  }));
}

TEST_CASE("a rank that is killed while it or peers copy is named, and they live on") {
  const std::string_view name = GENERATE("all_to_all", "scatter", "gather");
  const int lost = GENERATE(0, kRoot);
  for (int round = 0; round < 2; ++round) {
    const auto ended = run_processes(3, [&](Communicator& comm) {
      block_count = 200'000;
      const Kind& kind = call_kinds::of(name);
      Buffers buffers(kind, 3);
      std::atomic<int> copied{0};
      std::jthread killer;
      if (comm.rank() == lost) killer = test::kill_after(copied, 1 + round);  // more copies come in a row
      const auto error = test::thrown_by([&] {
        for (;;) {
          kind.run(comm, buffers.send(), buffers.recv());
          copied += single_copy(comm) ? 1 : 0;
        }
      });
      expect(test::code_of(error) == ErrorCode::peer_lost, test::sentence_of(error));
      expect(test::sentence_of(error).find(fmt::format("rank {}", lost)) != std::string::npos,
             test::sentence_of(error));
    });
    for (int rank = 0; rank < 3; ++rank) {
      const test::Ended& end = ended[static_cast<std::size_t>(rank)];
      CHECK(end.signal == (rank == lost ? SIGKILL : 0));
      CHECK(end.failure == "");
    }
  }
}
