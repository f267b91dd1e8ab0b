// SPDX-License-Identifier: Apache-2.0
// What programs hang onto asynchronous calls: callbacks, groups that return a Work, a deadline per call.
#include <fmt/format.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <rondo/communicator.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace std::chrono_literals;
using test::code_of;
using test::expect;
using test::on_ranks;
using test::sentence_of;
using test::thrown_by;

namespace {

// What a callback brings to the thread that waits for it. Bounded.
class Told {
 public:
  auto callback() {
    return [this](std::exception_ptr error) {
      ++times_;
      promise_.set_value(std::move(error));
    };
  }
  std::exception_ptr get() {
    auto future = promise_.get_future();
    if (future.wait_for(30s) != std::future_status::ready) throw std::runtime_error("no callback came");
    return future.get();
  }
  int times() const { return times_; }

 private:
  std::promise<std::exception_ptr> promise_;
  std::atomic<int> times_{0};
};

}  // namespace

TEST_CASE("a callback comes once, when the call is done, or at once when it was") {
  on_ranks(3, [](Communicator& comm) {
    std::vector<float> data(100'000, 1.0F);
    Work work = comm.async().all_reduce(data, ReduceOp::sum);
    Told told;
    float seen = 0;
    work.on_done([&, tell = told.callback()](std::exception_ptr error) {
      seen = data.back();
      tell(std::move(error));
    });
    expect(told.get() == nullptr, "a call that succeeded brought an error");
    expect(seen == 3, fmt::format("the callback saw {}, not the sum", seen));
    work.wait();
    bool at_once = false;
    work.on_done([&](const std::exception_ptr& error) { at_once = error == nullptr; });
    expect(at_once, "a call that is done did not call back at once");
    expect(told.times() == 1, "a callback came twice");
    Work().on_done([&](const std::exception_ptr&) { at_once = false; });
    expect(!at_once, "a Work of nothing did not call back");
  });
}

TEST_CASE("callbacks of a call come in their order, before the next call, and may start others") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<int> first(50'000, 1), second(10, 1), third(10, 1);
    Told last;
    std::vector<int> order;  // the engine's thread alone writes it
    Work work = comm.async().all_reduce(first, ReduceOp::sum);
    work.on_done([&](const std::exception_ptr&) { order.push_back(1); });
    work.on_done([&](const std::exception_ptr&) {
      order.push_back(2);
      comm.async().all_reduce(third, ReduceOp::sum).on_done(last.callback());
    });
    comm.async().all_reduce(second, ReduceOp::sum);
    expect(last.get() == nullptr, "the call of a callback failed");
    // A callback that was hung on after the call was done ran in this thread instead; both orders are right.
    expect(order == std::vector<int>{1, 2}, "the callbacks came in another order");
    expect(third.front() == 2 && second.front() == 2, "a call went missing");
  });
}

TEST_CASE("a callback that waits for its own communicator is told so") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(1000, 1.0F), other(1000, 1.0F);
    std::promise<void> hung;
    const auto ready = hung.get_future().share();
    Told told;
    std::string blocking, waiting;
    Work before = comm.async().barrier();
    // The first call's callback holds the engine until the second one's is hung on.
    before.on_done([ready](const std::exception_ptr&) { ready.wait_for(30s); });
    Work work = comm.async().all_reduce(data, ReduceOp::sum);
    Work behind = comm.async().all_reduce(other, ReduceOp::sum);
    work.on_done([&, tell = told.callback()](std::exception_ptr error) {
      blocking = sentence_of(thrown_by([&] { comm.barrier(); }));
      waiting = sentence_of(thrown_by([&] { behind.wait(); }));
      tell(std::move(error));
    });
    hung.set_value();
    expect(told.get() == nullptr, "the call failed");
    for (const std::string& sentence : {blocking, waiting})
      expect(sentence.find("callback of Work::on_done() waits") != std::string::npos, "it was told: " + sentence);
    behind.wait();
    expect(other.front() == 2, "the call behind it went missing");
    comm.barrier();
  });
}

TEST_CASE("what a callback throws leaves the calls behind it alone") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(10, 1.0F);
    Told told;
    Work work = comm.async().barrier();
    work.on_done([](const std::exception_ptr&) { throw std::runtime_error("the callback's own"); });
    Work next = comm.async().all_reduce(data, ReduceOp::sum);
    next.on_done(told.callback());
    expect(told.get() == nullptr && data.front() == 2, "the next call suffered");
    comm.check();
  });
}

TEST_CASE("a failed call's callback gets the error") {
  on_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      expect(code_of(thrown_by([&] { comm.within(30s).barrier(); })) == ErrorCode::mismatch, "rank 1 got through");
      return;
    }
    Told told;
    std::vector<float> data(10, 1.0F);
    comm.async().all_reduce(data, ReduceOp::sum).on_done(told.callback());
    expect(code_of(told.get()) == ErrorCode::mismatch, "the callback got another error");
  });
}

TEST_CASE("a group that is started returns at once, and its collectives run in order with asynchronous calls") {
  on_ranks(3, [](Communicator& comm) {
    const int right = (comm.rank() + 1) % 3, left = (comm.rank() + 2) % 3;
    std::vector<int> mine(70'000, comm.rank()), from_left(70'000, -1), from_right(70'000, -1), sum(10, 1),
        before(10, 1);
    comm.async().all_reduce(before, ReduceOp::sum);
    auto group = comm.group();
    group.all_reduce(sum, ReduceOp::sum);
    group.send(mine, right);
    group.send(mine, left);
    group.recv(from_left, left);
    group.recv(from_right, right);
    Work work = group.start();
    Work after = comm.async().broadcast(sum, 0);
    after.wait();
    expect(before.front() == 3 && sum.front() == 3, "a later call overtook the group's collective");
    work.wait();
    expect(from_left.back() == left && from_right.back() == right, "a message is wrong");
    Work nothing = comm.group().start();
    nothing.wait();
    Work alone = group.start();  // what was recorded has gone
    alone.wait();
  });
}

TEST_CASE("what is wrong with a call of a group that is started is said by start, and the group does nothing") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<int> data(10, 1);
    auto group = comm.group();
    group.all_reduce(data, ReduceOp::sum);
    group.submit(
        {.collective = Collective::broadcast, .recv = data.data(), .count = 10, .dtype = DataType::i32, .root = 7});
    expect(code_of(thrown_by([&] { group.start(); })) == ErrorCode::invalid_argument, "start took it");
    expect(data.front() == 1, "half of the group ran");
    comm.barrier();
  });
}

TEST_CASE("a call's own deadline counts instead of the communicator's") {
  const bool async = GENERATE(false, true);
  std::promise<void> given_up;
  const auto stays = given_up.get_future().share();
  on_ranks(2, [&](Communicator& comm) {
    comm.within(50s).barrier();
    if (comm.rank() == 1) {
      stays.wait_for(60s);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string sentence = sentence_of(thrown_by([&] {
      if (async) {
        comm.async(80ms).barrier().wait();
      } else {
        comm.within(80ms).barrier();
      }
    }));
    const auto took = std::chrono::steady_clock::now() - start;
    given_up.set_value();
    expect(sentence.find("rank 1") != std::string::npos && sentence.find("0.1 s") != std::string::npos, sentence);
    expect(took < 50s, "it waited for the communicator's deadline of 600 s");
  });
}

TEST_CASE("a deadline that is none is refused, and nothing is sent") {
  on_ranks(2, [](Communicator& comm) {
    for (const auto bad : {-1ms, -100ms}) {
      expect(sentence_of(thrown_by([&] { comm.async(bad); })).find("async: timeout of -") == 0, "async took it");
      expect(sentence_of(thrown_by([&] { comm.group(bad); })).find("group: timeout of -") == 0, "group took it");
      expect(sentence_of(thrown_by([&] { comm.within(bad); })).find("within: timeout of -") == 0, "within took it");
      comm.barrier();  // one of the same shape is known
      expect(code_of(thrown_by([&] { comm.submit({.collective = Collective::barrier, .timeout = bad}); })) ==
                 ErrorCode::invalid_argument,
             "submit took it");
    }
    expect(sentence_of(thrown_by([&] { comm.within(0ms); })).find("within: timeout of 0 ms") == 0, "within took 0");
    comm.barrier();
  });
}

TEST_CASE("an asynchronous call that waits holds up its own communicator alone") {
  on_ranks(2, [](Communicator& comm) {
    Communicator other = comm.split(0, comm.rank());
    int sum = 1;
    Work waits = comm.rank() == 0 ? comm.async().barrier() : Work();
    Work goes_on = other.async().all_reduce(std::span(&sum, 1), ReduceOp::sum);
    expect(goes_on.wait_for(30s), "the other communicator's call stood behind");
    if (comm.rank() == 1) comm.barrier();
    waits.wait();
    expect(sum == 2, fmt::format("the sum is {}", sum));
  });
}

// Every call is the same, so that any order of them is the same on all ranks.
TEST_CASE("threads of a rank call one communicator at the same time") {
  const bool async = GENERATE(false, true);
  constexpr int kCalls = 500, kThreads = 3;
  on_ranks(2, [&](Communicator& comm) {
    std::atomic<int> wrong{0};
    const auto call = [&](bool blocking) {
      for (int i = 0; i < kCalls; ++i) {
        std::vector<float> data(64, 1.0F);
        if (blocking) {
          comm.all_reduce(data, ReduceOp::sum);
        } else {
          comm.async().all_reduce(data, ReduceOp::sum).wait();
        }
        if (data.front() != 2 || data.back() != 2) ++wrong;
      }
    };
    std::vector<std::exception_ptr> errors(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back(
          [&, t] { errors[static_cast<std::size_t>(t)] = thrown_by([&] { call(!async || t == 0); }); });
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors) expect(error == nullptr, sentence_of(error));
    expect(wrong == 0, fmt::format("{} sums are wrong", wrong.load()));
    comm.check();
  });
}

TEST_CASE("a blocking call of one thread runs behind what other threads started before it") {
  on_ranks(2, [](Communicator& comm) {
    std::vector<int> first(100'000, comm.rank());
    int sum = 1;
    std::promise<void> started;
    std::thread starter([&] {
      comm.async().broadcast(first, 1);
      started.set_value();
    });
    started.get_future().wait();
    comm.all_reduce(std::span(&sum, 1), ReduceOp::sum);
    const bool behind = first.back() == 1;
    starter.join();
    expect(behind && sum == 2, "it overtook it");
  });
}

// What is made of several calls is one to the others.
TEST_CASE("a thread's calls come before or after another one's split") {
  std::vector<Communicator> alone = Communicator::local(1);
  Communicator& comm = alone.front();
  std::atomic<bool> done{false};
  const std::exception_ptr error_of_all = [&] {
    std::exception_ptr error;
    std::thread other([&] {
      error = thrown_by([&] {
        for (float value = 1; !done;) comm.all_reduce(std::span(&value, 1), ReduceOp::sum);
      });
    });
    const std::exception_ptr own = thrown_by([&] {
      for (int i = 0; i < 50; ++i) {
        Communicator part = comm.split(0, 0);
        part.barrier();
        const std::byte byte{7};
        expect(comm.all_gather_bytes(std::span(&byte, 1)).front().front() == byte, "another value");
        expect(comm.allocate<float>(10).size() == 10, "another window");
      }
    });
    done = true;
    other.join();
    return own ? own : error;
  }();
  CHECK(sentence_of(error_of_all) == "");
}
