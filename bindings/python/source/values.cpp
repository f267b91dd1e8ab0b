// SPDX-License-Identifier: Apache-2.0
// ReduceOp.
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>

#include <rondo/reduce_op.hpp>

#include "bindings/python/source/handle.hpp"

namespace rondo::python {
namespace {

ReduceOp named(const std::string& name) {
  std::string known;
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto kind = static_cast<ReduceOp::Kind>(i);
    if (kind == ReduceOp::premultiplied_sum) continue;
    if (name_of(kind) == name) return ReduceOp(kind);
    known += (known.empty() ? "" : ", ") + std::string(name_of(kind));
  }
  throw nb::value_error(("'" + name + "' is no operator: they are " + known).c_str());
}

std::string shown(const ReduceOp& op) {
  if (op.kind() != ReduceOp::premultiplied_sum) return "ReduceOp." + std::string(name_of(op.kind()));
  return "ReduceOp.premul_sum(" + nb::cast<std::string>(nb::repr(nb::float_(op.factor()))) + ")";
}

}  // namespace

ReduceOp reduce_op_of(nb::handle given) {
  if (nb::isinstance<ReduceOp>(given)) return nb::cast<ReduceOp>(given);
  if (nb::isinstance<nb::str>(given)) return named(nb::cast<std::string>(given));
  throw nb::type_error("op is neither a ReduceOp nor the name of one");
}

void bind_values(nb::module_& module) {
  module.attr("ANY_SOURCE") = kAnySource;
  nb::class_<ReduceOp> op(module, "ReduceOp", "How the ranks' elements become one. A name, as 'sum', stands for it.");
  op.def(
        "__init__", [](ReduceOp* self, const std::string& name) { new (self) ReduceOp(named(name)); }, nb::arg("name"))
      .def_static("premul_sum", &ReduceOp::premul_sum, nb::arg("factor"),
                  "The sum of factor * x; the factor is this rank's own.")
      .def_prop_ro("name", [](const ReduceOp& self) { return name_of(self.kind()); })
      .def_prop_ro("factor", &ReduceOp::factor)
      .def("__repr__", &shown)
      .def("__eq__",
           [](const ReduceOp& a, const ReduceOp& b) { return a.kind() == b.kind() && a.factor() == b.factor(); })
      .def("__hash__",
           [](const ReduceOp& a) { return nb::hash(nb::make_tuple(static_cast<int>(a.kind()), a.factor())); });
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto kind = static_cast<ReduceOp::Kind>(i);
    if (kind != ReduceOp::premultiplied_sum) op.attr(std::string(name_of(kind)).c_str()) = ReduceOp(kind);
  }
}

}  // namespace rondo::python
