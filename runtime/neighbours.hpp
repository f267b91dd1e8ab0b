// SPDX-License-Identifier: Apache-2.0
// How ranks of one node and one user learn rank 0's port and secret when no launcher of ours hands them on: over a
// Unix socket in the abstract namespace, named after the user and the meeting. Nothing is left on disk, and both sides
// check that the other belongs to the same user.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/secret.hpp"

namespace rondo::runtime {

struct Introduction {
  std::string host;
  std::uint16_t port = 0;
  rendezvous::Secret secret;
};

// Introduces whoever asks, on a thread of its own, until it is destroyed.
class Host {
 public:
  // Waits while another process holds the name. timeout error at the deadline.
  Host(const std::string& meeting, const Introduction& introduction, std::chrono::steady_clock::time_point deadline);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Asks until somebody answers. timeout error at the deadline.
Introduction ask_host(const std::string& meeting, std::chrono::steady_clock::time_point deadline);

}  // namespace rondo::runtime
