// SPDX-License-Identifier: Apache-2.0
// A server and its clients in one process; every wait below has a deadline.
#pragma once
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "rendezvous/client.hpp"
#include "rendezvous/crypto.hpp"
#include "rendezvous/server.hpp"
#include "tests/support/expect.hpp"

namespace rondo::rendezvous::test {

using rondo::test::contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline auto in(std::chrono::milliseconds duration) { return std::chrono::steady_clock::now() + duration; }

inline Store::Bytes bytes(std::string_view text) {
  const auto raw = as_bytes(text);
  return {raw.begin(), raw.end()};
}
inline std::string text(const Store::Bytes& raw) { return {reinterpret_cast<const char*>(raw.data()), raw.size()}; }

// The error that `action` ends with, as "code: sentence"; "" when it succeeds.
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return make_error_code(error.error_code()).message() + ": " + error.what();
  }
  return "";
}

struct Job {
  Secret secret = Secret::generate();
  std::unique_ptr<Server> server;

  explicit Job(int world_size = -1, Limits limits = {}, bool is_rank_0s = false) {
    ServerOptions options{.secret = secret, .job = "test", .world_size = world_size, .limits = limits};
    options.is_rank_0s = is_rank_0s;
    server = std::make_unique<Server>(std::move(options));
  }
  Endpoint endpoint() const { return {.host = "127.0.0.1", .port = server->port(), .secret = secret, .job = "test"}; }
  std::shared_ptr<Client> client(std::chrono::milliseconds within = seconds(20)) const {
    return Client::connect(endpoint(), in(within));
  }
};

// Calls `body(i)` in n threads; rethrows the first error.
template <class Body>
void in_threads(int n, Body body) {
  std::vector<std::future<void>> running;
  for (int i = 0; i < n; ++i) running.push_back(std::async(std::launch::async, body, i));
  for (auto& each : running) each.get();
}

}  // namespace rondo::rendezvous::test
