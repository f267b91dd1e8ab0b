// SPDX-License-Identifier: Apache-2.0
// A struct of options has one set of defaults, its own: a default argument that sets a field would be lost where the
// caller sets another one.
#include <regex>

#include "tests/support/catch.hpp"
#include "tests/tree/lint.hpp"

namespace {

std::vector<std::string> second_defaults(const rondo::tree::Source& source) {
  static const std::regex pattern(R"(\b\w*Options\s+\w+\s*=\s*(\w+\s*)?\{\s*[^}\s][^}]*\})");
  std::vector<std::string> all;
  const std::string text = rondo::tree::strip(source.text, true);
  for (std::sregex_iterator at(text.begin(), text.end(), pattern); at != std::sregex_iterator(); ++at)
    all.push_back(source.path + ": " + at->str());
  return all;
}
bool refused(const std::string& line) { return !second_defaults({"trainer/include/rondo/a.hpp", line}).empty(); }

}  // namespace

TEST_CASE("default arguments set no field of options") {
  CHECK(refused("Wrapper(Communicator& c, trainer::SynchronizerOptions options = {.broadcast = true})"));
  CHECK(refused("void run(Options options = Options{.timeout = 3});"));
  CHECK_FALSE(refused("void run(Options options = {}, ScalerOptions more = { });"));
  std::vector<std::string> found;
  for (const rondo::tree::Source& source : rondo::tree::read_tree(RONDO_SOURCE_DIR)) {
    if (source.path.find("/include/") == std::string::npos) continue;
    for (const std::string& one : second_defaults(source)) found.push_back(one);
  }
  CHECK(found == std::vector<std::string>{});
}
