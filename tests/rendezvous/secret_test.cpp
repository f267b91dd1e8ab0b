// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

TEST_CASE("a secret travels by inherited descriptor, read as often as there are ranks") {
  const Secret secret = Secret::generate();
  CHECK(secret.bytes() != Secret::generate().bytes());
  const Fd memory = secret.to_memfd();
  CHECK((::fcntl(memory.get(), F_GETFD) & FD_CLOEXEC) == 0);
  CHECK(Secret::from_fd(memory.get()).bytes() == secret.bytes());
  CHECK(Secret::from_fd(memory.get()).bytes() == secret.bytes());
  CHECK(::pwrite(memory.get(), "x", 1, 0) < 0);
}

TEST_CASE("a secret file that others may read is refused") {
  const auto name = (std::filesystem::temp_directory_path() / ("rondo-secret-" + std::to_string(::getpid()))).string();
  const Secret secret = Secret::generate();
  secret.to_file(name);
  CHECK(Secret::from_file(name).bytes() == secret.bytes());
  CHECK(contains(error_of([&] { Secret::generate().to_file(name); }), "is there already"));
  CHECK(Secret::from_file(name).bytes() == secret.bytes());
  ::chmod(name.c_str(), 0640);
  const std::string error = error_of([&] { Secret::from_file(name); });
  CHECK(contains(error, "chmod 600"));
  CHECK_FALSE(contains(error, secret.to_hex()));
  ::chmod(name.c_str(), 0440);  // a choice, unlike what a umask leaves
  CHECK(Secret::from_file(name).bytes() == secret.bytes());
  for (const mode_t mode : {0444u, 0460u, 0441u}) {
    ::chmod(name.c_str(), mode);
    CHECK(contains(error_of([&] { Secret::from_file(name); }), "others may open the secret file"));
  }
  ::chmod(name.c_str(), 0440);
  if (::chown(name.c_str(), static_cast<uid_t>(-1), 54321) == 0)  // root alone can
    CHECK(contains(error_of([&] { Secret::from_file(name); }), "others may open the secret file"));
  ::chmod(name.c_str(), 0600);
  std::ofstream(name) << secret.to_hex().substr(1) << "\n";
  const std::string short_error = error_of([&] { Secret::from_file(name); });
  CHECK(contains(short_error, name + ": a job's secret is one line of 64 hexadecimal digits"));
  CHECK_FALSE(contains(short_error, secret.to_hex().substr(1, 16)));
  std::filesystem::remove(name);
}

TEST_CASE("signatures depend on secret, context and message, and on nothing else") {
  const Secret secret = Secret::from_hex(std::string(64, 'a'));
  const auto one = make_authenticator(secret, "one");
  const auto mac = one->sign(as_bytes("message"));
  CHECK(make_authenticator(secret, "one")->verify(as_bytes("message"), mac));
  CHECK_FALSE(one->verify(as_bytes("massage"), mac));
  CHECK_FALSE(make_authenticator(secret, "two")->verify(as_bytes("message"), mac));
  CHECK_FALSE(make_authenticator(Secret::generate(), "one")->verify(as_bytes("message"), mac));
}

TEST_CASE("HMAC-SHA256 is what RFC 4231 says") {
  const std::string key(20, '\x0b');
  const Digest digest = hmac(as_bytes(key), as_bytes("Hi There"));
  std::string hex;
  for (const std::byte byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  CHECK(hex == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}
