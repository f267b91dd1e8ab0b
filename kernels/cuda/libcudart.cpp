// SPDX-License-Identifier: Apache-2.0
// The table of the CUDA runtime. Compiled where the toolkit is; nothing here needs a driver to be loaded.
#include <cuda.h>

#include "kernels/cuda/api.hpp"

namespace rondo::cuda {
namespace {

// The driver is never linked: a program built with CUDA starts where there is none.
template <class Function>
cudaError_t driver_entry(const char* symbol, unsigned version, Function& out) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code = cudaGetDriverEntryPointByVersion(symbol, &found, version, cudaEnableDefault, &result);
#else
  (void)version;
  const cudaError_t code = cudaGetDriverEntryPoint(symbol, &found, cudaEnableDefault, &result);
#endif
  if (code != cudaSuccess) return code;
  if (result != cudaDriverEntryPointSuccess || found == nullptr) return cudaErrorNotSupported;
  out = reinterpret_cast<Function>(found);
  return cudaSuccess;
}

// The runtime's codes are the driver's numbers.
cudaError_t code_of(CUresult result) { return static_cast<cudaError_t>(result); }

cudaError_t driver_device(CUdevice& out, int device) {
  CUresult (*get)(CUdevice*, int) = nullptr;
  const cudaError_t code = driver_entry("cuDeviceGet", 2000, get);
  return code == cudaSuccess ? code_of(get(&out, device)) : code;
}

cudaError_t device_uuid(unsigned char (*uuid)[16], int device) {
  CUresult (*get)(CUuuid*, CUdevice) = nullptr;
  CUdevice handle = 0;
  CUuuid found{};
  cudaError_t code = driver_device(handle, device);
  if (code == cudaSuccess) code = driver_entry("cuDeviceGetUuid", 11040, get);  // as of 11.4: a MIG instance's own
  if (code == cudaSuccess) code = code_of(get(&found, handle));
  if (code != cudaSuccess) return code;
  for (int i = 0; i < 16; ++i) (*uuid)[i] = static_cast<unsigned char>(found.bytes[i]);
  return cudaSuccess;
}

cudaError_t device_name(char* name, int bytes, int device) {
  CUresult (*get)(char*, int, CUdevice) = nullptr;
  CUdevice handle = 0;
  cudaError_t code = driver_device(handle, device);
  if (code == cudaSuccess) code = driver_entry("cuDeviceGetName", 2000, get);
  return code == cudaSuccess ? code_of(get(name, bytes, handle)) : code;
}

cudaError_t allocation_of(void** base, std::size_t* bytes, bool* exportable, const void* pointer) {
  CUresult (*range)(CUdeviceptr*, std::size_t*, CUdeviceptr) = nullptr;
  CUresult (*attribute)(void*, CUpointer_attribute, CUdeviceptr) = nullptr;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  CUdeviceptr start = 0;
  int legacy_ipc = 0;
  cudaError_t code = driver_entry("cuMemGetAddressRange", 3020, range);
  if (code == cudaSuccess) code = driver_entry("cuPointerGetAttribute", 4000, attribute);
  if (code == cudaSuccess) code = code_of(range(&start, bytes, address));
  if (code == cudaSuccess) {
    code = code_of(attribute(&legacy_ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
  }
  if (code != cudaSuccess) return code;
  *base = reinterpret_cast<void*>(start);
  *exportable = legacy_ipc != 0;
  return cudaSuccess;
}

cudaError_t find_capture(cudaStream_t stream, unsigned long long& id, cudaGraph_t& graph) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
  const cudaError_t code = cudaStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr);
#else
  const cudaError_t code = cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, nullptr, nullptr);
#endif
  if (code != cudaSuccess) return code;
  if (status == cudaStreamCaptureStatusNone) return cudaErrorIllegalState;
  return status == cudaStreamCaptureStatusInvalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t capture_id(cudaStream_t stream, unsigned long long* id) {
  cudaGraph_t graph = nullptr;
  return find_capture(stream, *id, graph);
}

cudaError_t retain_in_capture(cudaStream_t stream, cudaUserObject_t object) {
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaError_t code = find_capture(stream, id, graph);
  return code == cudaSuccess ? cudaGraphRetainUserObject(graph, object, 1, 0) : code;
}

const Api& table() {
  static const Api api = {
      .name = "cuda",
      .kernels = cuda_kernels(),
      .GetDeviceCount = &cudaGetDeviceCount,
      .SetDevice = &cudaSetDevice,
      .GetDevice = &cudaGetDevice,
      .DeviceGetAttribute = &cudaDeviceGetAttribute,
      .DeviceCanAccessPeer = &cudaDeviceCanAccessPeer,
      .DeviceGetP2PAttribute = &cudaDeviceGetP2PAttribute,
      .DeviceEnablePeerAccess = &cudaDeviceEnablePeerAccess,
      .DeviceSynchronize = &cudaDeviceSynchronize,
      .DriverGetVersion = &cudaDriverGetVersion,
      .RuntimeGetVersion = &cudaRuntimeGetVersion,
      .GetLastError = &cudaGetLastError,
      .GetErrorName = &cudaGetErrorName,
      .GetErrorString = &cudaGetErrorString,
      .Malloc = &cudaMalloc,
      .Free = &cudaFree,
      .HostAlloc = &cudaHostAlloc,
      .FreeHost = &cudaFreeHost,
      .HostRegister = &cudaHostRegister,
      .HostUnregister = &cudaHostUnregister,
      .HostGetDevicePointer = &cudaHostGetDevicePointer,
      .PointerGetAttributes = &cudaPointerGetAttributes,
      .MemGetInfo = &cudaMemGetInfo,
      .Memcpy = &cudaMemcpy,
      .MemcpyAsync = &cudaMemcpyAsync,
      .Memset = &cudaMemset,
      .MemsetAsync = &cudaMemsetAsync,
      .IpcGetMemHandle = &cudaIpcGetMemHandle,
      .IpcOpenMemHandle = &cudaIpcOpenMemHandle,
      .IpcCloseMemHandle = &cudaIpcCloseMemHandle,
      .StreamCreateWithFlags = &cudaStreamCreateWithFlags,
      .StreamDestroy = &cudaStreamDestroy,
      .StreamSynchronize = &cudaStreamSynchronize,
      .StreamQuery = &cudaStreamQuery,
      .StreamWaitEvent = &cudaStreamWaitEvent,
      .EventCreateWithFlags = &cudaEventCreateWithFlags,
      .EventDestroy = &cudaEventDestroy,
      .EventRecord = &cudaEventRecord,
      .EventQuery = &cudaEventQuery,
      .EventSynchronize = &cudaEventSynchronize,
      .EventElapsedTime = &cudaEventElapsedTime,
      .LaunchKernel = &cudaLaunchKernel,
      .LaunchKernelExC = &cudaLaunchKernelExC,
      .LaunchHostFunc = &cudaLaunchHostFunc,
      .FuncGetAttributes = &cudaFuncGetAttributes,
      .OccupancyMaxActiveBlocksPerMultiprocessor = &cudaOccupancyMaxActiveBlocksPerMultiprocessor,
      .StreamBeginCapture = &cudaStreamBeginCapture,
      .StreamEndCapture = &cudaStreamEndCapture,
      .StreamIsCapturing = &cudaStreamIsCapturing,
      .GraphInstantiate = &cudaGraphInstantiate,
      .GraphLaunch = &cudaGraphLaunch,
      .GraphExecDestroy = &cudaGraphExecDestroy,
      .GraphDestroy = &cudaGraphDestroy,
      .UserObjectCreate = &cudaUserObjectCreate,
      .UserObjectRelease = &cudaUserObjectRelease,
      .DeviceUuid = &device_uuid,
      .DeviceName = &device_name,
      .MemGetAllocation = &allocation_of,
      .StreamCaptureId = &capture_id,
      .StreamRetainInCapture = &retain_in_capture,
  };
  return api;
}

}  // namespace

const Api* libcudart_api() { return &table(); }

}  // namespace rondo::cuda
