// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

#include <rondo/error.hpp>

namespace rondo {
// Error(system) with errno's reason: "cannot map 4096 bytes: Cannot allocate memory".
[[noreturn]] void throw_errno(std::string_view what);
}  // namespace rondo
