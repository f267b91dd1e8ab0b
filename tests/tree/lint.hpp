// SPDX-License-Identifier: Apache-2.0
// Checks sources against the table of layers. Pure: texts in, sentences out, so that planted violations can be tested.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace rondo::tree {

struct Source {
  std::string path;  // from the repository's root, '/' between folders
  std::string text;
};

// One sentence per violation, "path:line: what is wrong", in the order of the files.
std::vector<std::string> violations(const std::vector<Source>& sources);

// Every source of the repository: C++, protobuf, CMake, scripts. Folders without a row in the table are a violation.
std::vector<Source> read_tree(const std::filesystem::path& root);

// `text` without comments; string literals go too when `keep_strings` is false. Lines stay where they are.
std::string strip(const std::string& text, bool keep_strings);

}  // namespace rondo::tree
