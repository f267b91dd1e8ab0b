// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's types: the toolkit's where it is installed (RONDO_CUDA_TOOLKIT), else declared here.
#pragma once
#include <cuda_runtime_api.h>
