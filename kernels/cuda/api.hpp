// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime as a table of its own functions: one instance is libcudart, the other our soft CUDA runtime, which
// runs the same kernels on the host. Host code calls CUDA only through a table, so one build holds both.
#pragma once
#include <string>

#include "kernels/cuda/declarations.hpp"
#include "kernels/device/kernels.hpp"

namespace rondo::cuda {

// Members bear the names and signatures of the runtime's functions, without "cuda".
struct Api {
  const char* name;  // "cuda" or "sim"
  Kernels kernels;

  cudaError_t (*GetDeviceCount)(int*);
  cudaError_t (*SetDevice)(int);
  cudaError_t (*GetDevice)(int*);
  cudaError_t (*DeviceGetAttribute)(int*, cudaDeviceAttr, int);
  cudaError_t (*DeviceCanAccessPeer)(int*, int, int);
  cudaError_t (*DeviceGetP2PAttribute)(int*, cudaDeviceP2PAttr, int, int);
  cudaError_t (*DeviceEnablePeerAccess)(int, unsigned);
  cudaError_t (*DeviceSynchronize)();
  cudaError_t (*DriverGetVersion)(int*);
  cudaError_t (*RuntimeGetVersion)(int*);
  cudaError_t (*GetLastError)();
  const char* (*GetErrorName)(cudaError_t);
  const char* (*GetErrorString)(cudaError_t);

  cudaError_t (*Malloc)(void**, std::size_t);
  cudaError_t (*Free)(void*);
  cudaError_t (*HostAlloc)(void**, std::size_t, unsigned);
  cudaError_t (*FreeHost)(void*);
  cudaError_t (*HostRegister)(void*, std::size_t, unsigned);
  cudaError_t (*HostUnregister)(void*);
  cudaError_t (*HostGetDevicePointer)(void**, void*, unsigned);
  cudaError_t (*PointerGetAttributes)(cudaPointerAttributes*, const void*);
  cudaError_t (*MemGetInfo)(std::size_t*, std::size_t*);
  cudaError_t (*Memcpy)(void*, const void*, std::size_t, cudaMemcpyKind);
  cudaError_t (*MemcpyAsync)(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t);
  cudaError_t (*Memset)(void*, int, std::size_t);
  cudaError_t (*MemsetAsync)(void*, int, std::size_t, cudaStream_t);
  cudaError_t (*IpcGetMemHandle)(cudaIpcMemHandle_t*, void*);
  cudaError_t (*IpcOpenMemHandle)(void**, cudaIpcMemHandle_t, unsigned);
  cudaError_t (*IpcCloseMemHandle)(void*);

  cudaError_t (*StreamCreateWithFlags)(cudaStream_t*, unsigned);
  cudaError_t (*StreamDestroy)(cudaStream_t);
  cudaError_t (*StreamSynchronize)(cudaStream_t);
  cudaError_t (*StreamQuery)(cudaStream_t);
  cudaError_t (*StreamWaitEvent)(cudaStream_t, cudaEvent_t, unsigned);
  cudaError_t (*EventCreateWithFlags)(cudaEvent_t*, unsigned);
  cudaError_t (*EventDestroy)(cudaEvent_t);
  cudaError_t (*EventRecord)(cudaEvent_t, cudaStream_t);
  cudaError_t (*EventQuery)(cudaEvent_t);
  cudaError_t (*EventSynchronize)(cudaEvent_t);
  cudaError_t (*EventElapsedTime)(float*, cudaEvent_t, cudaEvent_t);

  cudaError_t (*LaunchKernel)(const void*, dim3, dim3, void**, std::size_t, cudaStream_t);
  cudaError_t (*LaunchKernelExC)(const cudaLaunchConfig_t*, const void*, void**);
  cudaError_t (*LaunchHostFunc)(cudaStream_t, cudaHostFn_t, void*);
  cudaError_t (*FuncGetAttributes)(cudaFuncAttributes*, const void*);
  cudaError_t (*OccupancyMaxActiveBlocksPerMultiprocessor)(int*, const void*, int, std::size_t);

  cudaError_t (*StreamBeginCapture)(cudaStream_t, cudaStreamCaptureMode);
  cudaError_t (*StreamEndCapture)(cudaStream_t, cudaGraph_t*);
  cudaError_t (*StreamIsCapturing)(cudaStream_t, cudaStreamCaptureStatus*);
  cudaError_t (*GraphInstantiate)(cudaGraphExec_t*, cudaGraph_t, unsigned long long);
  cudaError_t (*GraphLaunch)(cudaGraphExec_t, cudaStream_t);
  cudaError_t (*GraphExecDestroy)(cudaGraphExec_t);
  cudaError_t (*GraphDestroy)(cudaGraph_t);
  cudaError_t (*UserObjectCreate)(cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned);
  cudaError_t (*UserObjectRelease)(cudaUserObject_t, unsigned);

  // Not the runtime's own, but thin: what takes a driver call or a structure that changes between versions.
  cudaError_t (*DeviceUuid)(unsigned char (*uuid)[16], int device);
  cudaError_t (*DeviceName)(char* name, int bytes, int device);
  // The allocation that `pointer` lies in, and whether other processes can open it (pool and VMM memory cannot be).
  cudaError_t (*MemGetAllocation)(void** base, std::size_t* bytes, bool* exportable, const void* pointer);
  // Which capture `stream` takes part in: another number for each. cudaErrorIllegalState: in none.
  cudaError_t (*StreamCaptureId)(cudaStream_t stream, unsigned long long* id);
  // Keeps a user object alive as long as the graph that `stream` is being captured into.
  cudaError_t (*StreamRetainInCapture)(cudaStream_t stream, cudaUserObject_t object);
};

// Always there. Exports no cuda* symbol; its memory, streams and devices are this process's and its children's.
const Api& soft_api();

// Null without nvcc at build time. With it the table is there whether or not this machine has a driver.
const Api* libcudart_api();

// The table for real GPUs; throws nothing: null, and one sentence that says what is missing and what to do.
const Api* find_cuda(std::string& obstacle);

// Whether the kernels load on this device: empty, or one sentence. Makes the device's context; find_cuda asks where one
// GPU is visible, with several it is for who has chosen one.
std::string code_obstacle(const Api& api, int device);

}  // namespace rondo::cuda
