// SPDX-License-Identifier: Apache-2.0
// Gradients of half the size on the wire. For links that are slower than memory.
#pragma once
#include <memory>

#include <rondo/trainer/bucket_hook.hpp>

namespace rondo::trainer {

// A hook that sends f32 and f64 buckets as f16 or bf16, and those of other types as they are. Each rank's gradients are
// divided by the world size before they are rounded, so that a sum cannot overflow where no average does.
// Error(invalid_argument) for another wire type, and where gradients are in device memory.
RONDO_API std::shared_ptr<BucketHook> compress_to(DataType wire);

}  // namespace rondo::trainer
