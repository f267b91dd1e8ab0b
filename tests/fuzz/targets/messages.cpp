// SPDX-License-Identifier: Apache-2.0
// Messages from a peer that sends anything over its socket, while this rank sends and receives.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "comm/messages/exchange.hpp"
#include "comm/transport/tcp_link.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

using namespace comm;

constexpr FifoShape kShape{.slots = 2, .slice_bytes = 64, .ring_bytes = 1 << 16};

constexpr int kRanks = 2;

// Shared by the inputs: of the segment no message uses anything, and nobody sleeps.
Segment shared_segment() {
  static void* const memory = ::mmap(nullptr, Segment::bytes(kRanks, kShape), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return {static_cast<std::byte*>(memory), kRanks, kShape};
}
Doorbells shared_bells() {
  static const auto bells = [] {
    auto made = std::make_shared<std::vector<Fd>>();
    for (int i = 0; i < 2 * kRanks; ++i) made->emplace_back(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    return made;
  }();
  return {shared_segment(), bells};
}

Team::Parts two_ranks() {
  Team::Parts parts{.rank = 0, .segment = shared_segment(), .bells = shared_bells()};
  for (int rank = 0; rank < kRanks; ++rank) parts.placement.push_back({.local_rank = rank, .segment_index = rank});
  return parts;
}

class Peers {
 public:
  Peers() : team_(two_ranks()) {
    std::array<int, 2> ends{};
    expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "no sockets");
    peer_ = Fd(ends[1]);
    team_.add_message_links(1, make_tcp_links(Fd(ends[0]), 1, shape_of_messages(kShape)));
    exchange_.emplace(team_);
  }
  // False: the link is of no use any more.
  bool act(Script& script) {
    const unsigned what = script.byte();
    return accepts([&] {
      if (what % 4 == 0) post(script, Collective::recv);
      if (what % 4 == 1) post(script, Collective::send);
      if (what % 4 == 2) step(script);
      if (what % 4 == 3) put(script.block());
      for (int turn = 0; turn < kTurns && exchange_->advance(); ++turn) exchange_->clear_finished();
      drain();
    });
  }

 private:
  static constexpr int kTurns = 100;
  static constexpr std::size_t kMostElements = 300;

  void post(Script& script, Collective which) {
    if (operations_.size() == kMostOperations) return;
    Call call{.collective = which};
    call.dtype = static_cast<DataType>(script.byte() % kDataTypeCount);
    call.count = script.number<std::uint16_t>() % kMostElements;
    call.tag = script.byte() % 3;
    call.root = which == Collective::recv && script.byte() % 4 == 0 ? kAnySource : 1;
    auto& buffer = buffers_.emplace_back(std::make_unique<std::byte[]>(call.count * size_of(call.dtype) + 1));
    call.send = call.recv = buffer.get();
    exchange_->post(*operations_.emplace_back(std::make_unique<Operation>(call)));
  }
  void step(Script& script) {
    Envelope envelope;
    envelope.sequence = script.byte();
    envelope.count = script.number<std::uint16_t>();
    envelope.dtype = static_cast<DataType>(script.byte());
    envelope.kind = static_cast<Envelope::Kind>(script.byte());
    envelope.tag = script.byte() % 3;
    envelope.id = script.byte();
    if (script.byte() % 8 == 0) envelope.count = script.number<std::uint64_t>();
    const Bytes bytes = script.block();
    StepHeader header{.signature = packed(envelope), .step = steps_, .bytes = bytes.size()};
    if (script.byte() % 8 == 0) header.bytes = script.number<std::uint64_t>();
    const std::string lead(steps_++ % 2, '\0');
    put(as_bytes(lead));
    put(std::as_bytes(std::span(&header, 1)));
    put(bytes);
  }
  void put(Bytes bytes) {
    static_cast<void>(::send(peer_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  void drain() {
    std::array<std::byte, 1 << 14> what_came;
    while (::recv(peer_.get(), what_came.data(), what_came.size(), MSG_DONTWAIT) > 0) {
    }
  }

  static constexpr std::size_t kMostOperations = 32;
  Team team_;
  Fd peer_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::uint64_t steps_ = 0;
  std::optional<Exchange> exchange_;
};

}  // namespace

void run_messages(Bytes input) {
  Script script(input);
  Peers peers;
  while (!script.empty() && peers.act(script)) {
  }
}

std::vector<std::string> messages_seeds() {
  const auto posted = [](char what, char count) { return std::string{what, '\1', count, '\0', '\1', '\1'}; };
  const auto step = [](char kind, char count, char id, const std::string& bytes) {
    return std::string{'\2', '\1', count, '\0', '\1', kind, '\1', id, '\1', static_cast<char>(bytes.size())} + bytes +
           '\1';
  };
  const std::string whole = step('\0', '\4', '\1', "four");
  return {posted('\0', '\4') + whole, whole + posted('\0', '\4'),
          posted('\0', '\x40') + step('\1', '\x40', '\5', "") + step('\3', '\x40', '\5', std::string(64, 'd')),
          posted('\1', '\4') + step('\5', '\0', '\x7f', ""), posted('\1', '\x7f') + step('\2', '\0', '\1', "")};
}

}  // namespace rondo::fuzz
