// SPDX-License-Identifier: Apache-2.0
// Stores that pass what they are asked on to another, for tests that change some of it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/store.hpp>

namespace rondo::test {

class PassingStore : public Store {
 public:
  explicit PassingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(std::string_view key, std::span<const std::byte> value) override { store().set(key, value); }
  Bytes get(std::string_view key, Deadline deadline) override { return store().get(key, deadline); }
  std::optional<Bytes> try_get(std::string_view key) override { return store().try_get(key); }
  std::int64_t add(std::string_view key, std::int64_t amount) override { return store().add(key, amount); }
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override {
    return store().compare_and_set(key, std::move(expected), desired);
  }
  bool erase(std::string_view key) override { return store().erase(key); }

 protected:
  virtual Store& store() { return *store_; }

 private:
  std::shared_ptr<Store> store_;
};

// Does that to its user once all ranks have met in the store for the last time, before they have connections.
class LastMeeting final : public PassingStore {
 public:
  LastMeeting(std::shared_ptr<Store> store, std::function<void()> then)
      : PassingStore(std::move(store)), then_(std::move(then)) {}
  std::vector<Bytes> exchange(std::string_view name, int index, int participants, std::span<const std::byte> value,
                              Deadline deadline) override {
    auto values = store().exchange(name, index, participants, value, deadline);
    if (name.ends_with("/shared")) then_();
    return values;
  }

 private:
  std::function<void()> then_;
};

}  // namespace rondo::test
