// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/simulation.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <vector>

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

}  // namespace

void configure_simulation() {
  static const soft::Settings before = soft::settings();  // what the program itself had asked for
  soft::Settings settings = before;
  settings.devices = static_cast<int>(env_number("RONDO_SIM_DEVICES", 1, 64).value_or(settings.devices));
  if (const auto visible = env("RONDO_SIM_VISIBLE_DEVICES")) settings.visible_devices = device_list(*visible);
  settings.peer_access = env_number("RONDO_SIM_PEER_ACCESS", 0, 1).value_or(settings.peer_access) != 0;
  settings.resident_blocks =
      static_cast<int>(env_number("RONDO_SIM_BLOCKS", 1, 4096).value_or(settings.resident_blocks));
  settings.multiprocessors = std::min(settings.multiprocessors, settings.resident_blocks);
  settings.machine = env("RONDO_SIM_MACHINE").value_or(settings.machine);
  settings.report = [](const char* sentence) { log::error("{}", sentence); };
  if (!soft::configure(settings))
    log::warn("RONDO_SIM_… changed while simulated devices are in use: they stay as they are");
}

}  // namespace rondo::comm::device
