// SPDX-License-Identifier: Apache-2.0
// Every input that is kept, once more: what fuzzers have found, and what reaches the corners of the readers.
#include <filesystem>

#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/catch.hpp"

using namespace rondo::fuzz;

namespace {

std::filesystem::path corpus_of(std::string_view target) {
  return std::filesystem::path(RONDO_FUZZ_CORPUS) / (std::string(target) + ".txt");
}

}  // namespace

TEST_CASE("what readers of foreign bytes were once wrong about, they are right about now") {
  for (const Target& target : targets()) {
    for (const std::string& input : read_corpus(corpus_of(target.name))) {
      CAPTURE(target.name, to_line(input));
      CHECK_NOTHROW(target.run(as_bytes(input)));
    }
  }
}

TEST_CASE("readers of foreign bytes take what their writers write") {
  for (const Target& target : targets()) {
    const auto seeds = target.seeds();
    CAPTURE(target.name);
    CHECK_FALSE(seeds.empty());
    for (const std::string& seed : seeds) {
      CAPTURE(to_line(seed));
      CHECK(seed.size() <= target.most_bytes);
      CHECK_NOTHROW(target.run(as_bytes(seed)));
    }
  }
}

TEST_CASE("no corpus is of a target that is not there") {
  for (const auto& file : std::filesystem::directory_iterator(RONDO_FUZZ_CORPUS)) {
    CAPTURE(file.path());
    CHECK(find_target(file.path().stem().string()) != nullptr);
  }
}

TEST_CASE("an input and its line in a corpus are the same") {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& input :
       {all, std::string("# no comment"), std::string(), std::string("\\"), std::string("a b ")}) {
    const std::string line = to_line(input);
    CAPTURE(line);
    CHECK(from_line(line) == input);
    CHECK(line.find('\n') == std::string::npos);
    CHECK_FALSE(line.starts_with('#'));
  }
  CHECK_THROWS(from_line("\\x1"));
  CHECK_THROWS(from_line("\\y00"));
}
