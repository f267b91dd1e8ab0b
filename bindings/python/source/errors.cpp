// SPDX-License-Identifier: Apache-2.0
// rondo.Error: the class is written in Python (rondo/_errors.py), and thrown from here.
#include <nanobind/stl/vector.h>

#include <rondo/error.hpp>

#include "bindings/python/source/handle.hpp"

namespace rondo::python {
namespace {

nb::object error_object(const Error& error) {
  const nb::module_ home = nb::module_::import_("rondo._errors");
  return home.attr("make")(error.what(), static_cast<int>(error.error_code()), error.culprit(), error.culprits());
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const nb::object object = error_object(error);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())), object.ptr());
    }
  });
}

nb::object to_python(const std::exception_ptr& pointer) {
  if (!pointer) return nb::none();
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    return error_object(error);
  } catch (const std::exception& error) {
    return nb::module_::import_("builtins").attr("RuntimeError")(error.what());
  }
}

}  // namespace rondo::python
