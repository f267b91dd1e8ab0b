// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include <rondo/error.hpp>

namespace rondo::rendezvous {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied to the wire as they are");
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kSealBytes = 16;
constexpr std::size_t kDigestBeyondBytes = 4096;  // a digest costs less than signing such a body for two connections

template <class T>
void put(char* out, T value) {
  std::memcpy(out, &value, sizeof value);
}
template <class T>
T get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

Body::Body(std::string bytes) : bytes_(std::move(bytes)) {
  if (bytes_.size() > kDigestBeyondBytes) digest_ = sha256(as_bytes(bytes_));
}
std::span<const std::byte> Body::signed_part() const {
  return digest_ ? std::span<const std::byte>(*digest_) : as_bytes(bytes_);
}

void FrameReader::feed(std::span<const std::byte> bytes) {
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<std::string_view> FrameReader::next() {
  if (consumed_ == buffer_.size()) {  // most connections say little, and then nothing
    buffer_ = std::string();
    consumed_ = 0;
  }
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kLengthBytes) return std::nullopt;
  const std::size_t bytes = get<std::uint32_t>(rest.data());
  if (bytes > limit_bytes_) {
    throw Error(ErrorCode::corrupt_message,
                fmt::format("a frame claims {} bytes where at most {} are allowed; the other side is not a rondo "
                            "rendezvous of this version",
                            bytes, limit_bytes_));
  }
  if (rest.size() < kLengthBytes + bytes) return std::nullopt;
  consumed_ += kLengthBytes + bytes;
  return rest.substr(kLengthBytes, bytes);
}

std::string FrameReader::take_rest() {
  std::string rest = std::move(buffer_).substr(consumed_);
  buffer_.clear();
  consumed_ = 0;
  return rest;
}

std::string plain_frame(std::string_view message) {
  std::string frame(kLengthBytes, '\0');
  put(frame.data(), static_cast<std::uint32_t>(message.size()));
  frame += message;
  return frame;
}

void Seal::sign(std::uint64_t request, std::span<const std::byte> part, std::span<std::byte, 16> out) {
  char prefix[16];
  put(prefix, counter_);
  put(prefix + 8, request);
  const Digest digest = hmac(**key_, as_bytes(std::string_view(prefix, sizeof prefix)), part);
  std::memcpy(out.data(), digest.data(), out.size());
}

std::string Seal::head(std::uint64_t request, const Body& body) {
  std::string head(kHeadBytes, '\0');
  put(head.data(), static_cast<std::uint32_t>(kHeadBytes - kLengthBytes + body.bytes().size()));
  put(head.data() + kLengthBytes + kSealBytes, request);
  if (key_) {
    const std::span<char, kSealBytes> place(head.data() + kLengthBytes, kSealBytes);
    sign(request, body.signed_part(), std::as_writable_bytes(place));
  }
  ++counter_;
  return head;
}

Seal::Opened Seal::open(std::string_view frame) {
  if (frame.size() < kSealBytes + 8) throw Error(ErrorCode::corrupt_message, "a frame is too short to be signed");
  const Opened opened{get<std::uint64_t>(frame.data() + kSealBytes), frame.substr(kSealBytes + 8)};
  if (key_) {
    Digest digest;
    std::span<const std::byte> part = as_bytes(opened.body);
    if (opened.body.size() > kDigestBeyondBytes) part = digest = sha256(part);
    std::array<std::byte, kSealBytes> expected;
    sign(opened.request, part, expected);
    if (!equal_in_constant_time(expected, as_bytes(frame.substr(0, kSealBytes)))) {
      throw Error(ErrorCode::corrupt_message, "a frame was changed, repeated or made by somebody without the secret");
    }
  }
  ++counter_;
  return opened;
}

}  // namespace rondo::rendezvous
