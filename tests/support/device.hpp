// SPDX-License-Identifier: Apache-2.0
// The device that a suite runs on: the simulated one, or with RONDO_TEST_DEVICE=cuda a real GPU. The same program is
// both a test of CI and, under tests/gpu/on_gpu, one with the label gpu.
#pragma once
#include <rondo/communicator.hpp>

#include "comm/base/env.hpp"
#include "kernels/cuda/api.hpp"

namespace rondo::test {

inline bool on_cuda() { return env("RONDO_TEST_DEVICE").value_or("sim") == "cuda"; }

// For Options::device.
inline Device device_under_test(int index = -1) { return on_cuda() ? Device::cuda(index) : Device::sim(index); }

// Its runtime. on_gpu has seen that there is one.
inline const cuda::Api& api_under_test() { return on_cuda() ? *cuda::libcudart_api() : cuda::soft_api(); }

}  // namespace rondo::test
