// SPDX-License-Identifier: Apache-2.0
#include "tests/tree/lint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "tests/tree/layers.hpp"
#include "tests/tree/words.hpp"

namespace rondo::tree {
namespace {

struct Include {
  std::string name;
  bool angled;
  int line;
};

bool is_cpp(std::string_view path) {
  return path.ends_with(".cpp") || path.ends_with(".hpp") || path.ends_with(".cu") || path.ends_with(".cuh");
}
bool is_public(std::string_view path) { return path.find("/include/rondo/") != std::string_view::npos; }

template <class Visit>
void for_each_line(const std::string& text, Visit&& visit) {
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) visit(number, line);
}

std::vector<Include> includes_of(const Source& source) {
  std::vector<Include> found;
  for_each_line(strip(source.text, true), [&](int number, const std::string& line) {
    std::istringstream words(line);
    char hash = 0;
    std::string directive;
    if (!(words >> hash) || hash != '#' || !(words >> directive) || !directive.starts_with("include")) return;
    const auto open = line.find_first_of("<\"");
    if (open == std::string::npos) return;
    const bool angled = line[open] == '<';
    const auto close = line.find(angled ? '>' : '"', open + 1);
    if (close != std::string::npos) found.push_back({line.substr(open + 1, close - open - 1), angled, number});
  });
  return found;
}

const Layer* layer_of(std::string_view path) {
  const Layer* best = nullptr;
  for (const Layer& layer : layers()) {
    const bool deeper = best == nullptr || layer.folder.size() > best->folder.size();
    if (path.starts_with(layer.folder) && deeper) best = &layer;
  }
  return best;
}

bool matches(std::string_view entry, std::string_view path) {
  return entry == path || (entry.ends_with('/') && path.starts_with(entry));
}

bool allows(const Layer& layer, std::string_view path) {
  const Layer* target = layer_of(path);
  if (target == &layer) return true;
  return std::any_of(layer.ours.begin(), layer.ours.end(), [&](std::string_view entry) {
    return matches(entry, path) && (target == nullptr || target->folder.size() <= entry.size());
  });
}

// A public header only where a row names one: whoever includes it needs the library.
bool may_use_library(std::string_view path, std::string_view name) {
  for (const Library& library : libraries()) {
    if (!name.starts_with(library.prefix)) continue;
    return std::any_of(library.users.begin(), library.users.end(), [&](std::string_view user) {
      return matches(user, path) && is_public(path) == is_public(user);
    });
  }
  return true;
}

class Checker {
 public:
  explicit Checker(const std::vector<Source>& sources) {
    for (const Source& source : sources) files_.emplace(source.path, &source);
    for (const Source& source : sources) check(source);
    for (const auto& [path, source] : files_) find_cycle(path);
    for (const Strangers& row : strangers()) find_strangers(row);
  }
  std::vector<std::string> take() { return std::move(violations_); }

 private:
  void say(const Source& source, int line, std::string what) {
    violations_.push_back(fmt::format("{}:{}: {}", source.path, line, what));
  }

  void check(const Source& source) {
    check_licence(source);
    if (!is_cpp(source.path)) return;
    const Layer* layer = layer_of(source.path);
    if (layer == nullptr) return say(source, 1, "lies in a folder that tests/tree/layers.hpp does not know");
    if ((source.path.ends_with(".hpp") || source.path.ends_with(".cuh")) &&
        source.text.find("#pragma once") == std::string::npos) {
      say(source, 1, "is a header without #pragma once");
    }
    for (const Include& include : includes_of(source)) check_include(source, *layer, include);
    check_homes(source);
    for (std::string& violation : word_violations(source)) violations_.push_back(std::move(violation));
  }

  void check_licence(const Source& source) {
    std::istringstream in(source.text);
    std::string line;
    std::getline(in, line);
    if (line.starts_with("#!")) std::getline(in, line);
    if (line != "// SPDX-License-Identifier: Apache-2.0" && line != "# SPDX-License-Identifier: Apache-2.0") {
      say(source, 1, "does not open with its SPDX line");
    }
  }

  void check_homes(const Source& source) {
    const auto includes = includes_of(source);
    const std::string code = strip(source.text, false);
    for (const Home& home : homes()) {
      const bool included =
          std::any_of(includes.begin(), includes.end(), [&](const Include& i) { return i.name == home.header; });
      if (!included && code.find(home.name) != std::string::npos) {
        say(source, 1, fmt::format("uses {} without <{}>", home.name, home.header));
      }
    }
  }

  void check_include(const Source& source, const Layer& layer, const Include& include) {
    const auto target = resolve(source, include);
    if (target) {
      edges_[source.path].push_back(*target);
      if (is_public(source.path) && !is_public(*target)) {
        say(source, include.line, fmt::format("a public header may not include {}, which is not installed", *target));
      } else if (!allows(layer, *target)) {
        say(source, include.line, fmt::format("{} may not include {}", layer.folder, *target));
      }
      return;
    }
    if (!include.angled) return say(source, include.line, fmt::format("no file is called {}", include.name));
    if (!may_use_library(source.path, include.name)) {
      const std::string who = is_public(source.path) ? "a public header" : source.path;
      say(source, include.line, fmt::format("{} may not include <{}>", who, include.name));
    }
  }

  // The path of one of our files; protoc's headers count as the .proto they are made from.
  std::optional<std::string> resolve(const Source& source, const Include& include) const {
    std::string name = include.name;
    if (name.ends_with(".pb.h")) name = name.substr(0, name.size() - 5) + ".proto";
    if (include.angled && name.starts_with("rondo/")) {
      for (const auto& [path, file] : files_) {
        if (path.ends_with("/include/" + name)) return path;
      }
    }
    if (files_.contains(name)) return name;
    const std::string sibling = source.path.substr(0, source.path.rfind('/') + 1) + name;
    if (!include.angled && files_.contains(sibling)) return sibling;
    return std::nullopt;
  }

  // Depth first; a file on the current path that comes up again closes a cycle. Said once per cycle.
  void find_cycle(const std::string& path) {
    if (done_.contains(path)) return;
    const auto again = std::find(trail_.begin(), trail_.end(), path);
    if (again != trail_.end()) {
      std::string cycle;
      for (auto at = again; at != trail_.end(); ++at) cycle += *at + " -> ";
      violations_.push_back(fmt::format("{}:1: includes itself: {}{}", path, cycle, path));
      return;
    }
    trail_.push_back(path);
    for (const std::string& next : edges_[path]) find_cycle(next);
    trail_.pop_back();
    done_.emplace(path, true);
  }

  // Said once per file of the folder: how it comes to the stranger.
  void find_strangers(const Strangers& row) {
    for (const auto& [path, source] : files_) {
      if (!path.starts_with(row.folder)) continue;
      const std::string way = way_to(row.stranger, path);
      if (!way.empty())
        violations_.push_back(fmt::format("{}:1: may not include {}: {}{}", path, row.stranger, path, way));
    }
  }

  // " -> a -> b" by the shortest way, or nothing.
  std::string way_to(std::string_view stranger, const std::string& from) {
    std::map<std::string, std::string> ways = {{from, ""}};
    std::vector<std::string> reached = {from};
    for (std::size_t at = 0; at < reached.size(); ++at) {
      const std::string here = reached[at];
      if (here.starts_with(stranger)) return ways[here];
      for (const std::string& next : edges_[here]) {
        if (ways.emplace(next, ways[here] + " -> " + next).second) reached.push_back(next);
      }
    }
    return {};
  }

  std::map<std::string, const Source*> files_;
  std::map<std::string, std::vector<std::string>> edges_;
  std::map<std::string, bool> done_;
  std::vector<std::string> trail_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> violations(const std::vector<Source>& sources) { return Checker(sources).take(); }

}  // namespace rondo::tree
