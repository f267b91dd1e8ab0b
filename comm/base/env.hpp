// SPDX-License-Identifier: Apache-2.0
// The only place that reads the environment.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

std::optional<std::string> env(std::string_view name);  // empty counts as unset
// Error(invalid_argument) naming the variable when it is not a number in [low, high].
std::optional<long> env_number(std::string_view name, long low, long high);
std::vector<std::string> env_names_with_prefix(std::string_view prefix);

}  // namespace rondo
