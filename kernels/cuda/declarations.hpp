// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's types: the toolkit's where the build has it (RONDO_CUDA_TOOLKIT), else our own of the same names
// and values, so that the soft runtime needs no toolkit. One build uses one of the two everywhere.
#pragma once
#if defined(RONDO_CUDA_TOOLKIT)
#include <cuda_runtime_api.h>
#else
#include "kernels/cuda/own_declarations.hpp"
#endif
