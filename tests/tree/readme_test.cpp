// SPDX-License-Identifier: Apache-2.0
// The README shows the example that is compiled, and names folders and scripts that exist.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "tests/support/catch.hpp"

namespace {

const std::filesystem::path kRoot = RONDO_SOURCE_DIR;

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("README.md shows examples/all_reduce.cpp to the letter") {
  const std::string readme = slurp(kRoot / "README.md");
  CHECK(readme.find("```cpp\n" + slurp(kRoot / "examples/all_reduce.cpp") + "```\n") != std::string::npos);
}

TEST_CASE("every path that README.md and CONTRIBUTING.md name exists") {
  int named = 0;
  for (const char* file : {"README.md", "CONTRIBUTING.md"}) {
    const std::string text = slurp(kRoot / file);
    const std::regex path(
        "(^|[`(\\s])((tools|tests|kernels|comm|rendezvous|runtime|trainer|bench|examples|proto)"
        "/[a-z_/.-]*[a-z_/])");
    for (auto at = std::sregex_iterator(text.begin(), text.end(), path); at != std::sregex_iterator(); ++at) {
      INFO(file << " names " << (*at)[2]);
      CHECK(std::filesystem::exists(kRoot / (*at)[2].str()));
      ++named;
    }
  }
  CHECK(named > 12);
}
