// SPDX-License-Identifier: Apache-2.0
#include "comm/device/setup/device_cards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "comm/base/bytes.hpp"
#include "comm/base/log.hpp"
#include "comm/base/machine.hpp"
#include "comm/base/majority.hpp"
#include "comm/device/memory/budget.hpp"
#include "comm/device/memory/cuda_handles.hpp"

namespace rondo::comm::device {
namespace {

const char* name_of(rondo::Device::Kind kind) {
  return kind == rondo::Device::Kind::cuda ? "cuda" : kind == rondo::Device::Kind::sim ? "sim" : "cpu";
}

Uuid uuid_of(const cuda::Api& api, int device) {
  unsigned char raw[16];
  check(api, api.DeviceUuid(&raw, device), device, "reading its UUID");
  Uuid uuid;
  std::copy(std::begin(raw), std::end(raw), uuid.begin());
  return uuid;
}

std::uint64_t random_token() {
  std::random_device random;
  std::uint64_t token = 0;
  while (token == 0) token = std::uint64_t{random()} << 32 | random();
  return token;
}

[[noreturn]] void refuse_words() {
  throw Error(
      ErrorCode::corrupt_message,
      "a rank says things of its device that no rank of this version would; do all ranks run the same version?");
}

// Field by field, as the bytes between fields have no value.
void write(ByteWriter& out, const Settings& settings) {
  out.number(settings.channels)
      .number(settings.blocks)
      .number(settings.push_blocks)
      .number(settings.threads)
      .number(settings.p2p)
      .number(settings.early_launch)
      .number(settings.sync_domain);
  for (const kernels::device::FifoShape& shape : settings.fifo) out.number(shape);
  out.number(settings.device_bytes).number(settings.staging_bytes);
}
Settings read_settings(ByteReader& in) {
  Settings settings;
  for (int* field : {&settings.channels, &settings.blocks, &settings.push_blocks, &settings.threads, &settings.p2p,
                     &settings.early_launch, &settings.sync_domain})
    *field = in.number<int>();
  for (kernels::device::FifoShape& shape : settings.fifo) shape = in.number<kernels::device::FifoShape>();
  for (std::uint64_t* field : {&settings.device_bytes, &settings.staging_bytes}) *field = in.number<std::uint64_t>();
  if (!settings.are_possible()) refuse_words();
  return settings;
}

void write(ByteWriter& out, const std::vector<HeldBlocks>& held) {
  out.number(static_cast<std::uint64_t>(held.size()));
  for (const HeldBlocks& each : held) out.number(each.communicator).number(each.blocks);
}
std::vector<HeldBlocks> read_held(ByteReader& in) {
  std::vector<HeldBlocks> held;
  for (auto left = in.number<std::uint64_t>(); left > 0; --left) {
    const auto communicator = in.number<std::uint64_t>();
    held.push_back({communicator, in.number<std::uint32_t>()});
  }
  return held;
}

// A runtime that does not know the question says so.
int asks_mps(const cuda::Api& api, int device) {
  int mps = 0;
  if (api.DeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, device) == cudaSuccess) return mps != 0 ? 1 : 0;
  api.GetLastError();
  return -1;
}

DeviceCard make_card(const cuda::Api& api, rondo::Device::Kind kind, int device, const HostWorld& world,
                     const Settings& settings) {
  DeviceCard card;
  card.kind = kind;
  card.uuid = uuid_of(api, device);
  char name[128] = {};
  check(api, api.DeviceName(name, sizeof name - 1, device), device, "reading its name");
  card.name = name;
  card.index = device;
  card.node = world.nodes[static_cast<std::size_t>(world.rank)];
  card.process = process_identity() + pid_namespace();
  int count = 0;
  check(api, api.GetDeviceCount(&count), device, "counting devices");
  for (int other = 0; other < count; ++other) {
    const Uuid uuid = uuid_of(api, other);
    int accessible = other == device;
    if (!accessible) {
      check(api, api.DeviceCanAccessPeer(&accessible, device, other), device,
            fmt::format("asking for access to device {}", other));
    }
    card.visible.push_back(uuid);
    if (accessible) card.accessible.push_back(uuid);
    int linked = other == device;
    if (!linked && accessible) {
      check(api, api.DeviceGetP2PAttribute(&linked, cudaDevP2PAttrNativeAtomicSupported, device, other), device,
            fmt::format("asking how it reaches device {}", other));
    }
    if (linked) card.linked.push_back(uuid);
  }
  card.mps = asks_mps(api, device);
  card.resident_blocks = resident_blocks(api, device, settings.threads);
  card.held = held_blocks(card.uuid);
  card.token = random_token();
  card.settings = settings;
  return card;
}

}  // namespace

std::string text_of(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

Bytes DeviceCard::encode() const {
  ByteWriter out;
  out.number(kind).number(uuid).text(name).number(index).number(node).text(process);
  out.numbers(std::span<const Uuid>(visible));
  out.numbers(std::span<const Uuid>(accessible));
  out.numbers(std::span<const Uuid>(linked));
  out.number(mps);
  out.number(resident_blocks);
  write(out, held);
  out.number(token);
  write(out, settings);
  return out.take();
}

DeviceCard DeviceCard::decode(const Bytes& bytes) {
  ByteReader in(bytes);
  DeviceCard card;
  card.kind = in.number<rondo::Device::Kind>();
  card.uuid = in.number<Uuid>();
  card.name = in.text();
  card.index = in.number<int>();
  card.node = in.number<int>();
  card.process = in.text();
  card.visible = in.numbers<Uuid>();
  card.accessible = in.numbers<Uuid>();
  card.linked = in.numbers<Uuid>();
  card.mps = in.number<int>();
  card.resident_blocks = in.number<std::uint32_t>();
  card.held = read_held(in);
  card.token = in.number<std::uint64_t>();
  card.settings = read_settings(in);
  if (card.kind > rondo::Device::Kind::sim || card.encode() != bytes) refuse_words();
  return card;
}

DeviceCards DeviceCards::exchange(const HostWorld& world, const cuda::Api& api, rondo::Device::Kind kind, int device,
                                  const Settings& own) {
  ByteWriter wish;
  write(wish, own);
  const auto wishes = world.exchange(wish.take());
  ByteReader first(wishes[0]);
  const Settings settings = read_settings(first);
  if (!(settings == own)) log::warn("rank {}: the RONDO_DEVICE_ settings are rank 0's, not this rank's", world.rank);
  std::vector<DeviceCard> cards;
  for (const Bytes& bytes : world.exchange(make_card(api, kind, device, world, settings).encode())) {
    cards.push_back(DeviceCard::decode(bytes));
  }
  std::vector<rondo::Device::Kind> kinds;
  for (const DeviceCard& card : cards) kinds.push_back(card.kind);
  if (const Majority majority = find_majority_of(kinds); !majority.others.empty()) {
    const auto usual = static_cast<std::size_t>(majority.most.front()),
               odd = static_cast<std::size_t>(majority.others.front());
    throw mismatch_of(
        majority, fmt::format("rank {} asked for a {} device and rank {} for a {} device: give all ranks the same kind",
                              usual, name_of(kinds[usual]), odd, name_of(kinds[odd])));
  }
  return {world.rank, std::move(cards)};
}

std::vector<int> DeviceCards::on_device_of(int rank) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (of(r).uuid == of(rank).uuid) ranks.push_back(r);
  }
  return ranks;
}

bool DeviceCards::time_sliced(int rank) const {
  if (of(rank).mps == 1) return false;
  return std::ranges::any_of(on_device_of(rank), [&](int r) { return of(r).process != of(rank).process; });
}

bool DeviceCards::keep_lines_whole(const std::vector<int>& ranks) const {
  return std::ranges::all_of(ranks, [&](int a) {
    return std::ranges::all_of(ranks, [&](int b) {
      const std::vector<Uuid>& linked = of(a).linked;
      return same_device(a, b) || std::ranges::find(linked, of(b).uuid) != linked.end();
    });
  });
}

DeviceCards::Access DeviceCards::access(int rank, int peer) const {
  const auto has = [&](const std::vector<Uuid>& uuids) {
    return std::find(uuids.begin(), uuids.end(), of(peer).uuid) != uuids.end();
  };
  if (settings().p2p == 0 && !same_device(rank, peer)) return Access::no;
  if (has(of(rank).accessible)) return Access::yes;
  return has(of(rank).visible) ? Access::no : Access::unknown;
}

}  // namespace rondo::comm::device
