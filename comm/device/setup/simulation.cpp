// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <rondo/error.hpp>

#include "comm/base/env.hpp"
#include "comm/base/log.hpp"
#include "kernels/soft/settings.hpp"

namespace rondo::comm::device {
namespace {

// "2,0": as CUDA_VISIBLE_DEVICES, of which an entry that is no number ends the list.
std::vector<int> device_list(const std::string& text) {
  std::vector<int> devices;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    int device = -1;
    const char* const end = entry.data() + entry.size();
    if (std::from_chars(entry.data(), end, device).ptr != end) break;
    devices.push_back(device);
  }
  return devices;
}

// "0-2,1-3"
std::vector<std::pair<int, int>> pair_list(const std::string& text) {
  std::vector<std::pair<int, int>> pairs;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    std::pair<int, int> pair;
    const char* const end = entry.data() + entry.size();
    const auto first = std::from_chars(entry.data(), end, pair.first);
    const bool has_second = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
    if (!has_second || std::from_chars(first.ptr + 1, end, pair.second).ptr != end) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("RONDO_SIM_DENIED_PEERS={} is no list of pairs of devices, such as 0-2,1-3", text));
    }
    pairs.push_back(pair);
  }
  return pairs;
}

}  // namespace

void configure_simulation() {
  static const soft::Settings before = soft::settings();  // what the program itself had asked for
  soft::Settings settings = before;
  settings.devices = static_cast<int>(env_number("RONDO_SIM_DEVICES", 1, 64).value_or(settings.devices));
  if (const auto visible = env("RONDO_SIM_VISIBLE_DEVICES")) settings.visible_devices = device_list(*visible);
  settings.peer_access = env_number("RONDO_SIM_PEER_ACCESS", 0, 1).value_or(settings.peer_access) != 0;
  if (const auto denied = env("RONDO_SIM_DENIED_PEERS")) settings.denied_peers = pair_list(*denied);
  settings.resident_blocks =
      static_cast<int>(env_number("RONDO_SIM_BLOCKS", 1, 4096).value_or(settings.resident_blocks));
  settings.multiprocessors = std::min(settings.multiprocessors, settings.resident_blocks);
  settings.mps = static_cast<int>(env_number("RONDO_SIM_MPS", -1, 1).value_or(settings.mps));
  settings.machine = env("RONDO_SIM_MACHINE").value_or(settings.machine);
  settings.report = [](const char* sentence) { log::error("{}", sentence); };
  if (!soft::configure(settings))
    log::warn("RONDO_SIM_… changed while simulated devices are in use: they stay as they are");
}

}  // namespace rondo::comm::device
