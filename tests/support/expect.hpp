// SPDX-License-Identifier: Apache-2.0
// Catch2's macros are for one thread: what runs on ranks reports by throwing.
#pragma once
#include <stdexcept>
#include <string>

namespace rondo::test {

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace rondo::test
