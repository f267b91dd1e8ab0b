// SPDX-License-Identifier: Apache-2.0
// What reads bytes that others wrote, one row each: libFuzzer makes up the bytes (fuzzer.cpp), and fuzz_test replays
// those that are kept. A target throws where something is wrong; what it refuses by an Error, as it should, is fine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::fuzz {

using Bytes = std::span<const std::byte>;

struct Target {
  std::string_view name;
  std::string_view reads;               // whose bytes these are
  std::size_t most_bytes;               // of an input
  void (*run)(Bytes);                   // one thread; an input leaves nothing that the next one could see
  std::vector<std::string> (*seeds)();  // well-formed inputs, by the writer that belongs to the reader
};
std::span<const Target> targets();
const Target* find_target(std::string_view name);  // null: there is none

// Throws std::logic_error with the sentence unless it holds.
void expect(bool holds, const std::string& sentence);

// False where `body` threw an Error, which must be one sentence that can be shown anywhere. Others pass.
bool accepts(const std::function<void()>& body);

// Nothing in it steers a terminal; it may have several lines.
bool is_harmless(std::string_view text);

inline std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(Bytes bytes) { return std::string(as_text(bytes)); }

// An input as a program for its target: small numbers and blocks, zeroes once it has run out.
class Script {
 public:
  explicit Script(Bytes bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() { return rest_.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(cut(1).front()); }
  template <class T>
  T number() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::uint64_t{byte()} << (8 * i);
    return static_cast<T>(value);
  }
  Bytes block() { return cut(byte()); }  // up to 255 bytes, by the one before them
  Bytes rest() { return cut(rest_.size()); }

 private:
  Bytes cut(std::size_t count) {
    const Bytes part = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return part;
  }
  Bytes rest_;
};

}  // namespace rondo::fuzz
