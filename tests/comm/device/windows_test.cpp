// SPDX-License-Identifier: Apache-2.0
// Windows of ranks that are threads: made, found, released, and given back when nobody uses them any more.
#include "comm/device/memory/windows.hpp"

#include <atomic>

#include "kernels/soft/kernel.hpp"
#include "tests/comm/device/reachability.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::comm::device;
using test::expect;
using test::on_ranks;
using test::SimRank;

namespace {

const cuda::Api& api() { return test::sim(); }

// A kernel that runs until it is told to end.
struct Hold {
  const std::atomic<bool>* until;
};
void hold(const Hold& argument) {
  while (!argument.until->load()) std::this_thread::yield();
}
constexpr soft::Kernel kHold = soft::kernel<hold, Hold>("hold");

class Held {  // on a stream of its own
 public:
  Held() : stream_(make_stream(api(), 0)) {
    Hold argument{&ended_};
    void* arguments[] = {&argument};
    const DeviceScope scope(api(), 0);
    check(api(), api().LaunchKernel(&kHold, dim3(1), dim3(32), arguments, 0, stream_.get()), 0, "launching");
  }
  ~Held() { end(); }
  Event event() const {
    Event event = make_event(api(), 0);
    const DeviceScope scope(api(), 0);
    check(api(), api().EventRecord(event.get(), stream_.get()), 0, "recording");
    return event;
  }
  void end() {
    ended_ = true;
    api().StreamSynchronize(stream_.get());
  }

 private:
  std::atomic<bool> ended_{false};  // the kernel reads it
  comm::device::Stream stream_;
};

}  // namespace

TEST_CASE("a window is zeroed memory of every rank that every rank reaches") {
  const int world_size = GENERATE(1, 2, 4);
  on_ranks(world_size, [&](Communicator& comm) {
    SimRank rank(comm, comm.rank() % 2);
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1000}, std::size_t{100'000}}) {
      const auto own = rank.windows().allocate(bytes);
      expect(own.window > 0 && own.bytes == bytes, "a window of its own");
      std::vector<std::byte> content(bytes, std::byte{1});
      test::copy(content.data(), own.data, bytes, comm.rank() % 2);
      expect(content == std::vector<std::byte>(bytes), "zeroes");
      comm.barrier();
      test::expect_window_meets(rank, own, comm.rank() % 2);
    }
  });
}

TEST_CASE("a buffer is found where all of it lies in one window") {
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    Windows& windows = rank.windows();
    std::vector<Windows::Allocation> all;
    for (int i = 0; i < 9; ++i) all.push_back(windows.allocate(1000));
    for (const auto& own : all) {
      const auto at = [&](std::ptrdiff_t offset, std::size_t bytes) { return windows.find(own.data + offset, bytes); };
      expect(at(0, 1000).window == own.window && at(0, 1000).offset == 0, "all of it");
      expect(at(999, 1).window == own.window && at(999, 1).offset == 999, "its last byte");
      expect(at(1000, 0).offset == 1000, "nothing, at its end");
      expect(at(0, 1001).window == kNoWindow, "one byte too many");
      expect(at(999, 2).window == kNoWindow, "across its end");
      expect(at(-1, 2).window == kNoWindow, "across its start");
      expect(at(5, SIZE_MAX).window == kNoWindow, "more than all memory");
    }
    windows.release(all[4], {});
    expect(windows.find(all[4].data, 8).window == kNoWindow, "a released one");
    expect(windows.find(all[5].data, 8).window == all[5].window, "its neighbour");
    expect(windows.find(nullptr, 8).window == kNoWindow, "nothing");
  });
}

TEST_CASE("memory goes back when every rank has released it, not before") {
  on_ranks(3, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    Windows& windows = rank.windows();
    const auto own = windows.allocate(100'000);
    const std::size_t taken = windows.bytes();
    if (comm.rank() != 1) windows.release(own, {});
    windows.collect();
    expect(windows.bytes() == taken, "rank 1 still has it");
    if (comm.rank() == 1) windows.release(own, {});
    windows.collect();
    expect(windows.bytes() == 0, "nobody has it");
    expect(rank.team()->windows[own.window][1] == nullptr, "it is out of the table");
    comm.barrier();
  });
}

TEST_CASE("neither memory nor number is used again while a kernel may use them") {
  Held held;
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 1);
    Windows& windows = rank.windows();
    const auto first = windows.allocate(4096);
    windows.release(first, comm.rank() == 0 ? held.event() : Event());
    const auto second = windows.allocate(4096);
    expect(second.window != first.window && second.data != first.data, "the first is in use");
    expect(rank.team()->windows[first.window][0] != nullptr, "its kernel finds it in the table");
    comm.barrier();
    if (comm.rank() == 0) held.end();
    comm.barrier();
    const auto third = windows.allocate(4000);
    expect(third.window == first.window && third.data == first.data, "now it is reused");
    test::expect_window_meets(rank, third, 1);
  });
}

TEST_CASE("reused memory is zeroed again") {
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    auto own = rank.windows().allocate(3000);
    test::expect_window_meets(rank, own, 0);
    rank.windows().release(own, {});
    const auto again = rank.windows().allocate(2990);
    expect(again.data == own.data && again.bytes == 2990, "the same memory");
    test::expect_word(again.data, 0, 0, "its start");
    test::expect_word(again.data + 2982, 0, 0, "its end");
    comm.barrier();
    test::expect_window_meets(rank, again, 0);
  });
}

TEST_CASE("ranks that ask for different things are told, and go on") {
  on_ranks(3, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    const auto bytes = test::thrown_by([&] { rank.windows().allocate(comm.rank() == 2 ? 2000 : 1000); });
    expect(test::code_of(bytes) == ErrorCode::mismatch, "different bytes");
    expect(test::sentence_of(bytes) ==
               "rank 0 called allocate() of 1000 bytes, rank 2 called allocate() of 2000 bytes: windows are made alike "
               "on every rank",
           test::sentence_of(bytes));
    const auto wish = test::thrown_by([&] {
      if (comm.rank() == 1) {
        rank.windows().collect();
      } else {
        rank.windows().allocate(1000);
      }
    });
    expect(test::code_of(wish) == ErrorCode::mismatch, "different calls");
    test::expect_window_meets(rank, rank.windows().allocate(1000), 0);
  });
}

TEST_CASE("there are so many windows and no more, until some are released") {
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    std::vector<Windows::Allocation> all;
    for (int i = 1; i < kernels::device::kMaxWindows; ++i) all.push_back(rank.windows().allocate(64));
    const auto error = test::thrown_by([&] { rank.windows().allocate(64); });
    expect(test::code_of(error) == ErrorCode::unsupported, "too many");
    expect(test::sentence_of(error) == "63 windows are in use, and there cannot be more: release some", "says so");
    for (const auto& own : all) rank.windows().release(own, {});
    test::expect_window_meets(rank, rank.windows().allocate(100'000), 0);
    expect(rank.windows().bytes() < 110'000, "the small ones are gone");
  });
}

TEST_CASE("windows come and go without growth") {
  const std::size_t before = test::free_bytes(0);
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    for (std::size_t i = 0; i < 300; ++i) {
      const auto own = rank.windows().allocate(1000 + i * 777 % 50'000);
      rank.windows().release(own, {});
      expect(rank.windows().bytes() < 60'000, "one at a time");
    }
  });
  CHECK(test::free_bytes(0) == before);
}

TEST_CASE("the caller's own device memory becomes a window, each rank's where it is") {
  on_ranks(3, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    const std::size_t skip = 256 * static_cast<std::size_t>(comm.rank());
    const DeviceMemory memory = allocate_device(api(), 0, 10'000);
    const auto own = rank.windows().register_memory(memory.get() + skip, 5000);
    test::expect_window_meets(rank, own, 0);
    expect(rank.windows().find(memory.get() + skip + 10, 100).offset == 10, "found");
    expect(rank.windows().find(memory.get() + skip - 1, 100).window == kNoWindow, "what lies before it is not");
    expect(rank.windows().bytes() == 0, "it is not ours");
    rank.windows().release(own, {});
    rank.windows().collect();
    comm.barrier();
  });
}

TEST_CASE(
    "memory of a pool becomes a window of ranks on its device, and is staged where another device is to reach it") {
  const int devices = GENERATE(1, 2);
  on_ranks(2, [&](Communicator& comm) {
    const int device = comm.rank() % devices;
    SimRank rank(comm, device);
    const DeviceMemory memory = allocate_device(api(), device, 4096);
    if (comm.rank() == 1) expect(soft::make_unexportable(memory.get()), "memory of a pool");
    const auto own = rank.windows().register_memory(memory.get(), 4096);
    const auto team = rank.team();
    expect(team->windows[own.window][0] != nullptr, "rank 0's is plain");
    expect((team->windows[own.window][1] != nullptr) == (devices == 1), "rank 1's");
    comm.barrier();
  });
}

TEST_CASE("a rank without memory of its own is absent from a window") {
  on_ranks(2, [&](Communicator& comm) {
    SimRank rank(comm, 0);
    const DeviceMemory memory = allocate_device(api(), 0, 4096);
    const auto own = rank.windows().register_memory(comm.rank() == 0 ? memory.get() : nullptr, comm.rank() ? 0 : 4096);
    const auto team = rank.team();
    expect(team->windows[own.window][0] != nullptr && team->windows[own.window][1] == nullptr, "rank 0 alone");
    comm.barrier();
  });
}
