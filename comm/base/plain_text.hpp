// SPDX-License-Identifier: Apache-2.0
// Text that may be a stranger's, for a terminal or a log.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace rondo {

// On one line, of at most some `most_bytes`, and without what a terminal obeys: such bytes become \xNN, and what is too
// much is left out and counted. All other text stays as it is.
inline constexpr std::size_t kMostOfPlainText = 4000;
std::string plain_text(std::string_view text, std::size_t most_bytes = kMostOfPlainText);

// What a program has to say of itself, in such a line on stderr: "rondo-plan: --rank x is not a rank".
void complain(std::string_view program, std::string_view sentence);

}  // namespace rondo
