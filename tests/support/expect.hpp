// SPDX-License-Identifier: Apache-2.0
// Catch2's macros are for one thread: what runs on ranks reports by throwing.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace rondo::test {

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace rondo::test
