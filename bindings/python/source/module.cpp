// SPDX-License-Identifier: Apache-2.0
#include "bindings/python/source/handle.hpp"

NB_MODULE(_rondo, module) {
  using namespace rondo::python;
  // ReduceOp.sum and its like are of the class whose attributes they are, so that these go with the process alone.
  nb::set_leak_warnings(false);
  bind_errors(module);
  bind_values(module);
  bind_work(module);
  bind_store(module);
  bind_communicator(module);
}
