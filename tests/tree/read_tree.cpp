// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/tree/lint.hpp"

namespace rondo::tree {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> kSuffixes = {".cpp", ".hpp", ".cu", ".cuh", ".proto", ".cmake", ".py", ".sh"};

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_source(const fs::path& path, const std::string& text) {
  const std::string suffix = path.extension().string();
  return path.filename() == "CMakeLists.txt" || text.starts_with("#!") ||
         std::find(kSuffixes.begin(), kSuffixes.end(), suffix) != kSuffixes.end();
}

}  // namespace

std::vector<Source> read_tree(const fs::path& root) {
  std::vector<Source> sources;
  for (auto at = fs::recursive_directory_iterator(root); at != fs::recursive_directory_iterator(); ++at) {
    const std::string name = at->path().filename().string();
    const bool hidden = name.starts_with('.') && name != ".ci";
    if (at->is_directory()) {
      if (hidden || (at.depth() == 0 && name.starts_with("build"))) at.disable_recursion_pending();
      continue;
    }
    std::string text = slurp(at->path());
    if (!is_source(at->path(), text)) continue;
    sources.push_back({fs::relative(at->path(), root).generic_string(), std::move(text)});
  }
  std::sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return sources;
}

}  // namespace rondo::tree
