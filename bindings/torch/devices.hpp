// SPDX-License-Identifier: Apache-2.0
// PyTorch's devices in ours. Streams and events are PyTorch's own, whatever the device is: nothing here needs CUDA.
#pragma once
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <rondo/communicator.hpp>

namespace rondo::torch_backend {

// For what has that name; ValueError for a device that the library does not know. A simulated one is what PyTorch
// calls "rondosim".
Device device_of(std::string_view name, const c10::Device& device);

c10::Stream current_stream(const c10::Device& device);
// What is enqueued on `later` from now on waits for what is on `earlier` by now.
void wait_for(const c10::Stream& earlier, const c10::Stream& later);

}  // namespace rondo::torch_backend
