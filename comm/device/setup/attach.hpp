// SPDX-License-Identifier: Apache-2.0
// A host communicator gets its device side.
#pragma once
#include <memory>

#include "comm/device/launch/device_engine.hpp"

namespace rondo::comm::device {

// Collective over the ranks of `impl`, each of which asks for Device::cuda or Device::sim. Errors are every rank's.
// `api`: null for the table of that kind of device.
std::unique_ptr<DeviceEngine> attach(rondo::detail::CommunicatorImpl& impl, FlightRecorder& recorder,
                                     ChoiceLog& choices, const cuda::Api* api);

}  // namespace rondo::comm::device
