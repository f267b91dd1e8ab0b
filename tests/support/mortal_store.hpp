// SPDX-License-Identifier: Apache-2.0
// A store whose server ends when a test says so.
#pragma once
#include <atomic>

#include <rondo/error.hpp>

#include "tests/support/passing_store.hpp"

namespace rondo::test {

class MortalStore final : public PassingStore {
 public:
  using PassingStore::PassingStore;
  void end() { ended_ = true; }

 private:
  Store& store() override {
    if (ended_) throw Error(ErrorCode::peer_lost, "the server has ended");
    return PassingStore::store();
  }
  std::atomic<bool> ended_{false};
};

}  // namespace rondo::test
