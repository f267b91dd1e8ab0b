// SPDX-License-Identifier: Apache-2.0
// Errors and the log show text that may be a stranger's.
#include "comm/base/plain_text.hpp"

#include <rondo/error.hpp>

#include "tests/support/catch.hpp"

using namespace rondo;

TEST_CASE("a sentence is shown on one line, and no terminal obeys what is in it") {
  CHECK(plain_text("rank 3 of 'größer' left") == "rank 3 of 'größer' left");
  CHECK(plain_text("a\nrondo error: b\x1b[2J\x7f") == "a\\x0arondo error: b\\x1b[2J\\x7f");
  CHECK(plain_text("a\xc2\x9b"
                   "31mb\xc2\xa0") == "a\\xc2\\x9b31mb\xc2\xa0");  // U+009B is an order, U+00A0 a space
  CHECK(plain_text("\x9b") == "\x9b");                             // of no character: shown as such
  CHECK(plain_text("").empty());
  CHECK(std::string(Error(ErrorCode::mismatch, "job 'x\r\n'").what()) == "job 'x\\x0d\\x0a'");
}

TEST_CASE("a sentence that is too long says how long it was, and breaks no letter in two") {
  for (const std::string& letter : {std::string("a"), std::string("ß"), std::string("𝄞"), std::string("\n")}) {
    std::string text = "x";
    while (text.size() < 100'000) text += letter;
    const std::string shown = plain_text(text);
    CAPTURE(letter, shown.size());
    CHECK(shown.size() < 4096);
    CHECK(shown.ends_with("… (" + std::to_string(text.size()) + " bytes in all)"));
    const std::string beginning = shown.substr(1, shown.find("…") - 1);
    const std::string part = letter == "\n" ? "\\x0a" : letter;
    CHECK(beginning.size() % part.size() == 0);
    CHECK(beginning.starts_with(part));
  }
}

TEST_CASE("a code that is none of ours is the system's") {
  for (const int code : {0, -1, 10, 1 << 20}) {
    CHECK(Error(static_cast<ErrorCode>(code), "s").error_code() == ErrorCode::system);
  }
  CHECK(std::string(Error(ErrorCode::timeout, "").what()) == "timeout");
  CHECK(Error(ErrorCode::corrupt_message, "s").error_code() == ErrorCode::corrupt_message);
}
