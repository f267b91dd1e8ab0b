// SPDX-License-Identifier: Apache-2.0
#include "tests/tree/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>

namespace rondo::tree {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool fits(std::string_view pattern, std::string_view word) {
  const char last = pattern.back();
  if (last != '*' && last != '^') return pattern == word;
  const std::string_view beginning = pattern.substr(0, pattern.size() - 1);
  if (!word.starts_with(beginning)) return false;
  return last == '*' ||
         (word.size() > beginning.size() && std::isupper(static_cast<unsigned char>(word[beginning.size()])) != 0);
}
bool any_fits(const std::vector<std::string_view>& patterns, std::string_view word) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) { return fits(pattern, word); });
}

bool lies_in(const std::vector<std::string_view>& places, std::string_view path) {
  return std::any_of(places.begin(), places.end(), [&](std::string_view place) {
    return place.ends_with('/') ? path.starts_with(place) : fits(place, path);
  });
}

bool applies(const Words& rule, std::string_view path) {
  if (!lies_in(rule.where, path) || lies_in(rule.exceptions, path)) return false;
  return rule.suffixes.empty() || std::any_of(rule.suffixes.begin(), rule.suffixes.end(),
                                              [&](std::string_view suffix) { return path.ends_with(suffix); });
}

struct Word {
  std::string_view text;
  bool used;  // called, or its address taken
};

template <class Visit>
void for_each_word(std::string_view line, Visit&& visit) {
  for (std::size_t at = 0; at < line.size();) {
    if (!is_word(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && is_word(line[end])) ++end;
    const bool called = end < line.size() && line[end] == '(';
    visit(Word{line.substr(at, end - at), called || (at > 0 && line[at - 1] == '&')});
    at = end;
  }
}

}  // namespace

std::vector<std::string> word_violations(const Source& source) {
  std::vector<const Words*> rules;
  for (const Words& rule : word_rules()) {
    if (applies(rule, source.path)) rules.push_back(&rule);
  }
  std::vector<std::string> found;
  std::istringstream in(strip(source.text, false));
  std::string line;
  for (int number = 1; !rules.empty() && std::getline(in, line); ++number) {
    for_each_word(line, [&](const Word& word) {
      for (const Words* rule : rules) {
        if (!any_fits(rule->words, word.text) || any_fits(rule->harmless, word.text)) continue;
        if (rule->used_only && !word.used) continue;
        found.push_back(fmt::format("{}:{}: {} is {}, which is not for this file: {}", source.path, number, word.text,
                                    rule->name, rule->instead));
      }
    });
  }
  return found;
}

}  // namespace rondo::tree
