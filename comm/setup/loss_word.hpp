// SPDX-License-Identifier: Apache-2.0
// Whom the ranks that meet in a store have lost. Who has lost another fails, and mostly ends: to the rest it is lost,
// too, or they wait for both. So the first that fails says in the store whom it missed, or that it gave up itself.
#pragma once
#include <optional>
#include <string>

#include <rondo/error.hpp>
#include <rondo/store.hpp>

namespace rondo::comm {

class LossWord {
 public:
  // `name`: of the communicator and its generation. The store outlives this.
  LossWord(Store& place, const std::string& name, int rank) : place_(place), name_(name), rank_(rank) {}

  // What this rank fails with, which others are told. That is another's word where it came first.
  Error cause_of(const Error& error) const;
  // Throws of the store when that is gone.
  std::optional<Error> said() const;

 private:
  std::string key() const { return name_ + "/lost"; }
  void tell(const Error& word) const;

  Store& place_;
  const std::string name_;
  const int rank_;
};

}  // namespace rondo::comm
