// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/attach.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>

#include "comm/base/bytes.hpp"
#include "comm/base/log.hpp"
#include "comm/call/communicator_impl.hpp"
#include "comm/device/levels/make_levels.hpp"
#include "comm/device/setup/obstacles.hpp"
#include "comm/device/setup/simulation.hpp"
#include "comm/device/setup/terms.hpp"
#include "comm/setup/create.hpp"

namespace rondo::comm::device {
namespace {

struct Found {
  const cuda::Api* api = nullptr;
  int index = 0;
  std::string obstacle;
  ErrorCode code{};
};

Found find_device(const HostWorld& world, rondo::Device wanted, const cuda::Api* api) {
  Found found;
  try {
    if (wanted.kind == rondo::Device::Kind::sim) configure_simulation();
    found.api = api != nullptr ? api : &api_of(wanted.kind);
    found.index = choose_device(*found.api, wanted.index, world.local_rank());
    // This loads the kernels: at the first launch, one would wait for peers that already spin on the same device.
    const std::string obstacle = cuda::code_obstacle(*found.api, found.index);
    if (!obstacle.empty()) throw Error(ErrorCode::unsupported, obstacle);
  } catch (const Error& error) {
    found.obstacle = error.what();
    found.code = error.error_code();
  }
  return found;
}

// A rank without a device is known to all before anybody waits for it.
void agree_on_devices(const HostWorld& world, const Found& found) {
  const auto all = world.exchange(ByteWriter().text(found.obstacle).number(found.code).take());
  for (std::size_t r = 0; r < all.size(); ++r) {
    ByteReader in(all[r]);
    const std::string obstacle = in.text();
    if (obstacle.empty()) continue;
    const int rank = static_cast<int>(r);
    if (rank == world.rank) throw Error(found.code, obstacle, rank);
    throw Error(in.number<ErrorCode>(), fmt::format("rank {} has no device: {}", rank, obstacle), rank);
  }
}

// A communicator that comes from another has the same to say, and need not.
void warn_of_turns(const DeviceCards& cards) {
  if (!cards.time_sliced() || cards.on_device_of(cards.rank()).front() != cards.rank()) return;
  static std::atomic_flag said;
  if (said.test_and_set()) return;
  log::warn(
      "ranks {} are processes on one GPU ({}) {}, so they take turns on it, and each round of a call takes as long as "
      "a turn, some milliseconds: use rondorun --mps, or ranks that are threads",
      fmt::join(cards.on_device_of(cards.rank()), ", "), text_of(cards.own().uuid),
      cards.own().mps == 0 ? "without MPS" : "without MPS as far as anybody can tell");
}

bool shares_default_stream(const DeviceCards& cards) {
  const auto here = cards.on_device_of(cards.rank());
  return std::any_of(here.begin(), here.end(),
                     [&](int peer) { return peer != cards.rank() && cards.same_process(peer, cards.rank()); });
}

bool shares_process(const DeviceCards& cards) {
  for (int peer = 0; peer < cards.size(); ++peer) {
    if (peer != cards.rank() && cards.same_process(peer, cards.rank())) return true;
  }
  return false;
}

void log_regions(const Regions& regions, const LevelRegions& levels, const HostWay* host_way) {
  const DeviceCards& cards = regions.cards();
  const auto& layout = regions.layout();
  log::info(
      "{}: {} ranks on {} devices: {} channels, {} blocks, {} KiB of device memory and {} KiB of pinned memory per "
      "rank{}",
      regions.world().name, cards.size(), regions.api().name, layout.channels, layout.blocks,
      (regions.device_bytes() + levels.device_bytes) / 1024,
      (regions.pinned_bytes() + levels.pinned_bytes + (host_way != nullptr ? host_way->pinned_bytes() : 0)) / 1024,
      levels.node ? ", in two levels" : "");
}

// A communicator of the same ranks, for the proxies alone.
Communicator split_on_host(rondo::detail::CommunicatorImpl& impl) {
  Options options = impl.options();
  options.device = rondo::Device::cpu();
  return split(impl, 0, impl.rank(), options);
}

// Ranks on one device: take turns there, and share its memory.
void log_sharing(const Regions& regions) {
  const DeviceCards& cards = regions.cards();
  std::string shared;
  for (int r = 0; r < cards.size(); ++r) {
    const auto ranks = cards.on_device_of(r);
    if (ranks.size() < 2 || ranks.front() != r) continue;
    shared +=
        fmt::format("{}ranks {} on {}", shared.empty() ? "" : "; ", fmt::join(ranks, ", "), text_of(cards.of(r).uuid));
  }
  if (!shared.empty()) log::info("{}: devices are shared: {}", regions.world().name, shared);
}

// Once for each communicator: its calls may wait for those of others.
void log_turns(const Regions& regions) {
  const DeviceCard& own = regions.cards().own();
  if (!regions.reservation().is_lent()) return;
  log::info("{}: {} ({}) has no blocks left: rank {} takes turns with an earlier communicator there",
            regions.world().name, own.name, text_of(own.uuid), regions.cards().rank());
}

std::unique_ptr<Proxy> make_proxy(rondo::detail::CommunicatorImpl& impl, const Regions& regions) {
  if (regions.one_island()) return nullptr;
  Team& team = impl.team();
  return std::make_unique<Proxy>(
      regions, split_on_host(impl), [&team] { return team.failure().raised(); },
      [&team](ErrorCode code, int culprit, std::string_view sentence) { team.fail(code, culprit, sentence); });
}

// Where processes take turns on a device, or it is asked for by name, and all ranks are on one node.
std::unique_ptr<HostWay> make_host_way(rondo::detail::CommunicatorImpl& impl, const Regions& regions,
                                       const Terms& terms) {
  const std::uint64_t bytes = impl.config().tuning.device_host_bytes;
  const bool by_name = terms.protocol == HostWay::kName;
  const bool by_table = terms.time_sliced && terms.protocol.empty() && terms.algorithm.empty();
  if (bytes == 0 || terms.world_size == 1 || !regions.one_island() || !(by_name || by_table)) return nullptr;
  Team& team = impl.team();
  const auto fail = [&team](const Error& error) {
    if (error.error_code() == ErrorCode::peer_lost && error.culprit() >= 0) team.await_verdict(error.culprit());
    team.fail(error);
  };
  Communicator host = split_on_host(impl);
  std::unique_ptr<HostWay> way;
  const std::string obstacle = obstacle_of(
      [&] { way = std::make_unique<HostWay>(regions.api(), regions.device(), std::move(host), bytes, fail); });
  throw_obstacle(exchange_obstacles(regions.world(), obstacle), ErrorCode::cuda, "have its pinned memory");
  return way;
}

DeviceEngine::Parts make_parts(rondo::detail::CommunicatorImpl& impl, FlightRecorder& recorder, ChoiceLog& choices,
                               const cuda::Api* api) {
  const HostWorld world = make_host_world(impl);
  const rondo::Device wanted = impl.options().device;
  const Found found = find_device(world, wanted, api);
  agree_on_devices(world, found);
  const DeviceScope scope(*found.api, found.index);
  const DeviceCards cards =
      DeviceCards::exchange(world, *found.api, wanted.kind, found.index, Settings::from_environment(wanted.kind));
  DeviceEngine::Parts parts;
  parts.api = found.api;
  parts.device = {.kind = wanted.kind, .index = found.index};
  parts.team = &impl.team();
  parts.recorder = &recorder;
  parts.choices = &choices;
  parts.shares_process = shares_process(cards);
  parts.shares_default_stream = shares_default_stream(cards);
  BlockReservation reservation = reserve_blocks(world, cards);
  const LevelPlaces places = place_levels(impl.team(), cards, reservation.share(), impl.config().algorithm);
  parts.regions = std::make_unique<Regions>(*found.api, found.index, world, places.whole, std::move(reservation));
  parts.terms = agree(*parts.regions, impl.options(), impl.config());
  LevelRegions levels = make_level_regions(impl, places, *parts.regions);
  parts.windows = std::make_unique<Windows>(*parts.regions, levels.node.get());
  parts.proxy = make_proxy(impl, *parts.regions);
  parts.host_way = make_host_way(impl, *parts.regions, parts.terms);
  if (world.rank == 0) {
    log_regions(*parts.regions, levels, parts.host_way.get());
    log_sharing(*parts.regions);
  }
  parts.levels = make_levels(impl, places, std::move(levels), parts);
  log_turns(*parts.regions);
  warn_of_turns(cards);
  return parts;
}

}  // namespace

std::unique_ptr<DeviceEngine> attach(rondo::detail::CommunicatorImpl& impl, FlightRecorder& recorder,
                                     ChoiceLog& choices, const cuda::Api* api) {
  try {
    return std::make_unique<DeviceEngine>(make_parts(impl, recorder, choices, api));
  } catch (const Error& error) {
    impl.team().fail(error);  // others may not have come so far
    throw;
  }
}

}  // namespace rondo::comm::device
