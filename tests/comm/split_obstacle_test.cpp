// SPDX-License-Identifier: Apache-2.0
// A rank that cannot share memory in a split says so to those that wait for it, also where the job's store is gone.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include <rondo/communicator.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/forked_ranks.hpp"
#include "tests/support/mortal_store.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using namespace std::chrono_literals;

namespace {

// As many files more as ranks that meet need at first, and too few for what they then hand each other.
void leave_few_descriptors() {
  constexpr rlim_t kFew = 8;
  const std::filesystem::directory_iterator open("/proc/self/fd");
  const auto count = static_cast<rlim_t>(std::distance(begin(open), end(open)));
  const rlimit few{count + kFew, count + kFew};
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) throw std::runtime_error("no limit of open files can be set");
}

}  // namespace

TEST_CASE("a split names the rank that cannot share memory, on every rank, without the job's store") {
  constexpr int kRanks = 3;
  const int limited = GENERATE(0, 1, 2);
  const std::string parent = GENERATE("shm", "tcp");
  CAPTURE(limited, parent);
  const auto ended = fork_ranks(kRanks, 60s, [&](int rank, const auto& inherited) {
    const auto store = std::make_shared<MortalStore>(inherited);
    const auto make = [&] {
      const Setting transport("RONDO_TRANSPORT", parent);
      return join_forked(rank, kRanks, store);
    };
    Communicator world = make();
    world.barrier();
    store->end();
    if (rank == limited) leave_few_descriptors();
    const Setting transport("RONDO_TRANSPORT", "shm");
    const auto error = thrown_by([&] { world.split(0, rank); });
    expect(code_of(error) == ErrorCode::unsupported, sentence_of(error));
    const std::string said = fmt::format("rank {} cannot share memory: rank {} with 3 ranks", limited, limited);
    expect(contains(sentence_of(error), said), sentence_of(error));
    world.barrier();  // it is as it was
  });
  check_ended_well(ended);
  for (const Ended& each : ended) CHECK(each.seconds < 20);
}
