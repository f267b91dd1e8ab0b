// SPDX-License-Identifier: Apache-2.0
#include "comm/device/memory/windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include <rondo/error.hpp>

#include "comm/base/bytes.hpp"
#include "comm/base/log.hpp"
#include "comm/base/majority.hpp"
#include "comm/device/setup/obstacles.hpp"

namespace rondo::comm::device {
namespace {

using kernels::device::kMaxRanks;
using kernels::device::kMaxWindows;
static_assert(kMaxWindows <= 64 && kMaxRanks <= 64);  // bits of one word

constexpr std::size_t kAlignment = 256;

constexpr const char* kAllocate = "allocate a window";
constexpr const char* kRegister = "register its memory";
constexpr std::array<const char*, 3> kWishes{"collect()", "allocate()", "register_memory()"};

}  // namespace

// What a rank brings to a collective point.
struct Windows::Arrival {
  enum class Wish : std::uint64_t { collect, allocate, register_memory } wish{};
  std::uint64_t bytes = 0;  // to allocate, or to register
  Set retired = 0;          // what it will not use any more, and whose last use has passed
};

struct Windows::Entry {
  SharedMemory memory;       // null: the caller's
  std::size_t capacity = 0;  // of memory
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool shared = false;  // this rank's memory is in the kernels' table
  bool released = false;
  Event last_use;
  std::vector<Peer> peers;  // of members_
};

Windows::Windows(Regions& regions, Regions* node)
    : regions_(regions), table_(node != nullptr ? *node : regions), entries_(kMaxWindows) {
  const DeviceCards& cards = regions.cards();
  for (int r = 0; r < cards.size(); ++r) {
    if (node == nullptr || cards.of(r).node == cards.own().node) members_.push_back(r);
  }
}

Windows::~Windows() {
  for (const auto& entry : entries_) {
    if (!entry) continue;
    entry->peers.clear();
    if (entry->memory) regions_.keep(std::move(entry->memory));
  }
}

Windows::Allocation Windows::allocate(std::size_t bytes) {
  return arrive({.wish = Arrival::Wish::allocate, .bytes = bytes}, nullptr);
}
Windows::Allocation Windows::register_memory(std::byte* data, std::size_t bytes) {
  return arrive({.wish = Arrival::Wish::register_memory, .bytes = bytes}, data);
}
void Windows::collect() { arrive({.wish = Arrival::Wish::collect}, nullptr); }

void Windows::release(const Allocation& allocation, Event last_use) {
  if (allocation.window == kNoWindow) return;
  const std::lock_guard lock(mutex_);
  Entry& entry = *entries_[static_cast<std::size_t>(allocation.window)];
  entry.released = true;
  entry.last_use = std::move(last_use);
  const auto known = by_address_.find(entry.data);
  if (known != by_address_.end() && known->second == allocation.window) by_address_.erase(known);
}

WindowPlace Windows::find(const void* data, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto after = by_address_.upper_bound(first);
  if (after == by_address_.begin()) return {};
  const int window = std::prev(after)->second;
  const Entry& entry = *entries_[static_cast<std::size_t>(window)];
  const auto offset = static_cast<std::uint64_t>(first - entry.data);
  if (offset > entry.bytes || bytes > entry.bytes - offset) return {};
  return {window, offset};
}

std::size_t Windows::bytes() const {
  std::size_t sum = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) sum += entry ? entry->capacity : 0;
  return sum;
}

Windows::Set Windows::retired() const {
  Set set = 0;
  const std::lock_guard lock(mutex_);
  for (std::size_t w = 0; w < entries_.size(); ++w) {
    if (!entries_[w] || !entries_[w]->released) continue;
    const Event& last_use = entries_[w]->last_use;
    if (!last_use || regions_.api().EventQuery(last_use.get()) == cudaSuccess) set |= Set{1} << w;
  }
  regions_.api().GetLastError();  // not ready is no error
  return set;
}

// A collective point. Every rank sees the same arrivals, so all decide alike and exchange equally often.
Windows::Allocation Windows::arrive(Arrival mine, std::byte* data) {
  mine.retired = retired();
  std::vector<Arrival> all;
  Set collected = ~Set{0};
  for (const Bytes& bytes : regions_.world().exchange(ByteWriter().number(mine).take())) {
    all.push_back(ByteReader(bytes).number<Arrival>());
    collected &= all.back().retired;
  }
  const bool allocates = all[0].wish == Arrival::Wish::allocate;
  const int reused = allocates ? find_reusable(collected, all[0].bytes) : kNoWindow;
  if (reused != kNoWindow) collected &= ~(Set{1} << reused);
  discard(collected);
  std::vector<std::pair<Arrival::Wish, std::size_t>> wishes;
  for (const Arrival& one : all) {
    wishes.emplace_back(one.wish, one.wish == Arrival::Wish::allocate ? one.bytes : 0);
  }
  if (const Majority majority = find_majority_of(wishes); !majority.others.empty()) {
    const auto text = [&](std::size_t rank) {
      return fmt::format("{} of {} bytes", kWishes[static_cast<std::size_t>(all[rank].wish)], all[rank].bytes);
    };
    const auto usual = static_cast<std::size_t>(majority.most.front()),
               odd = static_cast<std::size_t>(majority.others.front());
    throw mismatch_of(majority,
                      fmt::format("rank {} called {}, rank {} called {}: windows are made alike on every rank", usual,
                                  text(usual), odd, text(odd)));
  }
  if (mine.wish == Arrival::Wish::collect) return {};
  return reused != kNoWindow ? renew(reused, mine.bytes) : add(mine, data);
}

// The smallest that was allocated, not registered, fits, and is not much too large.
int Windows::find_reusable(Set collected, std::size_t bytes) const {
  int best = kNoWindow;
  std::size_t least = 2 * std::max(bytes, kAlignment) + 1;
  for (std::size_t w = 0; w < entries_.size(); ++w) {
    if ((collected >> w & 1) == 0 || entries_[w]->capacity < bytes || entries_[w]->capacity >= least) continue;
    least = entries_[w]->capacity;
    best = static_cast<int>(w);
  }
  return best;
}

std::unique_ptr<Windows::Entry> Windows::take(std::size_t window) {
  const std::lock_guard lock(mutex_);
  return std::move(entries_[window]);
}

// Every rank lets go of what it maps before any rank frees it.
void Windows::discard(Set collected) {
  if (collected == 0) return;
  std::vector<SharedMemory> freed;
  for (std::size_t w = 0; w < entries_.size(); ++w) {
    if ((collected >> w & 1) == 0) continue;
    table_.set_window(static_cast<int>(w), {});
    freed.push_back(std::move(entries_[w]->memory));
    const std::unique_ptr<Entry> gone = take(w);  // its mappings are closed without the lock
  }
  bool gone = true;  // everywhere
  const bool here = regions_.let_go_of_others();
  for (const Bytes& bytes : regions_.world().exchange(ByteWriter().number(here).take())) {
    gone = ByteReader(bytes).number<bool>() && gone;
  }
  if (gone) return;
  for (SharedMemory& memory : freed) {
    if (memory) regions_.keep(std::move(memory));
  }
}

Windows::Allocation Windows::renew(int window, std::size_t bytes) {
  Entry& entry = *entries_[static_cast<std::size_t>(window)];
  const std::string obstacle = obstacle_of([&] { regions_.zero(entry.data, entry.capacity); });
  const auto obstacles = exchange_obstacles(regions_.world(), obstacle);
  throw_obstacle(obstacles, ErrorCode::cuda, kAllocate);
  const std::lock_guard lock(mutex_);
  entry.bytes = bytes;
  entry.released = false;
  entry.last_use = {};
  if (entry.shared) by_address_.emplace(entry.data, window);
  return {window, entry.data, bytes};
}

Windows::Allocation Windows::add(const Arrival& wish, std::byte* data) {
  const auto slot = std::find(entries_.begin() + 1, entries_.end(), nullptr);
  if (slot == entries_.end()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} windows are in use, and there cannot be more: release some", kMaxWindows - 1));
  }
  const bool allocates = wish.wish == Arrival::Wish::allocate;
  auto entry = std::make_unique<Entry>();
  entry->data = data;
  entry->bytes = wish.bytes;
  Export own;
  const std::string obstacle = obstacle_of([&] { own = prepare(*entry, allocates); });
  const auto exports = regions_.world().exchange(ByteWriter().text(obstacle).number(own).take());
  std::vector<std::string> obstacles;
  for (const Bytes& bytes : exports) obstacles.push_back(ByteReader(bytes).text());
  throw_obstacle(obstacles, ErrorCode::cuda, allocates ? kAllocate : kRegister);
  {
    const std::lock_guard lock(mutex_);
    *slot = std::move(entry);
  }
  const int window = static_cast<int>(slot - entries_.begin());
  connect(window, exports);
  return {window, (*slot)->data, (*slot)->bytes};
}

bool Windows::are_shared() const { return table_.one_island() && !table_.in_host_memory() && !table_.in_pairs(); }

// This rank's side: memory, and what the others need to reach it.
Export Windows::prepare(Entry& entry, bool allocates) {
  const cuda::Api& api = regions_.api();
  const int device = regions_.device();
  if (allocates) {
    const std::size_t unit =
        regions_.cards().own().kind == rondo::Device::Kind::cuda ? Regions::kCudaBlock : kAlignment;
    entry.capacity = (std::max<std::size_t>(entry.bytes, 1) + unit - 1) / unit * unit;
    entry.memory = std::make_shared<DeviceMemory>(allocate_device(api, device, entry.capacity));
    entry.data = entry.memory->get();
    regions_.zero(entry.data, entry.capacity);
  }
  if (!are_shared() || entry.data == nullptr || entry.bytes == 0) return {};
  Export own = make_export(api, device, entry.data, entry.bytes, allocates ? &entry.memory : nullptr);
  const auto& cards = regions_.cards();
  // Access to a peer's device is access to what cudaMalloc gives. A pool, or virtual memory management, has its own.
  bool fits = true;
  for (const int r : members_) {
    if (!cards.same_process(r, cards.rank())) fits = fits && own.opens != 0;
    if (!cards.same_device(r, cards.rank())) fits = fits && own.plain != 0;
  }
  if (fits) return own;
  if (!std::exchange(said_not_exportable_, true)) {
    log::info(
        "rank {}: registered memory that other processes or devices cannot open is staged: cudaMalloc makes such as "
        "they can",
        cards.rank());
  }
  return {};
}

// A rank whose memory some other rank cannot map has none in the window, for all of them alike.
void Windows::connect(int window, const std::vector<Bytes>& exports) {
  const DeviceCards& cards = regions_.cards();
  Entry& entry = *entries_[static_cast<std::size_t>(window)];
  entry.peers.resize(members_.size());
  std::array<std::byte*, kMaxRanks> row{};
  std::uint64_t absent = 0;  // a bit per rank
  for (std::size_t index = 0; index < members_.size(); ++index) {
    const int r = members_[index];
    ByteReader in(exports[static_cast<std::size_t>(r)]);
    in.text();
    const auto theirs = in.number<Export>();
    const std::string obstacle = obstacle_of([&] {
      if (theirs.pointer == nullptr) return;
      if (r != cards.rank()) entry.peers[index] = Peer(regions_.api(), regions_.device(), cards, r, theirs);
      row[index] = r == cards.rank() ? entry.data : entry.peers[index].pointer();
    });
    if (row[index] == nullptr) absent |= std::uint64_t{1} << r;
    if (!obstacle.empty())
      log::info("rank {}: the window {} of rank {} is staged: {}", cards.rank(), window, r, obstacle);
  }
  for (const Bytes& bytes : regions_.world().exchange(ByteWriter().number(absent).take())) {
    absent |= ByteReader(bytes).number<std::uint64_t>();
  }
  for (std::size_t index = 0; index < members_.size(); ++index) {
    if (absent >> members_[index] & 1) row[index] = nullptr;
  }
  entry.shared = (absent >> cards.rank() & 1) == 0;
  table_.set_window(window, row);
  const std::lock_guard lock(mutex_);
  if (entry.shared) by_address_.emplace(entry.data, window);
}

}  // namespace rondo::comm::device
