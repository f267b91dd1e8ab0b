// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/crypto.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <memory>
#include <utility>

#include <rondo/error.hpp>

namespace rondo::rendezvous {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
void require(bool done, const char* what) {
  if (!done) throw Error(ErrorCode::system, std::string("OpenSSL cannot ") + what);
}

struct FreeMac {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MAC_CTX, FreeMac>;

// A context that knows its digest but no key: copying it is cheaper than looking the digest up again. It lives for
// ever, as connections of static objects end after static objects that are younger.
const EVP_MAC_CTX* unkeyed() {
  static const EVP_MAC_CTX* const made = [] {
    EVP_MAC* mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    require(mac != nullptr, "find HMAC");
    Context context(EVP_MAC_CTX_new(mac));
    EVP_MAC_free(mac);
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                     OSSL_PARAM_construct_end()};
    require(context && EVP_MAC_CTX_set_params(context.get(), parameters) == 1, "use HMAC-SHA256");
    return context.release();
  }();
  return made;
}

// Of the calling thread, null without memory for it. What is destroyed after the thread's own objects, as static ones
// are, gets another one, which stays.
EVP_MAC_CTX* own_context() {
  thread_local EVP_MAC_CTX* context = nullptr;
  thread_local const struct Owner {
    ~Owner() { EVP_MAC_CTX_free(std::exchange(context, nullptr)); }
  } owner;
  if (context == nullptr) context = EVP_MAC_CTX_dup(unkeyed());
  return context;
}

}  // namespace

Digest hmac(std::span<const std::byte> key, std::span<const std::byte> first, std::span<const std::byte> second) {
  Digest digest;
  hmac_into(digest, key, first, second);
  return digest;
}

void hmac_into(std::span<std::byte, 32> out, std::span<const std::byte> key, std::span<const std::byte> first,
               std::span<const std::byte> second) {
  static constexpr unsigned char kNoKey[32] = {};
  EVP_MAC_CTX* const context = own_context();
  std::size_t bytes = 0;
  const bool done = context && EVP_MAC_init(context, raw(key), key.size(), nullptr) == 1 &&
                    EVP_MAC_update(context, raw(first), first.size()) == 1 &&
                    EVP_MAC_update(context, raw(second), second.size()) == 1 &&
                    EVP_MAC_final(context, reinterpret_cast<unsigned char*>(out.data()), &bytes, out.size()) == 1;
  const bool wiped = context && EVP_MAC_init(context, kNoKey, sizeof kNoKey, nullptr) == 1;
  require(done && wiped && bytes == out.size(), "compute an HMAC");
}

Digest sha256(std::span<const std::byte> bytes) {
  Digest digest;
  unsigned size = 0;
  require(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha256(),
                     nullptr) == 1,
          "compute SHA-256");
  return digest;
}

void fill_random(std::span<std::byte> out) {
  require(RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) == 1,
          "make random bytes");
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void wipe(std::span<std::byte> bytes) { OPENSSL_cleanse(bytes.data(), bytes.size()); }

}  // namespace rondo::rendezvous
