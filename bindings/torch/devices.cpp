// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/devices.hpp"

#include <string>

#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace rondo::torch_backend {

Device device_of(std::string_view name, const c10::Device& device) {
  if (device.is_cpu()) return Device::cpu();
  if (device.is_cuda()) return Device::cuda(device.index());
  if (device.is_privateuseone() && c10::get_privateuse1_backend() == "rondosim") return Device::sim(device.index());
  C10_THROW_ERROR(ValueError, c10::str("rondo: ", std::string(name), " on ", device,
                                       ": this backend knows the CPU and CUDA devices"));
}

c10::Stream current_stream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void wait_for(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return;
  c10::Event place(earlier.device_type());
  place.record(earlier);
  place.block(later);
}

}  // namespace rondo::torch_backend
