// SPDX-License-Identifier: Apache-2.0
// The key-value store of the room. A get of a key that is absent waits for it.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/replies.hpp"

namespace rondo::rendezvous {

class KeyValues {
 public:
  KeyValues(Waits& waits, Replies& replies, std::size_t limit_bytes)
      : waits_(waits), replies_(replies), limit_bytes_(limit_bytes) {}

  void keep(const std::string& key, const std::string& value);  // the server's own, beyond the limit
  void set(Caller caller, const proto::Pair& pair);
  void get(Caller caller, const std::string& key, Time deadline);
  void try_get(Caller caller, const std::string& key);
  void add(Caller caller, const proto::Add& request);
  void compare_and_set(Caller caller, const proto::CompareAndSet& request);
  void erase(Caller caller, const std::string& key);
  void told(Caller caller, const proto::Told& told);  // counts where nobody knows better

  void expire(WaitId wait);
  void cancel(WaitId wait);

 private:
  std::uint64_t put(const std::string& key, const std::string& value);  // within the limit; its version
  void forget(WaitId wait, const std::string& key);

  Waits& waits_;
  Replies& replies_;
  std::size_t limit_bytes_, bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::uint64_t> versions_;  // of these, and of what was told to be erased
  std::uint64_t last_version_ = 0;
  std::unordered_map<std::string, std::vector<WaitId>> waiting_;
};

}  // namespace rondo::rendezvous
