// SPDX-License-Identifier: Apache-2.0
// The caller's Store inside a communicator. The caller owes it only until create() returns; after that the
// communicator must not touch it, which give_back() makes sure of.
#pragma once
#include <atomic>

#include <rondo/error.hpp>
#include <rondo/store.hpp>

namespace rondo::runtime {

class BorrowedStore final : public Store {
 public:
  explicit BorrowedStore(Store& store) : store_(&store) {}
  void give_back() { store_ = nullptr; }

  void set(std::string_view key, std::span<const std::byte> value) override { it().set(key, value); }
  Bytes get(std::string_view key, Deadline deadline) override { return it().get(key, deadline); }
  std::optional<Bytes> try_get(std::string_view key) override { return it().try_get(key); }
  std::int64_t add(std::string_view key, std::int64_t amount) override { return it().add(key, amount); }
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override {
    return it().compare_and_set(key, std::move(expected), desired);
  }
  bool erase(std::string_view key) override { return it().erase(key); }
  std::vector<Bytes> exchange(std::string_view name, int index, int participants, std::span<const std::byte> value,
                              Deadline deadline) override {
    return it().exchange(name, index, participants, value, deadline);
  }
  std::vector<int> survivors(std::string_view name, int index, std::span<const int> members,
                             Deadline deadline) override {
    return it().survivors(name, index, members, deadline);
  }
  void missing(std::string_view name, std::span<const int> indices) override { it().missing(name, indices); }

 private:
  Store& it() const {
    if (Store* store = store_) return *store;
    throw Error(ErrorCode::unsupported,
                "the store given to create() was given back, and this call needs one: to shrink, create the "
                "communicator from a url or the environment");
  }
  std::atomic<Store*> store_;
};

}  // namespace rondo::runtime
