// SPDX-License-Identifier: Apache-2.0
#include "runtime/port_holder.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace rondo::runtime {
namespace {

namespace fs = std::filesystem;

// Of sockets that listen there, as links of descriptors name them. A line of the table: number, address:port in
// hexadecimal, peer, state, queues, timer, retransmissions, user, timeout, inode.
void add_sockets(const char* table, std::uint16_t port, std::set<std::string>& sockets) {
  constexpr const char* kListening = "0A";
  const std::string suffix = fmt::format(":{:04X}", port);
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the headings
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::array<std::string, 10> field;
    for (std::string& one : field) fields >> one;
    if (field[1].ends_with(suffix) && field[3] == kListening) sockets.insert(fmt::format("socket:[{}]", field[9]));
  }
}

bool has_one_of(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code error;
  for (fs::directory_iterator at(process / "fd", error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (sockets.count(fs::read_symlink(at->path(), gone).native()) != 0) return true;
  }
  return false;
}

}  // namespace

std::string holder_of_port(std::uint16_t port) {
  std::set<std::string> sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) add_sockets(table, port, sockets);
  std::string holders;
  if (sockets.empty()) return holders;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string pid = at->path().filename();
    if (pid.find_first_not_of("0123456789") != pid.npos || !has_one_of(at->path(), sockets)) continue;
    std::string name;
    std::getline(std::ifstream(at->path() / "comm"), name);
    holders += fmt::format("{}process {} ({})", holders.empty() ? "" : ", ", pid, name);
  }
  return holders;
}

}  // namespace rondo::runtime
