// SPDX-License-Identifier: Apache-2.0
// Communicator and its other ways to call: async_(), within(), group().
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <charconv>
#include <string>

#include "bindings/python/source/interrupt.hpp"
#include "bindings/python/source/verbs.hpp"

namespace rondo::python {
namespace {

Device device_of(const std::string& name) {
  const auto colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  int index = -1;
  bool numbered = true;
  if (colon != std::string::npos) {
    const char* last = name.data() + name.size();
    const auto [end, status] = std::from_chars(name.data() + colon + 1, last, index);
    numbered = status == std::errc() && end == last && index >= 0;
  }
  if (kind == "cpu" && colon == std::string::npos) return Device::cpu();
  if (kind == "cuda" && numbered) return Device::cuda(index);
  if (kind == "sim" && numbered) return Device::sim(index);
  throw nb::value_error(("'" + name + "' is no device: they are cpu, cuda, cuda:N and sim").c_str());
}

std::string name_of_device(const Device& device) {
  if (device.kind == Device::Kind::cpu) return "cpu";
  return (device.kind == Device::Kind::cuda ? "cuda:" : "sim:") + std::to_string(device.index);
}

Determinism determinism_of(const std::string& name) {
  if (name == "deterministic") return Determinism::deterministic;
  if (name == "reproducible") return Determinism::reproducible;
  if (name == "fast") return Determinism::fast;
  throw nb::value_error(("'" + name + "' is no determinism: they are deterministic, reproducible and fast").c_str());
}

struct Given {  // init()'s options
  std::string device;
  Seconds timeout, join_timeout;
  std::string determinism, node, interface;
  Options options() const {
    Options made;
    made.device = device_of(device);
    made.timeout = milliseconds_of(timeout);
    made.join_timeout = milliseconds_of(join_timeout);
    made.determinism = determinism_of(determinism);
    made.node = node;
    made.interface = interface;
    return made;
  }
};

HandlePtr hold(Communicator communicator) { return std::make_shared<Handle>(std::move(communicator)); }

Blocking init(const std::string& url, int rank, int world_size, Store* store, const Given& given) {
  const Options options = given.options();
  const Rendezvous rendezvous{.rank = rank, .world_size = world_size, .url = url, .store = store};
  const nb::gil_scoped_release release;
  return {hold(Communicator::create(rendezvous, options))};
}

nb::list local(int world_size, const Given& given) {
  std::vector<Communicator> made;
  {
    const Options options = given.options();
    const nb::gil_scoped_release release;
    made = Communicator::local(world_size, options);
  }
  nb::list list;
  for (Communicator& communicator : made) list.append(nb::cast(Blocking{hold(std::move(communicator))}));
  return list;
}

nb::list all_gather_bytes(Blocking& self, const nb::bytes& value) {
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(value.data()), value.size());
  std::vector<std::vector<std::byte>> all;
  while_interruptible(*self.handle, [&](Communicator& communicator) { all = communicator.all_gather_bytes(bytes); });
  nb::list list;
  for (const auto& one : all) list.append(nb::bytes(one.data(), one.size()));
  return list;
}

nb::object split(Blocking& self, int color, int key) {
  Communicator part;
  while_interruptible(*self.handle, [&](Communicator& communicator) { part = communicator.split(color, key); });
  return part ? nb::cast(Blocking{hold(std::move(part))}) : nb::none();
}

Blocking shrink(Blocking& self) {
  Communicator smaller;
  while_interruptible(*self.handle, [&](Communicator& communicator) { smaller = communicator.shrink(); });
  return {hold(std::move(smaller))};
}

nb::object grow(Blocking& self, int world_size, const std::optional<Seconds>& timeout) {
  Communicator larger;
  const auto within = milliseconds_of(timeout);
  while_interruptible(*self.handle,
                      [&](Communicator& communicator) { larger = communicator.grow(world_size, within); });
  return larger ? nb::cast(Blocking{hold(std::move(larger))}) : nb::none();
}

Blocking join(const std::string& url, const Given& given) {
  const Options options = given.options();
  const nb::gil_scoped_release release;
  return {hold(Communicator::join({.url = url}, options))};
}

template <int (Communicator::*get)() const>
int number(const Blocking& self) {
  return (*self.handle->use().*get)();
}

void bind_facts(nb::class_<Blocking>& cls) {
  cls.def_prop_ro("rank", &number<&Communicator::rank>, "From 0.")
      .def_prop_ro("world_size", &number<&Communicator::world_size>, "Ranks in all.")
      .def_prop_ro("local_rank", &number<&Communicator::local_rank>, "Among the ranks of this node, from 0.")
      .def_prop_ro("local_size", &number<&Communicator::local_size>, "Ranks of this node.")
      .def_prop_ro("node", &number<&Communicator::node>, "Index of this node, from 0.")
      .def_prop_ro(
          "device", [](const Blocking& self) { return name_of_device(self.handle->use()->device()); },
          "\"cpu\", \"cuda:0\" or \"sim:0\": where buffers lie.")
      .def(
          "flight_record", [](const Blocking& self) { return self.handle->use()->flight_record(); },
          "JSON of this rank's last calls.");
}

void bind_groups(nb::class_<Blocking>& cls) {
  cls.def("split", &split, nb::arg("color"), nb::arg("key") = 0,
          "Collective. One new communicator per color, ranks ordered by key, then by rank; color < 0: None.")
      .def("shrink", &shrink, "The survivors' new communicator; every survivor of a failed one calls it.")
      .def("grow", &grow, nb::arg("world_size") = 0, nb::arg("timeout") = nb::none(),
           "Collective. A larger communicator, of so many ranks, with processes that wait in rondo.join(); 0: with all "
           "that wait now, None where nobody does.")
      .def("all_gather_bytes", &all_gather_bytes, nb::arg("value"),
           "Collective: bytes of any length from every rank, in rank order.");
}

void bind_control(nb::class_<Blocking>& cls) {
  cls.def(
         "set_timeout",
         [](Blocking& self, const Seconds& timeout) { self.handle->use()->set_timeout(milliseconds_of(timeout)); },
         nb::arg("timeout"), "Of the calls from now on, in seconds.")
      .def(
          "abort", [](Blocking& self) { self.handle->use()->abort(); }, nb::call_guard<nb::gil_scoped_release>(),
          "From any thread: every waiting or later call fails, here and on every rank.")
      .def(
          "check", [](Blocking& self) { self.handle->use()->check(); }, nb::call_guard<nb::gil_scoped_release>(),
          "Raises what went wrong asynchronously.")
      .def(
          "synchronize",
          [](Blocking& self, std::uintptr_t stream) {
            while_interruptible(*self.handle, [&](Communicator& communicator) {
              communicator.synchronize(reinterpret_cast<Stream>(stream));
            });
          },
          nb::arg("stream") = 0, "Devices: until everything on `stream` so far is done.")
      .def(
          "close", [](Blocking& self) { self.handle->close(); }, "Leaves; peers that wait for this rank are aborted.")
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](Blocking& self, const nb::args&) { self.handle->close(); });
}

void bind_ways(nb::class_<Blocking>& cls) {
  cls.def(
         "async_",
         [](Blocking& self, const std::optional<Seconds>& timeout) {
           return Starting{self.handle, milliseconds_of(timeout)};
         },
         nb::arg("timeout") = nb::none(), "The same verbs, which return at once with a Work.")
      .def(
          "within",
          [](Blocking& self, const Seconds& timeout) {
            return Deadline{self.handle, milliseconds_of(timeout)};
          },
          nb::arg("timeout"), "The same verbs with that timeout, in seconds.")
      .def(
          "group",
          [](Blocking& self, const std::optional<Seconds>& timeout) {
            auto group = std::make_unique<Group>(self.handle->use()->group(milliseconds_of(timeout)));
            return Recording{self.handle, std::move(group), {}};
          },
          nb::arg("timeout") = nb::none(),
          "The same verbs, recorded until end(), start() or the end of the with statement, which start them together.");
}

void bind_recording(nb::module_& module) {
  nb::class_<Recording> cls(module, "Group", "Verbs that start together; see Communicator.group().");
  bind_verbs(cls);
  cls.def("end", &Recording::end, "Runs what was recorded, and returns when all of it is done.")
      .def("start", &Recording::start, "Starts what was recorded and returns a Work at once.")
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__",
          [](Recording& self, const nb::object& type, const nb::object&, const nb::object&) {
            if (type.is_none()) self.end();
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

}  // namespace

void bind_communicator(nb::module_& module) {
  nb::class_<Blocking> cls(module, "Communicator", nb::dynamic_attr(), nb::is_weak_referenceable(),
                           "A group of ranks and the collectives among them; buffers are anything with the buffer "
                           "protocol or DLPack, used in place.");
  bind_verbs(cls);
  bind_facts(cls);
  bind_groups(cls);
  bind_control(cls);
  bind_ways(cls);
  nb::class_<Starting> starting(module, "Async", "Verbs that return a Work; see Communicator.async_().");
  bind_verbs(starting);
  nb::class_<Deadline> within(module, "Within", "Verbs with a timeout; see Communicator.within().");
  bind_verbs(within);
  bind_recording(module);
  module.def(
      "init",
      [](const std::string& url, int rank, int world_size, nb::object store, const std::string& device,
         const Seconds& timeout, const Seconds& join_timeout, const std::string& determinism, const std::string& node,
         const std::string& interface) {
        const std::shared_ptr<Store> held = store_of(std::move(store));
        return init(url, rank, world_size, held.get(), {device, timeout, join_timeout, determinism, node, interface});
      },
      nb::arg("url") = "env://", nb::kw_only(), nb::arg("rank") = -1, nb::arg("world_size") = -1,
      nb::arg("store") = nb::none(), nb::arg("device") = "cpu", nb::arg("timeout") = 600.0,
      nb::arg("join_timeout") = 300.0, nb::arg("determinism") = "deterministic", nb::arg("node") = "",
      nb::arg("interface") = "");
  module.def(
      "join",
      [](const std::string& url, const std::string& device, const Seconds& timeout, const Seconds& join_timeout,
         const std::string& determinism, const std::string& node, const std::string& interface) {
        return join(url, {device, timeout, join_timeout, determinism, node, interface});
      },
      nb::arg("url") = "env://", nb::kw_only(), nb::arg("device") = "cpu", nb::arg("timeout") = 600.0,
      nb::arg("join_timeout") = 300.0, nb::arg("determinism") = "deterministic", nb::arg("node") = "",
      nb::arg("interface") = "");
  module.def("_close_all", &close_all);
  module.def(
      "local",
      [](int world_size, const std::string& device, const Seconds& timeout, const std::string& determinism) {
        return local(world_size, {device, timeout, 300.0, determinism, "", ""});
      },
      nb::arg("world_size"), nb::kw_only(), nb::arg("device") = "cpu", nb::arg("timeout") = 600.0,
      nb::arg("determinism") = "deterministic");
}

}  // namespace rondo::python
