// SPDX-License-Identifier: Apache-2.0
// Rooted collectives among ranks that share memory: who needs nothing of the others does not wait for them, and what
// they disagree on is found all the same.
#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr int kRanks = 3, kRoot = 1;
const Options kPatient{.timeout = std::chrono::seconds(60)};

// Releases threads in a given order, without a collective; the call's own deadline ends a wait that is in vain.
class Gate {
 public:
  void open() {
    opened_ = true;
    opened_.notify_all();
  }
  void pass() const { opened_.wait(false); }

 private:
  std::atomic<bool> opened_{false};
};

void call(Communicator& comm, Collective collective, std::vector<int>& send, std::vector<int>& recv,
          std::size_t count) {
  comm.submit({.collective = collective,
               .send = send.data(),
               .recv = recv.data(),
               .count = count,
               .dtype = DataType::i32,
               .root = kRoot});
}

}  // namespace

TEST_CASE("a root that only gives, and ranks that only give to the root, wait for nobody") {
  const auto collective = GENERATE(Collective::broadcast, Collective::scatter, Collective::reduce, Collective::gather);
  const auto count = GENERATE(std::size_t{1}, std::size_t{900}, std::size_t{2500});  // in the line, in cells, in rings
  if (collective == Collective::reduce && count == 2500) return;  // longer sums are shared out: everybody works
  const bool root_gives = collective == Collective::broadcast || collective == Collective::scatter;
  Gate gate;
  std::atomic<int> returned{0};
  const int givers = root_gives ? 1 : kRanks - 1;
  on_ranks(
      kRanks,
      [&](Communicator& comm) {
        const bool gives = (comm.rank() == kRoot) == root_gives;
        std::vector<int> send(kRanks * count), recv(kRanks * count, -1);
        std::iota(send.begin(), send.end(), 1000 * comm.rank());
        if (!gives) gate.pass();
        call(comm, collective, send, recv, count);
        if (gives && ++returned == givers) gate.open();
        if (gives) return comm.barrier();
        const int first = root_gives ? kRoot * 1000 : collective == Collective::gather ? 0 : 3000;
        const int offset = collective == Collective::scatter ? comm.rank() * static_cast<int>(count) : 0;
        expect(recv[0] == first + offset, "the first element");
        comm.barrier();
      },
      kPatient);
}

TEST_CASE("rooted calls one after the other, each with another root, sizes mixed") {
  on_ranks(4, [](Communicator& comm) {
    for (int turn = 0; turn < 400; ++turn) {
      const int root = turn % 4;
      std::vector<int> values(turn % 3 == 0 ? 3 : turn % 3 == 1 ? 700 : 20'000, comm.rank() == root ? turn : -1);
      comm.broadcast(std::span(values), root);
      expect(values.front() == turn && values.back() == turn, "broadcast");
      std::vector<int> sums(values.size());
      comm.reduce(std::span<const int>(values), std::span(sums), ReduceOp::sum, (root + 1) % 4);
      if (comm.rank() == (root + 1) % 4) expect(sums.front() == 4 * turn && sums.back() == 4 * turn, "reduce");
    }
  });
}

TEST_CASE("a disagreement that a root did not wait for reaches it in its next call") {
  const auto errors = run_ranks(kRanks, kPatient, [](Communicator& comm) {
    std::vector<int> values(comm.rank() == 2 ? 5 : 4);
    comm.broadcast(std::span(values), kRoot);
    comm.barrier();
  });
  for (const auto& error : errors) {
    CHECK(code_of(error) == ErrorCode::mismatch);
    CHECK(sentence_of(error).find("rank 2") != std::string::npos);
    CHECK(sentence_of(error).find("broadcast #1") != std::string::npos);
  }
}
