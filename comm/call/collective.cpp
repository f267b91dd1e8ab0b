// SPDX-License-Identifier: Apache-2.0
#include <rondo/collective.hpp>

#include <fmt/format.h>

#include <rondo/verbs.hpp>

namespace rondo {
namespace {

double all(int) { return 1.0; }
double all_but_one(int n) { return static_cast<double>(n - 1) / n; }
double twice_all_but_one(int n) { return 2.0 * (n - 1) / n; }

using enum Extent;
constexpr bool kYes = true;
constexpr bool kNo = false;

// collective, name, send, recv, send at root only, recv at root only, rooted, reduces, busbw factor
constexpr std::array<CollectiveRow, kCollectiveCount> kTable{{
    {Collective::all_reduce, "all_reduce", one, one, kNo, kNo, kNo, kYes, twice_all_but_one},
    {Collective::reduce, "reduce", one, one, kNo, kYes, kYes, kYes, all},
    {Collective::broadcast, "broadcast", one, one, kYes, kNo, kYes, kNo, all},
    {Collective::all_gather, "all_gather", one, world, kNo, kNo, kNo, kNo, all_but_one},
    {Collective::reduce_scatter, "reduce_scatter", world, one, kNo, kNo, kNo, kYes, all_but_one},
    {Collective::all_to_all, "all_to_all", world, world, kNo, kNo, kNo, kNo, all_but_one},
    {Collective::gather, "gather", one, world, kNo, kYes, kYes, kNo, all_but_one},
    {Collective::scatter, "scatter", world, one, kYes, kNo, kYes, kNo, all_but_one},
    {Collective::all_gather_v, "all_gather_v", one, counts, kNo, kNo, kNo, kNo, all_but_one},
    {Collective::gather_v, "gather_v", one, counts, kNo, kYes, kYes, kNo, all_but_one},
    {Collective::scatter_v, "scatter_v", counts, one, kYes, kNo, kYes, kNo, all_but_one},
    {Collective::all_to_all_v, "all_to_all_v", counts, counts, kNo, kNo, kNo, kNo, all_but_one},
    {Collective::send, "send", one, none, kNo, kNo, kNo, kNo, all},
    {Collective::recv, "recv", none, one, kNo, kNo, kNo, kNo, all},
    {Collective::barrier, "barrier", none, none, kNo, kNo, kNo, kNo, all},
}};

consteval bool is_sound(std::span<const CollectiveRow> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::size_t>(rows[i].collective) != i) return false;
    if (rows[i].rooted != (rows[i].send_at_root || rows[i].recv_at_root)) return false;
  }
  return true;
}
static_assert(is_sound(kTable),
              "a row for each Collective, in its order; rooted is what a buffer at the root makes it");

}  // namespace

const std::array<CollectiveRow, kCollectiveCount>& collective_table() { return kTable; }

void detail::throw_no_collective(Collective c) {
  throw Error(ErrorCode::invalid_argument, fmt::format("collective {} is none of ours: they are 0 to {}",
                                                       static_cast<int>(c), kCollectiveCount - 1));
}

void detail::throw_wrong_size(Collective collective, std::string_view buffer, std::size_t expected, std::size_t got) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} has {} elements, expected {}", name_of(collective), buffer, got, expected));
}

}  // namespace rondo
