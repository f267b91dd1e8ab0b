// SPDX-License-Identifier: Apache-2.0
#include "comm/call/signature.hpp"

#include <fmt/format.h>

#include <numeric>

namespace rondo::comm {
namespace {

std::uint64_t hash_of(std::span<const std::size_t> counts) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::size_t count : counts) hash = (hash ^ count) * 0x100000001b3;
  return hash;
}

}  // namespace

Signature signature_of(const Call& call) {
  const CollectiveRow& row = row_of(call.collective);
  Signature s{.count = call.count, .collective = call.collective, .dtype = call.dtype};
  if (row.reduces) s.op = call.op;
  if (row.rooted) s.root = call.root;
  if (row.has_common_counts()) {
    const auto counts = row.send == Extent::counts ? call.send_counts : call.recv_counts;
    s.count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    s.shape = hash_of(counts);
  }
  return s;
}

Signature signature_of_message(const Call& call) {
  return {.count = call.count, .collective = Collective::send, .dtype = call.dtype};
}

std::uint64_t hash_of(const Signature& s) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t hash = s.count * kOdd ^ kind_of(s);
  for (const std::uint64_t word : {s.shape, std::uint64_t{1}}) hash = ((hash ^ hash >> 29) + word) * kOdd;
  return hash ^ hash >> 32;
}

namespace {

// ", tag 5" of a message that has one. Those of devices have none, not even 0.
std::string tag_of(const Signature& s) {
  const bool tagged = is_message(s) && s.root != 0 && s.root != -1;
  return tagged ? fmt::format(", tag {}", s.root) : "";
}

}  // namespace

std::string describe(const Signature& s) {
  if (s.sequence == 0) return "nothing yet";
  if (static_cast<int>(s.collective) >= kCollectiveCount)
    return fmt::format("{} #{}", name_of(s.collective), s.sequence);
  const CollectiveRow& row = row_of(s.collective);
  std::string text = fmt::format("{} #{}", row.name, s.sequence);
  if (row.send != Extent::none || row.recv != Extent::none) {
    text += fmt::format(" of {} {}", s.count, name_of(s.dtype));
  }
  if (row.reduces) text += fmt::format(", {}", name_of(s.op));
  if (row.rooted) text += fmt::format(", root {}", s.root);
  return text + tag_of(s);
}

std::string compare(int rank, const Signature& mine, int peer, const Signature& theirs) {
  const auto differ = [&](std::string_view field, const auto& a, const auto& b) {
    return fmt::format("rank {} and rank {} disagree on the {} of {} #{}{}: {} against {}", rank, peer, field,
                       name_of(mine.collective), mine.sequence, tag_of(mine), a, b);
  };
  if (mine.collective != theirs.collective || mine.sequence != theirs.sequence) {
    return fmt::format("rank {} called {} where rank {} called {}", rank, describe(mine), peer, describe(theirs));
  }
  if (mine.dtype != theirs.dtype) return differ("dtype", name_of(mine.dtype), name_of(theirs.dtype));
  if (mine.op != theirs.op) return differ("reduce_op", name_of(mine.op), name_of(theirs.op));
  if (mine.root != theirs.root) return differ("root", mine.root, theirs.root);
  if (mine.count != theirs.count) return differ("count", mine.count, theirs.count);
  if (mine.shape != theirs.shape) return differ("counts", "one list", "another");
  return {};
}

}  // namespace rondo::comm
