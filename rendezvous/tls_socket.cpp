// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tls_socket.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rendezvous/tls.hpp"

namespace rondo::rendezvous {
namespace {

constexpr std::size_t kWriteBytes = 256 << 10;  // encrypted at once: a system call for many records

class TlsSocket final : public SecureStream, private TlsSource {
 public:
  TlsSocket(int socket, Encryption::End end, const Digest& key) : socket_(socket), tls_(end, key, *this) {}
  TlsSocket(const TlsSocket&) = delete;
  TlsSocket& operator=(const TlsSocket&) = delete;
  ~TlsSocket() override {
    tls_.say_goodbye();
    put();
  }

  long shake_hands() override {
    const long result = tls_.shake_hands();
    const long sent = flush();
    if (result != 0 && result != -EAGAIN) return result;
    return sent != 0 ? sent : result;  // a few hundred bytes, which an empty socket takes
  }
  long send(std::span<const std::byte> bytes) override {
    if (const long before = flush(); before != 0) return before;
    const std::size_t taken = std::min(bytes.size(), kWriteBytes);
    if (const long failed = tls_.write(bytes.first(taken)); failed != 0) return failed;
    const long sent = put();
    return sent == 0 || sent == -EAGAIN ? static_cast<long>(taken) : sent;
  }
  long flush() override { return tls_.output().empty() ? 0 : put(); }
  long recv(std::span<std::byte> into) override {
    const long result = tls_.read(into);
    if (result == -EBADMSG) put();  // what tells the peer
    return result;
  }

 private:
  long put() {
    TlsBytes& output = tls_.output();
    while (!output.empty()) {
      const std::string_view bytes = output.pending();
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return -errno;
      output.sent(static_cast<std::size_t>(sent));
    }
    return 0;
  }
  long take(std::span<std::byte> into) override {
    ssize_t got = 0;
    do {
      got = ::recv(socket_, into.data(), into.size(), MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
  }

  const int socket_;
  Tls tls_;
};

class TlsEncryption final : public Encryption {
 public:
  explicit TlsEncryption(KeptKey key) : key_(std::move(key)) {}
  std::unique_ptr<SecureStream> over(int socket, End end, std::span<const std::byte> transcript) const override {
    KeptKey key;
    hmac_into(*key, *key_, transcript);
    return std::make_unique<TlsSocket>(socket, end, *key);
  }

 private:
  KeptKey key_;
};

}  // namespace

std::shared_ptr<const Encryption> make_encryption(const Secret& secret, std::string_view context) {
  return std::make_shared<TlsEncryption>(derive_key(secret, "rondo encryption 1", context));
}

}  // namespace rondo::rendezvous
