// SPDX-License-Identifier: Apache-2.0
// What a client has written into the store, for a server that has lost it. The latest, as nobody knows when a value is
// of no use any more.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "proto/rondo.pb.h"

namespace rondo::rendezvous {

class Written {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  void note(const proto::Request& request, const proto::Reply& reply);
  std::vector<proto::Told> all() const;

 private:
  void forget(const std::string& key);

  std::map<std::string, proto::Told> values_;
  std::map<std::uint64_t, std::string> keys_;  // by version
  std::size_t bytes_ = 0;
};

}  // namespace rondo::rendezvous
