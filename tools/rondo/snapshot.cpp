// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/snapshot.hpp"

#include <fmt/format.h>

#include <charconv>
#include <random>
#include <stdexcept>
#include <utility>

namespace rondo::records {
namespace {

constexpr std::size_t kMostSnapshotBytes = std::size_t{256} << 20, kMostHeader = 64;
constexpr std::string_view kJobName = "job", kEndName = "end";

std::string part(std::string_view name, std::string_view document) {
  return fmt::format("{} {}\n{}", name, document.size(), document);
}

[[noreturn]] void refuse() { throw std::runtime_error("what answers is no rondorun, or one of another version"); }

std::size_t number_in(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > kMostSnapshotBytes) refuse();
  return value;
}

}  // namespace

std::string socket_prefix(uid_t user) { return fmt::format("rondorun/{}/", user); }

std::string new_socket_name(uid_t user, pid_t launcher) {
  std::random_device random;
  return fmt::format("{}{}/{:08x}{:08x}", socket_prefix(user), launcher, random(), random());
}

std::string encode(const Snapshot& snapshot) {
  std::string out = part(kJobName, snapshot.job);
  for (const auto& [rank, record] : snapshot.records) out += part(std::to_string(rank), record);
  return out + part(kEndName, "");
}

void SnapshotReader::take(std::string_view bytes) {
  bytes_.append(bytes);
  if (bytes_.size() > kMostSnapshotBytes) throw std::runtime_error("the launcher says more than any job has to say");
}

std::optional<Snapshot> SnapshotReader::next() {
  for (;;) {
    const auto line_end = bytes_.find('\n', at_);
    if (line_end == std::string::npos && bytes_.size() - at_ < kMostHeader) return {};
    const std::string_view header = std::string_view(bytes_).substr(at_, line_end - at_);
    const auto blank = header.find(' ');
    if (line_end == std::string::npos || blank == std::string_view::npos) refuse();
    const std::string_view name = header.substr(0, blank);
    const std::size_t size = number_in(header.substr(blank + 1));
    if (bytes_.size() - line_end - 1 < size) return {};
    if (name == kEndName && size == 0) {
      bytes_.erase(0, line_end + 1);
      at_ = 0;
      return std::exchange(snapshot_, {});
    }
    const std::string document = bytes_.substr(line_end + 1, size);
    if (name == kJobName)
      snapshot_.job = document;
    else
      snapshot_.records[static_cast<int>(number_in(name))] = document;
    at_ = line_end + 1 + size;
  }
}

}  // namespace rondo::records
