// SPDX-License-Identifier: Apache-2.0
// The target reads all lines by one reader.
#include <map>
#include <sstream>

#include "tests/fuzz/same_line.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/support/catch.hpp"
#include "tools/rondorun/options.hpp"

using namespace rondo::launcher;
using rondo::fuzz::same;

namespace {

using Line = std::vector<std::string>;

Line words_in(const std::string& seed) {
  Line line;
  std::istringstream words(seed);
  for (std::string word; std::getline(words, word, '\0');) line.push_back(word);
  return line;
}

std::vector<Line> lines() {
  std::vector<Line> all{{}, {"--no-such-flag"}, {"-n", "none", "a"}, {"--explain", "-n", "2"}};
  for (const std::string& seed : rondo::fuzz::command_line_seeds()) all.push_back(words_in(seed));
  return all;
}

}  // namespace

TEST_CASE("a command line that is read after another one is what it is alone") {
  CommandLine reader;
  std::map<Line, std::variant<Options, Stop>> alone;
  for (const Line& line : lines()) alone.emplace(line, CommandLine().parse(line));
  for (const Line& before : lines()) {
    for (const Line& line : lines()) {
      CAPTURE(before, line);
      reader.parse(before);
      const bool is_as_alone = same(reader.parse(line), alone.at(line));
      CHECK((is_as_alone || same(reader.parse(line), CommandLine().parse(line))));  // some jobs have the time as a name
    }
  }
}

TEST_CASE("what is known before a command line is read is of this line alone") {
  CommandLine reader;
  Options known;
  known.job = "known";
  CHECK(std::get<Options>(reader.parse({"a"}, known)).job == "known");
  CHECK(std::get<Options>(reader.parse({"a"})).job.empty());
}
