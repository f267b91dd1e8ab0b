// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client_session.hpp"

#include <rondo/error.hpp>

namespace rondo::rendezvous {

std::string ClientSession::hello() { return plain_frame(handshake_.hello(job_, key_).SerializeAsString()); }

void ClientSession::received(std::span<const std::byte> bytes, std::string& to_send, std::vector<Answer>& answers) {
  reader_.feed(bytes);
  while (const auto frame = reader_.next()) {
    if (!ready_) {
      to_send += plain_frame(handshake_.finish(*frame, key_).SerializeAsString());
      seals_ = handshake_.seals(key_);
      reader_.set_limit(kMaxReplyBytes + Seal::kHeadBytes);
      ready_ = true;
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

std::string ClientSession::request(std::uint64_t id, const proto::Request& request) {
  const Body body(request.SerializeAsString());
  return seals_.send.head(id, body) + body.bytes();
}

}  // namespace rondo::rendezvous
