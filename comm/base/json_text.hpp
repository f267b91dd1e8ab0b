// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace rondo {

// As a string of JSON, quotes included, which is UTF-8: names of hosts and files need not be.
std::string json_text(std::string_view text);

}  // namespace rondo
