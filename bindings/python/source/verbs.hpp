// SPDX-License-Identifier: Apache-2.0
// The verbs, once for everything that can run a Request: blocking, within a time, started, recorded.
#pragma once
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "bindings/python/source/handle.hpp"

namespace rondo::python {

template <class Target>
auto run(Target& target, const Arguments& arguments) {
  give_back_borrowed();
  return target.run(make_request(arguments, target.handle->place()));
}

// One buffer is in place; `into` of another is where the result goes.
inline nb::object or_in_place(const nb::object& data, const nb::object& into) { return into.is_none() ? data : into; }

template <class Target>
void bind_reductions(nb::class_<Target>& cls) {
  using nb::arg;
  using Object = nb::object;
  cls.def(
         "all_reduce",
         [](Target& self, Object data, const Object& op, const Object& into, std::uintptr_t stream) {
           return run(self, {.collective = Collective::all_reduce,
                             .send = data,
                             .recv = or_in_place(data, into),
                             .op = reduce_op_of(op),
                             .stream = stream});
         },
         arg("data"), arg("op") = "sum", nb::kw_only(), arg("into") = nb::none(), arg("stream") = 0,
         "Every rank gets op over all ranks' data, element by element: in `data` itself, or in `into`.")
      .def(
          "reduce",
          [](Target& self, Object data, const Object& op, int root, const Object& into, std::uintptr_t stream) {
            return run(self, {.collective = Collective::reduce,
                              .send = data,
                              .recv = or_in_place(data, into),
                              .op = reduce_op_of(op),
                              .root = root,
                              .stream = stream});
          },
          arg("data"), arg("op") = "sum", arg("root") = 0, nb::kw_only(), arg("into") = nb::none(), arg("stream") = 0,
          "The root gets op over all ranks' data: in `data` itself, or in `into`.")
      .def(
          "reduce_scatter",
          [](Target& self, Object send, Object recv, const Object& op, std::uintptr_t stream) {
            return run(self, {.collective = Collective::reduce_scatter,
                              .send = send,
                              .recv = recv,
                              .op = reduce_op_of(op),
                              .stream = stream});
          },
          arg("send"), arg("recv"), arg("op") = "sum", nb::kw_only(), arg("stream") = 0,
          "Rank r gets op over all ranks' block r: `send` is world_size times as long as `recv`.");
}

template <class Target>
void bind_moves(nb::class_<Target>& cls) {
  using nb::arg;
  using Object = nb::object;
  cls.def(
         "broadcast",
         [](Target& self, Object data, int root, std::uintptr_t stream) {
           return run(
               self, {.collective = Collective::broadcast, .send = data, .recv = data, .root = root, .stream = stream});
         },
         arg("data"), arg("root") = 0, nb::kw_only(), arg("stream") = 0, "Every rank gets the root's data.")
      .def(
          "all_gather",
          [](Target& self, Object send, Object recv, std::uintptr_t stream) {
            return run(self, {.collective = Collective::all_gather, .send = send, .recv = recv, .stream = stream});
          },
          arg("send"), arg("recv"), nb::kw_only(), arg("stream") = 0,
          "`recv` gets the ranks' blocks in rank order: it is world_size times as long as `send`.")
      .def(
          "all_to_all",
          [](Target& self, Object send, Object recv, std::uintptr_t stream) {
            return run(self, {.collective = Collective::all_to_all, .send = send, .recv = recv, .stream = stream});
          },
          arg("send"), arg("recv"), nb::kw_only(), arg("stream") = 0,
          "Block i of `send` goes to rank i; block i of `recv` came from rank i.")
      .def(
          "gather",
          [](Target& self, Object send, Object recv, int root, std::uintptr_t stream) {
            return run(self,
                       {.collective = Collective::gather, .send = send, .recv = recv, .root = root, .stream = stream});
          },
          arg("send"), arg("recv") = nb::none(), arg("root") = 0, nb::kw_only(), arg("stream") = 0,
          "The root gets the ranks' blocks in rank order; others pass no `recv`.")
      .def(
          "scatter",
          [](Target& self, Object send, Object recv, int root, std::uintptr_t stream) {
            return run(self,
                       {.collective = Collective::scatter, .send = send, .recv = recv, .root = root, .stream = stream});
          },
          arg("send").none(), arg("recv"), arg("root") = 0, nb::kw_only(), arg("stream") = 0,
          "Rank r gets block r of the root's `send`; others pass None.");
}

template <class Target>
void bind_counted(nb::class_<Target>& cls) {
  using nb::arg;
  using Object = nb::object;
  using Numbers = std::vector<std::size_t>;
  cls.def(
         "all_gather_v",
         [](Target& self, Object send, Object recv, Numbers counts, std::uintptr_t stream) {
           return run(self, {.collective = Collective::all_gather_v,
                             .send = send,
                             .recv = recv,
                             .recv_counts = std::move(counts),
                             .stream = stream});
         },
         arg("send"), arg("recv"), arg("counts"), nb::kw_only(), arg("stream") = 0,
         "Blocks of counts[r] elements, packed in rank order; every rank passes the same counts.")
      .def(
          "gather_v",
          [](Target& self, Object send, Object recv, Numbers counts, int root, std::uintptr_t stream) {
            return run(self, {.collective = Collective::gather_v,
                              .send = send,
                              .recv = recv,
                              .recv_counts = std::move(counts),
                              .root = root,
                              .stream = stream});
          },
          arg("send"), arg("recv").none(), arg("counts"), arg("root") = 0, nb::kw_only(), arg("stream") = 0,
          "gather of blocks of counts[r] elements; every rank passes the same counts.")
      .def(
          "scatter_v",
          [](Target& self, Object send, Object recv, Numbers counts, int root, std::uintptr_t stream) {
            return run(self, {.collective = Collective::scatter_v,
                              .send = send,
                              .recv = recv,
                              .send_counts = std::move(counts),
                              .root = root,
                              .stream = stream});
          },
          arg("send").none(), arg("recv"), arg("counts"), arg("root") = 0, nb::kw_only(), arg("stream") = 0,
          "scatter of blocks of counts[r] elements; every rank passes the same counts.")
      .def(
          "all_to_all_v",
          [](Target& self, Object send, Numbers send_counts, Object recv, Numbers recv_counts, std::uintptr_t stream) {
            return run(self, {.collective = Collective::all_to_all_v,
                              .send = send,
                              .recv = recv,
                              .send_counts = std::move(send_counts),
                              .recv_counts = std::move(recv_counts),
                              .stream = stream});
          },
          arg("send"), arg("send_counts"), arg("recv"), arg("recv_counts"), nb::kw_only(), arg("stream") = 0,
          "send_counts[i] elements go to rank i, recv_counts[i] come from rank i; both packed in rank order.");
}

// A receive that is over returns the rank that it was from.
template <class Target>
auto run_receive(Target& target, const Arguments& arguments) {
  if constexpr (Target::kReturnsWhenDone) {
    give_back_borrowed();
    const Request request = make_request(arguments, target.handle->place());
    target.run(request);
    return request.borrowed->source;
  } else {
    return run(target, arguments);
  }
}

template <class Target>
void bind_messages(nb::class_<Target>& cls) {
  using nb::arg;
  using Object = nb::object;
  cls.def(
         "send",
         [](Target& self, Object data, int peer, int tag, std::uintptr_t stream) {
           return run(self, {.collective = Collective::send, .send = data, .root = peer, .tag = tag, .stream = stream});
         },
         arg("data"), arg("peer"), arg("tag") = 0, nb::kw_only(), arg("stream") = 0,
         "To one rank, whose recv gives the same tag, count and type; messages of one tag arrive in order.")
      .def(
          "recv",
          [](Target& self, Object data, int peer, int tag, std::uintptr_t stream) {
            return run_receive(
                self, {.collective = Collective::recv, .recv = data, .root = peer, .tag = tag, .stream = stream});
          },
          arg("data"), arg("peer") = kAnySource, arg("tag") = 0, nb::kw_only(), arg("stream") = 0,
          "From one rank, or from whoever has sent, into `data`; returns the rank that it was from.")
      .def(
          "barrier",
          [](Target& self, std::uintptr_t stream) {
            return run(self, {.collective = Collective::barrier, .stream = stream});
          },
          nb::kw_only(), arg("stream") = 0, "No rank leaves before every rank has come.");
}

template <class Target>
void bind_verbs(nb::class_<Target>& cls) {
  bind_reductions(cls);
  bind_moves(cls);
  bind_counted(cls);
  bind_messages(cls);
}

}  // namespace rondo::python
