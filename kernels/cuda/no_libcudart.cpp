// SPDX-License-Identifier: Apache-2.0
// In place of libcudart.cpp in builds without nvcc.
#include "kernels/cuda/api.hpp"

namespace rondo::cuda {

const Api* libcudart_api() { return nullptr; }

}  // namespace rondo::cuda
