// SPDX-License-Identifier: Apache-2.0
// The store of a job whose rank 0 serves. When that rank is gone, those who ask who survived meet once more at its
// place: one of them takes it and serves.
#pragma once
#include <functional>
#include <memory>
#include <mutex>

#include "runtime/meeting_point.hpp"

namespace rondo::runtime {

class PlaceStore final : public Store, public Recruiter {
 public:
  using MeetAgain = std::function<Met(Deadline)>;
  PlaceStore(Met met, MeetAgain again) : met_(std::make_shared<Met>(std::move(met))), again_(std::move(again)) {}

  void set(std::string_view key, std::span<const std::byte> value) override { now()->client->set(key, value); }
  Bytes get(std::string_view key, Deadline deadline) override { return now()->client->get(key, deadline); }
  std::optional<Bytes> try_get(std::string_view key) override { return now()->client->try_get(key); }
  std::int64_t add(std::string_view key, std::int64_t amount) override { return now()->client->add(key, amount); }
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override {
    return now()->client->compare_and_set(key, std::move(expected), desired);
  }
  bool erase(std::string_view key) override { return now()->client->erase(key); }
  std::vector<Bytes> exchange(std::string_view name, int index, int participants, std::span<const std::byte> value,
                              Deadline deadline) override {
    return now()->client->exchange(name, index, participants, value, deadline);
  }
  std::vector<int> survivors(std::string_view name, int index, std::span<const int> members,
                             Deadline deadline) override {
    return survivors(name, index, members, {}, deadline).ranks;
  }
  // This rank serves, and its communicator came to nothing: the others hear why from its server before that ends.
  void let_others_hear() const {
    constexpr std::chrono::milliseconds kPatience{500};
    if (const auto met = now(); met->hosting && met->hosting->server) met->hosting->server->wait_for_others(kPatience);
  }
  Survived survivors(std::string_view name, int index, std::span<const int> members, const Doubt& doubt,
                     Deadline deadline) override;
  Growth admit(std::span<const int> members, int joiners, std::uint32_t generation, Deadline deadline) override {
    return now()->client->admit(members, joiners, generation, deadline);
  }
  void check(const Growth& growth) override { now()->client->check(growth); }
  void check_first_ranks() override { now()->client->check_first_ranks(); }
  void give_up(const Growth& growth, const Error& why) noexcept override { now()->client->give_up(growth, why); }
  void missing(const Growth& growth, std::span<const int> members) override { now()->client->missing(growth, members); }
  void missing(std::string_view name, std::span<const int> indices) override { now()->client->missing(name, indices); }

 private:
  std::shared_ptr<Met> now() const {
    const std::lock_guard lock(mutex_);
    return met_;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<Met> met_;
  const MeetAgain again_;
};

}  // namespace rondo::runtime
