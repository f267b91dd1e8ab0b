// SPDX-License-Identifier: Apache-2.0
// Groups of sends and receives in one kernel: they progress together, in order over each link.
#include <fmt/format.h>

#include <cstring>
#include <random>

#include "kernels/device/kernels.hpp"
#include "tests/kernels/device/world.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/pairwise.hpp"

namespace rondo::test {
namespace {

using device::Protocol;

// Every rank's messages to every rank, itself included, and what arrives of them.
class Mail {
 public:
  Mail(int ranks, int channels, Protocol protocol, int threads = 64)
      : world_({.ranks = ranks, .blocks = channels, .threads = threads, .fifo = {2, 512}}),
        channels_(static_cast<std::uint8_t>(channels)),
        kernel_(cuda::soft_kernels().fifo[static_cast<int>(protocol)]) {
    for (int rank = 0; rank < ranks; ++rank) launches_.push_back(world_.launch(rank));
  }

  // `lend`: from a window of the sender, to which the steps refer.
  void send(int from, int to, std::size_t bytes, std::size_t misalignment = 0, bool lend = false) {
    parcels_.push_back({from, to, GuardedBuffer(bytes, misalignment), GuardedBuffer(bytes, misalignment / 2)});
    auto& parcel = parcels_.back();
    std::mt19937 random(static_cast<unsigned>(parcels_.size()));
    for (std::size_t i = 0; i < bytes; ++i) parcel.sent.data()[i] = static_cast<std::byte>(random());
    if (!lend) return;
    parcel.window = static_cast<std::int16_t>(++windows_);
    for (int rank = 0; rank < world_.shape().ranks; ++rank) {
      world_.team(rank).windows[parcel.window][from] = parcel.sent.data() - kInWindow;
    }
  }
  // The messages of `rank` in the order of the parcels, or backwards; sends before receives or mixed.
  void list(int rank, bool backwards) {
    for (std::size_t i = 0; i < parcels_.size(); ++i) {
      const Parcel& parcel = parcels_[i];
      if (parcel.from == rank) add(rank, parcel.sent, parcel.to, true, parcel.window);
      if (parcel.to == rank) add(rank, parcel.received, parcel.from, false, -1);
    }
    auto& launch = launches_[static_cast<std::size_t>(rank)];
    if (!backwards) return;
    std::stable_sort(launch.message, launch.message + launch.messages,
                     [](const auto& a, const auto& b) { return a.peer > b.peer; });
  }
  std::string run(const simt::Options& options = {}) {
    for (Parcel& parcel : parcels_) parcel.received.poison();
    const std::string report = world_.run(kernel_, launches_, options);
    if (!report.empty()) return report;
    for (const Parcel& parcel : parcels_) {
      if (std::memcmp(parcel.sent.data(), parcel.received.data(), parcel.sent.size()) != 0 ||
          !parcel.received.guards_are_intact()) {
        return fmt::format("{} bytes from {} to {} are not as they were", parcel.sent.size(), parcel.from, parcel.to);
      }
    }
    return {};
  }
  DeviceWorld& world() { return world_; }

 private:
  struct Parcel {
    int from, to;
    GuardedBuffer sent, received;
    std::int16_t window = -1;
  };
  static constexpr std::size_t kInWindow = 3;  // where a parcel begins in its window
  void add(int rank, const GuardedBuffer& buffer, int peer, bool sends, std::int16_t window) {
    auto& launch = launches_[static_cast<std::size_t>(rank)];
    launch.message[launch.messages++] = {.data = buffer.data(),
                                         .bytes = buffer.size(),
                                         .key = 77 + buffer.size(),
                                         .count = buffer.size(),
                                         .kind = 5,
                                         .offset = kInWindow,
                                         .peer = peer,
                                         .window = window,
                                         .sends = sends,
                                         .channels = channels_};
  }
  DeviceWorld world_;
  std::uint8_t channels_;
  const void* kernel_;
  std::vector<device::Launch> launches_;
  std::vector<Parcel> parcels_;
  int windows_ = 0;
};

TEST_CASE("messages in a ring and between all pairs arrive, of any length, with few slots") {
  const std::uint32_t seed = rotating_seed();
  std::mt19937 random(seed);
  constexpr std::size_t kBytes[] = {0, 1, 15, 16, 400, 5000};
  for (int protocol = 0; protocol < device::kProtocolCount; ++protocol) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int channels = 1; channels <= 3; ++channels) {
        Mail mail(ranks, channels, static_cast<Protocol>(protocol));
        for (int from = 0; from < ranks; ++from) {
          for (int to = 0; to < ranks; ++to) mail.send(from, to, kBytes[random() % 6], random() % 3);
          mail.send(from, (from + 1) % ranks, 3000);
        }
        for (int rank = 0; rank < ranks; ++rank) mail.list(rank, rank % 2 != 0);
        INFO("protocol " << protocol << " ranks " << ranks << " channels " << channels << " seed " << seed);
        REQUIRE(mail.run() == "");
        REQUIRE(mail.run() == "");
      }
    }
  }
}

// One slot's worth of header is enough for each: nothing but headers goes through the slots.
TEST_CASE("messages whose steps refer to a window are read where they lie, beside others") {
  const std::uint32_t seed = rotating_seed();
  std::mt19937 random(seed);
  constexpr std::size_t kBytes[] = {0, 1, 17, 5000, 60000};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int channels = 1; channels <= 3; ++channels) {
      Mail mail(ranks, channels, Protocol::simple);
      for (int from = 0; from < ranks; ++from) {
        for (int to = 0; to < ranks; ++to) mail.send(from, to, kBytes[random() % 5], random() % 17, random() % 4 != 0);
      }
      for (int rank = 0; rank < ranks; ++rank) mail.list(rank, rank % 2 != 0);
      INFO("ranks " << ranks << " channels " << channels << " seed " << seed);
      REQUIRE(mail.run() == "");
      REQUIRE(mail.run() == "");
      for (std::uint32_t i = 0; i < 4 && ranks > 1; ++i) {
        simt::Options options;
        options.explore = true;
        options.seed = seed + i;
        options.weak = i % 2 != 0;
        options.policy = static_cast<simt::Policy>(i % simt::kPolicyCount);
        REQUIRE(mail.run(options) == "");
      }
    }
  }
}

// More than a step, so more than the slots could hold at a time: the kernel of the sender ends when all is taken.
TEST_CASE("a long message whose steps refer needs no slot for its data") {
  Mail mail(2, 1, Protocol::simple);
  mail.send(0, 1, (std::size_t{3} << 20) + 5, 0, true);
  mail.send(1, 0, std::size_t{2} << 20, 1, true);
  for (int rank = 0; rank < 2; ++rank) mail.list(rank, false);
  REQUIRE(mail.run() == "");
  for (int rank = 0; rank < 2; ++rank) {
    const auto& box = mail.world().mailbox(rank, 1 - rank, 0, Protocol::simple);
    CHECK(box.sent == (rank == 0 ? 4 : 2));
    CHECK(box.freed == box.sent);
  }
}

TEST_CASE("messages over one link keep their order") {
  for (int protocol = 0; protocol < device::kProtocolCount; ++protocol) {
    Mail mail(2, 1, static_cast<Protocol>(protocol));
    for (int i = 0; i < 6; ++i) mail.send(0, 1, 700);
    mail.list(0, false);
    mail.list(1, false);
    REQUIRE(mail.run() == "");
  }
}

// Each rank waits for the link that its own list has first; two slots hold next to nothing of a message.
TEST_CASE("a group of messages ends whatever the order in which ranks list it") {
  const std::uint32_t seed = rotating_seed();
  for (int protocol = 0; protocol < device::kProtocolCount; ++protocol) {
    for (std::uint32_t i = 0; i < 6; ++i) {
      Mail mail(3, 1, static_cast<Protocol>(protocol), 32);
      for (int from = 0; from < 3; ++from) {
        for (int to = 0; to < 3; ++to) {
          if (from != to) mail.send(from, to, 2000);
        }
      }
      for (int rank = 0; rank < 3; ++rank) mail.list(rank, rank == 1);
      simt::Options options;
      options.explore = true;
      options.seed = seed + i;
      options.policy = static_cast<simt::Policy>(i % simt::kPolicyCount);
      REQUIRE(mail.run(options) == "");
    }
  }
}

}  // namespace
}  // namespace rondo::test
