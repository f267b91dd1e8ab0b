// SPDX-License-Identifier: Apache-2.0
#include "comm/local_store.hpp"

#include <fmt/format.h>

#include <charconv>

#include <rondo/error.hpp>

namespace rondo {
namespace {

Store::Bytes copy_of(std::span<const std::byte> value) { return {value.begin(), value.end()}; }

}  // namespace

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

}  // namespace rondo
