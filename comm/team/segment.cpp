// SPDX-License-Identifier: Apache-2.0
#include "comm/team/segment.hpp"

#include <algorithm>

namespace rondo::comm {
namespace {

constexpr std::size_t kPage = 4096;
std::size_t arrivals_offset(int local_size) {
  return sizeof(FailureRecord) + static_cast<std::size_t>(local_size) * sizeof(RankLine);
}
std::size_t progress_offset(int local_size) {
  return arrivals_offset(local_size) + 2 * static_cast<std::size_t>(local_size) * sizeof(Arrival);
}
std::size_t distances_offset(int local_size) {
  return progress_offset(local_size) + static_cast<std::size_t>(local_size) * sizeof(ProgressLine);
}
std::size_t claims_offset(int local_size) {
  return distances_offset(local_size) + static_cast<std::size_t>(local_size) * sizeof(DistanceLine);
}
std::size_t rings_offset(int local_size) {
  const std::size_t offset = claims_offset(local_size) + sizeof(ClaimLines);
  return (offset + kPage - 1) / kPage * kPage;
}
std::size_t fifos_offset(int local_size, FifoShape shape) {
  return rings_offset(local_size) + static_cast<std::size_t>(local_size) * shape.ring_bytes;
}
std::size_t slot_bytes(FifoShape shape) { return kLine + shape.slice_bytes; }
std::size_t fifo_bytes(FifoShape shape) { return sizeof(Fifo) + shape.slots * slot_bytes(shape); }

}  // namespace

Segment::Segment(std::byte* base, int local_size, FifoShape shape)
    : base_(base),
      local_size_(local_size),
      shape_(shape),
      lane_shape_(shape),
      first_fifo_(fifos_offset(local_size, shape)) {}

// All slots together are larger than a core's cache: in half as many, which a writer finds in its reader's cache, a
// message of 1 MiB took twice as long.
FifoShape shape_of_messages(FifoShape of_collectives) {
  constexpr std::uint64_t kSlots = 16, kPart = 2, kLeastSlice = 256, kUnit = 64;
  const std::uint64_t slice = std::max(of_collectives.slice_bytes / kPart, kLeastSlice);
  return {.slots = kSlots, .slice_bytes = (slice + kUnit - 1) / kUnit * kUnit, .ring_bytes = of_collectives.ring_bytes};
}

std::size_t Segment::bytes_without_messages(int local_size, FifoShape shape) {
  const auto n = static_cast<std::size_t>(local_size);
  return fifos_offset(local_size, shape) + n * n * fifo_bytes(shape);
}
std::size_t Segment::bytes(int local_size, FifoShape shape) {
  const auto n = static_cast<std::size_t>(local_size);
  return bytes_without_messages(local_size, shape) + n * n * fifo_bytes(shape_of_messages(shape));
}
Segment Segment::of_messages() const {
  Segment other = *this;
  other.lane_shape_ = shape_of_messages(shape_);
  other.first_fifo_ = bytes_without_messages(local_size_, shape_);
  return other;
}

Arrival& Segment::arrival(int local_rank, std::uint64_t meeting) const {
  return reinterpret_cast<Arrival*>(
      base_ + arrivals_offset(local_size_))[2 * static_cast<std::uint64_t>(local_rank) + (meeting & 1)];
}
ProgressLine& Segment::progress(int local_rank) const {
  return reinterpret_cast<ProgressLine*>(base_ + progress_offset(local_size_))[local_rank];
}
DistanceLine& Segment::distance(int local_rank) const {
  return reinterpret_cast<DistanceLine*>(base_ + distances_offset(local_size_))[local_rank];
}
ClaimLines& Segment::claims() const { return *reinterpret_cast<ClaimLines*>(base_ + claims_offset(local_size_)); }
std::byte* Segment::ring(int local_rank) const {
  return base_ + rings_offset(local_size_) + static_cast<std::size_t>(local_rank) * shape_.ring_bytes;
}
std::size_t Segment::fifo_offset(int from, int to) const {
  const auto index =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(local_size_) + static_cast<std::size_t>(to);
  return first_fifo_ + index * fifo_bytes(lane_shape_);
}
Fifo& Segment::fifo(int from, int to) const { return *reinterpret_cast<Fifo*>(base_ + fifo_offset(from, to)); }
std::byte* Segment::slot(int from, int to, std::uint64_t step) const {
  return base_ + fifo_offset(from, to) + sizeof(Fifo) + (step % lane_shape_.slots) * slot_bytes(lane_shape_);
}

bool read_history(const CallHistory& history, std::uint64_t sequence, Signature& out) {
  const HistoryEntry& entry = history.entries[sequence % kHistory];
  if (entry.sequence.load(std::memory_order_acquire) != sequence) return false;
  const std::uint64_t count = entry.count.load(std::memory_order_acquire);
  const std::uint64_t kind = entry.kind.load(std::memory_order_acquire);
  const std::uint64_t shape = entry.shape.load(std::memory_order_acquire);
  if (entry.sequence.load(std::memory_order_relaxed) != sequence) return false;
  out.sequence = sequence;
  out.count = count;
  out.shape = shape;
  out.collective = static_cast<Collective>(kind & 0xff);
  out.dtype = static_cast<DataType>(kind >> 8 & 0xff);
  out.op = static_cast<ReduceOp::Kind>(kind >> 16 & 0xff);
  out.root = static_cast<std::int32_t>(kind >> 32);
  return true;
}

}  // namespace rondo::comm
