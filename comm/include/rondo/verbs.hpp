// SPDX-License-Identifier: Apache-2.0
// The verbs, once: typed spans, any contiguous ranges, and untyped pointers all become a Call that Derived submits.
// Communicator runs it, Async starts it and returns a Work, Group keeps it until end().
// In place: all_reduce, reduce, broadcast always; all_gather when send is recv's own block; reduce_scatter when recv
// is send's own block; gather and scatter at the root likewise; the _v forms as these. all_to_all needs two buffers.
// Buffers that overlap in another way are refused.
// Where a verb only starts or records the call, a container that goes before the buffers are used does not compile:
// group.send(std::array{1}, 0). Views do, of memory that lasts.
#pragma once
#include <concepts>
#include <ranges>
#include <type_traits>

#include <rondo/collective.hpp>
#include <rondo/error.hpp>

namespace rondo {

template <class R>
concept ReadableRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R>;
template <class R>
concept WritableRange =
    ReadableRange<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// Of a verb that returns before it is through (`kept`): the range's memory is there afterwards.
template <class R, bool kept>
concept LastingRange = !kept || std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<R>;

namespace detail {
template <class R>
using Element = std::ranges::range_value_t<R>;
template <ReadableRange R>
std::span<const Element<R>> readable(const R& range) {
  return {std::ranges::data(range), std::ranges::size(range)};
}
template <WritableRange R>
std::span<Element<R>> writable(R&& range) {
  return {std::ranges::data(range), std::ranges::size(range)};
}
// One sentence when a span cannot hold what the collective moves; nothing has been communicated.
[[noreturn]] RONDO_API void throw_wrong_size(Collective collective, std::string_view buffer, std::size_t expected,
                                             std::size_t got);
inline void check_size(Collective collective, std::string_view buffer, std::size_t expected, std::size_t got) {
  if (expected != got) throw_wrong_size(collective, buffer, expected, got);
}
inline std::size_t total(std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}
}  // namespace detail

// The verbs. Counts and sizes are of elements; every buffer must stay as it is until the call is done (see Call). On
// the CPU a call returns when it is done, on a device when it is enqueued on `stream`. invalid_argument: sizes that do
// not fit, a rank that is none, buffers that overlap. What else can go wrong is said at Communicator.
template <class Derived, class Result, bool kKeepsBuffers = false>
class Verbs {
  template <class R>
  static constexpr bool lasts = LastingRange<R, kKeepsBuffers>;

 public:
  // Every rank gets op over all ranks' data, element by element.
  template <class T>
  Result all_reduce(std::span<T> data, ReduceOp op, Stream stream = {}) {
    return all_reduce(data.data(), data.data(), data.size(), data_type_of<T>, op, stream);
  }
  template <class T>
  Result all_reduce(std::span<const T> send, std::span<T> recv, ReduceOp op, Stream stream = {}) {
    detail::check_size(Collective::all_reduce, "recv", send.size(), recv.size());
    return all_reduce(send.data(), recv.data(), send.size(), data_type_of<T>, op, stream);
  }
  Result all_reduce(const void* send, void* recv, std::size_t count, DataType dtype, ReduceOp op, Stream stream = {}) {
    return submit({.collective = Collective::all_reduce,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .op = op,
                   .stream = stream});
  }

  // The root gets op over all ranks' data; recv is used at the root alone and may be empty elsewhere.
  template <class T>
  Result reduce(std::span<const T> send, std::span<T> recv, ReduceOp op, int root, Stream stream = {}) {
    if (self_rank() == root) detail::check_size(Collective::reduce, "recv", send.size(), recv.size());
    return reduce(send.data(), recv.data(), send.size(), data_type_of<T>, op, root, stream);
  }
  Result reduce(const void* send, void* recv, std::size_t count, DataType dtype, ReduceOp op, int root,
                Stream stream = {}) {
    return submit({.collective = Collective::reduce,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .op = op,
                   .root = root,
                   .stream = stream});
  }

  // Every rank gets the root's data.
  template <class T>
  Result broadcast(std::span<T> data, int root, Stream stream = {}) {
    return broadcast(data.data(), data.data(), data.size(), data_type_of<T>, root, stream);
  }
  Result broadcast(const void* send, void* recv, std::size_t count, DataType dtype, int root, Stream stream = {}) {
    return submit({.collective = Collective::broadcast,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .root = root,
                   .stream = stream});
  }

  // recv is the ranks' blocks in rank order: recv.size() == world_size * send.size().
  template <class T>
  Result all_gather(std::span<const T> send, std::span<T> recv, Stream stream = {}) {
    detail::check_size(Collective::all_gather, "recv", send.size() * self_world(), recv.size());
    return all_gather(send.data(), recv.data(), send.size(), data_type_of<T>, stream);
  }
  Result all_gather(const void* send, void* recv, std::size_t count, DataType dtype, Stream stream = {}) {
    return submit({.collective = Collective::all_gather,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .stream = stream});
  }

  // Rank r gets op over all ranks' block r: send.size() == world_size * recv.size(). Untyped: count of one block.
  template <class T>
  Result reduce_scatter(std::span<const T> send, std::span<T> recv, ReduceOp op, Stream stream = {}) {
    detail::check_size(Collective::reduce_scatter, "send", recv.size() * self_world(), send.size());
    return reduce_scatter(send.data(), recv.data(), recv.size(), data_type_of<T>, op, stream);
  }
  Result reduce_scatter(const void* send, void* recv, std::size_t count, DataType dtype, ReduceOp op,
                        Stream stream = {}) {
    return submit({.collective = Collective::reduce_scatter,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .op = op,
                   .stream = stream});
  }

  // Block i of send goes to rank i; block i of recv came from rank i. Untyped: count of one block.
  template <class T>
  Result all_to_all(std::span<const T> send, std::span<T> recv, Stream stream = {}) {
    detail::check_size(Collective::all_to_all, "recv", send.size(), recv.size());
    const std::size_t count = send.size() / self_world();
    detail::check_size(Collective::all_to_all, "send", count * self_world(), send.size());
    return all_to_all(send.data(), recv.data(), count, data_type_of<T>, stream);
  }
  Result all_to_all(const void* send, void* recv, std::size_t count, DataType dtype, Stream stream = {}) {
    return submit({.collective = Collective::all_to_all,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .stream = stream});
  }

  // The root gets the ranks' blocks in rank order; recv is used at the root alone.
  template <class T>
  Result gather(std::span<const T> send, std::span<T> recv, int root, Stream stream = {}) {
    if (self_rank() == root) detail::check_size(Collective::gather, "recv", send.size() * self_world(), recv.size());
    return gather(send.data(), recv.data(), send.size(), data_type_of<T>, root, stream);
  }
  Result gather(const void* send, void* recv, std::size_t count, DataType dtype, int root, Stream stream = {}) {
    return submit({.collective = Collective::gather,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .root = root,
                   .stream = stream});
  }

  // Rank r gets block r of the root's send; send is used at the root alone. Untyped: count of one block.
  template <class T>
  Result scatter(std::span<const T> send, std::span<T> recv, int root, Stream stream = {}) {
    if (self_rank() == root) detail::check_size(Collective::scatter, "send", recv.size() * self_world(), send.size());
    return scatter(send.data(), recv.data(), recv.size(), data_type_of<T>, root, stream);
  }
  Result scatter(const void* send, void* recv, std::size_t count, DataType dtype, int root, Stream stream = {}) {
    return submit({.collective = Collective::scatter,
                   .send = send,
                   .recv = recv,
                   .count = count,
                   .dtype = dtype,
                   .root = root,
                   .stream = stream});
  }

  // Blocks of counts[r] elements, packed in rank order; every rank passes the same counts.
  template <class T>
  Result all_gather_v(std::span<const T> send, std::span<T> recv, std::span<const std::size_t> counts,
                      Stream stream = {}) {
    detail::check_size(Collective::all_gather_v, "counts", self_world(), counts.size());
    detail::check_size(Collective::all_gather_v, "send", counts[static_cast<std::size_t>(self_rank())], send.size());
    detail::check_size(Collective::all_gather_v, "recv", detail::total(counts), recv.size());
    return all_gather_v(send.data(), recv.data(), counts, data_type_of<T>, stream);
  }
  Result all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DataType dtype,
                      Stream stream = {}) {
    return submit({.collective = Collective::all_gather_v,
                   .send = send,
                   .recv = recv,
                   .count = own(counts),
                   .dtype = dtype,
                   .recv_counts = counts,
                   .stream = stream});
  }

  // Every rank passes the same counts; recv is used at the root alone.
  template <class T>
  Result gather_v(std::span<const T> send, std::span<T> recv, std::span<const std::size_t> counts, int root,
                  Stream stream = {}) {
    detail::check_size(Collective::gather_v, "counts", self_world(), counts.size());
    detail::check_size(Collective::gather_v, "send", counts[static_cast<std::size_t>(self_rank())], send.size());
    if (self_rank() == root) detail::check_size(Collective::gather_v, "recv", detail::total(counts), recv.size());
    return gather_v(send.data(), recv.data(), counts, data_type_of<T>, root, stream);
  }
  Result gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DataType dtype, int root,
                  Stream stream = {}) {
    return submit({.collective = Collective::gather_v,
                   .send = send,
                   .recv = recv,
                   .count = own(counts),
                   .dtype = dtype,
                   .root = root,
                   .recv_counts = counts,
                   .stream = stream});
  }

  // Every rank passes the same counts; send is used at the root alone.
  template <class T>
  Result scatter_v(std::span<const T> send, std::span<T> recv, std::span<const std::size_t> counts, int root,
                   Stream stream = {}) {
    detail::check_size(Collective::scatter_v, "counts", self_world(), counts.size());
    detail::check_size(Collective::scatter_v, "recv", counts[static_cast<std::size_t>(self_rank())], recv.size());
    if (self_rank() == root) detail::check_size(Collective::scatter_v, "send", detail::total(counts), send.size());
    return scatter_v(send.data(), recv.data(), counts, data_type_of<T>, root, stream);
  }
  Result scatter_v(const void* send, void* recv, std::span<const std::size_t> counts, DataType dtype, int root,
                   Stream stream = {}) {
    return submit({.collective = Collective::scatter_v,
                   .send = send,
                   .recv = recv,
                   .count = own(counts),
                   .dtype = dtype,
                   .root = root,
                   .send_counts = counts,
                   .stream = stream});
  }

  // send_counts[i] elements go to rank i, recv_counts[i] come from rank i; both packed in rank order.
  template <class T>
  Result all_to_all_v(std::span<const T> send, std::span<const std::size_t> send_counts, std::span<T> recv,
                      std::span<const std::size_t> recv_counts, Stream stream = {}) {
    detail::check_size(Collective::all_to_all_v, "send_counts", self_world(), send_counts.size());
    detail::check_size(Collective::all_to_all_v, "recv_counts", self_world(), recv_counts.size());
    detail::check_size(Collective::all_to_all_v, "send", detail::total(send_counts), send.size());
    detail::check_size(Collective::all_to_all_v, "recv", detail::total(recv_counts), recv.size());
    return all_to_all_v(send.data(), send_counts, recv.data(), recv_counts, data_type_of<T>, stream);
  }
  Result all_to_all_v(const void* send, std::span<const std::size_t> send_counts, void* recv,
                      std::span<const std::size_t> recv_counts, DataType dtype, Stream stream = {}) {
    return submit({.collective = Collective::all_to_all_v,
                   .send = send,
                   .recv = recv,
                   .dtype = dtype,
                   .send_counts = send_counts,
                   .recv_counts = recv_counts,
                   .stream = stream});
  }

  // Point to point. A receive takes the first message of its peer and tag (0 where none is given) that no other has
  // taken, in the order sent; both ends give the same count and dtype. Messages wait for nothing but their other end:
  // not for one another, nor for collectives, nor these for them. A short message (up to half of RONDO_SLICE_BYTES, so
  // 64 KiB, or over a socket up to 256 KiB) may be done before its receive has been called; a longer one is done when
  // its bytes have been taken. What a rank sends itself is copied, whatever its length. From kAnySource: the first that
  // has come from any rank, this one included; `source`, which must live as the buffer does, gets that rank when the
  // receive is done. Devices know neither tags nor kAnySource: unsupported.
  template <class T>
  Result send(std::span<const T> data, int peer, Stream stream = {}) {
    return send(data.data(), data.size(), data_type_of<T>, peer, stream);
  }
  template <class T>
  Result send(std::span<const T> data, int peer, int tag, Stream stream = {}) {
    return send(data.data(), data.size(), data_type_of<T>, peer, tag, stream);
  }
  Result send(const void* data, std::size_t count, DataType dtype, int peer, Stream stream = {}) {
    return send(data, count, dtype, peer, 0, stream);
  }
  Result send(const void* data, std::size_t count, DataType dtype, int peer, int tag, Stream stream = {}) {
    return submit({.collective = Collective::send,
                   .send = data,
                   .count = count,
                   .dtype = dtype,
                   .root = peer,
                   .stream = stream,
                   .tag = tag});
  }
  template <class T>
  Result recv(std::span<T> data, int peer, Stream stream = {}) {
    return recv(data.data(), data.size(), data_type_of<T>, peer, stream);
  }
  template <class T>
  Result recv(std::span<T> data, int peer, int tag, Stream stream = {}) {
    return recv(data.data(), data.size(), data_type_of<T>, peer, tag, stream);
  }
  template <class T>
  Result recv(std::span<T> data, int peer, int tag, int* source, Stream stream = {}) {
    return recv(data.data(), data.size(), data_type_of<T>, peer, tag, source, stream);
  }
  Result recv(void* data, std::size_t count, DataType dtype, int peer, Stream stream = {}) {
    return recv(data, count, dtype, peer, 0, static_cast<int*>(nullptr), stream);
  }
  Result recv(void* data, std::size_t count, DataType dtype, int peer, int tag, Stream stream = {}) {
    return recv(data, count, dtype, peer, tag, static_cast<int*>(nullptr), stream);
  }
  // NOLINTNEXTLINE(readability-non-const-parameter): the call writes it
  Result recv(void* data, std::size_t count, DataType dtype, int peer, int tag, int* source, Stream stream = {}) {
    return submit({.collective = Collective::recv,
                   .recv = data,
                   .count = count,
                   .dtype = dtype,
                   .root = peer,
                   .stream = stream,
                   .tag = tag,
                   .source = source});
  }

  // No rank leaves before every rank has come.
  Result barrier(Stream stream = {}) { return submit({.collective = Collective::barrier, .stream = stream}); }

  // Any contiguous ranges: vectors, arrays, spans of non-const elements.
  template <WritableRange R>
  requires lasts<R> Result all_reduce(R&& data, ReduceOp op, Stream stream = {}) {
    return all_reduce(detail::writable(data), op, stream);
  }
  template <ReadableRange S, WritableRange R>
  requires(lasts<S>&& lasts<R>) Result all_reduce(S&& from, R&& to, ReduceOp op, Stream stream = {}) {
    return all_reduce(detail::readable(from), detail::writable(to), op, stream);
  }
  template <ReadableRange S, WritableRange R>
  requires(lasts<S>&& lasts<R>) Result reduce(S&& from, R&& to, ReduceOp op, int root, Stream stream = {}) {
    return reduce(detail::readable(from), detail::writable(to), op, root, stream);
  }
  template <WritableRange R>
  requires lasts<R> Result broadcast(R&& data, int root, Stream stream = {}) {
    return broadcast(detail::writable(data), root, stream);
  }
  template <ReadableRange S, WritableRange R>
  requires(lasts<S>&& lasts<R>) Result all_gather(S&& from, R&& to, Stream stream = {}) {
    return all_gather(detail::readable(from), detail::writable(to), stream);
  }
  template <ReadableRange S, WritableRange R>
  requires(lasts<S>&& lasts<R>) Result reduce_scatter(S&& from, R&& to, ReduceOp op, Stream stream = {}) {
    return reduce_scatter(detail::readable(from), detail::writable(to), op, stream);
  }
  template <ReadableRange S, WritableRange R>
  requires(lasts<S>&& lasts<R>) Result all_to_all(S&& from, R&& to, Stream stream = {}) {
    return all_to_all(detail::readable(from), detail::writable(to), stream);
  }
  template <ReadableRange S, WritableRange R>
  requires(lasts<S>&& lasts<R>) Result gather(S&& from, R&& to, int root, Stream stream = {}) {
    return gather(detail::readable(from), detail::writable(to), root, stream);
  }
  template <ReadableRange S, WritableRange R>
  requires(lasts<S>&& lasts<R>) Result scatter(S&& from, R&& to, int root, Stream stream = {}) {
    return scatter(detail::readable(from), detail::writable(to), root, stream);
  }
  template <ReadableRange S>
  requires lasts<S> Result send(S&& data, int peer, Stream stream = {}) {
    return send(detail::readable(data), peer, stream);
  }
  template <ReadableRange S>
  requires lasts<S> Result send(S&& data, int peer, int tag, Stream stream = {}) {
    return send(detail::readable(data), peer, tag, stream);
  }
  template <WritableRange R>
  requires lasts<R> Result recv(R&& data, int peer, Stream stream = {}) {
    return recv(detail::writable(data), peer, stream);
  }
  template <WritableRange R>
  requires lasts<R> Result recv(R&& data, int peer, int tag, Stream stream = {}) {
    return recv(detail::writable(data), peer, tag, stream);
  }
  template <WritableRange R>
  requires lasts<R> Result recv(R&& data, int peer, int tag, int* source, Stream stream = {}) {
    return recv(detail::writable(data), peer, tag, source, stream);
  }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
  Result submit(const Call& call) { return self().submit(call); }
  int self_rank() { return self().rank(); }
  std::size_t self_world() { return static_cast<std::size_t>(self().world_size()); }
  std::size_t own(std::span<const std::size_t> counts) {
    const auto rank = static_cast<std::size_t>(self_rank());
    return rank < counts.size() ? counts[rank] : 0;
  }
};

}  // namespace rondo
