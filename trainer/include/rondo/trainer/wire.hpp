// SPDX-License-Identifier: Apache-2.0
// Gradients of half the size on the wire. For links that are slower than memory.
#pragma once
#include <memory>

#include <rondo/trainer/bucket_hook.hpp>

namespace rondo::trainer {

// A hook that sends f32 and f64 buckets as f16 or bf16, and those of other types as they are. Gradients are scaled by a
// power of two before they are rounded and added up, and divided by the rest of the world size in their own type. So
// the average is finite wherever every rank's gradient is finite in the wire's type (below 65520 for f16), on every
// way; a larger gradient may make it infinite, or not a number. In f16 what is below 6e-8 times the world size is lost.
// Error(invalid_argument) for another wire type, and where gradients are in device memory.
RONDO_API std::shared_ptr<BucketHook> compress_to(DataType wire);

}  // namespace rondo::trainer
