// SPDX-License-Identifier: Apache-2.0
// Who may have how many blocks on a device, from cards; and what cards say of devices.
#include "comm/device/memory/budget.hpp"

#include <optional>

#include "tests/comm/device/device_cards.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/ranks.hpp"

using namespace rondo;
using namespace rondo::comm::device;
using test::cards_on;
using test::thrown_by;
using test::uuid;

namespace {

BlockShare share_of(std::vector<DeviceCard> cards, int channels, int blocks) {
  cards[0].settings.channels = channels;
  cards[0].settings.blocks = blocks;
  return share_blocks(DeviceCards(0, std::move(cards)));
}

}  // namespace

TEST_CASE(
    "the first communicator on a device has three quarters of its blocks at most, divided among all ranks on it") {
  CHECK(share_of(cards_on({1}), 8, 32).blocks == 32);
  CHECK(share_of(cards_on({1}, 20), 8, 32).blocks == 15);
  CHECK(share_of(cards_on({1, 1, 1, 1}), 8, 32).blocks == 12);
  const BlockShare tight = share_of(cards_on({1, 1, 1, 1}, 20), 8, 32);
  CHECK(tight.blocks == 3);
  CHECK(tight.channels == 3);
  CHECK(share_of(cards_on({1, 1, 1, 1}, 4), 8, 32).blocks == 1);
  CHECK(share_of(cards_on({1, 2, 2, 1}, 20), 8, 32).blocks == 7);
  CHECK(share_of(cards_on({1, 2, 2, 2}, 20), 8, 32).blocks == 5);  // the fullest device decides for all
}

TEST_CASE("of whichever kernel fewest blocks fit, so many fit") {
  static const void* widest;
  cuda::Api api = cuda::soft_api();
  api.OccupancyMaxActiveBlocksPerMultiprocessor = [](int* blocks, const void* kernel, int, std::size_t) {
    *blocks = kernel == widest ? 1 : 3;
    return cudaSuccess;
  };
  int multiprocessors = 0;
  REQUIRE(api.DeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  for (const void* kernel : cuda::all_of(api.kernels)) {
    widest = kernel;
    CHECK(resident_blocks(api, 0, 512) == static_cast<std::uint32_t>(multiprocessors));
  }
}

TEST_CASE("a later communicator has a quarter of what is left, what others hold taken off once each") {
  auto cards = cards_on({1, 1}, 132);
  cards[0].held = {{7, 32}, {8, 12}};
  cards[1].held = {{7, 32}};
  CHECK(share_of(cards, 4, 32).blocks == 11);
  cards[1].held = {{7, 32}, {9, 80}};
  CHECK(share_of(cards, 4, 32).blocks == 1);
  cards[1].held = {{7, 32}, {9, 88}};
  CHECK(share_of(cards, 4, 32).blocks == 1);  // that nobody has: they are lent
}

TEST_CASE("a dozen communicators of one rank a device have more than one block each") {
  auto cards = cards_on({1}, 132);
  std::vector<int> blocks;
  for (std::uint64_t made = 1; share_of(cards, 16, 32).blocks > 1; ++made) {
    blocks.push_back(share_of(cards, 16, 32).blocks);
    cards[0].held.push_back({made, static_cast<std::uint32_t>(blocks.back())});
  }
  CHECK(blocks == std::vector<int>{32, 25, 18, 14, 10, 8, 6, 4, 3, 3, 2});
}

TEST_CASE("reservations count while they live, ranks of one communicator together, and what is lent counts once") {
  const DeviceCards first(0, cards_on({1, 1}, 20));
  const DeviceCards peer(1, cards_on({1, 1}, 20));
  auto others = cards_on({1, 1}, 20);
  others[0].token = 55;
  const DeviceCards second(0, others);
  std::optional<BlockReservation> outlives;
  {
    const BlockReservation a(first, {2, 6}, 0);
    {
      BlockReservation b(peer, {2, 6}, 1);
      REQUIRE(held_blocks(uuid(1)).size() == 1);
      CHECK(held_blocks(uuid(1))[0].blocks == 12);
      const BlockReservation moved = std::move(b);
      CHECK(test::code_of(thrown_by([&] { BlockReservation(second, {2, 5}, 0); })) == ErrorCode::unsupported);
      const BlockReservation c(second, {2, 4}, 0);
      CHECK(held_blocks(uuid(1)).size() == 2);
      others[0].token = 56;
      const DeviceCards third(0, others);
      const BlockReservation d(third, {1, 1}, 0);
      CHECK(d.is_lent());
      CHECK(d.berth() == c.berth());  // it has fewer blocks than the other of that driver
      CHECK(c.berth()->users() == 2);
      CHECK(held_blocks(uuid(1)).size() == 2);
      outlives.emplace(third, BlockShare{1, 1}, 0);
      CHECK(outlives->berth() == c.berth());
      CHECK(c.berth()->users() == 3);
      CHECK(test::sentence_of(thrown_by([&] {
              BlockReservation(third, {1, 1}, 2);
            }))
                .starts_with("device 1 (GPU-01000000-0000-0000-0000-000000000000) runs 20 blocks at a time, 0 other "
                             "communicators hold 0 "
                             "of them, 2 ranks need one each, and none of those is rank 0's to take turns with"));
    }
    CHECK(held_blocks(uuid(1)).size() == 2);
    CHECK(outlives->berth()->users() == 1);
  }
  CHECK(held_blocks(uuid(1)).size() == 1);
  outlives.reset();
  CHECK(held_blocks(uuid(1)).empty());
}

TEST_CASE("devices are matched by UUID in whatever order a process sees them") {
  auto cards = cards_on({3, 4, 3, 5});
  cards[0].visible = {uuid(4), uuid(3)};
  cards[0].accessible = {uuid(3), uuid(4)};
  cards[1].visible = {uuid(3), uuid(4), uuid(5)};
  cards[1].accessible = {uuid(4), uuid(3)};
  const DeviceCards seen(1, cards);
  CHECK(seen.access(0, 1) == DeviceCards::Access::yes);
  CHECK(seen.access(0, 2) == DeviceCards::Access::yes);
  CHECK(seen.access(0, 3) == DeviceCards::Access::unknown);
  CHECK(seen.access(1, 3) == DeviceCards::Access::no);
  CHECK(seen.access(2, 0) == DeviceCards::Access::yes);
  CHECK(seen.on_device_of(0) == std::vector<int>{0, 2});
  CHECK_FALSE(seen.time_sliced());
  CHECK(DeviceCards(2, cards).time_sliced());
  cards[2].mps = 1;
  CHECK_FALSE(DeviceCards(2, cards).time_sliced());
  cards[2].mps = 0;
  CHECK(DeviceCards(2, cards).time_sliced());
  cards[2].process = cards[0].process;
  CHECK_FALSE(DeviceCards(2, cards).time_sliced());
}

TEST_CASE("a card arrives as it was sent") {
  auto cards = cards_on({3, 4});
  cards[0].held = {{7, 8}};
  cards[0].accessible.push_back(uuid(9));
  const DeviceCard card = DeviceCard::decode(cards[0].encode());
  CHECK(card.encode() == cards[0].encode());
  CHECK(card.accessible == cards[0].accessible);
  CHECK(card.held[0].blocks == 8);
  CHECK(card.settings == cards[0].settings);
  CHECK(card.name == "device 3");
}
