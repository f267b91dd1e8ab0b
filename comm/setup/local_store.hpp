// SPDX-License-Identifier: Apache-2.0
// A Store inside one process: worlds of one, ranks as threads, tests. Ranks as threads have a LocalMember each.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include <rondo/store.hpp>

namespace rondo {

class LocalStore final : public Store {
 public:
  LocalStore() = default;
  explicit LocalStore(int members);

  void set(std::string_view key, std::span<const std::byte> value) override;
  Bytes get(std::string_view key, Deadline deadline) override;
  std::optional<Bytes> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override;
  bool erase(std::string_view key) override;
  // Where members are known, as soon as all have asked that are not gone; without, the default.
  std::vector<int> survivors(std::string_view name, int index, std::span<const int> members,
                             Deadline deadline) override;
  void gone(int member);
  // An object for `takers` others: it stays until all of them have taken it, or the store goes.
  void lend(const std::string& name, std::shared_ptr<void> object, std::size_t takers);
  std::shared_ptr<void> take(const std::string& name);

 private:
  struct Survival {
    std::set<int> asked;
    std::vector<int> decided;
  };
  struct Lent {
    std::shared_ptr<void> object;
    std::size_t takers;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes, std::less<>> values_;
  std::set<int> present_;  // members
  std::map<std::string, Survival, std::less<>> survivals_;
  std::map<std::string, Lent> lent_;
};

// A rank's own hold of the store that it shares with others of its process: the rank is gone when this goes.
class LocalMember : public Store {
 public:
  LocalMember(std::shared_ptr<LocalStore> store, int rank) : store_(std::move(store)), rank_(rank) {}
  ~LocalMember() override { store_->gone(rank_); }
  LocalMember(const LocalMember&) = delete;
  LocalMember& operator=(const LocalMember&) = delete;

  void set(std::string_view key, std::span<const std::byte> value) override { store_->set(key, value); }
  Bytes get(std::string_view key, Deadline deadline) override { return store_->get(key, deadline); }
  std::optional<Bytes> try_get(std::string_view key) override { return store_->try_get(key); }
  std::int64_t add(std::string_view key, std::int64_t amount) override { return store_->add(key, amount); }
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override {
    return store_->compare_and_set(key, std::move(expected), desired);
  }
  bool erase(std::string_view key) override { return store_->erase(key); }
  std::vector<int> survivors(std::string_view name, int index, std::span<const int> members,
                             Deadline deadline) override {
    return store_->survivors(name, index, members, deadline);
  }
  LocalStore& shared() { return *store_; }

 private:
  std::shared_ptr<LocalStore> store_;
  int rank_;
};

}  // namespace rondo
