// SPDX-License-Identifier: Apache-2.0
// What callers hand in, looked at where it enters: Error(invalid_argument) with who was called and what is wrong.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include <rondo/trainer/parameter.hpp>

namespace rondo::trainer {

[[noreturn]] void refuse_argument(std::string_view who, const std::string& why);

// A name, a type that there is, a count whose bytes can be counted, and a shape of as many elements. Pointers may be
// null: what that means differs.
void check_parameter(std::string_view who, const Parameter& parameter);
void check_parameters(std::string_view who, std::span<const Parameter> parameters);

// Of a file: not empty, and without the character at which the system would cut it off.
void check_path(std::string_view who, const std::string& path);

}  // namespace rondo::trainer
