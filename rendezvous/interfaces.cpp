// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/interfaces.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include <rondo/error.hpp>

#include "comm/base/system_error.hpp"
#include "rendezvous/socket.hpp"

namespace rondo::rendezvous {
namespace {

struct Interface {
  std::string name, address;
  bool v6 = false, link_local = false;
};

std::string text_of(const sockaddr* address) {
  sockaddr_storage storage{};
  std::memcpy(&storage, address, address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return address_text(storage);
}

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_errno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
    const bool link_local = family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
    found.push_back({entry->ifa_name, text_of(entry->ifa_addr), family == AF_INET6, link_local});
  }
  return found;
}

bool loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

bool is_numeric(const std::string& host) {
  in6_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// As hosts files and RFC 6761 have it.
bool means_loopback_anywhere(const std::string& host) {
  return host.starts_with("localhost") || host.starts_with("ip6-l") || host.ends_with(".localhost");
}

// Nothing when the name is unknown.
std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next)
    addresses.push_back(text_of(entry->ai_addr));
  return addresses;
}

}  // namespace

std::vector<std::string> addresses_of(const std::string& name) {
  std::vector<Interface> matches;
  std::string known;
  for (const Interface& each : interfaces()) {
    if (!each.link_local && (each.name == name || each.address == name)) matches.push_back(each);
    if (!each.link_local) known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each.name, each.address);
  }
  if (matches.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' is no network interface or address of this machine; there are {}", name, known));
  }
  std::stable_partition(matches.begin(), matches.end(), [](const Interface& each) { return !each.v6; });
  std::vector<std::string> addresses;
  for (const Interface& each : matches) addresses.push_back(each.address);
  return addresses;
}

bool is_local(const std::string& host) {
  const std::vector<Interface> own = interfaces();
  const std::vector<std::string> resolved = resolve(host);
  return std::any_of(resolved.begin(), resolved.end(), [&](const std::string& address) {
    return loopback(address) ||
           std::any_of(own.begin(), own.end(), [&](const Interface& each) { return each.address == address; });
  });
}

bool is_own_name(const std::string& host) {
  if (is_numeric(host) || means_loopback_anywhere(host)) return false;
  const std::vector<std::string> resolved = resolve(host);
  return !resolved.empty() && std::all_of(resolved.begin(), resolved.end(), loopback);
}

std::vector<std::string> network_addresses() {
  std::vector<Interface> all = interfaces();
  std::erase_if(all, [](const Interface& each) { return each.link_local || loopback(each.address); });
  std::stable_partition(all.begin(), all.end(), [](const Interface& each) { return !each.v6; });
  std::vector<std::string> addresses;
  for (const Interface& each : all) addresses.push_back(each.address);
  return addresses;
}

}  // namespace rondo::rendezvous
