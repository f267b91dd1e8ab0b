// SPDX-License-Identifier: Apache-2.0
// What choices of kernels hang on, from what the ranks have agreed on.
#pragma once
#include "comm/device/launch/device_tuner.hpp"
#include "comm/device/memory/regions.hpp"
#include "comm/setup/config.hpp"

namespace rondo::comm::device {

Terms agree(const Regions& regions, const Options& options, const Config& config);

}  // namespace rondo::comm::device
