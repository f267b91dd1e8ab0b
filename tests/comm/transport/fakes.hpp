// SPDX-License-Identifier: Apache-2.0
// What the tests of the meetings share: a keyed mixing function in place of HMAC, counts of descriptors, deadlines.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rondo/error.hpp>

#include "comm/setup/authenticator.hpp"
#include "comm/transport/handshake.hpp"

namespace rondo::test {

class MixingAuthenticator final : public Authenticator {
 public:
  explicit MixingAuthenticator(std::uint64_t key) : key_(key) {}
  Mac sign(std::span<const std::byte> message) const override {
    Mac mac{};
    std::uint64_t state = key_ ^ 0xcbf29ce484222325U;
    for (const std::byte b : message) state = (state ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3U;
    for (std::size_t i = 0; i < mac.size(); ++i) {
      state = (state ^ key_) * 0x9e3779b97f4a7c15U + i;
      mac[i] = static_cast<std::byte>(state >> 56);
    }
    return mac;
  }
  void random(std::span<std::byte> out) const override { fill_random(out); }

 private:
  std::uint64_t key_;
};

inline std::shared_ptr<const Authenticator> secret(std::uint64_t key = 42) {
  return std::make_shared<MixingAuthenticator>(key);
}

inline auto in(std::chrono::milliseconds duration) { return std::chrono::steady_clock::now() + duration; }

inline std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// What a rank's thread ended with; code 0 and no sentence: well.
struct Outcome {
  int code = 0;
  int culprit = -1;
  std::string sentence;
};

// Runs body(rank) in one thread per rank.
inline std::vector<Outcome> run_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      try {
        body(rank);
      } catch (const Error& error) {
        outcome = {error.code().value(), error.culprit(), error.what()};
      } catch (const std::exception& error) {
        outcome = {-1, -1, error.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace rondo::test
