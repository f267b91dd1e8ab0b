// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client_session.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>

#include <rondo/error.hpp>

namespace rondo::rendezvous {

std::string ClientSession::hello() { return plain_frame(handshake_.hello(job_, key_).SerializeAsString()); }

void ClientSession::received(std::span<const std::byte> bytes, std::string& to_send, std::vector<Answer>& answers) {
  if (tls_) {
    decrypt(bytes, to_send);
  } else {
    reader_.feed(bytes);
  }
  while (const auto frame = reader_.next()) {
    if (!ready_) {
      greet_back(*frame, to_send);
      if (tls_) return;  // the server says nothing more before it has heard that
      continue;
    }
    const Seal::Opened opened = seals_.receive.open(*frame);
    Answer answer{opened.request, {}};
    if (!answer.reply.ParseFromArray(opened.body.data(), static_cast<int>(opened.body.size()))) {
      throw Error(ErrorCode::corrupt_message, "a reply of the rendezvous server cannot be read");
    }
    answers.push_back(std::move(answer));
  }
}

void ClientSession::greet_back(std::string_view hello, std::string& to_send) {
  to_send += plain_frame(handshake_.finish(hello, key_).SerializeAsString());
  seals_ = handshake_.seals(key_);
  if (!key_.encrypted()) return open();
  tls_ = handshake_.encrypt(key_);
  shake_hands();
  to_send += tls_->output().take();
}

void ClientSession::open() {
  reader_.set_limit(kMaxReplyBytes + Seal::kHeadBytes);
  ready_ = true;
}

bool ClientSession::shake_hands() {
  const long result = tls_->tls().shake_hands();
  if (result != 0 && result != -EAGAIN) {
    throw Error(
        ErrorCode::corrupt_message,
        fmt::format("the encrypted connection to the rendezvous server did not come about ({})", tls_->tls().reason()));
  }
  return result == 0;
}

// What has come, for the reader of frames.
void ClientSession::decrypt(std::span<const std::byte> bytes, std::string& to_send) {
  const std::lock_guard lock(using_tls_);
  tls_->feed(bytes);
  if (!ready_) {
    if (shake_hands()) open();
    to_send += tls_->output().take();
    if (!ready_) return;
  }
  std::array<std::byte, 16384> some;
  for (;;) {
    const long got = tls_->tls().read(some);
    if (got == -EAGAIN || got == 0) return;
    if (got < 0) {
      throw Error(ErrorCode::corrupt_message,
                  "what came over the encrypted connection to the rendezvous server was changed on its way");
    }
    reader_.feed({some.data(), static_cast<std::size_t>(got)});
  }
}

std::string ClientSession::request(std::uint64_t id, const proto::Request& request) {
  const Body body(request.SerializeAsString());
  std::string frame = seals_.send.head(id, body) + body.bytes();
  if (!tls_) return frame;
  const std::lock_guard lock(using_tls_);
  if (tls_->tls().write(as_bytes(frame)) != 0)
    throw Error(ErrorCode::peer_lost, "the encrypted connection to the rendezvous server broke");
  return tls_->output().take();
}

}  // namespace rondo::rendezvous
