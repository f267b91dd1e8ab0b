// SPDX-License-Identifier: Apache-2.0
// Values of any type that Serial knows, from one rank to all, from all to one, dealt out, and between two. Each call
// blocks, on host memory; all but send_value and recv_value work with a communicator on a device too.
#pragma once
#include <string>
#include <vector>

#include <rondo/trainer/gather.hpp>

namespace rondo::trainer {

namespace detail {
inline void check_rank(const Communicator& communicator, const char* what, int rank) {
  if (rank >= 0 && rank < communicator.world_size()) return;
  throw Error(ErrorCode::invalid_argument, std::string(what) + ": there is no rank " + std::to_string(rank) +
                                               " in a world of " + std::to_string(communicator.world_size()));
}
inline bool on_cpu(const Communicator& communicator) { return communicator.device().kind == Device::Kind::cpu; }
inline std::vector<std::span<const std::byte>> cut(std::span<const std::byte> bytes,
                                                   const std::vector<std::size_t>& counts) {
  std::vector<std::span<const std::byte>> parts;
  for (const std::size_t count : counts) parts.push_back(read_bytes(bytes, count));
  return parts;
}
inline void check_peer(const Communicator& communicator, const char* what, int peer) {
  check_rank(communicator, what, peer);
  if (on_cpu(communicator)) return;
  throw Error(ErrorCode::unsupported, std::string(what) +
                                          ": this communicator is on a device, and the bytes of values "
                                          "lie in host memory; make one with Device::cpu() for them");
}
}  // namespace detail

// Collective: the root's value, on every rank. What the others pass is not looked at, but is of the same type.
// Error(mismatch) where it is not, Error(invalid_argument) for a root outside the world.
template <class T>
T broadcast_value(Communicator& communicator, const T& value, int root) {
  detail::check_rank(communicator, "broadcast_value", root);
  const auto mine = communicator.rank() == root ? detail::packed(value) : std::vector<std::byte>();
  return detail::unpacked<T>(communicator.all_gather_bytes(mine)[static_cast<std::size_t>(root)], root);
}

// Collective: every rank's value, in rank order, at the root; nothing elsewhere.
template <class T>
std::vector<T> gather_value(Communicator& communicator, const T& value, int root) {
  detail::check_rank(communicator, "gather_value", root);
  const auto mine = detail::packed(value);
  std::vector<T> all;
  const auto take = [&](std::span<const std::byte> bytes) {
    all.push_back(detail::unpacked<T>(bytes, static_cast<int>(all.size())));
  };
  if (!detail::on_cpu(communicator)) {
    const auto parts = communicator.all_gather_bytes(mine);
    if (communicator.rank() == root) {
      for (const auto& part : parts) take(part);
    }
    return all;
  }
  const auto counts = all_gather_value<std::size_t>(communicator, mine.size());
  std::vector<std::byte> bytes(communicator.rank() == root ? rondo::detail::total(counts) : 0);
  communicator.gather_v(mine.data(), bytes.data(), counts, DataType::u8, root);
  if (communicator.rank() != root) return all;
  for (const auto part : detail::cut(bytes, counts)) take(part);
  return all;
}

// Collective: the root has one value for each rank, in rank order, and each rank gets its own. Elsewhere `values` is
// not looked at. Error(invalid_argument) on every rank when the root has another number of them.
template <class T>
T scatter_value(Communicator& communicator, const std::vector<T>& values, int root) {
  detail::check_rank(communicator, "scatter_value", root);
  std::vector<std::byte> bytes;
  std::vector<std::size_t> counts;
  if (communicator.rank() == root) {
    for (const T& value : values) {
      const auto one = detail::packed(value);
      counts.push_back(one.size());
      detail::write_bytes(bytes, one);
    }
  }
  counts = broadcast_value(communicator, counts, root);
  if (counts.size() != static_cast<std::size_t>(communicator.world_size())) {
    throw Error(ErrorCode::invalid_argument, "scatter_value: rank " + std::to_string(root) + " has " +
                                                 std::to_string(counts.size()) + " values for " +
                                                 std::to_string(communicator.world_size()) + " ranks");
  }
  const auto me = static_cast<std::size_t>(communicator.rank());
  if (!detail::on_cpu(communicator)) {
    const auto all = communicator.all_gather_bytes(bytes)[static_cast<std::size_t>(root)];
    return detail::unpacked<T>(detail::cut(all, counts)[me], root);
  }
  std::vector<std::byte> mine(counts[me]);
  communicator.scatter_v(bytes.data(), mine.data(), counts, DataType::u8, root);
  return detail::unpacked<T>(mine, root);
}

// To one rank, which calls recv_value for it with the same type; several to one rank come in the order of the calls.
// Error(unsupported) where the communicator is on a device.
template <class T>
void send_value(Communicator& communicator, const T& value, int peer) {
  detail::check_peer(communicator, "send_value", peer);
  const auto bytes = detail::packed(value);
  const std::uint64_t count = bytes.size();
  communicator.send(&count, 1, DataType::u64, peer);
  communicator.send(bytes.data(), bytes.size(), DataType::u8, peer);
}
template <class T>
T recv_value(Communicator& communicator, int peer) {
  detail::check_peer(communicator, "recv_value", peer);
  std::uint64_t count = 0;
  communicator.recv(&count, 1, DataType::u64, peer);
  std::vector<std::byte> bytes(count);
  communicator.recv(bytes.data(), bytes.size(), DataType::u8, peer);
  return detail::unpacked<T>(bytes, peer);
}

}  // namespace rondo::trainer
