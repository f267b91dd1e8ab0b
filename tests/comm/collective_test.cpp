// SPDX-License-Identifier: Apache-2.0
#include <rondo/collective.hpp>

#include "tests/support/catch.hpp"

TEST_CASE("the collective table is in the order of the enum") {
  for (int i = 0; i < rondo::kCollectiveCount; ++i) {
    CHECK(static_cast<int>(rondo::collective_table()[static_cast<std::size_t>(i)].collective) == i);
  }
}
