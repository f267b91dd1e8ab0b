// SPDX-License-Identifier: Apache-2.0
// The Python module: the class, and how to make one.
#include <torch/extension.h>

#include <pybind11/chrono.h>

#include "bindings/torch/backend.hpp"

namespace rondo::torch_backend {
namespace {

void release_python(const std::function<void()>& body) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return body();
  const pybind11::gil_scoped_release released;
  body();
}

c10::intrusive_ptr<c10d::Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       std::chrono::duration<double> timeout, const std::string& name) {
  auto options =
      c10::make_intrusive<RondoBackend::Options>(std::chrono::ceil<std::chrono::milliseconds>(timeout), name);
  return c10::make_intrusive<RondoBackend>(store, rank, size, options);
}

}  // namespace
}  // namespace rondo::torch_backend

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace rondo::torch_backend;
  without_python = release_python;
  const auto c10d = pybind11::module_::import("torch._C._distributed_c10d");
  pybind11::class_<RondoBackend, c10d::Backend, c10::intrusive_ptr<RondoBackend>>(module, "RondoBackend")
      // Asked of ranks outside a new group, where the default group is bound to a device. A group's members meet in its
      // store, and need nobody else.
      .def("perform_nocolor_split", [](const RondoBackend&, c10::Device) {});
  pybind11::class_<RondoWork, c10d::Work, c10::intrusive_ptr<RondoWork>>(module, "RondoWork");
  module.def("make", &make, pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
             pybind11::arg("timeout"), pybind11::arg("name"), pybind11::call_guard<pybind11::gil_scoped_release>());
}
