// SPDX-License-Identifier: Apache-2.0
// Who may have how many blocks on a device, from cards; and what cards say of devices.
#include "comm/device/memory/budget.hpp"

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

TEST_CASE("blocks of a device are shared by all ranks on it, and the last quarter left to later communicators") {
  CHECK(share_of(cards_on({1}), 8, 32).blocks == 32);
  CHECK(share_of(cards_on({1}, 20), 8, 32).blocks == 20);
  CHECK(share_of(cards_on({1, 1, 1, 1}), 8, 32).blocks == 12);
  const BlockShare tight = share_of(cards_on({1, 1, 1, 1}, 20), 8, 32);
  CHECK(tight.blocks == 3);
  CHECK(tight.channels == 3);
  CHECK(share_of(cards_on({1, 1, 1, 1}, 4), 8, 32).blocks == 1);
  CHECK(share_of(cards_on({1, 2, 2, 1}, 20), 8, 32).blocks == 7);
  CHECK(share_of(cards_on({1, 2, 2, 2}, 20), 8, 32).blocks == 5);  // the fullest device decides for all
}

TEST_CASE("what other communicators hold is taken off, each of them once") {
  auto cards = cards_on({1, 1}, 20);
  cards[0].held = {{7, 8}, {8, 4}};
  cards[1].held = {{7, 8}};
  CHECK(share_of(cards, 4, 32).blocks == 1);
  cards[1].held = {{7, 8}, {9, 6}};
  CHECK(share_of(cards, 4, 32).blocks == 1);
  cards[1].held = {{7, 8}, {9, 7}};
  const auto error = thrown_by([&] { share_of(cards, 4, 32); });
  CHECK(test::code_of(error) == ErrorCode::unsupported);
  CHECK(test::sentence_of(error) ==
        "device 1 (GPU-01000000-0000-0000-0000-000000000000) runs 20 blocks at a time, 3 other communicators hold 19 "
        "of them, and 2 ranks need one each: use fewer ranks per device, or destroy a communicator first");
}

TEST_CASE("reservations count while they live, ranks of one communicator together") {
  const DeviceCards first(0, cards_on({1, 1}, 20));
  const DeviceCards peer(1, cards_on({1, 1}, 20));
  auto others = cards_on({1, 1}, 20);
  others[0].token = 55;
  const DeviceCards second(0, others);
  {
    const BlockReservation a(first, {2, 6});
    {
      BlockReservation b(peer, {2, 6});
      REQUIRE(held_blocks(uuid(1)).size() == 1);
      CHECK(held_blocks(uuid(1))[0].blocks == 12);
      const BlockReservation moved = std::move(b);
      CHECK(test::code_of(thrown_by([&] { BlockReservation(second, {2, 5}); })) == ErrorCode::unsupported);
      const BlockReservation c(second, {2, 4});
      CHECK(held_blocks(uuid(1)).size() == 2);
    }
    CHECK(held_blocks(uuid(1)).size() == 1);
  }
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
