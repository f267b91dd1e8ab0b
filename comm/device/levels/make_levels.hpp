// SPDX-License-Identifier: Apache-2.0
// How a communicator on several nodes comes by its two levels: its memory is divided among them, each has regions of
// its own, and both launch within the blocks of the whole.
#pragma once
#include <memory>

#include "comm/device/launch/device_engine.hpp"
#include "comm/device/setup/device_cards.hpp"
#include "comm/hierarchy/nodes.hpp"

namespace rondo::comm::device {

// The same on every rank, but for whose node and rail it is.
struct LevelPlaces {
  bool nested = false;  // false: there are no levels
  Nodes nodes;
  Settings settings;  // as they were agreed on
  DeviceCards whole;  // whose settings have the whole's part of the memory
  std::size_t scratch_bytes = 0;
};
// No levels where no node has several ranks, another algorithm is asked for by name, or the memory is too little for
// three sorts of links.
LevelPlaces place_levels(const Team& team, const DeviceCards& cards, BlockShare share, std::string_view wanted);

struct LevelRegions {
  Communicator node_world, rail_world;
  std::unique_ptr<Regions> node, rail;  // both null: there are no levels; rail alone: this rank is on none
  DeviceMemory scratch;
  std::size_t device_bytes = 0, pinned_bytes = 0;  // of all this
};
// Collective. Where a node fails, its ranks throw, and the team's failure is the others' to find.
LevelRegions make_level_regions(rondo::detail::CommunicatorImpl& impl, const LevelPlaces& places, const Regions& whole);
// `whole`: with its windows. Null: there are no levels.
std::unique_ptr<Levels> make_levels(rondo::detail::CommunicatorImpl& impl, const LevelPlaces& places,
                                    LevelRegions regions, const DeviceEngine::Parts& whole);

}  // namespace rondo::comm::device
