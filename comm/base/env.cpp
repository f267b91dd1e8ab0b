// SPDX-License-Identifier: Apache-2.0
#include "comm/base/env.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include <rondo/error.hpp>

namespace rondo {

std::optional<std::string> env(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());  // NOLINT(concurrency-mt-unsafe): nobody of ours sets
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<long> env_number(std::string_view name, long low, long high) {
  const auto text = env(name);
  if (!text) return std::nullopt;
  long value = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc() || end != text->data() + text->size() || value < low || value > high) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}={} is not a whole number from {} to {}", name, *text, low, high));
  }
  return value;
}

std::vector<std::string> env_names_with_prefix(std::string_view prefix) {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    if (line.starts_with(prefix)) names.emplace_back(line.substr(0, line.find('=')));
  }
  return names;
}

}  // namespace rondo
