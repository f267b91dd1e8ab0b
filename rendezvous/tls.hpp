// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 with a key that both ends hold (RFC 8446, external PSK) and X25519 beside it: who learns the key later cannot
// read what was recorded. No certificates, no tickets, one suite. Does no output: what must be sent lies in output().
// One thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/setup/encryption.hpp"
#include "rendezvous/crypto.hpp"
#include "rendezvous/kept_key.hpp"

struct ssl_st;
struct ssl_ctx_st;

namespace rondo::rendezvous {

// Where a Tls takes what has come: bytes, 0 at the end of all, or an error's number, negative (-EAGAIN: later).
class TlsSource {
 public:
  virtual long take(std::span<std::byte> into) = 0;

 protected:
  ~TlsSource() = default;
};

// Bytes on their way, taken from the front.
class TlsBytes {
 public:
  void append(std::span<const std::byte> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string_view pending() const { return std::string_view(bytes_).substr(sent_); }
  bool empty() const { return sent_ == bytes_.size(); }
  void sent(std::size_t bytes) {
    sent_ += bytes;
    if (!empty()) return;
    bytes_.clear();
    sent_ = 0;
  }
  std::string take() {
    std::string all = std::move(bytes_).substr(sent_);
    bytes_.clear();
    sent_ = 0;
    return all;
  }

 private:
  std::string bytes_;
  std::size_t sent_ = 0;
};

class Tls {
 public:
  using End = Encryption::End;
  // AES-GCM may seal 2^24.5 records with one key (RFC 8446, 5.5); a new one costs a record.
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23;

  // The source outlives this.
  Tls(End end, const Digest& key, TlsSource& source, std::uint64_t records_per_key = kRecordsPerKey);
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  ~Tls();

  // Results as SecureStream has them. What came wrong ends this for good.
  long shake_hands();
  long write(std::span<const std::byte> bytes);  // 0: all of it lies in output()
  long read(std::span<std::byte> into);
  void say_goodbye();
  TlsBytes& output() { return output_; }
  const std::string& reason() const { return reason_; }  // after -EBADMSG: OpenSSL's words

 private:
  friend struct TlsCallbacks;
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  long result_of(int returned);
  long fail(long error);

  KeptKey key_;
  TlsSource& source_;
  TlsBytes output_;
  long failed_ = 0, taken_ = 0;  // the error that ended this; what the source said last
  bool done_ = false;            // the handshake
  std::uint64_t records_per_key_, records_ = 0;
  std::string reason_;
  std::unique_ptr<ssl_st, Free> ssl_;
};

// Bytes in by feed(), out by output(). For several threads under a lock of theirs.
class TlsSession final : private TlsSource {
 public:
  TlsSession(Tls::End end, const Digest& key) : tls_(end, key, *this) {}
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  void feed(std::span<const std::byte> bytes) { incoming_.append(bytes); }
  Tls& tls() { return tls_; }
  TlsBytes& output() { return tls_.output(); }

 private:
  long take(std::span<std::byte> into) override;

  TlsBytes incoming_;
  Tls tls_;
};

}  // namespace rondo::rendezvous
