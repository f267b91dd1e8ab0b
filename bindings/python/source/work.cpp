// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/variant.h>

#include "bindings/python/source/handle.hpp"

namespace rondo::python {
namespace {

// A Python function that any thread may let go.
std::shared_ptr<nb::object> shared(nb::object function) {
  return {new nb::object(std::move(function)), [](nb::object* held) {
            if (Py_IsInitialized() == 0) return;
            const nb::gil_scoped_acquire acquire;
            delete held;
          }};
}

void call(const nb::object& function, const std::exception_ptr& error) {
  try {
    function(to_python(error));
  } catch (nb::python_error& raised) {
    raised.restore();
    PyErr_WriteUnraisable(function.ptr());
  }
}

void on_done(Work& work, nb::object function) {
  if (PyCallable_Check(function.ptr()) == 0) throw nb::type_error("on_done: the callback cannot be called");
  auto held = shared(std::move(function));
  const nb::gil_scoped_release release;
  work.on_done([held](const std::exception_ptr& error) {
    if (Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire acquire;
    const InCallback in_callback;
    call(*held, error);
  });
}

// A signal whose handler raises ends the waiting; the call goes on. Python looks for signals ten times a second.
bool wait(Work& work, std::chrono::milliseconds duration, bool ever) {
  constexpr std::chrono::milliseconds kGlance{100};
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    auto slice = kGlance;
    if (!ever) {
      const auto spent =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
      slice = std::max(std::chrono::milliseconds{}, std::min(kGlance, duration - spent));
    }
    {
      const nb::gil_scoped_release release;
      if (work.wait_for(slice)) {
        work.wait();
        return true;
      }
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (slice < kGlance) return false;
  }
}

std::pair<double, double> times(const Work& work) {
  const auto seconds = [](std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
  };
  const Work::Times times = work.times();
  return {seconds(times.started), seconds(times.finished)};
}

}  // namespace

void bind_work(nb::module_& module) {
  nb::class_<Work>(module, "Work",
                   "A call that runs. It keeps its buffers alive until it is done; dropping a Work does not cancel it.")
      .def(
          "wait",
          [](Work& work, std::optional<Seconds> timeout) {
            give_back_borrowed();
            return wait(work, milliseconds_of(timeout),
                        !timeout || milliseconds_of(*timeout) == std::chrono::milliseconds::max());
          },
          nb::arg("timeout") = nb::none(),
          "Waits, for ever without a timeout in seconds, and raises the call's error. False: it still runs.")
      .def_prop_ro("done", &Work::done, "Whether it is through, with or without an error.")
      .def_prop_ro(
          "error", [](const Work& work) { return to_python(work.error()); },
          "The call's error; None while it runs and on success.")
      .def_prop_ro("source", &Work::source, "Of a receive that is done: the rank that it was from; else -1.")
      .def("on_done", &on_done, nb::arg("callback"),

           "Calls callback(error or None) once the call is done: at once if it is, else in the thread that ends it. "
           "It should be short; it may start calls and not wait for them.")
      .def_prop_ro("times", &times, "When the engine began and ended it, in seconds of time.monotonic().");
}

}  // namespace rondo::python
