// SPDX-License-Identifier: Apache-2.0
// Messages wait for nothing but their other end: tags, any source, opposite orders, and collectives in between; over
// every transport.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <future>
#include <numeric>
#include <random>
#include <vector>

#include <rondo/communicator.hpp>

#include "tests/comm/messages/cases.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

TEST_CASE("messages: both send first, and then receive, whatever their length") {
  const Kind kind = any_kind();
  const std::size_t count = GENERATE(std::size_t{0}, kShort, kWhole, kLong, std::size_t{25'000'000});
  INFO(kind << ", " << count);
  on_world(kind, 2, [&](Communicator& comm) {
    const int peer = 1 - comm.rank();
    const auto mine = numbers(count, comm.rank());
    std::vector<int> theirs(count, -1);
    Work sent = comm.async().send(mine, peer), received = comm.async().recv(theirs, peer);
    received.wait();
    sent.wait();
    expect(theirs == numbers(count, peer), "the bytes are others");
    expect(received.source() == peer && sent.source() == -1, "the source is another");
  });
}

TEST_CASE("messages: of any length, where a slot of the link is short") {
  const Setting slices("RONDO_SLICE_BYTES", "256"), slots("RONDO_FIFO_SLOTS", "3");
  const Kind kind = GENERATE(Kind::shm, Kind::tcp, Kind::queue);
  INFO(kind);
  on_world(kind, 2, [&](Communicator& comm) {
    for (const std::size_t count : {0, 1, 63, 64, 65, 512, 1023, 1024, 1025, 2047, 2048, 2049, 100'000}) {
      const auto mine = numbers(count, 1);
      std::vector<int> theirs(count, -1);
      if (comm.rank() == 0) {
        std::vector<Work> works;
        for (int i = 0; i < 5; ++i) works.push_back(comm.async().send(mine, 1));
        for (Work& work : works) work.wait();
      } else {
        for (int i = 0; i < 5; ++i) {
          comm.recv(theirs, 0);
          expect(theirs == mine, fmt::format("{} numbers are others", count));
        }
      }
    }
  });
}

TEST_CASE("messages: a receive that waits holds up neither messages of other tags nor collectives") {
  const Kind kind = any_kind();
  INFO(kind);
  on_world(kind, 3, [&](Communicator& comm) {
    const int right = (comm.rank() + 1) % 3, left = (comm.rank() + 2) % 3;
    std::vector<int> late(kLong, -1), early(kLong, -1), one(kShort, -1), sum(10, 1);
    Work last = comm.async().recv(late, left, 7);
    Work first = comm.async().recv(early, left, 8);
    comm.all_reduce(sum, ReduceOp::sum);
    comm.async().all_reduce(sum, ReduceOp::sum).wait();
    expect(sum.front() == 9, "a sum is wrong");
    expect(!last.done() && !first.done(), "a receive was done before its message");
    comm.send(numbers(kShort, 5), right);
    comm.recv(one, left);
    expect(one == numbers(kShort, 5), "the message without a tag is wrong");
    comm.barrier();
    Work sent = comm.async().send(std::span<const int>(sum), right, 99);  // nobody asks for it yet
    const auto long_one = numbers(kLong, comm.rank()), other = numbers(kLong, -comm.rank());
    Work sending = comm.async().send(long_one, right, 8), sending_last = comm.async().send(other, right, 7);
    first.wait();
    last.wait();
    expect(early == numbers(kLong, left) && late == numbers(kLong, -left), "tags were mixed up");
    comm.recv(std::span(sum), left, 99);
    for (Work* work : {&sent, &sending, &sending_last}) work->wait();
    comm.barrier();
  });
}

TEST_CASE("messages: opposite orders of blocking calls and Works, and tags taken in another order than sent") {
  const Kind kind = any_kind();
  INFO(kind);
  on_world(kind, 2, [&](Communicator& comm) {
    // Of bytes 64 Ki and 256 Ki are the longest that travel whole in shared memory and on a socket.
    const std::size_t counts[] = {kLong, kShort, kWhole, 5 * kLong, 0, 16 << 10, (16 << 10) + 1, 64 << 10, 65'537, 77};
    constexpr int kCounts = std::size(counts);
    if (comm.rank() == 0) {
      std::vector<std::vector<int>> all;
      std::vector<Work> works;
      for (int tag = 0; tag < kCounts; ++tag) {
        all.push_back(numbers(counts[tag], 100 * tag));
        works.push_back(comm.async().send(std::span<const int>(all.back()), 1, tag));
      }
      for (Work& work : works) work.wait();
    } else {
      for (int tag = kCounts - 1; tag >= 0; --tag) {
        std::vector<int> got(counts[tag], -1);
        comm.recv(got, 0, tag);
        expect(got == numbers(counts[tag], 100 * tag), fmt::format("tag {} is wrong", tag));
      }
    }
  });
}

TEST_CASE("messages: of one tag they come in the order sent, short and long ones mixed") {
  const Kind kind = any_kind();
  INFO(kind);
  on_world(kind, 2, [&](Communicator& comm) {
    constexpr int kMessages = 200;
    const auto count_of = [](int i) { return i % 7 == 0 ? kLong / 10 : static_cast<std::size_t>(i % 5); };
    std::vector<std::vector<int>> all;
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      const bool sends = comm.rank() == 0;
      all.push_back(sends ? numbers(count_of(i), i) : std::vector<int>(count_of(i), -1));
      works.push_back(sends ? comm.async().send(std::span<const int>(all.back()), 1, 3)
                            : comm.async().recv(std::span(all.back()), 0, 3));
    }
    for (Work& work : works) work.wait();
    for (int i = 0; i < kMessages; ++i) expect(all[static_cast<std::size_t>(i)] == numbers(count_of(i), i), "wrong");
  });
}

TEST_CASE("messages: a thousand at once, received in a random order") {
  const Kind kind = any_kind();
  INFO(kind);
  on_world(kind, 3, [&](Communicator& comm) {
    constexpr int kMessages = 1000;
    std::vector<int> order(kMessages);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(comm.rank())));
    std::vector<std::array<int, 100>> out(2 * kMessages), in(2 * kMessages);
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      for (int side = 0; side < 2; ++side) {
        const int to = (comm.rank() + 1 + side) % 3, from = (comm.rank() + 2 - side) % 3,
                  tag = order[static_cast<std::size_t>(i)];
        auto& mine = out[2 * static_cast<std::size_t>(i) + static_cast<std::size_t>(side)];
        mine.fill(i);
        works.push_back(comm.async().send(std::span<const int>(mine), to, i));
        works.push_back(comm.async().recv(
            std::span(in[2 * static_cast<std::size_t>(tag) + static_cast<std::size_t>(side)]), from, tag));
      }
    }
    for (Work& work : works) work.wait();
    for (std::size_t i = 0; i < in.size(); ++i) expect(in[i].back() == static_cast<int>(i / 2), "a message is wrong");
  });
}

TEST_CASE("messages: many short ones that nobody asks for leave the link free") {
  const Kind kind = any_kind();
  INFO(kind);
  on_world(kind, 2, [&](Communicator& comm) {
    constexpr int kMany = 500;  // 6 MB: beyond what a peer is sent unasked
    if (comm.rank() == 0) {
      std::vector<std::vector<int>> all;
      std::vector<Work> works;
      for (int i = 0; i < kMany; ++i) {
        all.push_back(numbers(3000, i));
        works.push_back(comm.async().send(std::span<const int>(all.back()), 1, 1));
      }
      comm.send(numbers(kLong, 5), 1, 2);
      comm.barrier();
      for (Work& work : works) work.wait();
    } else {
      std::vector<int> got(kLong), each(3000);
      comm.recv(got, 0, 2);
      expect(got == numbers(kLong, 5), "the other message is wrong");
      comm.barrier();
      for (int i = 0; i < kMany; ++i) {
        comm.recv(each, 0, 1);
        expect(each == numbers(3000, i), fmt::format("message {} is wrong", i));
      }
    }
  });
}

TEST_CASE("messages: from any source, which is told") {
  const Kind kind = any_kind();
  const std::size_t count = GENERATE(kShort, kLong);
  INFO(kind << ", " << count);
  on_world(kind, 4, [&](Communicator& comm) {
    if (comm.rank() != 0) {
      if (comm.rank() == 3) comm.barrier();  // the last of all
      comm.send(numbers(count, comm.rank()), 0, 4);
      if (comm.rank() != 3) comm.barrier();
      comm.send(numbers(count, comm.rank()), 0, 5);
      comm.send(numbers(count, comm.rank()), 0, 6);
      return;
    }
    std::array<std::vector<int>, 3> got;
    std::array<int, 3> sources{-1, -1, -1};
    for (auto& each : got) each.assign(count, -1);
    comm.recv(got[0], kAnySource, 4, &sources[0]);
    Work second = comm.async().recv(got[1], kAnySource, 4);
    second.wait();
    sources[1] = second.source();
    comm.barrier();
    comm.recv(got[2], kAnySource, 4, &sources[2]);
    expect(sources[2] == 3 && sources[0] + sources[1] == 3, "a source is wrong");
    for (std::size_t i = 0; i < 3; ++i) expect(got[i] == numbers(count, sources[i]), "a message is another's");

    auto group = comm.group();
    sources = {-1, -1, -1};
    for (std::size_t i = 0; i < 3; ++i) group.recv(got[i], kAnySource, 5, &sources[i]);
    group.end();
    for (std::size_t i = 0; i < 3; ++i) expect(got[i] == numbers(count, sources[i]), "a message is another's");
    std::sort(sources.begin(), sources.end());
    expect(sources == std::array<int, 3>{1, 2, 3}, "a source is wrong");

    for (std::size_t i = 0; i < 3; ++i) group.recv(got[i], kAnySource, 6, &sources[i]);
    group.start().wait();
    for (std::size_t i = 0; i < 3; ++i) expect(got[i] == numbers(count, sources[i]), "a message is another's");
  });
}

TEST_CASE("messages: to oneself") {
  const std::size_t count = GENERATE(std::size_t{0}, kShort, kLong);
  on_ranks(2, [&](Communicator& comm) {
    std::vector<int> got(count, -1), again(count, -1);
    comm.send(numbers(count, 2), comm.rank());  // before anybody asks for it
    comm.recv(got, comm.rank());
    expect(got == numbers(count, 2), "a message that was kept is wrong");
    auto both = comm.group();
    const auto first = numbers(count, 7);
    both.send(first, comm.rank());
    both.recv(again, comm.rank());
    both.end();
    expect(again == first, "a message of a group that sends first is wrong");
    Work receiving = comm.async().recv(got, comm.rank(), 1);
    comm.send(numbers(count, 3), comm.rank(), 1);
    receiving.wait();
    const auto mine = numbers(count, 4);
    Work sending = comm.async().send(mine, comm.rank(), 2);
    int source = -1;
    comm.recv(again, kAnySource, 2, &source);
    sending.wait();
    expect(got == numbers(count, 3) && again == mine && source == comm.rank(), "a message is wrong");
    auto group = comm.group();
    group.recv(got, comm.rank());
    group.send(mine, comm.rank());
    group.end();
    expect(got == mine, "a message of a group is wrong");
  });
}

TEST_CASE("messages: a group's go on while its collectives run, and one that is started waits for both") {
  const Kind kind = any_kind();
  INFO(kind);
  on_world(kind, 2, [&](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<int> got(kLong, -1), sum(10, 1);
    const auto mine = numbers(kLong, comm.rank());
    if (comm.rank() == 0) {
      auto group = comm.group();
      group.all_reduce(sum, ReduceOp::sum);
      group.send(mine, peer);
      group.recv(got, peer);
      Work work = group.start();
      work.wait();
    } else {  // the messages first, outside of any group
      comm.recv(got, peer);
      Work sending = comm.async().send(mine, peer);
      auto group = comm.group();
      group.all_reduce(sum, ReduceOp::sum);
      group.end();
      sending.wait();
    }
    expect(got == numbers(kLong, peer) && sum.front() == 2, "a result is wrong");
  });
}

TEST_CASE("messages: a callback comes once, and may start another message") {
  on_ranks(2, [](Communicator& comm) {
    std::promise<void> told;
    std::vector<int> got(kShort, -1), more(kShort, -1);
    const auto mine = numbers(kShort, 8);
    if (comm.rank() == 0) {
      std::promise<Work> next;
      Work work = comm.async().recv(got, 1);
      work.on_done([&](std::exception_ptr error) {
        expect(error == nullptr && got == numbers(kShort, 8), "the callback came early");
        next.set_value(comm.async().recv(more, 1));
      });
      auto future = next.get_future();
      expect(future.wait_for(30s) == std::future_status::ready, "no callback came");
      future.get().wait();
      expect(more == mine, "the second message is wrong");
    } else {
      comm.send(mine, 0);
      comm.send(mine, 0);
    }
  });
}

TEST_CASE("messages: no thread is there when none is on its way") {
  const auto movers = [] {
    std::size_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
      count += name == "rondo-messages" ? 1 : 0;
    }
    return count;
  };
  const auto await = [&](std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (movers() != count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return movers() == count;
  };
  on_ranks(1, [&](Communicator& comm) {
    expect(await(0), "another test's thread is there");
    std::array<int, 1> mine{5}, got{};
    Work work = comm.async().recv(got, 0);
    expect(await(1), "nobody moves messages");
    comm.send(mine, 0);
    work.wait();
    expect(await(0), "a thread stays");
    comm.send(mine, 0);
    comm.recv(got, 0);
    expect(movers() == 0, "a blocking call left a thread");
  });
}

TEST_CASE("messages: who waits in a blocking receive and who moves the others let each other sleep") {
  const auto switches = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  constexpr auto kIdle = 300ms;
  constexpr long kMost = 3000;  // a pair that wakes each other makes 60'000 in that time
  on_world(Kind::local, 2, [&](Communicator& comm) {
    std::array<int, 1> first{comm.rank()}, second{comm.rank()};
    comm.barrier();
    if (comm.rank() == 1) {
      const long before = switches();
      int never = 0;  // nothing is sent to it until it has waited so long
      Work idle = comm.async().recv(std::span(&never, 1), 0, 9);
      expect(!idle.wait_for(kIdle), "a message came that nobody had sent");
      const long made = switches() - before;
      expect(made < kMost, fmt::format("{} switches while nothing moved", made));
      comm.send(first, 0, 2);
      comm.send(second, 0, 1);
      return idle.wait();
    }
    Work posted = comm.async().recv(first, 1, 1);
    comm.recv(second, 1, 2);
    posted.wait();
    comm.send(first, 1, 9);
  });
}
