// SPDX-License-Identifier: Apache-2.0
// The command line that all programs of this folder take: `--name value` pairs, the same for every library, so that a
// launcher of MPI carries them to every rank. The driver writes it.
#pragma once
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace rondo::peers {

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0 || i + 1 == argc) stop(name + " is no --name with a value");
      values_[name.substr(2)] = argv[i + 1];
    }
  }
  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  std::string needed(const std::string& name) const {
    if (values_.count(name) == 0) stop("--" + name + " is missing");
    return values_.at(name);
  }
  long number(const std::string& name, long otherwise) const {
    const std::string value = text(name, "");
    if (value.empty()) return otherwise;
    return number_in(value, "--" + name);
  }
  static long number_in(const std::string& value, const std::string& where) {
    char* end = nullptr;
    const long parsed = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0') stop(where + ": '" + value + "' is no number");
    return parsed;
  }
  // "64,1024" or words
  std::vector<std::string> list(const std::string& name) const {
    std::vector<std::string> all;
    std::istringstream in(text(name, ""));
    for (std::string one; std::getline(in, one, ',');) all.push_back(one);
    return all;
  }

 private:
  [[noreturn]] static void stop(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(2);
  }
  std::map<std::string, std::string> values_;
};

}  // namespace rondo::peers
