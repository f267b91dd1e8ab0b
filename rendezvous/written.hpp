// SPDX-License-Identifier: Apache-2.0
// What a client has written into the store, and what others may still ask that it was answered, for a server that has
// lost it. The latest, as nobody knows when a value is of no use any more.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "proto/rondo.pb.h"

namespace rondo::rendezvous {

class Written {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMostAnswers = 8;  // whoever waits for others is one meeting behind them at most

  void note(const proto::Request& request, const proto::Reply& reply);
  std::vector<proto::Told> all() const;

 private:
  void forget(const std::string& key);
  void note_answer(const proto::Request& request, const proto::Reply& reply);

  std::map<std::string, proto::Told> values_;
  std::map<std::uint64_t, std::string> keys_;  // by version
  std::size_t bytes_ = 0;
  std::deque<proto::Told> answers_;  // of meetings, the latest last
};

}  // namespace rondo::rendezvous
