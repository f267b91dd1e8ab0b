// SPDX-License-Identifier: Apache-2.0
#include "comm/device/levels/make_levels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "comm/base/log.hpp"
#include "comm/call/algorithms.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/device/setup/obstacles.hpp"
#include "comm/device/setup/terms.hpp"
#include "comm/setup/create.hpp"

namespace rondo::comm::device {
namespace {

// Of RONDO_DEVICE_BYTES. Windows and pushes are the node's alone; the whole keeps links for what has no levels.
enum class Part : std::uint64_t { node = 2, whole = 4, rail = 8, scratch = 8 };

Settings settings_of(const Settings& all, Part part) {
  Settings own = all;
  own.device_bytes = all.device_bytes / static_cast<std::uint64_t>(part);
  if (part != Part::node) own.staging_bytes = 0;
  return own;
}

DeviceCards cards_of(const DeviceCards& all, const std::vector<int>& ranks, const Settings& settings) {
  std::vector<DeviceCard> cards;
  int own = 0;
  for (const int r : ranks) {
    if (r == all.rank()) own = static_cast<int>(cards.size());
    cards.push_back(all.of(r));
    cards.back().settings = settings;
  }
  return {own, std::move(cards)};
}

std::vector<int> all_ranks(const DeviceCards& cards) {
  std::vector<int> ranks;
  for (int r = 0; r < cards.size(); ++r) ranks.push_back(r);
  return ranks;
}

std::vector<int> rail_of(const Nodes& nodes) {
  std::vector<int> ranks;
  for (int node = 0; node < nodes.count(); ++node) ranks.push_back(nodes.at(node, nodes.index));
  return ranks;
}

// Ranks that do not share memory though they are on one node are nodes of their own to the host side alone.
bool is_same_division(const Nodes& nodes, const DeviceCards& cards) {
  for (int a = 0; a < cards.size(); ++a) {
    for (int b = 0; b < a; ++b) {
      const bool together = nodes.node_of[static_cast<std::size_t>(a)] == nodes.node_of[static_cast<std::size_t>(b)];
      if (together != (cards.of(a).node == cards.of(b).node)) return false;
    }
  }
  return true;
}

bool fits(const Nodes& nodes, const Settings& settings, BlockShare share, int ranks) {
  return obstacle_of([&] {
           plan_regions(ranks, settings_of(settings, Part::whole), share, false);
           plan_regions(nodes.most, settings_of(settings, Part::node), share, true);
           plan_regions(nodes.count(), settings_of(settings, Part::rail), share, false);
         })
      .empty();
}

Communicator split_on_host(rondo::detail::CommunicatorImpl& impl, int color) {
  Options options = impl.options();
  options.device = rondo::Device::cpu();
  return split(impl, color, impl.rank(), options);
}

std::string numbered_as(const std::vector<int>& ranks) {
  return fmt::format(" (as ranks {} number themselves)", fmt::join(ranks, ", "));
}

// What is thrown while a level is made speaks of its own numbers.
template <class Make>
auto in_words_of(const std::vector<int>& ranks, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    const int culprit = error.culprit();
    const bool is_known = culprit >= 0 && culprit < static_cast<int>(ranks.size());
    throw Error(error.error_code(), fmt::format("{}{}", error.what(), numbered_as(ranks)),
                is_known ? ranks[static_cast<std::size_t>(culprit)] : culprit);
  }
}

std::unique_ptr<Regions> make_regions(const Regions& whole, const std::vector<int>& ranks, const HostWorld& world,
                                      const Settings& settings) {
  const DeviceCards cards = cards_of(whole.cards(), ranks, settings);
  return in_words_of(ranks, [&] {
    return std::make_unique<Regions>(whole.api(), whole.device(), world, cards, whole.reservation().part());
  });
}

std::unique_ptr<Proxy> make_rail_proxy(const Regions& regions, Communicator links, Team& team,
                                       const std::vector<int>& ranks) {
  const auto fail = [&team, ranks](ErrorCode code, int culprit, std::string_view sentence) {
    const int rank = culprit >= 0 ? ranks[static_cast<std::size_t>(culprit)] : -1;
    if (code == ErrorCode::peer_lost && rank >= 0) {  // whose connection with the whole says it better
      team.await_verdict(rank);
      if (team.failure().raised()) return;
    }
    const bool is_own = code == ErrorCode::aborted || code == ErrorCode::corrupt_message;  // the proxy's, by name
    team.fail(code, rank, is_own ? std::string(sentence) : fmt::format("{}{}", sentence, numbered_as(ranks)));
  };
  return std::make_unique<Proxy>(
      regions, std::move(links), [&team] { return team.failure().raised(); }, fail, ranks);
}

std::unique_ptr<DeviceEngine> make_engine(rondo::detail::CommunicatorImpl& impl, std::unique_ptr<Regions> regions,
                                          const std::vector<int>& ranks, const DeviceEngine::Parts& whole,
                                          std::unique_ptr<Proxy> proxy) {
  DeviceEngine::Parts parts;
  parts.api = whole.api;
  parts.device = whole.device;
  parts.team = whole.team;
  parts.recorder = whole.recorder;
  parts.choices = whole.choices;
  parts.shares_process = whole.shares_process;
  parts.regions = std::move(regions);
  parts.terms = agree(*parts.regions, impl.options(), impl.config());
  parts.terms.algorithm.clear();
  parts.terms.is_level = true;
  parts.windows = std::make_unique<Windows>(*parts.regions);
  parts.proxy = std::move(proxy);
  parts.ranks = ranks;
  parts.whole_windows = whole.windows.get();
  return std::make_unique<DeviceEngine>(std::move(parts));
}

}  // namespace

LevelPlaces place_levels(const Team& team, const DeviceCards& cards, BlockShare share, std::string_view wanted) {
  LevelPlaces places{.nodes = nodes_of(team), .settings = cards.settings(), .whole = cards};
  if (!wanted.empty() && wanted != kTwoLevel.name) return places;
  if (!places.nodes.nested() || !is_same_division(places.nodes, cards)) return places;
  if (!fits(places.nodes, cards.settings(), share, cards.size())) {
    if (cards.rank() == 0)
      log::info("calls are not made in two levels: RONDO_DEVICE_BYTES={} is too little", cards.settings().device_bytes);
    return places;
  }
  places.nested = true;
  places.whole = cards_of(cards, all_ranks(cards), settings_of(cards.settings(), Part::whole));
  places.scratch_bytes = settings_of(cards.settings(), Part::scratch).device_bytes;
  return places;
}

LevelRegions make_level_regions(rondo::detail::CommunicatorImpl& impl, const LevelPlaces& places,
                                const Regions& whole) {
  LevelRegions made;
  if (!places.nested) return made;
  const Nodes& nodes = places.nodes;
  const bool on_rail = nodes.index < nodes.least;
  made.node_world = split_on_host(impl, nodes.mine);
  made.rail_world = split_on_host(impl, on_rail ? nodes.index : -1);
  const std::string obstacle =
      obstacle_of([&] { made.scratch = allocate_device(whole.api(), whole.device(), places.scratch_bytes); });
  throw_obstacle(exchange_obstacles(whole.world(), obstacle), ErrorCode::cuda, "have its device memory");
  const auto add = [&](const Regions& regions) {
    made.device_bytes += regions.device_bytes();
    made.pinned_bytes += regions.pinned_bytes();
  };
  made.device_bytes = places.scratch_bytes;
  made.node = make_regions(whole, nodes.own(), make_host_world(rondo::detail::impl_of(made.node_world)),
                           settings_of(places.settings, Part::node));
  add(*made.node);
  if (!on_rail) return made;
  HostWorld world = make_host_world(rondo::detail::impl_of(made.rail_world));
  world.announce_unmapped = [] {};  // its ranks map nothing of each other, and its proxy takes the communicator
  made.rail = make_regions(whole, rail_of(nodes), world, settings_of(places.settings, Part::rail));
  add(*made.rail);
  return made;
}

std::unique_ptr<Levels> make_levels(rondo::detail::CommunicatorImpl& impl, const LevelPlaces& places,
                                    LevelRegions regions, const DeviceEngine::Parts& whole) {
  if (!regions.node) return nullptr;
  Levels::Parts parts;
  parts.node_world = std::move(regions.node_world);
  parts.shape = {.nodes = places.nodes, .scratch = regions.scratch.get(), .scratch_bytes = places.scratch_bytes};
  parts.scratch = std::move(regions.scratch);
  parts.determinism = impl.options().determinism;
  parts.wanted = impl.config().algorithm;
  parts.node = make_engine(impl, std::move(regions.node), places.nodes.own(), whole, nullptr);
  if (regions.rail) {
    const std::vector<int> ranks = rail_of(places.nodes);
    auto proxy = make_rail_proxy(*regions.rail, std::move(regions.rail_world), impl.team(), ranks);
    parts.rail = make_engine(impl, std::move(regions.rail), ranks, whole, std::move(proxy));
  }
  return std::make_unique<Levels>(std::move(parts));
}

}  // namespace rondo::comm::device
