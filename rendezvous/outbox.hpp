// SPDX-License-Identifier: Apache-2.0
// What a connection has still to be sent. Bodies are shared between connections; heads are the connection's own.
#pragma once
#include <deque>

#include "rendezvous/wire.hpp"

namespace rondo::rendezvous {

class Outbox {
 public:
  static constexpr std::size_t kMostBytes = 2 * kMaxReplyBytes;  // of somebody who does not read

  void push(std::string head, SharedBody body);
  // Sends what the socket takes now. False: the connection is broken, or too much is waiting.
  bool flush(int fd);
  bool empty() const { return parts_.empty(); }
  void clear() { parts_.clear(); }

 private:
  struct Part {
    std::string head;
    SharedBody body;  // may be null
  };
  std::deque<Part> parts_;
  std::size_t sent_ = 0, bytes_ = 0;  // sent_: of the first part
};

}  // namespace rondo::rendezvous
