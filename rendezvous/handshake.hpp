// SPDX-License-Identifier: Apache-2.0
// Both sides prove that they hold the job's secret before either believes anything else: hello and nonce, nonce and
// proof, proof. A proof is an HMAC, under a key of its direction, of everything both sides have said. Where both want
// encryption TLS follows, which signs what the seals sign otherwise.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <rondo/error.hpp>

#include "proto/rondo.pb.h"
#include "rendezvous/secret.hpp"
#include "rendezvous/tls.hpp"
#include "rendezvous/wire.hpp"

namespace rondo::rendezvous {

inline constexpr std::uint32_t kMinVersion = 1, kMaxVersion = 1;
inline constexpr std::uint32_t kMagic = 0x6f646e72;  // "rndo"
inline constexpr std::size_t kMaxJobBytes = 128;

// The key all connections of a job begin with; nothing in it without a secret.
class JobKey {
 public:
  // invalid_argument: encrypted without a secret.
  explicit JobKey(const std::optional<Secret>& secret, bool encrypted = false);
  bool encrypted() const { return encrypted_; }
  explicit operator bool() const { return key_.has_value(); }
  Digest derive(std::string_view label, const Digest& transcript) const;
  KeptKey derive_key(std::string_view label, const Digest& transcript) const;

 private:
  std::optional<KeptKey> key_;
  bool encrypted_;
};

struct Seals {
  Seal send, receive;
};

// Either throws Error with the sentence that the other side, or the user, should read.
class ServerHandshake {
 public:
  // The ServerHello to send. Error(mismatch) for another version or job, or a secret on one side alone.
  proto::ServerHello answer(std::string_view hello, const std::string& job, JobKey& key);
  // After answer(): the client knows the secret, or repeats what one said that does. It counts as no stranger, and has
  // still to prove it. Without a secret everybody does.
  bool is_likely_ours() const { return likely_ours_; }
  Seals finish(std::string_view proof, JobKey& key);
  std::shared_ptr<TlsSession> encrypt(JobKey& key) const;  // after that

 private:
  Digest transcript_{};
  bool likely_ours_ = false;
};

class ClientHandshake {
 public:
  proto::ClientHello hello(const std::string& job, JobKey& key);
  proto::ClientProof finish(std::string_view server_hello, JobKey& key);
  Seals seals(JobKey& key) const;
  std::unique_ptr<TlsSession> encrypt(JobKey& key) const;
  bool busy() const { return busy_; }  // after a refusal: trying again later may succeed

 private:
  bool busy_ = false;
  proto::ClientHello hello_;
  Digest transcript_{};
};

// A refusal on the wire and back.
void fill(proto::Failure& failure, const Error& error);
Error error_of(const proto::Failure& failure);

}  // namespace rondo::rendezvous
