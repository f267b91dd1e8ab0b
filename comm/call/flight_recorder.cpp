// SPDX-License-Identifier: Apache-2.0
#include "comm/call/flight_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace rondo::comm {

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

std::string FlightRecorder::json(const FlightRecorder* messages) const {
  const auto microseconds = scale_.to_microseconds();
  std::vector<Record> records;
  read_all(records);
  if (messages != nullptr) messages->read_all(records);
  std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.begun < b.begun; });
  std::string out = "[";
  const char* separator = "";
  for (const Record& record : records) {
    out += fmt::format(
        "{}\n  {{{}, \"algorithm\": \"{}\", \"kernel\": \"{}\", \"begun_us\": {:.3f}, \"ended_us\": {}}}", separator,
        json_fields(record.signature), record.algorithm, record.kernel, microseconds(record.begun),
        record.ended != 0 ? fmt::format("{:.3f}", microseconds(record.ended)) : "null");
    separator = ",";
  }
  return out + "\n]";
}

std::string json_fields(const Signature& s) {
  return fmt::format(
      "\"collective\": \"{}\", \"sequence\": {}, \"count\": {}, \"dtype\": \"{}\", \"reduce_op\": \"{}\", "
      "\"root\": {}, \"on_device\": {}",
      name_of(s.collective), s.sequence, s.count, name_of(s.dtype), name_of(s.op), s.root, s.on_device != 0);
}

}  // namespace rondo::comm
