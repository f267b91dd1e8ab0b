// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/handshake.hpp"

#include <fmt/format.h>

#include <rondo/error.hpp>

namespace rondo::rendezvous {
namespace {

constexpr std::size_t kNonceBytes = 32;

std::string nonce() {
  std::string bytes(kNonceBytes, '\0');
  fill_random(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Lengths go before strings, so no two conversations have the same transcript.
Digest transcript_of(const proto::ClientHello& hello, const proto::ServerHello& answer) {
  const std::string text =
      fmt::format("rondo rendezvous|{}|{}|{}|{}|{}|{}:{}|{}:{}|{}:{}", hello.min_version(), hello.max_version(),
                  answer.version(), hello.authenticated(), answer.authenticated(), hello.job().size(), hello.job(),
                  hello.nonce().size(), hello.nonce(), answer.nonce().size(), answer.nonce());
  return sha256(as_bytes(hello.encrypted() ? text + "|encrypted" : text));
}

// Shown with the first message: a server that strangers crowd keeps the connections of those who have it.
Digest token_of(const proto::ClientHello& hello, JobKey& key) {
  return key.derive("client hello", sha256(as_bytes(hello.nonce())));
}

std::string text_of(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

Seals seals_of(const Digest& transcript, JobKey& key, bool client) {
  if (!key || key.encrypted()) return {};
  Seal up(key.derive_key("client to server", transcript));
  Seal down(key.derive_key("server to client", transcript));
  return client ? Seals{std::move(up), std::move(down)} : Seals{std::move(down), std::move(up)};
}

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::mismatch, sentence); }

void check_hello(const proto::ClientHello& hello, const std::string& job, bool with_secret, bool encrypted) {
  if (hello.max_version() < kMinVersion || hello.min_version() > kMaxVersion) {
    refuse(
        fmt::format("wrong version: the client speaks rendezvous protocol {} to {}, the server {} to {}; use the "
                    "same release of rondo on both sides",
                    hello.min_version(), hello.max_version(), kMinVersion, kMaxVersion));
  }
  if (hello.job() != job) {
    refuse(
        fmt::format("wrong job: the client wants job '{}', but this server serves job '{}'; check host, port and "
                    "job id",
                    hello.job(), job));
  }
  if (hello.authenticated() != with_secret) {
    refuse(with_secret ? "wrong secret: the server asks for the job's secret and the client has none"
                       : "wrong secret: the client holds a secret and the server has none");
  }
  if (hello.encrypted() != encrypted) {
    refuse(
        fmt::format("the {} encrypts its connections and the {} does not: start all of a job with RONDO_ENCRYPT=1, "
                    "or none",
                    encrypted ? "server" : "client", encrypted ? "client" : "server"));
  }
}

}  // namespace

JobKey::JobKey(const std::optional<Secret>& secret, bool encrypted) : encrypted_(encrypted) {
  if (encrypted && !secret) {
    throw Error(ErrorCode::invalid_argument,
                "RONDO_ENCRYPT=1 needs the job's secret, from which its keys are made, and there is none");
  }
  if (secret) hmac_into(*key_.emplace(), as_bytes("rondo rendezvous 1"), secret->bytes());
}
Digest JobKey::derive(std::string_view label, const Digest& transcript) const {
  return hmac(**key_, as_bytes(label), transcript);
}
KeptKey JobKey::derive_key(std::string_view label, const Digest& transcript) const {
  KeptKey derived;
  hmac_into(*derived, **key_, as_bytes(label), transcript);
  return derived;
}

proto::ServerHello ServerHandshake::answer(std::string_view bytes, const std::string& job, JobKey& key) {
  proto::ClientHello hello;
  if (!hello.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || hello.magic() != kMagic ||
      hello.nonce().size() != kNonceBytes) {
    throw Error(ErrorCode::corrupt_message, "the first message is not a rondo client's hello");
  }
  check_hello(hello, job, static_cast<bool>(key), key.encrypted());
  likely_ours_ = !key || equal_in_constant_time(token_of(hello, key), as_bytes(hello.token()));
  proto::ServerHello answer;
  answer.set_version(std::min(hello.max_version(), kMaxVersion));
  answer.set_nonce(nonce());
  answer.set_authenticated(static_cast<bool>(key));
  answer.set_encrypted(key.encrypted());
  if (!key) return answer;
  transcript_ = transcript_of(hello, answer);
  answer.set_proof(text_of(key.derive("server proof", transcript_)));
  return answer;
}

Seals ServerHandshake::finish(std::string_view bytes, JobKey& key) {
  proto::ClientProof proof;
  if (!proof.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw Error(ErrorCode::corrupt_message, "the second message is not a rondo client's proof");
  }
  if (key && !equal_in_constant_time(key.derive("client proof", transcript_), as_bytes(proof.proof()))) {
    refuse("wrong secret: the client's proof does not fit the job's secret");
  }
  return seals_of(transcript_, key, false);
}

proto::ClientHello ClientHandshake::hello(const std::string& job, JobKey& key) {
  hello_.set_magic(kMagic);
  hello_.set_min_version(kMinVersion);
  hello_.set_max_version(kMaxVersion);
  hello_.set_job(job);
  hello_.set_nonce(nonce());
  hello_.set_authenticated(static_cast<bool>(key));
  hello_.set_encrypted(key.encrypted());
  if (key) hello_.set_token(text_of(token_of(hello_, key)));
  return hello_;
}

proto::ClientProof ClientHandshake::finish(std::string_view bytes, JobKey& key) {
  proto::ServerHello answer;
  if (!answer.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw Error(ErrorCode::corrupt_message, "the server's first message is not a rondo rendezvous server's hello");
  }
  busy_ = answer.refusal().busy();
  if (answer.has_refusal()) throw error_of(answer.refusal());
  if (answer.version() < kMinVersion || answer.version() > kMaxVersion || answer.nonce().size() != kNonceBytes ||
      answer.authenticated() != static_cast<bool>(key) || answer.encrypted() != key.encrypted()) {
    throw Error(ErrorCode::corrupt_message, "the server's hello does not answer this client's");
  }
  proto::ClientProof proof;
  if (!key) return proof;
  transcript_ = transcript_of(hello_, answer);
  if (!equal_in_constant_time(key.derive("server proof", transcript_), as_bytes(answer.proof()))) {
    refuse("wrong secret: the server's proof does not fit this client's secret; both must hold the same job's");
  }
  proof.set_proof(text_of(key.derive("client proof", transcript_)));
  return proof;
}

std::shared_ptr<TlsSession> ServerHandshake::encrypt(JobKey& key) const {
  return std::make_shared<TlsSession>(Tls::End::accepting, *key.derive_key("encryption", transcript_));
}
std::unique_ptr<TlsSession> ClientHandshake::encrypt(JobKey& key) const {
  return std::make_unique<TlsSession>(Tls::End::connecting, *key.derive_key("encryption", transcript_));
}

Seals ClientHandshake::seals(JobKey& key) const { return seals_of(transcript_, key, true); }

void fill(proto::Failure& failure, const Error& error) {
  failure.set_code(static_cast<std::uint32_t>(error.error_code()));
  failure.set_sentence(error.what());
  failure.set_culprit(error.culprit());
}

Error error_of(const proto::Failure& failure) {
  return {static_cast<ErrorCode>(failure.code()), failure.sentence(), failure.culprit()};
}

}  // namespace rondo::rendezvous
