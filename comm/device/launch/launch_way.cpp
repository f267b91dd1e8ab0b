// SPDX-License-Identifier: Apache-2.0
#include "comm/device/launch/launch_way.hpp"

#include <fmt/format.h>

#include <array>

namespace rondo::comm::device {
namespace {

constexpr int kEarlyDriver = 12030;  // graphs keep early launches as of CUDA 12.3
constexpr int kEarlyCode = 90;       // older code has no instruction to wait with (seam_cuda.cuh)

// Asked of the code, not of the device: code for older ones runs on newer ones, too, and would begin without waiting.
std::string early_launch_obstacle(const cuda::Api& api) {
  int driver = 0;
  if (api.DriverGetVersion(&driver) != cudaSuccess || driver < kEarlyDriver)
    return fmt::format("the driver is of CUDA {}.{}, and 12.3 is needed", driver / 1000, driver % 1000 / 10);
  for (const void* kernel : cuda::all_of(api.kernels)) {
    if (kernel == nullptr) continue;
    cudaFuncAttributes code{};
    if (api.FuncGetAttributes(&code, kernel) != cudaSuccess) return "the kernels do not say what they are compiled for";
    const int version = std::min(code.ptxVersion, code.binaryVersion);
    if (version < kEarlyCode) return fmt::format("the kernels are compiled for sm_{}, and sm_90 is needed", version);
  }
  return "";
}

std::string sync_domain_obstacle(const cuda::Api& api, int device) {
  int domains = 0;
  if (api.DeviceGetAttribute(&domains, cudaDevAttrMemSyncDomainCount, device) != cudaSuccess || domains < 2)
    return "the device has one memory synchronisation domain";
  return "";
}

}  // namespace

LaunchWay::LaunchWay(const cuda::Api& api, int device, const Settings& settings)
    : api_(api),
      no_early_launch_(settings.early_launch == 0 ? "" : early_launch_obstacle(api)),
      no_sync_domain_(settings.sync_domain == 0 ? "" : sync_domain_obstacle(api, device)),
      early_(settings.early_launch != 0 && no_early_launch_.empty()),
      domain_(settings.sync_domain != 0 && no_sync_domain_.empty()) {
  api.GetLastError();
}

cudaError_t LaunchWay::launch(KernelKind kind, const void* kernel, int blocks, int threads, void* argument,
                              cudaStream_t stream, bool behind_event) const {
  std::array<cudaLaunchAttribute, 2> attributes{};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = attributes.data();
  if (early_ && !behind_event) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (domain_ && kind != KernelKind::push) {  // pushes have no fence
    cudaLaunchAttribute& domain = attributes[config.numAttrs++];
    domain.id = cudaLaunchAttributeMemSyncDomain;
    domain.val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
  }
  void* arguments[] = {argument};
  return api_.LaunchKernelExC(&config, kernel, arguments);
}

}  // namespace rondo::comm::device
