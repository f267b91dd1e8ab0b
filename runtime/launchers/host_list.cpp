// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchers/host_list.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <string_view>

#include <rondo/error.hpp>

namespace rondo::runtime {
namespace {

constexpr std::size_t kMostDigits = 9;
constexpr std::size_t kLongestName =
    255;  // that a host can have: one that is longer would be kept once for each number

class HostListParser {
 public:
  HostListParser(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  std::vector<std::string> list() {
    std::vector<std::string> hosts;
    do {
      const std::vector<std::string> more = entry();
      if (hosts.size() + more.size() > kMostHosts) refuse(fmt::format("it names more than {} hosts", kMostHosts));
      hosts.insert(hosts.end(), more.begin(), more.end());
    } while (take(','));
    if (at_ != text_.size()) refuse(fmt::format("'{}' is no part of a name", text_[at_]));
    return hosts;
  }

 private:
  // A name with any number of brackets, of which each multiplies what came before.
  std::vector<std::string> entry() {
    const std::size_t begin = at_;
    std::vector<std::string> hosts{{}};
    for (;;) {
      const std::string_view plain = plain_text();
      for (std::string& host : hosts) append(host, plain);
      if (!take('[')) break;
      hosts = combine(hosts, numbers());
    }
    if (at_ == begin) refuse("a name is missing");
    return hosts;
  }

  std::vector<std::string> combine(const std::vector<std::string>& heads, const std::vector<std::string>& tails) const {
    if (heads.size() * tails.size() > kMostHosts) refuse(fmt::format("it names more than {} hosts", kMostHosts));
    std::vector<std::string> all;
    for (const std::string& head : heads) {
      for (const std::string& tail : tails) append(all.emplace_back(head), tail);
    }
    return all;
  }

  void append(std::string& host, std::string_view more) const {
    if (host.size() + more.size() > kLongestName) refuse(fmt::format("a name has more than {} letters", kLongestName));
    host += more;
  }

  // What stands in brackets, with the closing one.
  std::vector<std::string> numbers() {
    std::vector<std::string> all;
    do {
      const std::string_view first = digits(), last = take('-') ? digits() : first;
      const unsigned long low = value(first), high = value(last);
      if (high < low) refuse(fmt::format("the range {}-{} runs backwards", first, last));
      if (all.size() + (high - low) >= kMostHosts) refuse(fmt::format("it names more than {} hosts", kMostHosts));
      for (unsigned long n = low; n <= high; ++n) all.push_back(fmt::format("{:0{}}", n, first.size()));
    } while (take(','));
    if (!take(']')) refuse("']' is missing");
    return all;
  }

  std::string_view plain_text() {
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

  std::string_view text_;
  const std::string& what_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::string> expand_host_list(const std::string& text, const std::string& what) {
  return HostListParser(text, what).list();
}

}  // namespace rondo::runtime
