// SPDX-License-Identifier: Apache-2.0
#include "bench/surroundings.hpp"

#include <algorithm>
#include <set>

#include "bench/gather.hpp"
#include "bench/machine.hpp"

namespace rondo::bench {
namespace {

std::string key_of(const nlohmann::json& rank) {
  return rank["host"].get<std::string>() + " " + rank["device"]["uuid"].get<std::string>();
}

std::vector<SharedDevice> devices_of(const std::vector<nlohmann::json>& ranks) {
  std::vector<SharedDevice> devices;
  std::vector<std::string> keys;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].contains("device")) continue;
    const auto found = std::find(keys.begin(), keys.end(), key_of(ranks[r]));
    const auto index = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(key_of(ranks[r]));
      devices.push_back({.what = ranks[r]["device"], .ranks = {}});
      devices.back().what["host"] = ranks[r]["host"];
    }
    devices[index].ranks.push_back(static_cast<int>(r));
  }
  return devices;
}

std::vector<int> cpus_of(const std::vector<nlohmann::json>& ranks) {
  std::set<int> cpus;
  for (const nlohmann::json& rank : ranks) {
    for (const nlohmann::json& cpu : rank["cpus"]) cpus.insert(cpu.get<int>());
  }
  return {cpus.begin(), cpus.end()};
}

}  // namespace

bool Surroundings::shares_host() const {
  return devices.empty() && std::all_of(ranks.begin(), ranks.end(),
                                        [this](const auto& rank) { return rank["host"] == ranks.front()["host"]; });
}

MemoryRates Surroundings::shared_memory() const {
  if (devices.empty()) return host_memory;
  if (devices.size() != 1 || devices[0].ranks.size() != ranks.size()) return {};
  return {.copy = devices[0].what.value("copy_gbps", 0.0)};
}

Surroundings survey(Communicator& communicator, Site& site, bool host_memory) {
  nlohmann::json mine = describe_rank(communicator.rank(), communicator.node(), communicator.local_rank());
  if (const nlohmann::json device = site.describe(); !device.is_null()) mine["device"] = device;
  const std::string text = text_of(mine);
  Surroundings result;
  for (const auto& rank : gather_values(communicator, std::span<const char>(text)))
    result.ranks.push_back(nlohmann::json::parse(rank));
  result.devices = devices_of(result.ranks);
  for (SharedDevice& device : result.devices) {
    const int first = device.ranks.front();
    const double measured = communicator.rank() == first ? site.copy_gbps() : 0;
    const double gbps = gather_value(communicator, measured)[static_cast<std::size_t>(first)];
    if (gbps > 0) device.what["copy_gbps"] = gbps;
  }
  if (host_memory && result.shares_host()) {
    const MemoryRates measured = communicator.rank() == 0 ? memory_rates_of_cpus(cpus_of(result.ranks)) : MemoryRates{};
    result.host_memory = gather_value(communicator, measured).front();
  }
  return result;
}

}  // namespace rondo::bench
