// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/find_cuda.hpp"

#include <array>
#include <atomic>

namespace rondo::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string driver_obstacle(const Api& api) {
  int driver = 0;
  int runtime = 0;
  api.DriverGetVersion(&driver);
  api.RuntimeGetVersion(&runtime);
  if (driver == 0) {
    return "no NVIDIA driver is loaded on this machine; install one for CUDA " + version_text(runtime) +
           " or newer, or use a simulated device (Device::sim).";
  }
  return "this machine's NVIDIA driver is for CUDA " + version_text(driver) + ", which is too old for the CUDA " +
         version_text(runtime) + " runtime of this build; install a newer driver, or use a simulated device.";
}

std::string code_text(const Api& api, cudaError_t code) {
  return std::string(api.GetErrorName(code)) + " (" + api.GetErrorString(code) + ")";
}

std::string count_obstacle(const Api& api, cudaError_t code) {
  api.GetLastError();  // not the next caller's business
  if (code == cudaErrorInsufficientDriver || code == cudaErrorStubLibrary) return driver_obstacle(api);
  if (code == cudaErrorNoDevice) {
    return "the CUDA driver finds no GPU; see whether nvidia-smi lists one and CUDA_VISIBLE_DEVICES names it, or use a "
           "simulated device (Device::sim).";
  }
  return "the CUDA driver does not start: " + code_text(api, code) + "; see what nvidia-smi says.";
}

std::string device_text(const Api& api, int device) {
  std::array<char, 128> name{};
  int major = 0;
  int minor = 0;
  if (api.DeviceName(name.data(), static_cast<int>(name.size()), device) != cudaSuccess) name[0] = 0;
  api.DeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  api.DeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return "GPU " + std::to_string(device) + " (" + name.data() + ") of compute capability " + std::to_string(major) +
         "." + std::to_string(minor);
}

}  // namespace

std::string code_obstacle(const Api& api, int device) {
  int before = 0;
  api.GetDevice(&before);
  cudaError_t code = api.SetDevice(device);
  cudaFuncAttributes attributes{};
  for (const void* kernel : all_of(api.kernels)) {
    if (code == cudaSuccess) code = api.FuncGetAttributes(&attributes, kernel);
  }
  api.SetDevice(before);
  if (code == cudaSuccess) return {};
  api.GetLastError();
  if (code == cudaErrorNoKernelImageForDevice) {
    return "this build carries no code for " + device_text(api, device) +
           "; configure it with that capability in RONDO_CUDA_ARCHITECTURES.";
  }
  return device_text(api, device) + " does not load the kernels: " + code_text(api, code) + ".";
}

std::string obstacle_of(const Api* api) {
  if (api == nullptr) {
    return "this build has no CUDA kernels, because it was configured without nvcc; install the CUDA toolkit (12.0 or "
           "newer) and configure again with RONDO_CUDA=ON, or use a simulated device (Device::sim).";
  }
  int count = 0;
  const cudaError_t code = api->GetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) return count_obstacle(*api, code == cudaSuccess ? cudaErrorNoDevice : code);
  // With several GPUs this would put a context of every process on GPU 0: there the one that is chosen is asked.
  return count == 1 ? code_obstacle(*api, 0) : std::string();
}

// What was found stays: after a failed kernel every question to the runtime is answered with that failure, and who
// frees its memory then still needs the table.
const Api* find_cuda(std::string& obstacle) {
  static std::atomic<bool> found{false};
  const Api* const api = libcudart_api();
  obstacle = found.load(std::memory_order_relaxed) ? std::string() : obstacle_of(api);
  if (!obstacle.empty()) return nullptr;
  found.store(true, std::memory_order_relaxed);
  return api;
}

}  // namespace rondo::cuda
