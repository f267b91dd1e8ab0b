// SPDX-License-Identifier: Apache-2.0
// The README shows the example that is compiled; what READMEs name exists.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

const std::filesystem::path kRoot = RONDO_SOURCE_DIR;

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

// `name` is a file there, whatever it ends in, or a folder.
bool lies_in(const std::filesystem::path& folder, const std::string& name) {
  if (std::filesystem::exists(folder / name)) return true;
  const std::filesystem::path wanted = folder / name;
  if (!std::filesystem::is_directory(wanted.parent_path())) return false;
  for (const auto& entry : std::filesystem::directory_iterator(wanted.parent_path())) {
    const std::string file = entry.path().filename();
    if (file.substr(0, file.find('.')) == wanted.filename()) return true;
  }
  return false;
}

// In the first columns of a page's maps, the tables that begin with these words.
std::vector<std::string> mapped(const std::string& page) {
  std::vector<std::string> names;
  std::istringstream lines(page);
  bool in_map = false;
  for (std::string line; std::getline(lines, line);) {
    for (const char* word : {"| here |", "| where |", "| folder |"}) in_map = in_map || line.rfind(word, 0) == 0;
    if (line.empty()) in_map = false;
    if (!in_map) continue;
    const std::string first = line.substr(0, line.find('|', 1));
    const std::regex quoted("`([^`]+)`");
    for (auto at = std::sregex_iterator(first.begin(), first.end(), quoted); at != std::sregex_iterator(); ++at)
      names.push_back((*at)[1]);
  }
  return names;
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
        "(^|[`(\\s])((tools|tests|kernels|comm|rendezvous|runtime|trainer|bench|bindings|examples|proto)"
        "/[a-z_/.-]*[a-z_/])");
    for (auto at = std::sregex_iterator(text.begin(), text.end(), path); at != std::sregex_iterator(); ++at) {
      INFO(file << " names " << (*at)[2]);
      CHECK(std::filesystem::exists(kRoot / (*at)[2].str()));
      ++named;
    }
  }
  CHECK(named > 12);
}

TEST_CASE("every folder that README.md lists has a page, and what its map names lies there") {
  const std::string readme = slurp(kRoot / "README.md");
  const std::string folders = readme.substr(readme.find("## Folders"));
  const std::regex listed("`([a-z]+)/`");
  int named = 0;
  for (auto at = std::sregex_iterator(folders.begin(), folders.end(), listed); at != std::sregex_iterator(); ++at) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / (*at)[1].str())) {
      if (entry.path().filename() != "README.md") continue;
      for (const std::string& name : mapped(slurp(entry.path()))) {
        INFO(entry.path() << " names " << name);
        CHECK(lies_in(entry.path().parent_path(), name));
        ++named;
      }
    }
    INFO((*at)[1]);
    CHECK(std::filesystem::exists(kRoot / (*at)[1].str() / "README.md"));
  }
  CHECK(named > 60);
}

TEST_CASE("every test that trainer/TUTORIALS.md names exists, with the part of its name that is quoted") {
  std::istringstream lines(slurp(kRoot / "trainer/TUTORIALS.md"));
  const std::regex named(R"re(`([A-Za-z0-9_/]+\.(?:cpp|txt))`|"([^"]+)")re");
  int quoted = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| ", 0) != 0) continue;
    std::string path, text;
    for (auto at = std::sregex_iterator(line.begin(), line.end(), named); at != std::sregex_iterator(); ++at) {
      if ((*at)[1].matched) {
        path = (*at)[1];
        text = slurp(kRoot / "tests" / path);
        continue;
      }
      INFO(path << " is said to have \"" << (*at)[2] << '"');
      CHECK(text.find((*at)[2]) != std::string::npos);
      ++quoted;
    }
  }
  CHECK(quoted > 40);
}
