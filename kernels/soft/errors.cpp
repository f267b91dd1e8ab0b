// SPDX-License-Identifier: Apache-2.0
// Errors: the thread's last one, and their names.
#include <algorithm>
#include <iterator>

#include "kernels/soft/call.hpp"

namespace rondo::soft {
namespace {

cudaError_t& last_error() {
  thread_local cudaError_t code = cudaSuccess;
  return code;
}

struct ErrorRow {
  cudaError_t code;
  const char *name, *text;
};
#define ROW(code, text) \
  { code, #code, text }
constexpr ErrorRow kErrors[] = {
    ROW(cudaSuccess, "no error"),
    ROW(cudaErrorInvalidValue, "invalid argument"),
    ROW(cudaErrorMemoryAllocation, "out of memory"),
    ROW(cudaErrorInitializationError, "initialization error"),
    ROW(cudaErrorCudartUnloading, "the process is exiting"),
    ROW(cudaErrorInvalidConfiguration, "a launch with no blocks, no threads or too many"),
    ROW(cudaErrorInvalidDeviceFunction, "not a kernel of the simulated device"),
    ROW(cudaErrorInvalidMemcpyDirection, "invalid direction of a copy"),
    ROW(cudaErrorNoDevice, "no device is visible"),
    ROW(cudaErrorInvalidDevice, "invalid device ordinal"),
    ROW(cudaErrorDeviceUninitialized, "invalid device context (an IPC handle cannot be opened in its own process)"),
    ROW(cudaErrorPeerAccessUnsupported, "peer access is not supported between these devices"),
    ROW(cudaErrorOperatingSystem, "an operating system call failed"),
    ROW(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ROW(cudaErrorIllegalState, "the resource is not in a state for this"),
    ROW(cudaErrorNotReady, "not ready"),
    ROW(cudaErrorLaunchTimeout, "a kernel stood still for too long and was ended"),
    ROW(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ROW(cudaErrorHostMemoryAlreadyRegistered, "part or all of the memory is registered already"),
    ROW(cudaErrorHostMemoryNotRegistered, "the memory is not registered"),
    ROW(cudaErrorLaunchFailure, "a kernel failed"),
    ROW(cudaErrorNotSupported, "not supported"),
    ROW(cudaErrorStreamCaptureUnsupported, "not permitted while a stream is capturing"),
    ROW(cudaErrorStreamCaptureInvalidated, "an earlier error has invalidated the capture"),
    ROW(cudaErrorStreamCaptureMerge, "two independent captures would be merged"),
    ROW(cudaErrorStreamCaptureUnmatched, "the capture was begun on another stream"),
    ROW(cudaErrorStreamCaptureUnjoined, "work of another stream is not joined to the capture's origin"),
    ROW(cudaErrorStreamCaptureIsolation, "a capturing stream would depend on uncaptured work"),
    ROW(cudaErrorStreamCaptureImplicit, "the default stream may not be used while a blocking stream captures"),
    ROW(cudaErrorCapturedEvent, "the event was last recorded in a capturing stream"),
    ROW(cudaErrorStreamCaptureWrongThread, "the capture was begun by another thread"),
    ROW(cudaErrorUnknown, "unknown error"),
};
#undef ROW

const ErrorRow* row_of(cudaError_t code) {
  const auto* const row = std::find_if(std::begin(kErrors), std::end(kErrors),
                                       [&](const ErrorRow& candidate) { return candidate.code == code; });
  return row == std::end(kErrors) ? nullptr : row;
}

const char* error_name(cudaError_t code) {
  const ErrorRow* const row = row_of(code);
  return row == nullptr ? "unrecognized error code" : row->name;
}
const char* error_string(cudaError_t code) {
  const ErrorRow* const row = row_of(code);
  return row == nullptr ? "unrecognized error code" : row->text;
}

// A device's failure stays its answer; anything else is told once.
cudaError_t take_last_error() {
  const cudaError_t code = last_error();
  last_error() = cudaSuccess;
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  const Device* const device = here.device(current_device());
  return device != nullptr && device->has_failed() ? device->failure() : code;
}

}  // namespace

cudaError_t remember(cudaError_t code) {
  if (code != cudaSuccess) last_error() = code;
  return code;
}

void add_error_calls(cuda::Api& api) {
  api.GetLastError = &take_last_error;
  api.GetErrorName = &error_name;
  api.GetErrorString = &error_string;
}

}  // namespace rondo::soft
