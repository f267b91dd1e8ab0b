// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/key_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include <rondo/error.hpp>

namespace rondo::rendezvous {

std::uint64_t KeyValues::put(const std::string& key, const std::string& value) {
  const auto old = values_.find(key);
  const std::size_t before = old == values_.end() ? 0 : key.size() + old->second.size();
  if (bytes_ - before + key.size() + value.size() > limit_bytes_) {
    throw Error(ErrorCode::system, fmt::format("cannot store {} bytes under '{}': the server keeps at most {} bytes in "
                                               "all; erase keys that nobody needs",
                                               value.size(), key, limit_bytes_));
  }
  keep(key, value);
  return versions_[key];
}

// Wakes those who wait for it.
void KeyValues::keep(const std::string& key, const std::string& value) {
  const auto [place, fresh] = values_.try_emplace(key);
  bytes_ += (fresh ? key.size() : 0) + value.size() - place->second.size();
  place->second = value;
  versions_[key] = ++last_version_;
  const auto waiting = waiting_.extract(key);
  if (waiting.empty()) return;
  proto::Reply reply;
  reply.set_found(true);
  reply.set_value(value);
  const SharedBody body = Replies::body_of(reply);
  for (const WaitId wait : waiting.mapped()) replies_.send(waits_.take(wait).caller, body);
}

void KeyValues::set(Caller caller, const proto::Pair& pair) {
  proto::Reply reply;
  reply.set_version(put(pair.key(), pair.value()));
  replies_.send(caller, reply);
}

void KeyValues::get(Caller caller, const std::string& key, Time deadline) {
  if (values_.contains(key)) return try_get(caller, key);
  waiting_[key].push_back(waits_.add({caller, deadline, WaitKind::key, key}));
}

void KeyValues::try_get(Caller caller, const std::string& key) {
  proto::Reply reply;
  const auto found = values_.find(key);
  reply.set_found(found != values_.end());
  if (found != values_.end()) reply.set_value(found->second);
  replies_.send(caller, reply);
}

void KeyValues::add(Caller caller, const proto::Add& request) {
  std::int64_t sum = 0;
  if (const auto found = values_.find(request.key()); found != values_.end()) {
    const std::string& text = found->second;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), sum);
    if (status != std::errc() || end != text.data() + text.size()) {
      throw Error(ErrorCode::mismatch, fmt::format("cannot add to key '{}': it does not hold a number", request.key()));
    }
  }
  if (__builtin_add_overflow(sum, request.amount(), &sum)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("adding {} to key '{}' overflows 64 bits", request.amount(), request.key()));
  }
  proto::Reply reply;
  reply.set_version(put(request.key(), std::to_string(sum)));
  reply.set_sum(sum);
  replies_.send(caller, reply);
}

void KeyValues::compare_and_set(Caller caller, const proto::CompareAndSet& request) {
  const auto found = values_.find(request.key());
  const bool equal = found == values_.end() ? request.expect_absent()
                                            : !request.expect_absent() && found->second == request.expected();
  proto::Reply reply;
  if (equal) reply.set_version(put(request.key(), request.desired()));
  reply.set_found(equal);
  replies_.send(caller, reply);
}

void KeyValues::erase(Caller caller, const std::string& key) {
  const auto found = values_.find(key);
  proto::Reply reply;
  reply.set_found(found != values_.end());
  if (found != values_.end()) {
    bytes_ -= key.size() + found->second.size();
    values_.erase(found);
    versions_.erase(key);
    reply.set_version(++last_version_);
  }
  replies_.send(caller, reply);
}

// Clients that come again tell what they wrote, in any order.
void KeyValues::told(Caller caller, const proto::Told& told) {
  last_version_ = std::max(last_version_, told.version());
  const auto known = versions_.find(told.key());
  if (known == versions_.end() || known->second < told.version()) {
    if (!told.erased()) {
      put(told.key(), told.value());
    } else if (const auto found = values_.find(told.key()); found != values_.end()) {
      bytes_ -= told.key().size() + found->second.size();
      values_.erase(found);
    }
    versions_[told.key()] = told.version();
  }
  replies_.send(caller, proto::Reply());
}

void KeyValues::forget(WaitId wait, const std::string& key) {
  const auto waiting = waiting_.find(key);
  std::erase(waiting->second, wait);
  if (waiting->second.empty()) waiting_.erase(waiting);
}

void KeyValues::expire(WaitId id) {
  const Wait wait = waits_.take(id);
  forget(id, wait.name);
  replies_.fail(wait.caller, Error(ErrorCode::timeout, fmt::format("nobody has set key '{}' by the deadline; see "
                                                                   "whether the rank that sets it is alive",
                                                                   wait.name)));
}

void KeyValues::cancel(WaitId id) { forget(id, waits_.take(id).name); }

}  // namespace rondo::rendezvous
