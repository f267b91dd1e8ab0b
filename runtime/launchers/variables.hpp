// SPDX-License-Identifier: Apache-2.0
// A process's variables, and how the environment table reads them.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace rondo::runtime {

using Variables = std::map<std::string, std::string, std::less<>>;
Variables process_variables();  // of this process; empty ones count as unset

inline bool has(const Variables& variables, std::string_view name) { return variables.contains(name); }
std::string text_or(const Variables& variables, std::string_view name, const std::string& otherwise);
// invalid_argument naming the variable when it is not a whole number in [low, high].
long number(const Variables& variables, std::string_view name, long low, long high);  // it is there
long number_or(const Variables& variables, std::string_view name, long low, long high, long otherwise);

// A value, and the variables that it was read from, as "NAME=value"; `by` is empty where there are none.
template <class Value>
struct Said {
  Value value{};
  std::string by{};
  // What another variable says comes first, if it is set.
  void prefer(Said other) {
    if (!other.by.empty()) *this = std::move(other);
  }
};
std::string entry(const Variables& variables, std::string_view name);  // "NAME=value", or "" where it is not set
Said<int> said_number(const Variables& variables, std::string_view name, long low, long high);  // it is there
Said<std::string> said_text(const Variables& variables, std::string_view name);                 // or nothing
Said<std::uint16_t> said_port(const Variables& variables, std::string_view name);               // or nothing

// invalid_argument naming what is there and what is not, unless all are; `sign` is what the launcher was known by.
void require(const Variables& variables, std::string_view launcher, std::string_view sign,
             std::initializer_list<std::string_view> names);

}  // namespace rondo::runtime
