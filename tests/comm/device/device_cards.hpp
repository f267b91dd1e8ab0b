// SPDX-License-Identifier: Apache-2.0
// Device cards of imaginary ranks, for what is decided from cards alone.
#pragma once
#include <fmt/format.h>

#include <vector>

#include "comm/device/setup/device_cards.hpp"

namespace rondo::test {

inline comm::device::Uuid uuid(unsigned char first) { return {first}; }

// One rank per entry: the device it uses. Every rank is a process of its own and sees what it uses.
inline std::vector<comm::device::DeviceCard> cards_on(const std::vector<unsigned char>& devices,
                                                      std::uint32_t resident_blocks = 64) {
  std::vector<comm::device::DeviceCard> cards;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    comm::device::DeviceCard card;
    card.kind = Device::Kind::sim;
    card.uuid = uuid(devices[r]);
    card.name = fmt::format("device {}", devices[r]);
    card.process = fmt::format("process {}", r);
    card.visible = {card.uuid};
    card.accessible = {card.uuid};
    card.resident_blocks = resident_blocks;
    card.token = 100 + r;
    card.settings = comm::device::Settings::from_environment(Device::Kind::sim);
    cards.push_back(card);
  }
  return cards;
}

}  // namespace rondo::test
