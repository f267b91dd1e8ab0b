// SPDX-License-Identifier: Apache-2.0
#include "comm/flight_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::comm {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}
double microseconds(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::micro>(t.time_since_epoch()).count();
}

}  // namespace

void FlightRecorder::begin(const Signature& signature, std::string_view algorithm) {
  const std::lock_guard lock(mutex_);
  entries_[calls_++ % kCalls] = {signature, algorithm, std::chrono::steady_clock::now(), {}, false};
}

void FlightRecorder::end() {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[(calls_ - 1) % kCalls];
  entry.ended = std::chrono::steady_clock::now();
  entry.done = true;
}

std::string FlightRecorder::json(int rank, int world_size, std::string_view failure) const {
  const std::lock_guard lock(mutex_);
  std::string out = fmt::format("{{\"rank\": {}, \"world_size\": {}, \"failure\": \"{}\", \"calls\": [", rank,
                                world_size, escaped(failure));
  for (std::uint64_t i = calls_ - std::min<std::uint64_t>(calls_, kCalls); i < calls_; ++i) {
    const Entry& e = entries_[i % kCalls];
    const Signature& s = e.signature;
    out += fmt::format(
        "{}\n  {{\"collective\": \"{}\", \"sequence\": {}, \"count\": {}, \"dtype\": \"{}\", \"reduce_op\": \"{}\", "
        "\"root\": {}, \"algorithm\": \"{}\", \"begun_us\": {:.3f}, \"ended_us\": {}}}",
        i + std::min<std::uint64_t>(calls_, kCalls) == calls_ ? "" : ",", name_of(s.collective), s.sequence, s.count,
        name_of(s.dtype), name_of(s.op), s.root, e.algorithm, microseconds(e.begun),
        e.done ? fmt::format("{:.3f}", microseconds(e.ended)) : "null");
  }
  return out + "\n]}\n";
}

}  // namespace rondo::comm
