// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/variables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"

namespace rondo::runtime {

Variables process_variables() {
  Variables variables;
  for (const std::string& name : env_names_with_prefix("")) {
    if (const auto value = env(name)) variables.emplace(name, *value);
  }
  return variables;
}

std::string text_or(const Variables& variables, std::string_view name, const std::string& otherwise) {
  const auto found = variables.find(name);
  return found == variables.end() ? otherwise : found->second;
}

long number(const Variables& variables, std::string_view name, long low, long high) {
  const std::string& text = variables.find(name)->second;
  long value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}={} is not a whole number from {} to {}", name, text, low, high));
  }
  return value;
}

long number_or(const Variables& variables, std::string_view name, long low, long high, long otherwise) {
  return has(variables, name) ? number(variables, name, low, high) : otherwise;
}

std::string entry(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : fmt::format("{}={}", name, found->second);
}

Said<int> said_number(const Variables& variables, std::string_view name, long low, long high) {
  return {static_cast<int>(number(variables, name, low, high)), entry(variables, name)};
}

Said<std::string> said_text(const Variables& variables, std::string_view name) {
  return {text_or(variables, name, ""), entry(variables, name)};
}

Said<std::uint16_t> said_port(const Variables& variables, std::string_view name) {
  return {static_cast<std::uint16_t>(number_or(variables, name, 1, 65535, 0)), entry(variables, name)};
}

void require(const Variables& variables, std::string_view launcher, std::string_view sign,
             std::initializer_list<std::string_view> names) {
  std::string present, absent;
  const auto append = [](std::string& list, std::string_view name) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  };
  if (std::find(names.begin(), names.end(), sign) == names.end()) append(present, sign);
  for (const std::string_view name : names) append(has(variables, name) ? present : absent, name);
  if (absent.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the environment ({}) has {} but not {}: set all of RANK, WORLD_SIZE, MASTER_ADDR and "
                          "MASTER_PORT, or start the program with rondorun, or set RONDO_WORLD=one for a world of one",
                          launcher, present, absent));
}

}  // namespace rondo::runtime
