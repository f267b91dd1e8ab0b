// SPDX-License-Identifier: Apache-2.0
// A client that stood still for longer than its call may take hears what was answered meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "comm/base/process_state.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

constexpr seconds kTimeout{1};

// A child: waits for a value, and ends with 0 once it has it.
[[noreturn]] void wait_for_value(int from_parent, const Secret& secret) {
  std::uint16_t port = 0;
  if (::read(from_parent, &port, sizeof port) != sizeof port) ::_exit(2);
  try {
    const auto client =
        Client::connect({.host = "127.0.0.1", .port = port, .secret = secret, .job = "test"}, in(seconds(20)));
    client->set("here", bytes(""));
    ::_exit(text(client->get("value", in(kTimeout))) == "x" ? 0 : 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the stopped client: %s\n", error.what());
    ::_exit(1);
  }
}

bool sleeps(pid_t pid) {
  const auto state = read_process(pid);
  return state && state->state == 'S';
}

void await(const std::function<bool()>& condition, const char* what) {
  const auto limit = in(seconds(60));
  while (!condition()) {
    rondo::test::expect(std::chrono::steady_clock::now() < limit, what);
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("a client that was stopped for longer than its call's deadline takes the answer that has come") {
  const Secret secret = Secret::generate();
  int to_child[2];
  REQUIRE(::pipe(to_child) == 0);
  const pid_t child = ::fork();  // from one thread
  if (child == 0) wait_for_value(to_child[0], secret);
  const Server server({.secret = secret, .job = "test"});
  const std::uint16_t port = server.port();
  REQUIRE(::write(to_child[1], &port, sizeof port) == sizeof port);
  const auto client =
      Client::connect({.host = "127.0.0.1", .port = port, .secret = secret, .job = "test"}, in(seconds(20)));
  client->get("here", in(seconds(20)));
  await([&] { return sleeps(child); }, "the child does not wait");
  ::kill(child, SIGSTOP);
  await([&] { return is_halted(child); }, "the child is not stopped");
  client->set("value", bytes("x"));
  const auto until = in(3 * kTimeout);  // with what a client gives the server to say that it is too late
  await([&] { return std::chrono::steady_clock::now() >= until; }, "time stands still");
  ::kill(child, SIGCONT);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  ::close(to_child[0]);
  ::close(to_child[1]);
}
