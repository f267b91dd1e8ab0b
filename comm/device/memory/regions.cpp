// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/regions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

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
  plan_ = plan_regions(cards.size(), cards.settings(), parts_->reservation.share(), one_island(),
                       cards_.keep_lines_whole(neighbours()));
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
bool Regions::may_reach(int a, int b) const {
  return a == b || (cards_.access(a, b) != DeviceCards::Access::no && cards_.access(b, a) != DeviceCards::Access::no);
}

bool Regions::may_reach_any() const {
  const std::vector<int> ranks = neighbours();
  return ranks.size() == 1 || std::any_of(ranks.begin(), ranks.end(), [&](int a) {
           return std::any_of(ranks.begin(), ranks.end(), [&](int b) { return a != b && may_reach(a, b); });
         });
}

// Where two ranks of a node cannot use each other's device memory, the links between them lie in host memory; where no
// two can, all that they share does.
void Regions::share_device_memory() {
  Export mine;
  const std::string obstacle = obstacle_of([&] {
    if (!may_reach_any()) return;
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
  map_peers(exports);
  exchange_denials();
  test_peers();
  exchange_denials();
  if (parts_->memory) zero(parts_->memory->get() + layout().arrivals_offset(), arrivals_bytes());
  decide();
  const bool any = std::any_of(denied_.begin(), denied_.end(), [](Peers peers) { return peers != 0; });
  if (any) share_host_memory();
}

void Regions::deny(int peer, const std::string& why) {
  denied_[static_cast<std::size_t>(cards_.rank())] |= Peers{1} << peer;
  parts_->peers[static_cast<std::size_t>(peer)] = {};
  log::info("{}: ranks {} and {} do not use each other's device memory: {}", world_.name, cards_.rank(), peer, why);
}

void Regions::map_peers(const std::vector<Bytes>& exports) {
  denied_.assign(static_cast<std::size_t>(cards_.size()), 0);
  for (const int r : neighbours()) {
    if (r == cards_.rank()) continue;
    if (!may_reach(cards_.rank(), r)) {
      deny(r, "their devices have no access to each other, or RONDO_DEVICE_P2P is off");
      continue;
    }
    const std::string obstacle = obstacle_of([&] {
      ByteReader in(exports[static_cast<std::size_t>(r)]);
      in.text();
      parts_->peers[static_cast<std::size_t>(r)] = Peer(api_, device_, cards_, r, in.number<Export>());
    });
    if (!obstacle.empty()) deny(r, obstacle);
  }
  for (const int r : neighbours()) {
    const std::string obstacle = obstacle_of([&] {
      if (is_tested(r)) write_token(r);
    });
    if (!obstacle.empty()) deny(r, obstacle);
  }
}

// All ranks know of all pairs, and each of both its ends.
void Regions::exchange_denials() {
  const auto all = world_.exchange(ByteWriter().number(denied_[static_cast<std::size_t>(cards_.rank())]).take());
  for (std::size_t r = 0; r < all.size(); ++r) denied_[r] = ByteReader(all[r]).number<Peers>();
}

bool Regions::is_denied(int a, int b) const {
  return (denied_[static_cast<std::size_t>(a)] >> b & 1) != 0 || (denied_[static_cast<std::size_t>(b)] >> a & 1) != 0;
}

// ---- does what a device offers work? There are machines whose switches lose what one device writes to another. A
// token goes to each peer, into the arrival line that is this rank's, and is read back from there. ----

bool Regions::is_tested(int peer) const {
  return !cards_.same_device(peer, cards_.rank()) && !is_denied(peer, cards_.rank());
}

std::uint64_t Regions::token_of(int rank) const {
  return cards_.communicator() ^ (static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15u;
}

std::size_t Regions::arrivals_bytes() const {
  return layout().arrival_offset(0, 2 * layout().blocks, 0) - layout().arrivals_offset();
}

void Regions::write_token(int peer) {
  std::byte* const own = parts_->memory->get() + layout().arrival_offset(1, 0, cards_.rank());
  const std::uint64_t token = token_of(cards_.rank());
  copy_in(&token, own, sizeof token);
  copy_between(own, region_of(peer) + layout().arrival_offset(0, 0, cards_.rank()));
}

void Regions::test_peers() {
  for (const int r : neighbours()) {
    if (!is_tested(r)) continue;
    std::byte* const own = parts_->memory->get();
    const std::string obstacle = obstacle_of([&] {
      std::byte* const back = own + layout().arrival_offset(1, 0, r);
      copy_between(region_of(r) + layout().arrival_offset(0, 0, cards_.rank()), back);
      if (copy_out(back) != token_of(cards_.rank()) ||
          copy_out(own + layout().arrival_offset(0, 0, r)) != token_of(r)) {
        throw Error(ErrorCode::cuda, "what one wrote to the other did not arrive, though access was offered", r);
      }
    });
    if (!obstacle.empty()) deny(r, obstacle);
  }
}

void Regions::decide() {
  const std::vector<int> ranks = neighbours();
  bool any = false, all = true;
  for (const int a : ranks) {
    for (const int b : ranks) {
      if (a == b) continue;
      any = any || is_denied(a, b);
      all = all && is_denied(a, b);
    }
  }
  in_host_memory_ = any && all;
  in_pairs_ = any && !all;
  if (in_host_memory_ && cards_.rank() == ranks.front())
    log::info("{}: the links of this node lie in host memory", world_.name);
  for (const int r : ranks) {
    if (r == cards_.rank() || !is_denied(r, cards_.rank())) continue;
    routes_[static_cast<std::size_t>(r)] = Route::host;
    parts_->peers[static_cast<std::size_t>(r)] = {};
  }
}

// Ranks of other nodes come along, for all must exchange equally often.
void Regions::share_host_memory() {
  const std::string obstacle = obstacle_of([&] {
    if (!in_host_memory_ && !in_pairs_) {
      world_.exchange({});
      return;
    }
    parts_->host = HostRegion(api_, device_, world_, neighbours(), staging_offset() + plan_.staging_bytes);
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

std::byte* Regions::host_region_of(int rank) const {
  const std::vector<int> ranks = neighbours();
  return parts_->host.device(static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()));
}

std::byte* Regions::failed_word() const { return region_of(cards_.rank()) + offsetof(RegionHeader, failed); }

std::byte* Regions::region_of(int rank) const {
  switch (route(rank)) {
    case Route::own:
      return in_host_memory_ ? host_region_of(rank) : parts_->memory->get();
    case Route::host:
      return host_region_of(rank);
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
    if (in_pairs_ && route(r) == Route::host) {  // a link, and nothing around it
      team->mine[index] = host_region_of(cards_.rank());
      team->theirs[index] = host_region_of(r);
    } else if (std::byte* region = region_of(r); region != nullptr) {
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
  if (one_island()) prepare_launches();
}

void Regions::prepare_launches() {
  const auto prepare = [&](auto& launch) {
    launch.team = team();
    launch.rank = cards_.rank();
    launch.ranks = cards_.size();
    launch.header = reinterpret_cast<RegionHeader*>(region_of(cards_.rank()));
  };
  prepare(push_launch_);
  prepare(window_sum_launch_);
  for (int r = 0; r < cards_.size(); ++r) {
    push_launch_.inbox[r] = region_of(r) + layout().inbox_offset();
    window_sum_launch_.openings[r] =
        reinterpret_cast<kernels::device::Opening*>(region_of(r) + layout().openings_offset());
  }
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

// A word, from where one device has it to where another does.
void Regions::copy_between(const std::byte* from, std::byte* to) {
  const DeviceScope scope(api_, device_);
  check(api_, api_.MemcpyAsync(to, from, sizeof(std::uint64_t), cudaMemcpyDefault, parts_->stream.get()), device_,
        "copying a word between devices");
  check(api_, api_.StreamSynchronize(parts_->stream.get()), device_, "copying a word between devices");
}

std::uint64_t Regions::copy_out(const std::byte* from) {
  const DeviceScope scope(api_, device_);
  std::byte* const between = parts_->pinned.get() + sizeof(HostPage);
  check(api_, api_.MemcpyAsync(between, from, sizeof(std::uint64_t), cudaMemcpyDeviceToHost, parts_->stream.get()),
        device_, "reading a word");
  check(api_, api_.StreamSynchronize(parts_->stream.get()), device_, "reading a word");
  std::uint64_t word = 0;
  std::memcpy(&word, between, sizeof word);
  return word;
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
