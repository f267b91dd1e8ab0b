// SPDX-License-Identifier: Apache-2.0
// What the proxy does for one peer: steps from pinned slots to the host link and back, credits the other way. All
// channels share the link, so a frame stands before each step. One thread drives it; nothing here blocks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/device/memory/regions.hpp"
#include "comm/team/link.hpp"

namespace rondo::comm::device {

class ProxyLink {
 public:
  // `piece_bytes`: the most that a step of the host links carries. `names`: the ranks' numbers in sentences; empty:
  // the regions' own.
  ProxyLink(const Regions& regions, int peer, SendLink& send, RecvLink& recv, std::size_t piece_bytes,
            std::span<const int> names = {});

  // Moves what can be moved now; true: something was. Throws what broke, also when the peer has gone while this rank's
  // kernels still have something for it.
  bool progress();
  void leave() { leaving_ = true; }   // kernels have ended: what they left is sent, then a goodbye
  bool finished();                    // after leave(): the peer has all of it, or has gone
  void peer_left() { gone_ = true; }  // its connection ended in good order
  bool gone() const { return gone_; }
  bool backlogged();  // the host link has not taken all it was given
  Wake recv_wake() const { return recv_.wake(); }
  Wake send_wake() const { return send_.wake(); }

 private:
  // A goodbye is answered by a farewell, after which its sender sends nothing: nothing is on its way when sockets
  // close.
  enum class Kind : std::uint16_t { step, credit, goodbye, farewell };
  struct Frame {
    Kind kind{};
    std::uint16_t channel = 0;
    std::uint32_t reserved = 0;
    kernels::device::DeviceSignature signature{};
    std::uint64_t step = 0;   // credit: how many have been freed
    std::uint64_t bytes = 0;  // that follow
  };
  static_assert(sizeof(Frame) <= 64);  // the least slice of a host link
  struct Channel {
    std::uint64_t sent = 0, credited = 0;      // what has gone to the peer
    std::uint64_t received = 0, returned = 0;  // what has come from it
  };
  struct Transfer {  // of a step's bytes, piece by piece
    std::byte* data = nullptr;
    std::size_t bytes = 0, done = 0;
    Frame frame{};
    bool active() const { return data != nullptr; }
  };
  kernels::device::Mailbox& mailbox(std::byte* base, int owner_peer, std::size_t channel) const;
  std::byte* slot(kernels::device::Mailbox& mailbox, std::uint64_t step) const;
  bool send_some();
  bool part();
  void check_leftovers() const;
  bool send_credit(std::size_t channel);
  bool send_step(std::size_t channel);
  bool send_pieces();
  void send_frame(const Frame& frame);
  bool receive_some();
  void take(const Frame& frame);
  void finish_step();
  [[noreturn]] void refuse(const char* why) const;

  const kernels::device::RegionLayout layout_;
  int rank_, peer_;
  int own_name_, peer_name_;  // in sentences
  Regions::LinkEnds ends_;
  SendLink& send_;
  RecvLink& recv_;
  std::size_t piece_bytes_;
  std::vector<Channel> channels_;
  std::size_t next_ = 0;  // channel to look at first
  Transfer out_, in_;
  Frame incoming_{};
  bool leaving_ = false, said_goodbye_ = false, heard_farewell_ = false;
  bool heard_goodbye_ = false, gone_ = false;  // gone: heard, and answered
};

}  // namespace rondo::comm::device
