// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/local_store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include <rondo/error.hpp>

namespace rondo {
namespace {

Store::Bytes copy_of(std::span<const std::byte> value) { return {value.begin(), value.end()}; }

}  // namespace

LocalStore::LocalStore(int members) {
  for (int member = 0; member < members; ++member) present_.insert(member);
}

void LocalStore::set(std::string_view key, std::span<const std::byte> value) {
  const std::lock_guard lock(mutex_);
  values_.insert_or_assign(std::string(key), copy_of(value));
  changed_.notify_all();
}

Store::Bytes LocalStore::get(std::string_view key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto found = values_.end();
  if (!changed_.wait_until(lock, deadline, [&] { return (found = values_.find(key)) != values_.end(); })) {
    throw Error(ErrorCode::timeout, fmt::format("nobody set the key {} before the deadline", key));
  }
  return found->second;
}

std::optional<Store::Bytes> LocalStore::try_get(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::int64_t LocalStore::add(std::string_view key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  Bytes& value = values_[std::string(key)];
  std::int64_t sum = 0;
  const auto* text = reinterpret_cast<const char*>(value.data());
  const auto [end, status] = std::from_chars(text, text + value.size(), sum);
  if (!value.empty() && (status != std::errc() || end != text + value.size())) {
    throw Error(ErrorCode::invalid_argument, fmt::format("the key {} does not hold a counter", key));
  }
  sum += amount;
  const std::string written = std::to_string(sum);
  value = copy_of(std::as_bytes(std::span(written)));
  changed_.notify_all();
  return sum;
}

bool LocalStore::compare_and_set(std::string_view key, std::optional<Bytes> expected,
                                 std::span<const std::byte> desired) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  const bool equal = found == values_.end() ? !expected : expected && found->second == *expected;
  if (!equal) return false;
  values_.insert_or_assign(std::string(key), copy_of(desired));
  changed_.notify_all();
  return true;
}

bool LocalStore::erase(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  values_.erase(found);
  return true;
}

std::vector<int> LocalStore::survivors(std::string_view name, int index, std::span<const int> members,
                                       Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (present_.empty()) {
    lock.unlock();
    return Store::survivors(name, index, members, deadline);
  }
  Survival& survival = survivals_[std::string(name)];
  survival.asked.insert(index);
  const auto decide = [&] {
    std::vector<int> missing;
    for (int i = 0; i < static_cast<int>(members.size()); ++i) {
      if (present_.contains(members[static_cast<std::size_t>(i)]) && !survival.asked.contains(i)) missing.push_back(i);
    }
    if (missing.empty() && survival.decided.empty())
      survival.decided.assign(survival.asked.begin(), survival.asked.end());
    return missing;
  };
  const auto decided = [&] { return !survival.decided.empty() || (decide(), !survival.decided.empty()); };
  changed_.notify_all();
  if (!changed_.wait_until(lock, deadline, decided)) {
    const std::vector<int> missing = decide();
    survival.asked.erase(index);
    throw Error(ErrorCode::timeout,
                fmt::format("rank(s) {} of '{}' are there but had not asked who survived by the deadline",
                            fmt::join(missing, ", "), name),
                missing.front());
  }
  return survival.decided;
}

void LocalStore::gone(int member) {
  const std::lock_guard lock(mutex_);
  present_.erase(member);
  changed_.notify_all();
}

void LocalStore::lend(const std::string& name, std::shared_ptr<void> object, std::size_t takers) {
  const std::lock_guard lock(mutex_);
  lent_[name] = {std::move(object), takers};
}

std::shared_ptr<void> LocalStore::take(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = lent_.find(name);
  if (found == lent_.end()) throw Error(ErrorCode::aborted, fmt::format("nothing is lent as '{}' any more", name));
  const std::shared_ptr<void> object = found->second.object;
  if (--found->second.takers == 0) lent_.erase(found);
  return object;
}

}  // namespace rondo
