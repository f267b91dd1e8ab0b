// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/host_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <utility>

#include <rondo/error.hpp>

namespace rondo::runtime {
namespace {

using Range = HostList::Range;
using Part = HostList::Part;
using Entry = HostList::Entry;

constexpr std::size_t kMostDigits = 9;
constexpr std::size_t kLongestName = 255;  // that a host can have

class HostListParser {
 public:
  HostListParser(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  std::vector<Entry> list() {
    std::vector<Entry> entries;
    std::size_t hosts = 0;
    do {
      entries.push_back(entry());
      check_count(hosts += entries.back().count);
    } while (take(','));
    if (at_ != text_.size()) refuse(fmt::format("'{}' is no part of a name", text_[at_]));
    return entries;
  }

 private:
  Entry entry() {
    const std::size_t begin = at_;
    Entry entry;
    std::size_t longest = 0;  // of its names
    for (bool more = true; more;) {
      Part part{.letters = std::string(letters())};
      longest += part.letters.size();
      more = take('[');
      if (more) longest += numbers(part);
      if (longest > kLongestName) refuse(fmt::format("a name has more than {} letters", kLongestName));
      check_count(entry.count *= part.count);
      entry.parts.push_back(std::move(part));
    }
    if (at_ == begin) refuse("a name is missing");
    return entry;
  }

  // What stands in brackets, with the closing one; how many digits the longest number has.
  std::size_t numbers(Part& part) {
    std::size_t longest = 0;
    part.count = 0;
    do {
      const std::string_view first = digits(), last = take('-') ? digits() : first;
      const Range range{.low = value(first), .high = value(last), .digits = first.size()};
      if (range.high < range.low) refuse(fmt::format("the range {}-{} runs backwards", first, last));
      check_count(part.count += range.count());
      longest = std::max({longest, first.size(), last.size()});
      part.ranges.push_back(range);
    } while (take(','));
    if (!take(']')) refuse("']' is missing");
    return longest;
  }

  void check_count(std::size_t hosts) const {
    if (hosts > kMostHosts) refuse(fmt::format("it names more than {} hosts", kMostHosts));
  }
  std::string_view letters() {
    const std::size_t begin = at_;
    const auto belongs = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
    };
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view digits() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin) refuse("a number is missing");
    if (at_ - begin > kMostDigits) refuse("a number is too long");
    return text_.substr(begin, at_ - begin);
  }
  static unsigned long value(std::string_view digits) {
    unsigned long number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}={} is not a list of hosts as in 'n[01-16],m3': {}, at character {}", what_, text_, why,
                            at_ + 1));
  }

  std::string_view text_, what_;
  std::size_t at_ = 0;
};

void append(std::string& name, const Part& part, std::size_t index) {
  name += part.letters;
  auto range = part.ranges.begin();
  while (range != part.ranges.end() && index >= range->count()) index -= range++->count();
  if (range != part.ranges.end()) fmt::format_to(std::back_inserter(name), "{:0{}}", range->low + index, range->digits);
}

}  // namespace

HostList::HostList(std::string_view text, std::string_view what) : entries_(HostListParser(text, what).list()) {
  for (const Entry& entry : entries_) size_ += entry.count;
}

std::string HostList::at(std::size_t index) const {
  auto entry = entries_.begin();
  while (index >= entry->count) index -= entry++->count;
  std::string name;
  std::size_t each = entry->count;  // so many hosts have the same so far
  for (const Part& part : entry->parts) {
    each /= part.count;
    append(name, part, index / each);
    index %= each;
  }
  return name;
}

}  // namespace rondo::runtime
