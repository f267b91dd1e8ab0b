// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/regions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "comm/base/bytes.hpp"
#include "comm/base/log.hpp"
#include "comm/device/memory/frees.hpp"
#include "comm/device/memory/host_region.hpp"
#include "comm/device/setup/obstacles.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::DeviceTeam;
using kernels::device::HostPage;
using kernels::device::kMaxRanks;
using kernels::device::Protocol;
using kernels::device::RegionHeader;

constexpr std::chrono::milliseconds kFarewell{2000};  // for importers to let go, then their memory is leaked
constexpr std::size_t kPinnedBytes = sizeof(HostPage) + sizeof(DeviceTeam);
constexpr std::size_t kTeamBytes = sizeof(DeviceTeam) + sizeof(kernels::device::Locks);
static_assert(sizeof(DeviceTeam) % alignof(kernels::device::Locks) == 0);

constexpr const char* kHaveMemory = "have its device memory";

// The address that, at a region's offset of a mailbox, meets the area of that link alone.
std::byte* base_of(std::byte* area, std::size_t offset) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(area) - offset);
}

}  // namespace

struct Regions::Parts {
  BlockReservation reservation;
  Stream stream;
  PinnedMemory pinned;           // the HostPage, then room for what copy_in() copies
  DeviceMemory team;             // the locks behind it
  SharedMemory memory;           // region and staging area, unless they lie in host memory
  std::size_t device_bytes = 0;  // of it
  std::vector<Peer> peers;       // by rank
  HostRegion host;               // of this node
  PinnedMemory links;            // ends of the links with ranks of other nodes
  std::vector<int> remotes;      // those ranks
  std::vector<SharedMemory> kept;
};

Regions::Regions(const cuda::Api& api, int device, const HostWorld& world, const DeviceCards& cards,
                 BlockReservation reservation)
    : api_(api),
      device_(device),
      world_(world),
      cards_(cards),
      routes_(static_cast<std::size_t>(cards.size())),
      parts_(std::make_unique<Parts>()) {
  parts_->reservation = std::move(reservation);
  parts_->peers.resize(routes_.size());
  find_routes();
  plan_ = plan_regions(cards.size(), cards.settings(), parts_->reservation.share(), one_island());
  const std::string obstacle = obstacle_of([&] {
    parts_->stream = make_stream(api_, device_);
    parts_->pinned = allocate_pinned(api_, device_, kPinnedBytes);
    parts_->team = allocate_device(api_, device_, kTeamBytes);
    allocate_links();
  });
  throw_obstacle(exchange_obstacles(world_, obstacle), ErrorCode::cuda, kHaveMemory);
  share_device_memory();
  throw_obstacle(exchange_obstacles(world_, obstacle_of([&] { fill_team(); })), ErrorCode::cuda, kHaveMemory);
}

Regions::~Regions() {
  parts_->peers.clear();
  if (let_go_of_others()) {
    world_.announce_unmapped();
  } else {
    log::warn("rank {} still maps memory of its peers: kernels of other ranks of its process run", cards_.rank());
  }
  const auto until = std::chrono::steady_clock::now() + kFarewell;
  for (int peer = 0; peer < cards_.size(); ++peer) {
    if (route(peer) != Route::ipc || world_.await_unmapped(peer, until)) continue;
    log::warn("rank {} still maps the device memory of rank {}, {} bytes of which stay allocated", peer, cards_.rank(),
              device_bytes());
    if (parts_->memory) parts_->memory->release();
    for (const SharedMemory& memory : parts_->kept) memory->release();
    return;
  }
}

bool Regions::let_go_of_others() const {
  return std::find(routes_.begin(), routes_.end(), Route::ipc) == routes_.end() || await_no_frees(api_, kFarewell);
}

const DeviceTeam* Regions::team() const { return reinterpret_cast<const DeviceTeam*>(parts_->team.get()); }
const BlockReservation& Regions::reservation() const { return parts_->reservation; }
HostPage& Regions::page() const { return *reinterpret_cast<HostPage*>(parts_->pinned.get()); }
bool Regions::one_island() const { return std::find(routes_.begin(), routes_.end(), Route::proxy) == routes_.end(); }

std::vector<int> Regions::neighbours() const {
  std::vector<int> ranks;
  for (int r = 0; r < cards_.size(); ++r) {
    if (cards_.of(r).node == cards_.own().node) ranks.push_back(r);
  }
  return ranks;
}

void Regions::find_routes() {
  for (int r = 0; r < cards_.size(); ++r) {
    Route& route = routes_[static_cast<std::size_t>(r)];
    if (r == cards_.rank()) {
      route = Route::own;
    } else if (cards_.of(r).node != cards_.own().node) {
      route = Route::proxy;
    } else {
      route = cards_.same_process(r, cards_.rank()) ? Route::thread : Route::ipc;
    }
  }
}

std::size_t Regions::staging_offset() const {
  constexpr std::size_t kAlignment = 512;
  return (layout().bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

// Nothing is tried where a pair of devices is known to have no access: an import would succeed, and its use fail.
std::string Regions::find_denial() const {
  const std::vector<int> ranks = neighbours();
  for (const int a : ranks) {
    for (const int b : ranks) {
      if (cards_.access(a, b) != DeviceCards::Access::no) continue;
      return fmt::format("the devices of ranks {} and {} have no access to each other", a, b);
    }
  }
  return {};
}

// Where one rank of a node cannot map another's device memory, all of them use host memory.
void Regions::share_device_memory() {
  const std::string denial = find_denial();
  Export mine;
  std::string obstacle = obstacle_of([&] {
    if (!denial.empty()) return;
    std::size_t bytes = staging_offset() + plan_.staging_bytes;
    if (cards_.own().kind == rondo::Device::Kind::cuda) bytes = (bytes + kCudaBlock - 1) / kCudaBlock * kCudaBlock;
    parts_->memory = std::make_shared<DeviceMemory>(allocate_device(api_, device_, bytes));
    parts_->device_bytes = bytes;
    zero(parts_->memory->get(), bytes);
    mine = make_export(api_, device_, parts_->memory->get(), bytes, &parts_->memory);
  });
  const auto exports = world_.exchange(ByteWriter().text(obstacle).number(mine).take());
  std::vector<std::string> obstacles;
  for (const Bytes& bytes : exports) obstacles.push_back(ByteReader(bytes).text());
  throw_obstacle(obstacles, ErrorCode::cuda, kHaveMemory);
  obstacle = denial;
  if (denial.empty()) {
    obstacle = obstacle_of([&] {
      for (const int r : neighbours()) {
        ByteReader in(exports[static_cast<std::size_t>(r)]);
        in.text();
        if (r == cards_.rank()) continue;
        parts_->peers[static_cast<std::size_t>(r)] = Peer(api_, device_, cards_, r, in.number<Export>());
      }
    });
  }
  obstacles = exchange_obstacles(world_, obstacle);
  std::set<int> nodes;
  for (int r = 0; r < cards_.size(); ++r) {
    const std::string& theirs = obstacles[static_cast<std::size_t>(r)];
    if (theirs.empty() || !nodes.insert(cards_.of(r).node).second) continue;
    if (cards_.of(r).node == cards_.own().node) in_host_memory_ = true;
    if (r == cards_.rank()) log::info("{}: {}: the links of this node lie in host memory", world_.name, theirs);
  }
  if (!nodes.empty()) share_host_memory();
}

// Ranks of other nodes come along, for all must exchange equally often.
void Regions::share_host_memory() {
  if (in_host_memory_) {
    for (Peer& peer : parts_->peers) peer = {};
  }
  const std::string obstacle = obstacle_of([&] {
    if (!in_host_memory_) {
      world_.exchange({});
      return;
    }
    const std::vector<int> ranks = neighbours();
    parts_->host = HostRegion(api_, device_, world_, ranks, staging_offset() + plan_.staging_bytes);
    for (const int r : ranks) {
      if (r != cards_.rank()) routes_[static_cast<std::size_t>(r)] = Route::host;
    }
  });
  const auto obstacles = exchange_obstacles(world_, obstacle);
  if (in_host_memory_) parts_->memory.reset();  // nobody maps it any more
  throw_obstacle(obstacles, ErrorCode::system, kHaveMemory);
}

void Regions::allocate_links() {
  for (int r = 0; r < cards_.size(); ++r) {
    if (route(r) == Route::proxy) parts_->remotes.push_back(r);
  }
  if (parts_->remotes.empty()) return;
  parts_->links = allocate_pinned(api_, device_, 2 * parts_->remotes.size() * link_area_bytes());
}

std::size_t Regions::link_area_bytes() const {
  return layout().channel_bytes() * static_cast<std::size_t>(layout().channels);
}

Regions::LinkEnds Regions::link_ends(int peer) const {
  const auto& remotes = parts_->remotes;
  const auto index = static_cast<std::size_t>(std::find(remotes.begin(), remotes.end(), peer) - remotes.begin());
  std::byte* area = parts_->links.get() + 2 * index * link_area_bytes();
  return {base_of(area, layout().mailbox_offset(peer, 0, Protocol::simple)),
          base_of(area + link_area_bytes(), layout().mailbox_offset(cards_.rank(), 0, Protocol::simple))};
}

std::byte* Regions::region_of(int rank) const {
  switch (route(rank)) {
    case Route::own:
      if (!in_host_memory_) return parts_->memory->get();
      [[fallthrough]];
    case Route::host: {
      const std::vector<int> ranks = neighbours();
      return parts_->host.device(static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()));
    }
    case Route::thread:
    case Route::ipc:
      return parts_->peers[static_cast<std::size_t>(rank)].pointer();
    case Route::proxy:
      return nullptr;
  }
  return nullptr;
}

void Regions::fill_team() {
  auto team = std::make_unique<DeviceTeam>();
  team->rank = cards_.rank();
  team->world_size = cards_.size();
  team->layout = layout();
  const std::ptrdiff_t to_device =
      parts_->links ? device_pointer(api_, device_, parts_->links.get()) - parts_->links.get() : 0;
  for (int r = 0; r < cards_.size(); ++r) {
    const auto index = static_cast<std::size_t>(r);
    if (std::byte* region = region_of(r); region != nullptr) {
      team->mine[index] = region_of(cards_.rank());
      team->theirs[index] = region;
      team->headers[index] = reinterpret_cast<RegionHeader*>(region);
      if (plan_.staging_bytes != 0) team->windows[0][index] = region + staging_offset();
    } else {
      team->mine[index] = link_ends(r).mine + to_device;
      team->theirs[index] = link_ends(r).theirs + to_device;
    }
  }
  team->staging_bytes = plan_.staging_bytes;
  team->page = reinterpret_cast<HostPage*>(device_pointer(api_, device_, parts_->pinned.get()));
  team->locks = reinterpret_cast<kernels::device::Locks*>(parts_->team.get() + sizeof *team);
  zero(parts_->team.get(), kTeamBytes);
  copy_in(team.get(), parts_->team.get(), sizeof *team);
  if (one_island()) find_inboxes();
}

void Regions::find_inboxes() {
  push_launch_.team = team();
  push_launch_.rank = cards_.rank();
  push_launch_.ranks = cards_.size();
  push_launch_.header = reinterpret_cast<RegionHeader*>(region_of(cards_.rank()));
  for (int r = 0; r < cards_.size(); ++r) push_launch_.inbox[r] = region_of(r) + layout().inbox_offset();
}

void Regions::set_window(int window, std::span<std::byte* const> by_rank) {
  std::array<std::byte*, kMaxRanks> row{};
  std::copy(by_rank.begin(), by_rank.end(), row.begin());
  const std::size_t offset = offsetof(DeviceTeam, windows) + static_cast<std::size_t>(window) * sizeof row;
  copy_in(row.data(), parts_->team.get() + offset, sizeof row);
}

// Through pinned memory and a stream of our own: a copy on the default stream would wait for the caller's kernels.
void Regions::copy_in(const void* from, std::byte* to, std::size_t bytes) {
  const DeviceScope scope(api_, device_);
  std::byte* const between = parts_->pinned.get() + sizeof(HostPage);
  std::memcpy(between, from, bytes);
  check(api_, api_.MemcpyAsync(to, between, bytes, cudaMemcpyHostToDevice, parts_->stream.get()), device_,
        "copying a table to it");
  check(api_, api_.StreamSynchronize(parts_->stream.get()), device_, "copying a table to it");
}

void Regions::zero(std::byte* memory, std::size_t bytes) {
  const DeviceScope scope(api_, device_);
  check(api_, api_.MemsetAsync(memory, 0, bytes, parts_->stream.get()), device_, "zeroing memory");
  check(api_, api_.StreamSynchronize(parts_->stream.get()), device_, "zeroing memory");
}

void Regions::keep(SharedMemory memory) { parts_->kept.push_back(std::move(memory)); }

std::size_t Regions::device_bytes() const { return parts_->device_bytes + kTeamBytes; }
std::size_t Regions::pinned_bytes() const {
  return kPinnedBytes + parts_->host.bytes() / neighbours().size() +
         2 * parts_->remotes.size() * (parts_->remotes.empty() ? 0 : link_area_bytes());
}

}  // namespace rondo::comm::device
