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
    // No line that is longer, whether its end is there or not: how much comes at once is not the launcher's doing.
    const std::string_view header = std::string_view(bytes_).substr(at_, kMostHeader);
    const auto length = header.find('\n'), blank = header.find(' ');
    if (length == std::string_view::npos && header.size() < kMostHeader) return {};
    if (length == std::string_view::npos || blank > length) refuse();
    const std::string_view name = header.substr(0, blank);
    const std::size_t begin = at_ + length + 1, size = number_in(header.substr(blank + 1, length - blank - 1));
    if (name == kEndName && size == 0) {
      bytes_.erase(0, begin);
      at_ = 0;
      return std::exchange(snapshot_, {});
    }
    std::string& document = name == kJobName ? snapshot_.job : snapshot_.records[static_cast<int>(number_in(name))];
    if (bytes_.size() - begin < size) return {};
    document = bytes_.substr(begin, size);
    at_ = begin + size;
  }
}

}  // namespace rondo::records
