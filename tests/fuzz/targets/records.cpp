// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before they are connected: cards, addresses, a leader's frames.
#include <algorithm>

#include "comm/call/algorithms.hpp"
#include "comm/device/setup/device_cards.hpp"
#include "comm/setup/agreement.hpp"
#include "comm/setup/card.hpp"
#include "comm/setup/growth_word.hpp"
#include "comm/transport/addresses.hpp"
#include "comm/transport/node_frame.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

constexpr std::size_t kRows = 3;  // of the transport table

comm::Card own_card() {
  return {.node = "n",
          .host = "h",
          .tuning = to_text(comm::Tuning{}),
          .slice_bytes = 128 << 10,
          .slots = 8,
          .segment_bytes = 64 << 20,
          .link_patience_ms = 3000,
          .advertised = std::vector<Store::Bytes>(kRows)};
}

}  // namespace

// Rank 0's card, of which this rank takes over a lot.
void run_card(Bytes input) {
  const Store::Bytes bytes(input.begin(), input.end());
  comm::Card card;
  if (!accepts([&] { card = comm::Card::decode(bytes, kRows); })) return;
  expect(card.encode() == bytes, "a card is written otherwise than it was read");
  comm::Config config;
  Options options;
  const std::vector<comm::Card> cards{card, own_card()};
  if (!accepts([&] { agree(cards, 1, comm::transports(), config, options); })) return;
  expect(options.determinism <= Determinism::fast, "a determinism that is none");
  expect(config.link_patience_ms >= 1500 && config.link_patience_ms <= 600'000, "no patience, or too much of it");
  expect(config.algorithm.empty() || accepts([&] { comm::check_algorithm_name(config.algorithm); }),
         "an algorithm that is none");
  const std::string_view protocols[] = {"", "simple", "ll", "ll128", "window", "push"};
  expect(std::ranges::find(protocols, config.protocol) != std::end(protocols), "a protocol that is none");
  expect(config.slots >= 2 && config.slots <= 64, "slots that no FIFO has");
  expect(config.slice_bytes >= 64 && config.slice_bytes <= 16 << 20 && config.slice_bytes % 64 == 0,
         "slices that no FIFO has");
  expect(config.segment_bytes >= 1 << 16 && config.segment_bytes <= std::uint64_t{1} << 40,
         "a segment that is too short or too long");
}

std::vector<std::string> card_seeds() {
  comm::Card full = own_card();
  full.transport = "tcp";
  full.algorithm = "ring_all_reduce";
  full.cores = full.mesh = full.meeting = Store::Bytes(8);
  return {text_of(own_card().encode()), text_of(full.encode())};
}

void run_advertisement(Bytes input) {
  Advertisement read;
  if (!accepts([&] { read = decode_advertisement(input, 1); })) return;
  const auto written = encode(read);
  expect(std::ranges::equal(written, input), "addresses are written otherwise than they were read");
  for (const SocketAddress& address : read.addresses) expect(!to_string(address).empty(), "an address without a name");
}

std::vector<std::string> advertisement_seeds() {
  Advertisement advertisement;
  for (const char* text : {"10.0.0.7", "fd00::1"}) advertisement.addresses.push_back(*parse_address(text, 4000));
  return {text_of(encode(advertisement))};
}

void run_node_frame(Bytes input) {
  NodeFrame frame;
  if (!accepts([&] { frame = NodeFrame::decode(input); })) return;
  expect(frame.ranks.size() <= NodeFrame::kMaxRanks, "more ranks than a frame has");
  if (frame.kind == NodeFrame::Kind::missing || frame.kind == NodeFrame::Kind::lost) {
    expect(!accepts([&] { frame.raise(1, "world"); }), "a meeting that failed raises nothing");
  }
}

std::vector<std::string> node_frame_seeds() {
  const NodeFrame missing{.kind = NodeFrame::Kind::missing, .count = 20, .ranks = std::vector<int>(16, 3)};
  const NodeFrame lost{.kind = NodeFrame::Kind::lost, .count = 1, .ranks = {2}};
  return {text_of(missing.encode()), text_of(lost.encode()), text_of(NodeFrame{}.encode())};
}

// Of a communicator on devices.
void run_device_card(Bytes input) {
  const Store::Bytes bytes(input.begin(), input.end());
  comm::device::DeviceCard card;
  if (!accepts([&] { card = comm::device::DeviceCard::decode(bytes); })) return;
  expect(card.encode() == bytes, "a device is written otherwise than it was read");
  expect(card.settings.channels > 0 && card.settings.blocks >= card.settings.channels, "blocks that no kernel has");
  const comm::device::DeviceCards cards(0, {card, card});
  static_cast<void>(cards.access(0, 1));
  static_cast<void>(cards.time_sliced());
  expect(cards.on_device_of(0).size() == 2, "a device is not itself");
}

std::vector<std::string> device_card_seeds() {
  const comm::device::DeviceCard bare{.settings = comm::device::Settings::from_environment(Device::Kind::sim)};
  comm::device::DeviceCard full = bare;
  full.name = full.process = "x";
  full.visible = full.accessible = {full.uuid, comm::device::Uuid{1}};
  full.held = {{7, 2}};
  return {text_of(bare.encode()), text_of(full.encode())};
}

// Of a communicator that grows.
void run_growth(Bytes input) {
  const Store::Bytes bytes(input.begin(), input.end());
  comm::GrowthWord word;
  if (!accepts([&] { word = comm::GrowthWord::decode(bytes); })) return;
  const comm::GrowthWord again = comm::GrowthWord::decode(word.encode());
  expect(again.error.has_value() == word.error.has_value() && again.growth.key() == word.growth.key() &&
             again.growth.job_ranks == word.growth.job_ranks,
         "a growth is written otherwise than it was read");
}

std::vector<std::string> growth_seeds() {
  const comm::GrowthWord failed{.error = Error(ErrorCode::timeout, "nobody came", 2)};
  const comm::GrowthWord done{.growth = {.name = "grown.4", .generation = 1, .job_ranks = {0, 1, 3, 4}}};
  return {text_of(done.encode()), text_of(failed.encode()), text_of(comm::GrowthWord{}.encode())};
}

}  // namespace rondo::fuzz
