// SPDX-License-Identifier: Apache-2.0
// Every limit that the interface takes: the longest waits for ever, and none at all is refused by its name.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <rondo/communicator.hpp>

#include "comm/base/duration.hpp"
#include "comm/setup/bootstrap.hpp"
#include "comm/setup/local_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

using std::chrono::milliseconds;
constexpr auto kLate = 150ms;  // longer than ranks spin and yield, and than they sleep before they look around

// A rank that is busy elsewhere.
void be_late() {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable().wait_for(lock, kLate);
}

// Two ranks that meet through a store, the second one late.
std::vector<std::exception_ptr> meet(const Options& options) {
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::exception_ptr> errors(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      errors[static_cast<std::size_t>(rank)] = thrown_by([&] {
        if (rank == 1) be_late();
        Bootstrap bootstrap;
        bootstrap.rank = rank;
        bootstrap.world_size = 2;
        bootstrap.store = store;
        make_communicator(std::move(bootstrap), options).barrier();
      });
    });
  }
  threads.clear();
  return errors;
}

}  // namespace

TEST_CASE("the longest durations wait for ever") {
  const milliseconds longest = GENERATE(milliseconds::max(), milliseconds::max() / 2, milliseconds(24h * 365 * 300));
  on_ranks(2,
           [&](Communicator& comm) {
             if (comm.rank() == 1) be_late();
             comm.barrier();
             comm.set_timeout(longest);
             if (comm.rank() == 1) be_late();
             comm.barrier();
             if (comm.rank() == 1) be_late();
             expect(comm.async().barrier().wait_for(longest), "wait_for() gave up");
           },
           {.timeout = longest, .join_timeout = longest});
  rethrow(meet({.timeout = longest, .join_timeout = longest}));
  rethrow(meet({.timeout = longest, .join_timeout = longest, .node = ""}));
}

TEST_CASE("a device's calls wait for ever, too") {
  on_ranks(2,
           [](Communicator& comm) {
             if (comm.rank() == 1) be_late();
             comm.barrier();
             comm.synchronize();
           },
           {.device = Device::sim(), .timeout = milliseconds::max(), .join_timeout = milliseconds::max()});
}

TEST_CASE("no time at all is refused by the name of what was given, everywhere alike") {
  const milliseconds none = GENERATE(milliseconds(0), milliseconds(-1), milliseconds::min());
  const std::string tail =
      fmt::format(" of {} ms: it takes at least a millisecond, and milliseconds::max() waits for ever", none.count());
  const auto refused = [&](const std::exception_ptr& error, const std::string& name) {
    CHECK(code_of(error) == ErrorCode::invalid_argument);
    CHECK(sentence_of(error) == name + tail);
  };
  refused(thrown_by([&] { Communicator::local(1, {.timeout = none}); }), "Options::timeout");
  refused(thrown_by([&] { Communicator::local(1, {.join_timeout = none}); }), "Options::join_timeout");
  for (const auto& error : meet({.timeout = none})) refused(error, "Options::timeout");
  for (const auto& error : meet({.join_timeout = none})) refused(error, "Options::join_timeout");
  auto ranks = Communicator::local(1);
  Communicator& comm = ranks.front();
  refused(thrown_by([&] { comm.set_timeout(none); }), "set_timeout: timeout");
  Work work = comm.async().barrier();
  if (none != 0ms) refused(thrown_by([&] { work.wait_for(none); }), "wait_for: duration");
  work.wait();
  CHECK(work.wait_for(0ms));  // looks once
  comm.barrier();
}
