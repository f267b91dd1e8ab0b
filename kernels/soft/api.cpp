// SPDX-License-Identifier: Apache-2.0
// The table of the soft runtime. Its functions have no names that leave their files.
#include "kernels/cuda/api.hpp"

#include "kernels/soft/call.hpp"

namespace rondo::cuda {

const Api& soft_api() {
  static const Api table = [] {
    Api api{};
    api.name = "sim";
    api.kernels = soft_kernels();
    soft::add_device_calls(api);
    soft::add_error_calls(api);
    soft::add_memory_calls(api);
    soft::add_host_memory_calls(api);
    soft::add_copy_calls(api);
    soft::add_ipc_calls(api);
    soft::add_stream_calls(api);
    soft::add_event_calls(api);
    soft::add_launch_calls(api);
    soft::add_capture_calls(api);
    soft::add_graph_calls(api);
    return api;
  }();
  return table;
}

}  // namespace rondo::cuda
