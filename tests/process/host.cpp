// SPDX-License-Identifier: Apache-2.0
#include "tests/process/host.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <thread>

namespace rondo::test {

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Host::Host()
    : holder_({"unshare", "--net", "--mount", "sh", "-c", "ip link set lo up && echo pid $$ && exec sleep 3600"}),
      pid_(holder_.lines("pid ", 1).front()) {}

Words Host::inside(const Words& command) const {
  return Words{"nsenter", "--target", pid_, "--net", "--mount"} + command;
}

void Host::do_here(const Words& command) const {
  const auto ended = run(inside(command));
  if (ended.code != 0) throw std::runtime_error(command[0] + ": " + ended.err);
}

void Host::ip(const Words& arguments) const { do_here(Words{"ip"} + arguments); }
void Host::set_hosts(const std::string& lines) const {
  do_here({"sh", "-c", "file=$(mktemp) && printf '%s' \"$1\" > $file && mount --bind $file /etc/hosts && rm $file",
           "sh", lines});
}
void Host::set_sysctl(const std::string& path, const std::string& value) const {
  do_here({"sh", "-c", "echo \"$2\" > /proc/sys/\"$1\"", "sh", path, value});
}
void Host::disable_ipv6() const {
  set_sysctl("net/ipv6/conf/all/disable_ipv6", "1");
  set_sysctl("net/ipv6/conf/lo/disable_ipv6", "1");
}
void Host::add_decoy(const std::string& address) const {
  ip({"link", "add", "decoy", "type", "bridge"});
  ip({"address", "add", address, "dev", "decoy", "nodad"});
  ip({"link", "set", "decoy", "up"});
}
void Host::add_address(const std::string& address) const {
  ip({"address", "add", address, "dev", "eth0", "nodad"});
  ip({"link", "set", "eth0", "up"});
}

Fd Host::make_here(const std::function<Fd()>& make) const {
  Fd made;
  std::exception_ptr failure;
  std::thread([&] {  // a thread of its own, which alone moves there
    try {
      const Fd network(::open(("/proc/" + pid_ + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC));
      if (!network || ::setns(network.get(), CLONE_NEWNET) != 0)
        throw std::runtime_error(std::string("cannot enter a network namespace: ") + std::strerror(errno));
      made = make();
    } catch (...) {
      failure = std::current_exception();
    }
  })
      .join();
  if (failure) std::rethrow_exception(failure);
  return made;
}

void connect(const Host& left, const Host& right) {
  left.ip({"link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", right.pid()});
}

void connect_all(const Host& bridge, const std::deque<Host>& hosts) {
  bridge.ip({"link", "add", "bridge", "type", "bridge"});
  bridge.ip({"link", "set", "bridge", "up"});
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string port = "port" + std::to_string(i);
    bridge.ip({"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", hosts[i].pid()});
    bridge.ip({"link", "set", port, "master", "bridge", "up"});
  }
}

bool namespaces_possible() {
  if (::geteuid() == 0 && run({"unshare", "--net", "ip", "link", "set", "lo", "up"}).code == 0) return true;
  std::cout << "skipped: network namespaces need root and ip from iproute2\n";
  return false;
}

}  // namespace rondo::test
