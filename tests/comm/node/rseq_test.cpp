// SPDX-License-Identifier: Apache-2.0
// Whether a thread is registered, it reads where the kernel would write: that is -1 where it does not.
#include "comm/node/meeting/rseq.hpp"

#include <rondo/communicator.hpp>

#include <sched.h>

#include <cstdint>
#include <thread>
#include <utility>

#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/few_cores.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/setting.hpp"

#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>

using namespace rondo;
using test::expect;

namespace {

bool is_registered() {
  const char* const area = static_cast<const char*>(__builtin_thread_pointer()) + __rseq_offset;
  return static_cast<std::int32_t>(reinterpret_cast<const volatile struct rseq*>(area)->cpu_id) >= 0;
}

bool registers() {
  if (__rseq_size != 0) return true;
  WARN("skipped: the C library or the kernel registers no thread");
  return false;
}

}  // namespace

TEST_CASE("a thread leaves rseq, still knows its core, and is registered again") {
  if (!registers()) return;
  bool before = false, left = true, after = false;
  int core = -1;
  std::thread([&] {
    before = is_registered();
    comm::rejoin_rseq();  // it has not left
    for (int again = 0; again < 2; ++again) comm::leave_rseq();
    left = !is_registered();
    core = ::sched_getcpu();
    for (int again = 0; again < 2; ++again) comm::rejoin_rseq();
    after = is_registered();
  }).join();
  CHECK((before && left && after));
  CHECK(core >= 0);
}

TEST_CASE("ranks that outnumber their cores are not registered, until their communicators are gone") {
  if (!registers()) return;
  const auto [ranks, setting, leave] =
      GENERATE(table<int, const char*, bool>({{2, "leave", true}, {2, "keep", false}, {1, "leave", false}}));
  CAPTURE(ranks, setting);
  const test::FewCores one(1);
  const test::Setting rseq("RONDO_RSEQ", setting);
  test::on_ranks(ranks, [leaves = leave](Communicator& comm) {
    {
      Communicator mine = std::move(comm);
      for (int call = 0; call < 20; ++call) mine.barrier();
      expect(is_registered() != leaves, "what the setting says");
    }
    expect(is_registered(), "as before");
  });
}
#endif
