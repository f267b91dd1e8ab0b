// SPDX-License-Identifier: Apache-2.0
#include "comm/call/flight_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace rondo::comm {
namespace {

// Bytes of the character that begins there, or 0: it is not UTF-8. (Overlong forms and surrogates are not told apart.)
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const std::size_t bytes = byte(0) < 0x80                      ? 1
                            : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2
                            : (byte(0) & 0xf0) == 0xe0          ? 3
                            : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                                : 0;
  if (bytes > text.size()) return 0;
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

// For JSON, which is UTF-8: names of hosts and files need not be.
std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t bytes = character_bytes(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (bytes == 0) {
      out += "\\ufffd";
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out;
}
}  // namespace

// Word by word: release on each, so that no reader sees a new word under the old number.
template <class T>
inline void FlightRecorder::put(Entry& into, std::size_t offset, const T& value) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  for (std::size_t at = 0; at < sizeof value; at += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&value) + at, kWord);
    into.words[(offset + at) / kWord].store(word, std::memory_order_release);
  }
}

std::uint64_t FlightRecorder::begin(const Signature& signature, std::string_view algorithm, std::string_view kernel) {
  const std::uint64_t call = calls_.load(std::memory_order_relaxed) + 1;
  Entry& into = entry(call);
  into.call.store(0, std::memory_order_relaxed);
  put(into, offsetof(Record, signature), signature);
  put(into, offsetof(Record, algorithm), algorithm);
  put(into, offsetof(Record, kernel), kernel);
  put(into, offsetof(Record, begun), read_ticks());
  put(into, offsetof(Record, ended), std::uint64_t{0});
  into.call.store(call, std::memory_order_release);
  calls_.store(call, std::memory_order_release);
  return call;
}

void FlightRecorder::amend(std::string_view algorithm) {
  const std::uint64_t call = calls_.load(std::memory_order_relaxed);
  Entry& into = entry(call);
  into.call.store(0, std::memory_order_relaxed);
  put(into, offsetof(Record, algorithm), algorithm);
  into.call.store(call, std::memory_order_release);
}

void FlightRecorder::end(std::uint64_t ticks) {
  put(entry(calls_.load(std::memory_order_relaxed)), offsetof(Record, ended), ticks);
}

void FlightRecorder::end_call(std::uint64_t call) {
  Entry& into = entry(call);
  if (into.call.load(std::memory_order_relaxed) == call) put(into, offsetof(Record, ended), read_ticks());
}

std::optional<FlightRecorder::Record> FlightRecorder::read(std::uint64_t call) const {
  const Entry& from = entries_[call % kCalls];
  if (from.call.load(std::memory_order_acquire) != call) return {};
  std::array<std::uint64_t, kWords> words;
  for (std::size_t i = 0; i < kWords; ++i) words[i] = from.words[i].load(std::memory_order_acquire);
  if (from.call.load(std::memory_order_relaxed) != call) return {};
  return std::bit_cast<Record>(words);
}

void FlightRecorder::read_all(std::vector<Record>& records) const {
  const std::uint64_t latest = calls_.load(std::memory_order_acquire);
  for (std::uint64_t call = latest - std::min(latest, kCalls) + 1; call <= latest; ++call) {
    if (const auto record = read(call)) records.push_back(*record);
  }
}

std::string FlightRecorder::json(int rank, int world_size, std::string_view failure,
                                 const FlightRecorder* messages) const {
  std::string out = fmt::format("{{\"rank\": {}, \"world_size\": {}, \"failure\": \"{}\", \"calls\": [", rank,
                                world_size, escaped(failure));
  const auto microseconds = scale_.to_microseconds();
  std::vector<Record> records;
  read_all(records);
  if (messages != nullptr) messages->read_all(records);
  std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.begun < b.begun; });
  const char* separator = "";
  for (const Record& record : records) {
    const Signature& s = record.signature;
    out += fmt::format(
        "{}\n  {{\"collective\": \"{}\", \"sequence\": {}, \"count\": {}, \"dtype\": \"{}\", \"reduce_op\": \"{}\", "
        "\"root\": {}, \"algorithm\": \"{}\", \"kernel\": \"{}\", \"begun_us\": {:.3f}, \"ended_us\": {}}}",
        separator, name_of(s.collective), s.sequence, s.count, name_of(s.dtype), name_of(s.op), s.root,
        record.algorithm, record.kernel, microseconds(record.begun),
        record.ended != 0 ? fmt::format("{:.3f}", microseconds(record.ended)) : "null");
    separator = ",";
  }
  return out + "\n]}\n";
}

}  // namespace rondo::comm
