// SPDX-License-Identifier: Apache-2.0
// What a rank of a communicator that grows tells the others: a growth, or an error.
#pragma once
#include <optional>

#include <rondo/error.hpp>
#include <rondo/store.hpp>

#include "comm/setup/recruiter.hpp"

namespace rondo::comm {

struct GrowthWord {
  Growth growth{};
  std::optional<Error> error{};

  Store::Bytes encode() const;
  static GrowthWord decode(const Store::Bytes& bytes);  // Error(corrupt_message): that is none
};

}  // namespace rondo::comm
