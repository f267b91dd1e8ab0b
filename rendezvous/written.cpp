// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/written.hpp"

#include <utility>

namespace rondo::rendezvous {
namespace {

std::size_t bytes_of(const proto::Told& told) { return told.key().size() + told.value().size() + 64; }

// As the server has it after the request; no key: it wrote nothing.
proto::Told written_by(const proto::Request& request, const proto::Reply& reply) {
  proto::Told told;
  told.set_version(reply.version());
  if (request.has_set()) {
    told.set_key(request.set().key());
    told.set_value(request.set().value());
  } else if (request.has_add()) {
    told.set_key(request.add().key());
    told.set_value(std::to_string(reply.sum()));
  } else if (request.has_compare_and_set()) {
    told.set_key(request.compare_and_set().key());
    told.set_value(request.compare_and_set().desired());
  } else if (request.has_erase()) {
    told.set_key(request.erase().key());
    told.set_erased(true);
  }
  return told;
}

// Of the smaller communicator, where the larger one that was asked for had been given up.
proto::Survive as_answered(proto::Survive asked, const proto::Reply& reply) {
  if (asked.instead().empty() || reply.gave_up() != asked.growth()) return asked;
  asked.set_name(asked.instead());
  asked.mutable_members()->Truncate(static_cast<int>(asked.smaller()));
  asked.clear_instead();
  asked.clear_smaller();
  return asked;
}

}  // namespace

void Written::forget(const std::string& key) {
  const auto old = values_.find(key);
  if (old == values_.end()) return;
  bytes_ -= bytes_of(old->second);
  keys_.erase(old->second.version());
  values_.erase(old);
}

void Written::note_answer(const proto::Request& request, const proto::Reply& reply) {
  if (reply.has_failure()) return;
  proto::Told told;
  if (request.has_exchange()) *told.mutable_exchange() = request.exchange();
  if (request.has_barrier()) *told.mutable_barrier() = request.barrier();
  if (request.has_survivors()) {
    *told.mutable_survivors() = as_answered(request.survivors(), reply);
    *told.mutable_decided() = reply.survivors();
  }
  if (!reply.membership().growth().empty()) *told.mutable_growth() = reply.membership();
  if (!told.has_exchange() && !told.has_barrier() && !told.has_survivors() && !told.has_growth()) return;
  answers_.push_back(std::move(told));
  if (answers_.size() > kMostAnswers) answers_.pop_front();
}

void Written::note(const proto::Request& request, const proto::Reply& reply) {
  note_answer(request, reply);
  if (reply.version() == 0) return;
  proto::Told told = written_by(request, reply);
  if (const auto newer = values_.find(told.key()); newer != values_.end() && newer->second.version() > told.version())
    return;  // replies to two threads, taken in the other order
  forget(told.key());
  bytes_ += bytes_of(told);
  keys_.emplace(told.version(), told.key());
  values_.emplace(told.key(), std::move(told));
  while (bytes_ > kMostBytes) forget(std::string(keys_.begin()->second));
}

std::vector<proto::Told> Written::all() const {
  std::vector<proto::Told> all(answers_.begin(), answers_.end());
  for (const auto& [key, told] : values_) all.push_back(told);
  return all;
}

}  // namespace rondo::rendezvous
