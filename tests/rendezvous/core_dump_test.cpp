// SPDX-License-Identifier: Apache-2.0
// What a core dump of this process would hold: the memory that it may write to and that is not left out (VmFlags: dd).
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "rendezvous/tls_socket.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

// What is looked for must not lie in memory to be found there.
constexpr std::byte kMask{0x5a};
using Masked = std::vector<std::byte>;
Masked masked(std::span<const std::byte> bytes) {
  Masked result;
  for (const std::byte byte : bytes) result.push_back(byte ^ kMask);
  return result;
}

struct Area {
  std::uintptr_t begin = 0, end = 0;
};
std::vector<Area> dumped_areas() {
  std::vector<Area> areas;
  std::ifstream smaps("/proc/self/smaps");
  Area area;
  bool writable = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0, end = 0;
    char permissions[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, permissions) == 3) {
      area = {begin, end};
      writable = permissions[0] == 'r' && permissions[1] == 'w';
    } else if (line.starts_with("VmFlags:") && writable && line.find(" dd") == std::string::npos) {
      areas.push_back(area);
    }
  }
  return areas;
}

bool is_at(const std::byte* place, const Masked& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if ((place[i] ^ kMask) != wanted[i]) return false;
  }
  return true;
}

bool would_be_dumped(const Masked& wanted) {
  const Fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  REQUIRE(memory);
  std::vector<std::byte> piece(1 << 20);
  const int first = std::to_integer<int>(wanted.front() ^ kMask);
  std::size_t seen = 0;
  for (const Area& area : dumped_areas()) {
    for (std::uintptr_t at = area.begin; at < area.end;) {
      const std::size_t bytes = std::min(piece.size(), area.end - at);
      const ssize_t got = ::pread(memory.get(), piece.data(), bytes, static_cast<off_t>(at));
      if (got < static_cast<ssize_t>(wanted.size())) break;
      seen += static_cast<std::size_t>(got);
      const std::byte* const last = piece.data() + got - wanted.size();
      for (const std::byte* place = piece.data(); place <= last; ++place) {
        place = static_cast<const std::byte*>(std::memchr(place, first, static_cast<std::size_t>(last - place) + 1));
        if (place == nullptr) break;
        if (is_at(place, wanted)) return true;
      }
      at += static_cast<std::size_t>(got) == bytes && at + bytes == area.end
                ? bytes
                : static_cast<std::size_t>(got) - wanted.size() + 1;
    }
  }
  REQUIRE(seen > 100'000);
  return false;
}

}  // namespace

TEST_CASE("a core dump holds neither the job's secret nor the keys that were made of it") {
  const Secret secret = Secret::from_fd(Secret::generate().to_memfd().get());
  const auto authenticator = make_authenticator(secret, "peers");
  const auto encryption = make_encryption(secret, "peers");
  const Server server({.secret = secret, .encrypted = true, .job = "test"});
  const auto client =
      Client::connect({.host = "127.0.0.1", .port = server.port(), .secret = secret, .job = "test", .encrypted = true},
                      in(seconds(20)));
  client->set("key", bytes("value"));
  const auto mac = authenticator->sign(as_bytes("message"));
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd near(ends[0]), far(ends[1]);
  const auto one = encryption->over(near.get(), Encryption::End::connecting, as_bytes("hello"));
  const auto other = encryption->over(far.get(), Encryption::End::accepting, as_bytes("hello"));
  CHECK(one->shake_hands() == -EAGAIN);
  CHECK(other->shake_hands() == -EAGAIN);
  CHECK(one->shake_hands() == 0);

  CHECK_FALSE(would_be_dumped(masked(secret.bytes())));
  CHECK_FALSE(would_be_dumped(masked(*derive_key(secret, "rondo authenticator 1", "peers"))));
  CHECK_FALSE(would_be_dumped(masked(*derive_key(secret, "rondo encryption 1", "peers"))));
  CHECK(would_be_dumped(masked(mac)));

  const std::vector<std::byte> careless(secret.bytes().begin(), secret.bytes().end());
  asm volatile("" : : "r"(careless.data()) : "memory");  // clang leaves out a copy that nobody reads
  CHECK(would_be_dumped(masked(secret.bytes())));
}
