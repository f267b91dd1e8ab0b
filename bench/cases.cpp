// SPDX-License-Identifier: Apache-2.0
#include "bench/cases.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace rondo::bench {
namespace {

std::size_t extent(Extent e, std::size_t count, int world_size) {
  if (e == Extent::world) return count * static_cast<std::size_t>(world_size);
  return e == Extent::one ? count : 0;
}

bool has_blocks(const CollectiveRow& row) { return row.send == Extent::world || row.recv == Extent::world; }

// Elements that an in-place call does not write, because they are where they belong: a block or the whole of whoever
// has both buffers. Nor does it read them, unless others need them.
Traffic elements_in_place(const Cell& c) {
  const CollectiveRow& row = c.row();
  if (row.reduces || row.send == Extent::none || row.has_block_per_pair()) return {};
  const auto stay = static_cast<double>(c.count) * (row.rooted ? 1 : c.world_size);
  const bool others_need_them = row.send == Extent::one && !row.recv_at_root;
  return {.read = others_need_them ? 0 : stay, .written = stay};
}

}  // namespace

const Case& find_case(std::string_view program) {
  const auto found = std::find_if(kCases.begin(), kCases.end(), [&](const Case& c) { return c.program == program; });
  if (found == kCases.end()) throw std::out_of_range("no case " + std::string(program));
  return *found;
}

std::size_t Cell::send_count() const { return extent(row().send, count, world_size); }
std::size_t Cell::recv_count() const { return row().is_message() ? count : extent(row().recv, count, world_size); }
std::size_t Cell::bytes() const { return std::max(send_count(), recv_count()) * size_of(dtype); }
bool Cell::has_input() const { return !row().send_at_root || rank == root; }
bool Cell::has_output() const { return !row().recv_at_root || rank == root; }

std::size_t Cell::in_place_offset(bool send_in_recv) const {
  const bool block_of_send = row().send == Extent::world && row().recv == Extent::one;
  const bool block_of_recv = row().recv == Extent::world && row().send == Extent::one;
  const bool whole_here = block_of_send ? has_input() : has_output();
  if (!(send_in_recv ? block_of_recv : block_of_send) || !whole_here) return 0;
  return static_cast<std::size_t>(rank) * count;
}

std::size_t count_for(const Case& what, std::size_t bytes, DataType dtype, int world_size) {
  const std::size_t elements = bytes / size_of(dtype);
  return has_blocks(row_of(what.collective)) ? elements / static_cast<std::size_t>(world_size) : elements;
}

Traffic traffic_of(const Cell& c, bool in_place, bool ring) {
  const auto width = static_cast<double>(size_of(c.dtype));
  // Per chunk: the first send reads and writes 2, n - 2 reducing hops read 2 and write 1, ... ; 6n - 4 in all.
  if (ring && c.what->collective == Collective::all_reduce) {
    const double bytes = (6.0 * c.world_size - 4) * static_cast<double>(c.count) * width;
    return {.read = bytes / 2, .written = bytes / 2};
  }
  const double senders = c.row().send_at_root ? 1 : c.world_size;
  const double receivers = c.row().recv_at_root ? 1 : c.world_size;
  const Traffic left = in_place ? elements_in_place(c) : Traffic{};
  return {.read = (senders * static_cast<double>(c.send_count()) - left.read) * width,
          .written = (receivers * static_cast<double>(c.recv_count()) - left.written) * width};
}

double least_us(const Traffic& traffic, const MemoryRates& rates) {
  const auto us = [](double bytes, double gbps) { return gbps > 0 ? bytes / gbps / 1e3 : 0; };
  return std::max({us(traffic.bytes(), rates.copy), us(traffic.read, rates.load), us(traffic.written, rates.store)});
}

std::vector<Stretch> expected_output(const Cell& c, std::uint32_t seed) {
  if (!c.has_output()) return {};
  const CollectiveRow& row = c.row();
  if (row.send == Extent::counts || row.recv == Extent::counts) {
    throw std::logic_error("no program measures " + std::string(row.name));
  }
  const std::size_t first = row.send == Extent::world ? static_cast<std::size_t>(c.rank) * c.count : 0;
  const auto one = [&](int rank) { return std::vector<Stretch>{{0, c.count, {rank, first, seed}}}; };
  if (row.is_message()) return one((c.rank + c.world_size - 1) % c.world_size);
  if (row.reduces) return one(-1);
  if (row.send_at_root) return one(c.root);
  std::vector<Stretch> all;
  for (int r = 0; row.recv == Extent::world && r < c.world_size; ++r) {
    all.push_back({static_cast<std::size_t>(r) * c.count, c.count, {r, first, seed}});
  }
  return all;
}

}  // namespace rondo::bench
