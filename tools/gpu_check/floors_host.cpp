// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/kernel.hpp"
#include "tools/gpu_check/floors.cuh"

namespace rondo::gpu_check {
namespace {

constexpr soft::Kernel kSmall = soft::kernel<&empty_small, SmallArgument>("empty_small");
constexpr soft::Kernel kLarge = soft::kernel<&empty_large, LargeArgument>("empty_large");
constexpr soft::Kernel kPing = soft::kernel<&ping_all, Ping>("ping");
constexpr soft::Kernel kHop = soft::kernel<&hop_between, Hop>("hop");
constexpr soft::Kernel kFences = soft::kernel<&fence_often, Fences>("fences");
constexpr soft::Kernel kCopy = soft::kernel<&copy_all, Copy>("copy");

}  // namespace

FloorKernels soft_floor_kernels() {
  return {.small = &kSmall, .large = &kLarge, .ping = &kPing, .hop = &kHop, .fences = &kFences, .copy = &kCopy};
}

}  // namespace rondo::gpu_check
