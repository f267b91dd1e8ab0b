// SPDX-License-Identifier: Apache-2.0
// A store whose server ends when a test says so.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <rondo/error.hpp>
#include <rondo/store.hpp>

namespace rondo::test {

class MortalStore final : public Store {
 public:
  explicit MortalStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void end() { ended_ = true; }
  void set(std::string_view key, std::span<const std::byte> value) override { alive().set(key, value); }
  Bytes get(std::string_view key, Deadline deadline) override { return alive().get(key, deadline); }
  std::optional<Bytes> try_get(std::string_view key) override { return alive().try_get(key); }
  std::int64_t add(std::string_view key, std::int64_t amount) override { return alive().add(key, amount); }
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override {
    return alive().compare_and_set(key, std::move(expected), desired);
  }
  bool erase(std::string_view key) override { return alive().erase(key); }

 private:
  Store& alive() {
    if (ended_) throw Error(ErrorCode::peer_lost, "the server has ended");
    return *store_;
  }
  std::shared_ptr<Store> store_;
  std::atomic<bool> ended_{false};
};

}  // namespace rondo::test
