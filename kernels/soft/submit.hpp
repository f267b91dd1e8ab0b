// SPDX-License-Identifier: Apache-2.0
// Work on its way to a stream, and what stream capture forbids. All of it with Process::mutex held.
#pragma once
#include <functional>

#include "kernels/soft/process.hpp"

namespace rondo::soft {

// Pushes with the order of the default stream: its work comes after what the device's blocking streams hold already,
// and theirs after what it holds.
Ticket push(Process& here, Stream& stream, Operation operation);

// Recorded where the stream captures, else pushed. cudaErrorStreamCapture…: what CUDA says.
cudaError_t submit(Process& here, Stream& stream, Work work);

// For calls on a stream that make no sense while it captures, such as synchronising it: they spoil the capture.
cudaError_t refuse_capturing(Stream& stream);

// The default stream may not be used while a blocking stream of its device captures.
cudaError_t refuse_implicit_use(Process& here, const Stream& stream);

// For calls that could wait for, or be overtaken by, work being captured. Refused to the thread that captures, and to
// all threads while any captures in global mode; a relaxed capture lets them pass.
cudaError_t refuse_unsafe_call(Process& here);

}  // namespace rondo::soft
