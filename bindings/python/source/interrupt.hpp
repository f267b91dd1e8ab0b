// SPDX-License-Identifier: Apache-2.0
// Calls that block without the GIL, and Ctrl-C.
#pragma once
#include <exception>
#include <utility>

#include <rondo/communicator.hpp>

#include "bindings/python/source/handle.hpp"

namespace rondo::python {

// While one of these lives in Python's main thread, SIGINT aborts the communicator, so that its call ends.
class Interruptible {
 public:
  explicit Interruptible(Communicator& communicator);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  bool watched_ = false;
};

// At the end of Python.
void stop_watching_for_interrupts();

// Runs `call` of the communicator without the GIL. A signal whose handler raises wins over what the call threw because
// of it.
template <class F>
void while_interruptible(Handle& handle, F call) {
  std::exception_ptr error;
  {
    const nb::gil_scoped_release release;
    try {
      const Handle::Use use = handle.use();
      const Interruptible interruptible(*use);
      call(*use);
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (!error) return;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  std::rethrow_exception(error);
}

}  // namespace rondo::python
