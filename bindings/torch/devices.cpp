// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/devices.hpp"

#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace rondo::torch_backend {

std::optional<Device> device_of(const c10::Device& device) {
  if (device.is_cpu()) return Device::cpu();
  if (device.is_cuda()) return Device::cuda(device.index());
  if (device.is_privateuseone() && c10::get_privateuse1_backend() == "rondo_sim") return Device::sim(device.index());
  return std::nullopt;
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
