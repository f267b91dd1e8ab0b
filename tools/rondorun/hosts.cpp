// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <unordered_map>

#include <rondo/error.hpp>

namespace rondo::launcher {
namespace {

constexpr std::size_t kMostHosts = 65536;
constexpr int kMostRanks = 65536;

[[noreturn]] void refuse_host(const std::string& where, const std::string& text, const char* why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: '{}' {}", where, text, why));
}

std::optional<int> whole_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > kMostRanks) return std::nullopt;
  return value;
}

// What begins with a dash would be a flag of ssh's, and a comma stands between hosts.
void check_name(const std::string& login, const std::string& where, const std::string& text) {
  const std::string name = login.substr(login.rfind('@') + 1);
  const bool is_odd = std::any_of(login.begin(), login.end(), [](unsigned char letter) {
    return std::isspace(letter) != 0 || std::iscntrl(letter) != 0 || letter == '[' || letter == ']' || letter == ',';
  });
  if (name.empty() || login.starts_with('-') || name.starts_with('-') || is_odd)
    refuse_host(where, text, "is no host: write NAME, NAME:RANKS, USER@NAME:RANKS or [IPV6]:RANKS");
}

void check_ranks(const std::string& ranks, const std::string& where, const std::string& text) {
  if (ranks != "auto" && ranks != "cpu" && ranks != "gpu" && !whole_number(ranks))
    refuse_host(where, text, "does not say a number of ranks: 1 to 65536, auto, cpu or gpu");
}

FarHost host_of(const std::string& text, const std::string& each, const std::string& where) {
  const std::size_t user = text.rfind('@') + 1;  // as ssh has it; none: 0
  const bool bracketed = user < text.size() && text[user] == '[';
  const std::size_t end = bracketed ? text.find(']') : std::string::npos;
  std::size_t colon = text.find(':', user);
  if (bracketed) {
    if (end == std::string::npos || (end + 1 < text.size() && text[end + 1] != ':'))
      refuse_host(where, text, "is no [IPV6]:RANKS");
    colon = end + 1 < text.size() ? end + 1 : std::string::npos;
  } else if (colon != std::string::npos && text.find(':', colon + 1) != std::string::npos) {
    refuse_host(where, text, "has several colons: an IPv6 address stands in brackets, [fd00::1]:4");
  }
  FarHost host{.login = text.substr(0, colon), .ranks = each};
  if (bracketed) host.login = text.substr(0, user) + text.substr(user + 1, end - user - 1);
  check_name(host.login, where, text);
  if (colon == std::string::npos) return host;
  host.ranks = text.substr(colon + 1);
  check_ranks(host.ranks, where, text);
  return host;
}

// Each once, in the order in which they are named first.
class Hosts {
 public:
  void add(const FarHost& more, const std::string& where) {
    const auto [place, is_new] = places_.emplace(more.login, hosts_.size());
    if (!is_new) return add_ranks(hosts_[place->second], more, where);
    if (hosts_.size() == kMostHosts) refuse_host(where, more.login, "is one host too many");
    hosts_.push_back(more);
  }
  const std::vector<FarHost>& all() const { return hosts_; }

 private:
  static void add_ranks(FarHost& host, const FarHost& more, const std::string& where) {
    const auto had = whole_number(host.ranks), has = whole_number(more.ranks);
    if (!had || !has || *had + *has > kMostRanks)
      refuse_host(where, more.login,
                  "is named twice: then it needs numbers of ranks, which are added up to 65536 at most");
    host.ranks = std::to_string(*had + *has);
  }
  std::vector<FarHost> hosts_;
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace

std::vector<FarHost> hosts_of_list(const std::string& text, const std::string& each) {
  Hosts hosts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) hosts.add(host_of(word, each, "--hosts"), "--hosts");
  if (hosts.all().empty() || text.ends_with(',')) refuse_host("--hosts", text, "lacks a host");
  return hosts.all();
}

std::vector<FarHost> hosts_of_file(const std::filesystem::path& path, const std::string& each) {
  std::ifstream in(path);
  if (!in)
    throw Error(ErrorCode::invalid_argument, fmt::format("--hostfile {}: {}", path.string(), std::strerror(errno)));
  return hosts_in(in, path.string(), each);
}

std::vector<FarHost> hosts_in(std::istream& in, const std::string& file, const std::string& each) {
  Hosts hosts;
  int line_number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = fmt::format("--hostfile {}, line {}", file, ++line_number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, more;
    if (!(words >> name)) continue;
    FarHost host = host_of(name, each, where);
    for (constexpr std::string_view kSlots = "slots="; words >> more;) {
      const std::string ranks = more.starts_with(kSlots) ? more.substr(kSlots.size()) : more;
      if (ranks == more && !whole_number(more)) continue;  // Open MPI's max_slots=, Grid Engine's queue
      check_ranks(ranks, where, line);
      host.ranks = ranks;
      break;
    }
    hosts.add(host, where);
  }
  if (hosts.all().empty())
    throw Error(ErrorCode::invalid_argument, fmt::format("--hostfile {}: it names no host", file));
  return hosts.all();
}

bool is_loopback(const std::string& name) { return name == "localhost" || name == "::1" || name.starts_with("127."); }

}  // namespace rondo::launcher
