// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tls.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <rondo/error.hpp>

namespace rondo::rendezvous {
namespace {

constexpr std::string_view kIdentity = "rondo";
constexpr unsigned char kSuite[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256, whose hash an external key has by default
constexpr std::size_t kReadAheadBytes = 32 << 10;
constexpr std::size_t kRecordBytes = 16 << 10;

void require_tls(bool done, const char* what) {
  if (!done) throw Error(ErrorCode::system, std::string("OpenSSL cannot ") + what);
}

struct FreeSession {
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};

}  // namespace

// What OpenSSL calls: C functions, which nothing is thrown through.
struct TlsCallbacks {
  static Tls& of(const SSL* ssl) { return *static_cast<Tls*>(SSL_get_app_data(ssl)); }
  static Tls& of(BIO* bio) { return *static_cast<Tls*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* into, int bytes) {
    Tls& tls = of(bio);
    BIO_clear_retry_flags(bio);
    tls.taken_ = tls.source_.take(std::as_writable_bytes(std::span(into, static_cast<std::size_t>(bytes))));
    if (tls.taken_ == -EAGAIN) BIO_set_retry_read(bio);
    return static_cast<int>(std::max(tls.taken_, -1L));
  }
  static int write(BIO* bio, const char* from, int bytes) {
    try {
      of(bio).output_.append(std::as_bytes(std::span(from, static_cast<std::size_t>(bytes))));
    } catch (const std::bad_alloc&) {
      return -1;
    }
    return bytes;
  }
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
  static int create(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  }

  static SSL_SESSION* session_of(SSL* ssl) {
    const Tls& tls = of(ssl);
    std::unique_ptr<SSL_SESSION, FreeSession> session(SSL_SESSION_new());
    const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, kSuite);
    const bool made =
        session && suite != nullptr &&
        SSL_SESSION_set1_master_key(session.get(), reinterpret_cast<const unsigned char*>((*tls.key_).data()),
                                    (*tls.key_).size()) == 1 &&
        SSL_SESSION_set_cipher(session.get(), suite) == 1 &&
        SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
    return made ? session.release() : nullptr;
  }
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* bytes,
                     SSL_SESSION** session) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *bytes = kIdentity.size();
    *session = session_of(ssl);
    return *session == nullptr ? 0 : 1;
  }
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session) {
    const bool ours = std::string_view(reinterpret_cast<const char*>(identity), bytes) == kIdentity;
    *session = ours ? session_of(ssl) : nullptr;
    return 1;  // without one, and there is no certificate, the handshake fails
  }
};

namespace {

const BIO_METHOD* bio_method() {
  static const BIO_METHOD* const made = [] {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rondo");
    require_tls(method != nullptr && BIO_meth_set_read(method, &TlsCallbacks::read) == 1 &&
                    BIO_meth_set_write(method, &TlsCallbacks::write) == 1 &&
                    BIO_meth_set_ctrl(method, &TlsCallbacks::control) == 1 &&
                    BIO_meth_set_create(method, &TlsCallbacks::create) == 1,
                "make a BIO");
    return method;
  }();
  return made;
}

// For both ends; lives as long as the process. What the host's openssl.cnf says of versions and suites is overruled.
SSL_CTX* context() {
  static SSL_CTX* const made = [] {
    SSL_CTX* context = SSL_CTX_new(TLS_method());
    require_tls(context != nullptr, "make a TLS context");
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_read_buffer_len(context, kReadAheadBytes);
    SSL_CTX_set_psk_use_session_callback(context, &TlsCallbacks::use_key);
    SSL_CTX_set_psk_find_session_callback(context, &TlsCallbacks::find_key);
    require_tls(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                    SSL_CTX_set1_groups_list(context, "X25519") == 1 && SSL_CTX_set_num_tickets(context, 0) == 1,
                "have TLS 1.3 with AES-GCM and X25519");
    return context;
  }();
  return made;
}

}  // namespace

void Tls::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

Tls::Tls(End end, const Digest& key, TlsSource& source, std::uint64_t records_per_key)
    : source_(source), records_per_key_(records_per_key), ssl_(SSL_new(context())) {
  *key_ = key;
  BIO* const bio = ssl_ ? BIO_new(bio_method()) : nullptr;
  require_tls(bio != nullptr, "make a TLS connection");
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (end == End::connecting) {
    SSL_set_connect_state(ssl_.get());
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);  // a server without our key, with whatever certificate
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

Tls::~Tls() = default;

long Tls::fail(long error) { return failed_ = error; }

// Of a call that returned no success.
long Tls::result_of(int returned) {
  const int kind = SSL_get_error(ssl_.get(), returned);
  if (kind == SSL_ERROR_WANT_READ) return -EAGAIN;
  if (kind == SSL_ERROR_ZERO_RETURN) return 0;
  char words[256] = "";
  const unsigned long code = ERR_peek_last_error();
  ERR_error_string_n(code, words, sizeof words);
  const bool ended = ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  ERR_clear_error();
  if (kind == SSL_ERROR_SYSCALL || ended) return fail(taken_ < 0 ? taken_ : -ECONNRESET);
  reason_ = words;
  return fail(-EBADMSG);
}

long Tls::shake_hands() {
  if (failed_ != 0 || done_) return failed_;
  ERR_clear_error();
  if (const int returned = SSL_do_handshake(ssl_.get()); returned != 1) {
    const long result = result_of(returned);
    return result == 0 ? fail(-ECONNRESET) : result;
  }
  if (SSL_session_reused(ssl_.get()) != 1) return fail(-EBADMSG);  // some other way than by the key
  done_ = true;
  wipe(*key_);
  SSL_set_read_ahead(ssl_.get(), 1);  // until now nothing is read that belongs to what follows
  return 0;
}

long Tls::write(std::span<const std::byte> bytes) {
  if (failed_ != 0) return failed_;
  if (records_ >= records_per_key_) {
    require_tls(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1, "change a TLS key");
    records_ = 0;
  }
  ERR_clear_error();
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kRecordBytes));
    const int returned = SSL_write(ssl_.get(), piece.data(), static_cast<int>(piece.size()));
    if (returned <= 0) return fail(std::min(result_of(returned), -1L));
    ++records_;
    bytes = bytes.subspan(static_cast<std::size_t>(returned));
  }
  return 0;
}

long Tls::read(std::span<std::byte> into) {
  if (failed_ != 0) return failed_;
  ERR_clear_error();
  const int returned = SSL_read(ssl_.get(), into.data(), static_cast<int>(std::min<std::size_t>(into.size(), 1 << 30)));
  return returned > 0 ? returned : result_of(returned);
}

long TlsSession::take(std::span<std::byte> into) {
  const std::string_view here = incoming_.pending();
  if (here.empty()) return -EAGAIN;
  const std::size_t taken = std::min(into.size(), here.size());
  std::memcpy(into.data(), here.data(), taken);
  incoming_.sent(taken);
  return static_cast<long>(taken);
}

void Tls::say_goodbye() {
  if (failed_ != 0 || !done_) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

}  // namespace rondo::rendezvous
