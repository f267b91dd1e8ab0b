// SPDX-License-Identifier: Apache-2.0
// Hosts on one machine: network namespaces, with mounts of their own, that have no names and end with the processes in
// them.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tests/process/running.hpp"

namespace rondo::test {

using Words = std::vector<std::string>;
Words operator+(Words left, const Words& right);

class Host {
 public:
  Host();
  Words inside(const Words& command) const;
  const std::string& pid() const { return pid_; }
  void ip(const Words& arguments) const;           // these throw with what the command said
  void set_hosts(const std::string& lines) const;  // its /etc/hosts
  void disable_ipv6() const;
  void set_sysctl(const std::string& path, const std::string& value) const;  // below /proc/sys
  // An interface that reaches nobody, made before the real one so that it comes first in every list.
  void add_decoy(const std::string& address) const;
  void add_address(const std::string& address) const;
  // Descriptors keep the network that they were made in.
  Fd make_here(const std::function<Fd()>& make) const;

 private:
  void do_here(const Words& command) const;
  Running holder_;
  std::string pid_;
};

void connect(const Host& left, const Host& right);
// Every host's eth0 on one bridge of the switch.
void connect_all(const Host& bridge, const std::deque<Host>& hosts);

bool namespaces_possible();  // says skipped: and why when not

}  // namespace rondo::test
