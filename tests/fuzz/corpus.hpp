// SPDX-License-Identifier: Apache-2.0
// Inputs as lines of text: printable ASCII stands for itself, but for the backslash, and \xNN for every other byte.
// Lines that begin with # are comments, empty ones nothing.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::fuzz {

std::string to_line(std::string_view input);
std::string from_line(std::string_view line);  // throws std::runtime_error for what to_line never writes

// Of a target: corpus/<name>.txt; throws where it cannot be read.
std::vector<std::string> read_corpus(const std::filesystem::path& file);

}  // namespace rondo::fuzz
