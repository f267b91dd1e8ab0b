// SPDX-License-Identifier: Apache-2.0
// The proxy between ranks of different nodes, with threads in the place of kernels: they put steps into pinned slots
// and take them out, by the same words as a kernel would.
#include "comm/device/proxy/proxy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <random>

#include "comm/call/communicator_impl.hpp"
#include "comm/setup/bootstrap.hpp"
#include "comm/setup/create.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/comm/device/reachability.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::comm::device;
using namespace std::chrono_literals;
using kernels::device::kLine;
using kernels::device::Mailbox;
using kernels::device::Protocol;
using kernels::device::SlotHeader;
using test::expect;
using test::SimRank;

namespace {

// One rank with its proxy. What the proxy reports is kept.
class Node {
 public:
  Node(Communicator& comm, std::optional<std::vector<int>> nodes = {}) : rank_(comm, 0, std::move(nodes)) {
    auto& impl = detail::impl_of(comm);
    proxy_.emplace(
        rank_.regions(), comm::split(impl, 0, comm.rank(), Options{}),
        [&impl] { return impl.team().failure().raised(); },
        [this](ErrorCode code, int culprit, std::string_view sentence) {
          const std::lock_guard lock(mutex_);
          failure_.emplace(code, std::string(sentence), culprit);
        });
  }
  Regions& regions() { return rank_.regions(); }
  void leave() { proxy_.reset(); }
  std::optional<Error> failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  SimRank rank_;
  std::mutex mutex_;
  std::optional<Error> failure_;
  std::optional<Proxy> proxy_;
};

// What one block of a kernel does on one channel of the links with one peer.
class Block {
 public:
  Block(const Regions& regions, int peer, int channel)
      : shape_(regions.layout().fifo[0]),
        mine_(at(regions.link_ends(peer).mine + regions.layout().mailbox_offset(peer, channel, Protocol::simple))),
        theirs_(at(regions.link_ends(peer).theirs +
                   regions.layout().mailbox_offset(regions.cards().rank(), channel, Protocol::simple))) {}

  std::size_t capacity() const { return slot_capacity(Protocol::simple, shape_.slot_bytes); }
  bool can_send() const { return sent_ - load(mine_.freed) < shape_.slots; }
  void send(const std::vector<std::byte>& data) {
    std::byte* const slot = this->slot(theirs_, sent_);
    const SlotHeader header{.signature = {sent_ + 1, data.size(), 77, 88}, .step = sent_, .bytes = data.size()};
    std::memcpy(slot, &header, sizeof header);
    std::copy(data.begin(), data.end(), slot + kLine);
    store(theirs_.posted, ++sent_);
  }
  bool can_receive() const { return load(mine_.posted) > received_; }
  std::vector<std::byte> receive() {
    std::byte* const slot = this->slot(mine_, received_);
    SlotHeader header;
    std::memcpy(&header, slot, sizeof header);
    expect(header.step == received_ && header.signature.sequence == received_ + 1 && header.signature.kind == 77 &&
               header.signature.shape == 88 && header.signature.count == header.bytes,
           "a header as it was sent");
    std::vector<std::byte> data(slot + kLine, slot + kLine + header.bytes);
    std::memset(slot, 0xEE, shape_.slot_bytes);
    store(theirs_.freed, ++received_);
    return data;
  }

 private:
  static Mailbox& at(std::byte* address) { return *reinterpret_cast<Mailbox*>(address); }
  static std::uint64_t load(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
  static void store(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_release);
  }
  std::byte* slot(Mailbox& mailbox, std::uint64_t step) const {
    return reinterpret_cast<std::byte*>(&mailbox + 1) + step % shape_.slots * shape_.slot_bytes;
  }
  kernels::device::FifoShape shape_;
  Mailbox& mine_;
  Mailbox& theirs_;
  std::uint64_t sent_ = 0, received_ = 0;
};

std::vector<std::byte> payload(int from, int to, int channel, std::size_t step, std::size_t capacity) {
  std::minstd_rand random(static_cast<unsigned>(from * 1000 + to * 100 + channel * 10) + static_cast<unsigned>(step));
  constexpr std::size_t kMany = 5;
  const std::size_t bytes = step % kMany == 0 ? capacity : random() % (capacity + 1);
  std::vector<std::byte> data(bytes);
  for (auto& value : data) value = static_cast<std::byte>(random());
  return data;
}

struct Traffic {
  Block block;
  int peer, channel;
  std::size_t sent = 0, received = 0;
};

// All pairs and channels at once, a step wherever there is room or something to take.
void exchange_steps(Node& node, int self, std::size_t steps) {
  std::vector<Traffic> all;
  const Regions& regions = node.regions();
  for (int peer = 0; peer < regions.cards().size(); ++peer) {
    if (regions.route(peer) != Route::proxy) continue;
    for (int c = 0; c < regions.layout().channels; ++c) all.push_back({Block(regions, peer, c), peer, c});
  }
  const auto until = std::chrono::steady_clock::now() + 20s;
  for (std::size_t left = 2 * all.size() * steps; left != 0;) {
    expect(!node.failure(), node.failure() ? node.failure()->what() : "");
    expect(std::chrono::steady_clock::now() < until, fmt::format("rank {} waits for {} steps", self, left));
    bool moved = false;
    for (Traffic& t : all) {
      if (t.sent < steps && t.block.can_send()) {
        t.block.send(payload(self, t.peer, t.channel, t.sent++, t.block.capacity()));
        --left;
        moved = true;
      }
      if (t.received < steps && t.block.can_receive()) {
        const auto wanted = payload(t.peer, self, t.channel, t.received, t.block.capacity());
        expect(t.block.receive() == wanted,
               fmt::format("step {} from rank {} on channel {}", t.received, t.peer, t.channel));
        ++t.received;
        --left;
        moved = true;
      }
    }
    if (!moved) std::this_thread::yield();
  }
}

// Threads that meet over sockets, each a node of its own.
template <class Body>
std::vector<std::exception_ptr> run_nodes(int world_size, Body body) {
  auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      errors[static_cast<std::size_t>(r)] = test::thrown_by([&] {
        Options options;
        options.node = fmt::format("node{}", r);
        Bootstrap bootstrap;
        bootstrap.rank = r;
        bootstrap.world_size = world_size;
        bootstrap.store = store;
        Communicator comm = make_communicator(std::move(bootstrap), options);
        body(comm);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}
template <class Body>
void on_nodes(int world_size, Body body) {
  for (const auto& error : run_nodes(world_size, body)) {
    if (error) std::rethrow_exception(error);
  }
}

template <class Condition>
void await(Condition condition, const char* what) {
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    expect(std::chrono::steady_clock::now() < until, what);
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("steps of all channels arrive whole and in order, over sockets") {
  const int world_size = GENERATE(2, 3);
  on_nodes(world_size, [](Communicator& comm) {
    Node node(comm);
    exchange_steps(node, comm.rank(), 300);
    comm.barrier();
  });
}

TEST_CASE("steps longer than a step of the host links go in pieces") {
  const test::Setting setting("RONDO_SLICE_BYTES", "64");
  on_nodes(2, [](Communicator& comm) {
    Node node(comm);
    exchange_steps(node, comm.rank(), 40);
    comm.barrier();
  });
}

TEST_CASE("the host links may as well be shared memory") {
  test::on_ranks(2, [](Communicator& comm) {
    Node node(comm, std::vector<int>{0, 1});
    exchange_steps(node, comm.rank(), 100);
    comm.barrier();
  });
}

TEST_CASE("who leaves first leaves nothing unsent, and its peer can take it later") {
  on_nodes(2, [](Communicator& comm) {
    Node node(comm);
    Block block(node.regions(), 1 - comm.rank(), 0);
    const std::size_t steps = node.regions().layout().fifo[0].slots;
    if (comm.rank() == 0) {
      for (std::size_t i = 0; i < steps; ++i) block.send(payload(0, 1, 0, i, block.capacity()));
      node.leave();
      comm.barrier();
    } else {
      comm.barrier();
      for (std::size_t i = 0; i < steps; ++i) {
        await([&] { return block.can_receive(); }, "what rank 0 left");
        expect(block.receive() == payload(0, 1, 0, i, block.capacity()), "what rank 0 left");
      }
      expect(!node.failure(), "credits to who has left are no failure");
    }
    comm.barrier();
  });
}

TEST_CASE("data for a rank that has left is a failure that names it") {
  on_nodes(2, [](Communicator& comm) {
    Node node(comm);
    Block block(node.regions(), 1 - comm.rank(), 0);
    if (comm.rank() == 0) node.leave();
    comm.barrier();
    if (comm.rank() == 1) {
      block.send({});
      await([&] { return node.failure().has_value(); }, "the failure");
      expect(node.failure()->error_code() == ErrorCode::aborted && node.failure()->culprit() == 0, "names rank 0");
      expect(node.failure()->what() == std::string("rank 0 destroyed its communicator while rank 1 has data for it"),
             node.failure()->what());
    }
    comm.barrier();
  });
}

TEST_CASE("a proxy whose communicator has failed ends at once") {
  const auto started = std::chrono::steady_clock::now();
  run_nodes(2, [](Communicator& comm) {
    Node node(comm);
    Block block(node.regions(), 1 - comm.rank(), 0);
    block.send({});
    comm.barrier();
    if (comm.rank() == 0) comm.abort();
    await([&] { return detail::impl_of(comm).team().failure().raised(); }, "the failure");
    node.leave();
    expect(!node.failure(), "nothing of its own to report");
  });
  CHECK(std::chrono::steady_clock::now() - started < 2s);
}

TEST_CASE("a proxy with nothing to do costs next to nothing, and is there when there is") {
  on_nodes(2, [](Communicator& comm) {
    Node node(comm);
    Block block(node.regions(), 1 - comm.rank(), 0);
    comm.barrier();
    const std::clock_t before = std::clock();
    std::this_thread::sleep_for(300ms);  // what is measured is how little happens
    const double busy = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;  // of all threads
    expect(busy < 0.1, fmt::format("{} s of processor time in 0.3 s", busy));
    comm.barrier();
    block.send({std::byte{5}});
    await([&] { return block.can_receive(); }, "a step after the pause");
    expect(block.receive() == std::vector{std::byte{5}}, "a step after the pause");
    comm.barrier();
  });
}
