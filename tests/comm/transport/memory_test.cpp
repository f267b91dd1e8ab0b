// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <rondo/error.hpp>

#include "tests/comm/transport/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;

TEST_CASE("memory: two mappings of a memfd are the same zeroed memory") {
  const Fd fd = make_sealed_memfd("test", 10'000);
  const Mapping one = map(fd, 10'000);
  const Mapping two = map(fd, 10'000);
  REQUIRE(one.bytes() == 10'000);
  CHECK(std::ranges::all_of(one.span(), [](std::byte b) { return b == std::byte{0}; }));
  one.data()[9'999] = std::byte{7};
  CHECK(two.data()[9'999] == std::byte{7});
  CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("memory: a sealed memfd can neither shrink nor grow") {
  const Fd fd = make_sealed_memfd("test", 4096);
  CHECK(::ftruncate(fd.get(), 0) != 0);
  CHECK(::ftruncate(fd.get(), 8192) != 0);
  CHECK(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

TEST_CASE("memory: what could end in SIGBUS is not mapped") {
  const Fd small = make_sealed_memfd("test", 4096);
  CHECK_THROWS_AS(map(small, 4097), Error);
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC));
  REQUIRE(::ftruncate(unsealed.get(), 4096) == 0);
  CHECK_THROWS_AS(map(unsealed, 4096), Error);
}

TEST_CASE("memory: a mapping moves, and ends with its owner") {
  Mapping one = map_anonymous(4096);
  std::byte* const data = one.data();
  Mapping two = std::move(one);
  CHECK(two.data() == data);
  CHECK(!one);  // NOLINT(bugprone-use-after-move): moved from is empty
  two = map_anonymous(8192);
  CHECK(two.bytes() == 8192);
  two.reset();
  CHECK(::msync(data, 4096, MS_ASYNC) != 0);  // not mapped any more
  CHECK(!map_anonymous(0));
}
