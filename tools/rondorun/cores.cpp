// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/cores.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cerrno>
#include <cstddef>
#include <cstdio>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include <rondo/error.hpp>

#include "comm/base/cpu_quota.hpp"

namespace rondo::launcher {
namespace {

constexpr int kMostCpus = 1 << 16;

int number_in(const std::filesystem::path& file, int otherwise) {
  int value = otherwise;
  std::ifstream in(file);
  return in >> value ? value : otherwise;
}

// "0-3,8" in a file of the kernel's.
std::vector<int> list_in(const std::filesystem::path& file) {
  std::vector<int> list;
  std::ifstream in(file);
  for (int first = 0; in >> first;) {
    int last = first;
    if (in.peek() == '-') in.get(), in >> last;
    for (int cpu = first; cpu <= std::min(last, first + kMostCpus); ++cpu) list.push_back(cpu);
    if (in.peek() == ',') in.get();
  }
  return list;
}

std::map<int, int> nodes_of_cpus(const std::filesystem::path& root) {
  std::map<int, int> nodes;
  std::error_code error;  // what cannot be listed is not there
  const auto folder = root / "sys/devices/system/node";
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    int node = 0, length = 0;
    const std::string name = at->path().filename();
    if (std::sscanf(name.c_str(), "node%5d%n", &node, &length) != 1 || length != static_cast<int>(name.size()))
      continue;
    for (const int cpu : list_in(at->path() / "cpulist")) nodes[cpu] = node;
  }
  return nodes;
}

int first_of(const std::filesystem::path& file, int otherwise) {
  const auto list = list_in(file);
  return list.empty() ? otherwise : list.front();
}

// Of the last cache.
int complex_of(const std::filesystem::path& caches, int otherwise) {
  int level = 0;
  std::filesystem::path last;
  for (int index = 0; std::filesystem::exists(caches / fmt::format("index{}", index)); ++index) {
    const auto cache = caches / fmt::format("index{}", index);
    const int here = number_in(cache / "level", 0);
    if (here > level) level = here, last = cache;
  }
  return last.empty() ? otherwise : first_of(last / "shared_cpu_list", otherwise);
}

template <class Key>
std::vector<int> where(const Cores& cores, const Key& fits) {
  std::vector<int> found;
  for (const Cpu& cpu : cores.cpus)
    if (fits(cpu)) found.push_back(cpu.number);
  return found;
}

// Cores in their order, of a node or of all.
std::vector<int> cores_of(const Cores& cores, int node) {
  std::vector<int> found;
  for (const Cpu& cpu : cores.cpus) {
    if ((node < 0 || cpu.node == node) && (found.empty() || found.back() != cpu.core)) found.push_back(cpu.core);
  }
  return found;
}

int within(double quota, std::size_t cores) {
  return std::max(1, static_cast<int>(std::min(quota, static_cast<double>(cores))));
}

// Where ranks are as many as nodes or more, each has one: that of the middle of its even share of all cores.
std::vector<int> spread(const Cores& cores, int ranks) {
  const auto all = cores_of(cores, -1);
  std::map<int, int> node_of;
  for (const Cpu& cpu : cores.cpus) node_of[cpu.core] = cpu.node;
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t middle =
        (2 * static_cast<std::size_t>(rank) + 1) * all.size() / (2 * static_cast<std::size_t>(ranks));
    nodes.push_back(node_of.at(all[middle]));
  }
  return nodes;
}

struct Seat {  // of a rank among those of its node
  int node = 0;
  std::size_t index = 0, of = 0;
};

std::vector<Seat> seats(const std::vector<int>& nodes) {
  std::map<int, std::size_t> taken;
  std::vector<Seat> seats;
  for (const int node : nodes) seats.push_back({.node = node, .index = taken[node]++});
  for (Seat& seat : seats) seat.of = taken[seat.node];
  return seats;
}

std::vector<int> threads_of_cores(const Cores& cores, const std::vector<int>& which) {
  return where(cores, [&](const Cpu& cpu) { return std::find(which.begin(), which.end(), cpu.core) != which.end(); });
}

// The index-th of so many even shares.
std::vector<int> part(const std::vector<int>& cores, std::size_t index, std::size_t of) {
  const auto at = [&](std::size_t i) { return cores.begin() + static_cast<std::ptrdiff_t>(i * cores.size() / of); };
  return {at(index), at(index + 1)};
}

std::vector<int> bound_cpus(const Cores& cores, const Seat& seat, Binding binding) {
  const auto mine = cores_of(cores, seat.node);
  switch (binding) {
    case Binding::none:
      return {};
    case Binding::core:
      return threads_of_cores(cores, part(mine, seat.index, seat.of));
    case Binding::numa:
      return where(cores, [&](const Cpu& cpu) { return cpu.node == seat.node; });
    case Binding::socket: {
      std::set<int> sockets;
      for (const Cpu& cpu : cores.cpus)
        if (cpu.node == seat.node) sockets.insert(cpu.socket);
      return where(cores, [&](const Cpu& cpu) { return sockets.contains(cpu.socket); });
    }
    case Binding::complex: {
      std::set<int> complexes;
      for (const Cpu& cpu : cores.cpus)
        if (cpu.node == seat.node) complexes.insert(cpu.complex);
      const int mine_of = *std::next(complexes.begin(), static_cast<std::ptrdiff_t>(seat.index % complexes.size()));
      return where(cores, [&](const Cpu& cpu) { return cpu.node == seat.node && cpu.complex == mine_of; });
    }
  }
  return {};
}

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

void check(const Cores& cores, const std::vector<Seat>& all, Binding binding) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t count = cores_of(cores, all[rank].node).size();
    if (count == 0)
      refuse(
          fmt::format("the GPU of local rank {} is at NUMA node {}, of which this job may use no core: leave the "
                      "binding out, or start it with cores of that node",
                      rank, all[rank].node));
    if (binding == Binding::core && count < all[rank].of)
      refuse(
          fmt::format("{} ranks cannot be bound to {} core{} of NUMA node {}: give at most one rank for each core, or "
                      "leave the binding out",
                      all[rank].of, count, count == 1 ? "" : "s", all[rank].node));
  }
}

}  // namespace

std::vector<int> allowed_cpus() {
  for (int most = CPU_SETSIZE; most <= kMostCpus; most *= 2) {
    std::vector<cpu_set_t> sets(static_cast<std::size_t>(most / CPU_SETSIZE));
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, sets.data()) != 0) continue;  // the kernel has more
    std::vector<int> cpus;
    for (int cpu = 0; cpu < most; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, sets.data())) cpus.push_back(cpu);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

Cores read_cores(const std::filesystem::path& root, const std::vector<int>& allowed) {
  Cores cores{.cpus = {}, .quota = cpu_quota(root)};
  const auto nodes = nodes_of_cpus(root);
  for (const int number : allowed) {
    const auto folder = root / fmt::format("sys/devices/system/cpu/cpu{}", number);
    const auto node = nodes.find(number);
    Cpu cpu{.number = number};
    cpu.core = first_of(folder / "topology/thread_siblings_list", number);
    cpu.node = node == nodes.end() ? 0 : node->second;
    cpu.socket = number_in(folder / "topology/physical_package_id", 0);
    cpu.complex = complex_of(folder / "cache", cpu.node);
    cores.cpus.push_back(cpu);
  }
  std::sort(cores.cpus.begin(), cores.cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
  });
  return cores;
}

int usable_cpus(const Cores& cores) { return within(cores.quota, cores.cpus.size()); }

std::vector<Share> share_cores(const Cores& cores, int ranks, Binding binding, const std::vector<int>& gpu_nodes) {
  const auto all = cores_of(cores, -1);
  const double quota = cores.quota / ranks;
  std::vector<Share> shares(static_cast<std::size_t>(ranks));
  for (Share& share : shares) share.threads = within(quota, all.size() / static_cast<std::size_t>(ranks));
  if (binding == Binding::none) return shares;
  const auto seated = seats(gpu_nodes.empty() ? spread(cores, ranks) : gpu_nodes);
  check(cores, seated, binding);
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    const Seat& seat = seated[rank];
    shares[rank].cpus = bound_cpus(cores, seat, binding);
    shares[rank].threads = within(quota, part(cores_of(cores, seat.node), seat.index, seat.of).size());
  }
  return shares;
}

std::string threads_sentence(const Cores& cores, const std::vector<Share>& shares) {
  if (shares.size() < 2) return "";
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end(),
                                                 [](const Share& a, const Share& b) { return a.threads < b.threads; });
  const std::size_t count = cores_of(cores, -1).size();
  const bool limited = cores.quota < static_cast<double>(count);
  return fmt::format("{} ranks share {} core{}{}: OMP_NUM_THREADS is {}{} for each, unless you set it", shares.size(),
                     count, count == 1 ? "" : "s",
                     limited ? fmt::format(" and a CPU quota of {:.3g}", cores.quota) : "", least->threads,
                     least->threads == most->threads ? "" : fmt::format(" to {}", most->threads));
}

std::string cpu_list(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

// Names without a file: the kernel forgets them with the process, and gives each to one process alone.
std::vector<int> BoundCores::take(const std::vector<Share>& shares) {
  std::set<int> wanted;
  for (const Share& share : shares) wanted.insert(share.cpus.begin(), share.cpus.end());
  std::vector<int> others;
  for (const int cpu : wanted) {
    Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = fmt::format("rondorun binds core {}", cpu);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0)
      names_.push_back(std::move(socket));
    else if (errno == EADDRINUSE)
      others.push_back(cpu);
  }
  return others;
}

}  // namespace rondo::launcher
