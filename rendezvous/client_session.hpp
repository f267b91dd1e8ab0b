// SPDX-License-Identifier: Apache-2.0
// The client's half of the protocol without I/O: what to send, what was said. One thread at a time, but once it is
// ready one may receive while another requests.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/handshake.hpp"

namespace rondo::rendezvous {

class ClientSession {
 public:
  // invalid_argument: encrypted without a secret.
  ClientSession(const std::optional<Secret>& secret, std::string job, bool encrypted = false)
      : key_(secret, encrypted), job_(std::move(job)) {}

  struct Answer {
    std::uint64_t request;  // 0: about the connection itself
    proto::Reply reply;
  };
  std::string hello();  // the first bytes to send
  // Appends what must be sent and what was answered. Error: the connection is of no use any more.
  void received(std::span<const std::byte> bytes, std::string& to_send, std::vector<Answer>& answers);
  bool ready() const { return ready_; }            // from then on, requests may be made
  bool busy() const { return handshake_.busy(); }  // the error was a refusal that may not be the last word
  // Signed in the order of these calls, and to be sent in that order.
  std::string request(std::uint64_t id, const proto::Request& request);

 private:
  void greet_back(std::string_view hello, std::string& to_send);
  void decrypt(std::span<const std::byte> bytes, std::string& to_send);
  bool shake_hands();
  void open();

  JobKey key_;
  std::string job_;
  ClientHandshake handshake_;
  FrameReader reader_{kMaxServerHelloBytes};
  Seals seals_;
  bool ready_ = false;
  std::mutex using_tls_;
  std::unique_ptr<TlsSession> tls_;  // once the server has proven itself; null: plain
};

}  // namespace rondo::rendezvous
