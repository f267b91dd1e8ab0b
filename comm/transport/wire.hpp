// SPDX-License-Identifier: Apache-2.0
// Little-endian frames of the meetings: a writer, and a reader that notices when the bytes run out.
#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace rondo {

class WireWriter {
 public:
  template <std::unsigned_integral T>
  WireWriter& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xffU));
    return *this;
  }
  WireWriter& raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  WireWriter& raw(std::string_view text) { return raw(std::as_bytes(std::span(text))); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// After a read past the end every value is zero and ok() is false.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <std::unsigned_integral T>
  T number() {
    std::array<std::byte, sizeof(T)> bytes{};
    take(bytes);
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(std::to_integer<T>(bytes[i])) << (8 * i)));
    }
    return value;
  }
  template <std::size_t N>
  std::array<std::byte, N> raw() {
    std::array<std::byte, N> bytes{};
    take(bytes);
    return bytes;
  }
  bool expect(std::string_view text) {
    std::vector<std::byte> bytes(text.size());
    take(bytes);
    ok_ = ok_ && std::ranges::equal(bytes, std::as_bytes(std::span(text)));
    return ok_;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  void take(std::span<std::byte> out) {
    if (rest_.size() < out.size()) {
      ok_ = false;
      rest_ = {};
      return;
    }
    std::ranges::copy(rest_.first(out.size()), out.begin());
    rest_ = rest_.subspan(out.size());
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace rondo
