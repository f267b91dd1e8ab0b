// SPDX-License-Identifier: Apache-2.0
// Names that go into files: UTF-8, or refused.
#pragma once
#include <string>

namespace rondo::trainer {

// In quotes, for a sentence; what is no plain text is escaped.
std::string quoted(const std::string& text);

// Error(invalid_argument): "<what> "<text>" is not UTF-8 ...".
void check_utf8(const char* what, const std::string& text);

}  // namespace rondo::trainer
