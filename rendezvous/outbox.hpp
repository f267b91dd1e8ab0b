// SPDX-License-Identifier: Apache-2.0
// What a connection has still to be sent. Bodies are shared between connections; heads are the connection's own.
#pragma once
#include <list>
#include <memory>
#include <string_view>
#include <utility>

#include "rendezvous/tls.hpp"
#include "rendezvous/wire.hpp"

namespace rondo::rendezvous {

class Outbox {
 public:
  static constexpr std::size_t kMostBytes = 2 * kMaxReplyBytes;  // of somebody who does not read

  void push(std::string head, SharedBody body);
  // Sends what the socket takes now. False: the connection is broken, or too much is waiting.
  bool flush(int fd);
  // What has not been sent yet goes through this, piece by piece as the socket takes it.
  void encrypt(std::shared_ptr<TlsSession> tls) { tls_ = std::move(tls); }
  bool empty() const { return parts_.empty() && (!tls_ || tls_->output().empty()); }
  void clear() {
    parts_.clear();
    if (tls_) tls_->output().take();
  }

 private:
  struct Part {
    std::string head;
    SharedBody body;  // may be null
  };
  bool flush_encrypted(int fd);
  std::pair<std::string_view, std::string_view> rest() const;
  void advance(std::size_t bytes);

  std::shared_ptr<TlsSession> tls_;   // may be null
  std::list<Part> parts_;             // mostly empty, and then without memory
  std::size_t sent_ = 0, bytes_ = 0;  // sent_: of the first part
};

}  // namespace rondo::rendezvous
