// SPDX-License-Identifier: Apache-2.0
// Our own declarations of the runtime's types against the toolkit's. It is a test that it compiles.
#include <cstddef>

namespace rondo::own {
#include "kernels/cuda/own_declarations.hpp"
// Before the toolkit makes macros of these names.
constexpr unsigned kFlags[] = {cudaHostAllocDefault,    cudaHostAllocPortable,
                               cudaHostAllocMapped,     cudaHostAllocWriteCombined,
                               cudaHostRegisterDefault, cudaHostRegisterPortable,
                               cudaHostRegisterMapped,  cudaStreamDefault,
                               cudaStreamNonBlocking,   cudaEventDefault,
                               cudaEventBlockingSync,   cudaEventDisableTiming,
                               cudaEventInterprocess,   cudaIpcMemLazyEnablePeerAccess};
}  // namespace rondo::own

#include <cuda_runtime_api.h>

#include "tests/support/catch.hpp"

namespace rondo {
namespace {

constexpr unsigned kToolkitFlags[] = {cudaHostAllocDefault,    cudaHostAllocPortable,
                                      cudaHostAllocMapped,     cudaHostAllocWriteCombined,
                                      cudaHostRegisterDefault, cudaHostRegisterPortable,
                                      cudaHostRegisterMapped,  cudaStreamDefault,
                                      cudaStreamNonBlocking,   cudaEventDefault,
                                      cudaEventBlockingSync,   cudaEventDisableTiming,
                                      cudaEventInterprocess,   cudaIpcMemLazyEnablePeerAccess};
static_assert(std::size(own::kFlags) == std::size(kToolkitFlags));
constexpr bool flags_are_equal() {
  for (std::size_t i = 0; i < std::size(kToolkitFlags); ++i) {
    if (own::kFlags[i] != kToolkitFlags[i]) return false;
  }
  return true;
}
static_assert(flags_are_equal());

struct Pair {
  const char* name;
  int ours, toolkits;
};
#define RONDO_PAIR(name) \
  Pair { #name, static_cast < int>(own::name), static_cast < int>(::name) }
constexpr Pair kEnumerators[] = {
    RONDO_PAIR(cudaSuccess),
    RONDO_PAIR(cudaErrorInvalidValue),
    RONDO_PAIR(cudaErrorMemoryAllocation),
    RONDO_PAIR(cudaErrorInitializationError),
    RONDO_PAIR(cudaErrorCudartUnloading),
    RONDO_PAIR(cudaErrorInvalidConfiguration),
    RONDO_PAIR(cudaErrorInvalidDevicePointer),
    RONDO_PAIR(cudaErrorInvalidMemcpyDirection),
    RONDO_PAIR(cudaErrorStubLibrary),
    RONDO_PAIR(cudaErrorInsufficientDriver),
    RONDO_PAIR(cudaErrorInvalidDeviceFunction),
    RONDO_PAIR(cudaErrorNoDevice),
    RONDO_PAIR(cudaErrorInvalidDevice),
    RONDO_PAIR(cudaErrorDeviceUninitialized),
    RONDO_PAIR(cudaErrorMapBufferObjectFailed),
    RONDO_PAIR(cudaErrorNoKernelImageForDevice),
    RONDO_PAIR(cudaErrorPeerAccessUnsupported),
    RONDO_PAIR(cudaErrorOperatingSystem),
    RONDO_PAIR(cudaErrorInvalidResourceHandle),
    RONDO_PAIR(cudaErrorIllegalState),
    RONDO_PAIR(cudaErrorNotReady),
    RONDO_PAIR(cudaErrorIllegalAddress),
    RONDO_PAIR(cudaErrorLaunchOutOfResources),
    RONDO_PAIR(cudaErrorLaunchTimeout),
    RONDO_PAIR(cudaErrorPeerAccessAlreadyEnabled),
    RONDO_PAIR(cudaErrorHostMemoryAlreadyRegistered),
    RONDO_PAIR(cudaErrorHostMemoryNotRegistered),
    RONDO_PAIR(cudaErrorLaunchFailure),
    RONDO_PAIR(cudaErrorNotSupported),
    RONDO_PAIR(cudaErrorSystemDriverMismatch),
    RONDO_PAIR(cudaErrorStreamCaptureUnsupported),
    RONDO_PAIR(cudaErrorStreamCaptureInvalidated),
    RONDO_PAIR(cudaErrorStreamCaptureMerge),
    RONDO_PAIR(cudaErrorStreamCaptureUnmatched),
    RONDO_PAIR(cudaErrorStreamCaptureUnjoined),
    RONDO_PAIR(cudaErrorStreamCaptureIsolation),
    RONDO_PAIR(cudaErrorStreamCaptureImplicit),
    RONDO_PAIR(cudaErrorCapturedEvent),
    RONDO_PAIR(cudaErrorStreamCaptureWrongThread),
    RONDO_PAIR(cudaErrorUnknown),
    RONDO_PAIR(cudaDevAttrMaxThreadsPerBlock),
    RONDO_PAIR(cudaDevAttrMaxSharedMemoryPerBlock),
    RONDO_PAIR(cudaDevAttrWarpSize),
    RONDO_PAIR(cudaDevAttrMultiProcessorCount),
    RONDO_PAIR(cudaDevAttrIntegrated),
    RONDO_PAIR(cudaDevAttrCanMapHostMemory),
    RONDO_PAIR(cudaDevAttrComputeMode),
    RONDO_PAIR(cudaDevAttrPciBusId),
    RONDO_PAIR(cudaDevAttrPciDeviceId),
    RONDO_PAIR(cudaDevAttrMemoryClockRate),
    RONDO_PAIR(cudaDevAttrGlobalMemoryBusWidth),
    RONDO_PAIR(cudaDevAttrL2CacheSize),
    RONDO_PAIR(cudaDevAttrMaxThreadsPerMultiProcessor),
    RONDO_PAIR(cudaDevAttrUnifiedAddressing),
    RONDO_PAIR(cudaDevAttrPciDomainId),
    RONDO_PAIR(cudaDevAttrComputeCapabilityMajor),
    RONDO_PAIR(cudaDevAttrComputeCapabilityMinor),
    RONDO_PAIR(cudaDevAttrHostNativeAtomicSupported),
    RONDO_PAIR(cudaDevAttrCooperativeLaunch),
    RONDO_PAIR(cudaDevAttrMaxBlocksPerMultiprocessor),
    RONDO_PAIR(cudaDevAttrMemSyncDomainCount),
    RONDO_PAIR(cudaLaunchAttributeProgrammaticStreamSerialization),
    RONDO_PAIR(cudaLaunchAttributeMemSyncDomain),
    RONDO_PAIR(cudaLaunchMemSyncDomainDefault),
    RONDO_PAIR(cudaLaunchMemSyncDomainRemote),
    RONDO_PAIR(cudaMemoryTypeUnregistered),
    RONDO_PAIR(cudaMemoryTypeHost),
    RONDO_PAIR(cudaMemoryTypeDevice),
    RONDO_PAIR(cudaMemoryTypeManaged),
    RONDO_PAIR(cudaMemcpyHostToHost),
    RONDO_PAIR(cudaMemcpyHostToDevice),
    RONDO_PAIR(cudaMemcpyDeviceToHost),
    RONDO_PAIR(cudaMemcpyDeviceToDevice),
    RONDO_PAIR(cudaMemcpyDefault),
    RONDO_PAIR(cudaStreamCaptureStatusNone),
    RONDO_PAIR(cudaStreamCaptureStatusActive),
    RONDO_PAIR(cudaStreamCaptureStatusInvalidated),
    RONDO_PAIR(cudaStreamCaptureModeGlobal),
    RONDO_PAIR(cudaStreamCaptureModeThreadLocal),
    RONDO_PAIR(cudaStreamCaptureModeRelaxed),
};
#undef RONDO_PAIR

}  // namespace

TEST_CASE("Own declarations have the toolkit's values", "[cuda]") {
  for (const Pair& pair : kEnumerators) {
    INFO(pair.name);
    CHECK(pair.ours == pair.toolkits);
  }
  CHECK(sizeof(own::cudaIpcMemHandle_t) == sizeof(::cudaIpcMemHandle_t));
  CHECK(sizeof(own::dim3) == sizeof(::dim3));
  CHECK(sizeof(own::cudaError_t) == sizeof(::cudaError_t));
  CHECK(offsetof(own::cudaPointerAttributes, hostPointer) == offsetof(::cudaPointerAttributes, hostPointer));
  CHECK(offsetof(own::cudaFuncAttributes, maxDynamicSharedSizeBytes) ==
        offsetof(::cudaFuncAttributes, maxDynamicSharedSizeBytes));
  CHECK(sizeof(own::cudaLaunchAttribute) == sizeof(::cudaLaunchAttribute));
  CHECK(offsetof(own::cudaLaunchAttribute, val) == offsetof(::cudaLaunchAttribute, val));
  CHECK(sizeof(own::cudaLaunchConfig_t) == sizeof(::cudaLaunchConfig_t));
  CHECK(offsetof(own::cudaLaunchConfig_t, numAttrs) == offsetof(::cudaLaunchConfig_t, numAttrs));
}

}  // namespace rondo
