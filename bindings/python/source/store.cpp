// SPDX-License-Identifier: Apache-2.0
// Store: the library's for Python, and Python's for the library.
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/python/source/handle.hpp"

namespace rondo::python {
namespace {

using Clock = std::chrono::steady_clock;

std::span<const std::byte> bytes_of(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}
nb::bytes to_bytes(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }

Store::Deadline deadline_in(const Seconds& timeout) {
  const auto duration = milliseconds_of(timeout);
  const auto now = Clock::now();
  if (duration >= std::chrono::duration_cast<std::chrono::milliseconds>(Store::Deadline::max() - now))
    return Store::Deadline::max();
  return now + duration;
}
double seconds_until(Store::Deadline deadline) {
  if (deadline == Store::Deadline::max()) return std::numeric_limits<double>::infinity();
  return std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
}

std::string text_of(std::string_view key) { return std::string(key); }

// A store written in Python, as the library calls it: from any thread. What Python raises becomes the library's error.
template <class F>
auto in_python(F call) {
  const nb::gil_scoped_acquire acquire;
  try {
    return call();
  } catch (nb::python_error& error) {
    throw Error(ErrorCode::system, "the store: " + nb::cast<std::string>(nb::str(error.value())));
  } catch (const nb::cast_error&) {
    throw Error(ErrorCode::system, "the store: it returned something else than bytes, an int or a bool");
  }
}

Store::Bytes taken(const nb::object& value) {
  const auto held = nb::cast<nb::bytes>(value);
  const auto bytes = bytes_of(held);
  return {bytes.begin(), bytes.end()};
}

class PythonStore final : public Store {
 public:
  explicit PythonStore(nb::object store) : store_(std::move(store)) {}

  void set(std::string_view key, std::span<const std::byte> value) override {
    in_python([&] { store_.attr("set")(text_of(key), to_bytes(value)); });
  }
  Bytes get(std::string_view key, Deadline deadline) override {
    return in_python([&] { return taken(store_.attr("get")(text_of(key), seconds_until(deadline))); });
  }
  std::optional<Bytes> try_get(std::string_view key) override {
    return in_python([&]() -> std::optional<Bytes> {
      const nb::object found = store_.attr("try_get")(text_of(key));
      if (found.is_none()) return std::nullopt;
      return taken(found);
    });
  }
  std::int64_t add(std::string_view key, std::int64_t amount) override {
    return in_python([&] { return nb::cast<std::int64_t>(store_.attr("add")(text_of(key), amount)); });
  }
  bool compare_and_set(std::string_view key, std::optional<Bytes> expected,
                       std::span<const std::byte> desired) override {
    return in_python([&] {
      const nb::object before = expected ? nb::object(to_bytes(*expected)) : nb::none();
      return nb::cast<bool>(store_.attr("compare_and_set")(text_of(key), before, to_bytes(desired)));
    });
  }
  bool erase(std::string_view key) override {
    return in_python([&] { return nb::cast<bool>(store_.attr("erase")(text_of(key))); });
  }

 private:
  nb::object store_;
};

nb::list to_list(const std::vector<Store::Bytes>& values) {
  nb::list list;
  for (const auto& value : values) list.append(to_bytes(value));
  return list;
}

void bind_calls(nb::class_<Store>& cls) {
  cls.def(
         "set",
         [](Store& store, const std::string& key, const nb::bytes& value) {
           const auto bytes = bytes_of(value);
           const nb::gil_scoped_release release;
           store.set(key, bytes);
         },
         nb::arg("key"), nb::arg("value"), "Writes, over what is there.")
      .def(
          "get",
          [](Store& store, const std::string& key, const Seconds& timeout) {
            Store::Bytes value;
            {
              const nb::gil_scoped_release release;
              value = store.get(key, deadline_in(timeout));
            }
            return to_bytes(value);
          },
          nb::arg("key"), nb::arg("timeout") = 300.0, "Waits for the key, for `timeout` seconds at most.")
      .def(
          "try_get",
          [](Store& store, const std::string& key) -> nb::object {
            std::optional<Store::Bytes> value;
            {
              const nb::gil_scoped_release release;
              value = store.try_get(key);
            }
            return value ? nb::object(to_bytes(*value)) : nb::none();
          },
          nb::arg("key"), "The value, or None; does not wait.")
      .def("add", &Store::add, nb::arg("key"), nb::arg("amount"), nb::call_guard<nb::gil_scoped_release>(),
           "Adds to a counter that starts at 0; returns the sum.")
      .def(
          "compare_and_set",
          [](Store& store, const std::string& key, std::optional<nb::bytes> expected, const nb::bytes& desired) {
            std::optional<Store::Bytes> before;
            if (expected) before.emplace(bytes_of(*expected).begin(), bytes_of(*expected).end());
            const auto bytes = bytes_of(desired);
            const nb::gil_scoped_release release;
            return store.compare_and_set(key, std::move(before), bytes);
          },
          nb::arg("key"), nb::arg("expected").none(), nb::arg("desired"),
          "Writes `desired` if the key holds `expected` (None: is absent); returns whether it did.")
      .def("erase", &Store::erase, nb::arg("key"), nb::call_guard<nb::gil_scoped_release>(),
           "Whether the key was there.")
      .def(
          "exchange",
          [](Store& store, const std::string& name, int index, int participants, const nb::bytes& value,
             const Seconds& timeout) {
            std::vector<Store::Bytes> values;
            const auto bytes = bytes_of(value);
            {
              const nb::gil_scoped_release release;
              values = store.exchange(name, index, participants, bytes, deadline_in(timeout));
            }
            return to_list(values);
          },
          nb::arg("name"), nb::arg("index"), nb::arg("participants"), nb::arg("value"), nb::arg("timeout") = 300.0,
          "Everybody contributes one value and gets all of them, in order of index.");
}

}  // namespace

std::shared_ptr<Store> store_of(nb::object given) {
  if (given.is_none()) return nullptr;
  if (nb::isinstance<Store>(given)) return nb::cast<std::shared_ptr<Store>>(given);
  return std::make_shared<PythonStore>(std::move(given));
}

void bind_store(nb::module_& module) {
  nb::class_<Store> cls(module, "Store",
                        "A key-value store that the ranks of a job share. init() takes this one, or any object with "
                        "these functions but exchange.");
  bind_calls(cls);
  cls.def_static(
      "open",
      [](const std::string& url, int rank, int world_size, const Seconds& timeout) {
        Rendezvous rendezvous{.rank = rank, .world_size = world_size, .url = url};
        Options options;
        options.join_timeout = milliseconds_of(timeout);
        const nb::gil_scoped_release release;
        return open_store(rendezvous, options);
      },
      nb::arg("url") = "env://", nb::kw_only(), nb::arg("rank") = -1, nb::arg("world_size") = -1,
      nb::arg("timeout") = 300.0, "The store of the ranks that meet as init() lets them; every rank opens it.");
}

}  // namespace rondo::python
