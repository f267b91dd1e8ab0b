// SPDX-License-Identifier: Apache-2.0
// Kernels, run by the host executor on the stream's thread.
#include <cstring>

#include "kernels/simt/scheduler.hpp"
#include "kernels/soft/call.hpp"
#include "kernels/soft/devices.hpp"
#include "kernels/soft/kernel.hpp"
#include "kernels/soft/submit.hpp"

namespace rondo::soft {
namespace {

struct Launch {
  const Kernel* kernel;
  unsigned blocks, threads;
  Device* device;
  bool early;
  std::vector<std::byte> argument;  // lanes only read it
};

cudaError_t code_of(simt::Status status) {
  return status == simt::Status::misuse ? cudaErrorLaunchFailure : cudaErrorLaunchTimeout;
}

// As on machines whose devices reach host memory by loads and stores alone.
bool may_exchange(const void* word) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  const auto place = here.has.memory.find(word);
  return !place || !place.allocation->is_host();
}

void run_blocks(Process& here, const Launch& launch, const std::uint32_t* ended, unsigned resident,
                unsigned watchdog_s) {
  simt::Options options;
  options.external = true;
  options.resident_blocks = resident;
  options.watchdog_s = watchdog_s;
  options.cancel = &here.cancel;
  options.may_exchange = &may_exchange;
  options.shared_bytes = 48 << 10;  // what CUDA allows without asking
  simt::Scheduler scheduler(options);
  scheduler.add_grid({.name = launch.kernel->name,
                      .rank = launch.device->number,
                      .blocks = launch.blocks,
                      .threads = launch.threads,
                      .body = launch.kernel->run,
                      .argument = const_cast<std::byte*>(launch.argument.data()),
                      .early = launch.early,
                      .ended = ended});
  const simt::Status status = scheduler.run();
  if (status == simt::Status::ok || status == simt::Status::cancelled) return;
  here.report(scheduler.report());  // first: who meets the failure finds it told
  launch.device->fail(code_of(status));
}

void run(Process& here, const Launch& launch, const std::uint32_t* ended) {
  unsigned resident = 0;
  unsigned watchdog_s = 0;
  {
    const std::lock_guard lock(here.mutex);
    resident = static_cast<unsigned>(std::max(here.settings.resident_blocks, 1));
    watchdog_s = static_cast<unsigned>(here.settings.kernel_timeout.count());
  }
  const unsigned taken = std::min(launch.blocks, resident);
  if (!launch.device->budget.take(taken, here.cancel)) return;
  run_blocks(here, launch, ended, resident, watchdog_s);
  launch.device->budget.give_back(taken);
}

const Kernel* kernel_of(const void* function) {
  const auto* const kernel = static_cast<const Kernel*>(function);
  return kernel == nullptr || kernel->magic != kKernelMagic ? nullptr : kernel;
}

cudaError_t check_shape(const cudaLaunchConfig_t& config) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
      block.x > kMaxThreadsPerBlock) {
    return cudaErrorInvalidConfiguration;
  }
  const bool flat = grid.y == 1 && grid.z == 1 && block.y == 1 && block.z == 1;
  return flat && config.dynamicSmemBytes == 0 ? cudaSuccess : cudaErrorNotSupported;  // the device seam has neither
}

// Domains change nothing here: every order of the seam is of system scope.
cudaError_t read_attributes(const cudaLaunchConfig_t& config, bool& early) {
  if (config.attrs == nullptr && config.numAttrs != 0) return cudaErrorInvalidValue;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      early = attribute.val.programmaticStreamSerializationAllowed != 0;
    } else if (attribute.id != cudaLaunchAttributeMemSyncDomain ||
               attribute.val.memSyncDomain > cudaLaunchMemSyncDomainRemote) {
      return cudaErrorInvalidValue;
    }
  }
  return cudaSuccess;
}

cudaError_t launch_with(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return device_call([&](Process& here) {
    const Kernel* const kernel = kernel_of(function);
    bool early = false;
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (config == nullptr || arguments == nullptr || arguments[0] == nullptr) return cudaErrorInvalidValue;
    cudaError_t code = check_shape(*config);
    if (code == cudaSuccess) code = read_attributes(*config, early);
    if (code != cudaSuccess) return code;
    Device* device = nullptr;
    {
      const std::lock_guard lock(here.mutex);
      device = &here.current();
    }
    const std::lock_guard may_begin(device->launching);
    const std::lock_guard lock(here.mutex);
    const auto stream = here.stream(config->stream);
    if (stream == nullptr || &stream->device() != &here.current()) return cudaErrorInvalidResourceHandle;
    if (early && here.settings.architecture < 90) return cudaErrorNotSupported;
    const auto* const argument = static_cast<const std::byte*>(arguments[0]);
    auto launch = std::make_shared<const Launch>(Launch{kernel,
                                                        config->gridDim.x,
                                                        config->blockDim.x,
                                                        &stream->device(),
                                                        early,
                                                        {argument, argument + kernel->argument_bytes}});
    const auto run_it = [&here, launch](const std::uint32_t* ended) { run(here, *launch, ended); };
    return submit(here, *stream, {run_it, early, kernel->lets_next_begin});
  });
}

cudaError_t launch_kernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                          cudaStream_t handle) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = handle;
  return launch_with(&config, function, arguments);
}

// It may not call the runtime, and would wait for itself if it did.
cudaError_t launch_host(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return device_call([&](Process& here) {
    if (function == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    const auto stream = here.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return submit(here, *stream, [function, data] { function(data); });
  });
}

cudaError_t attributes(cudaFuncAttributes* out, const void* function) {
  return device_call([&](Process& here) {
    if (out == nullptr) return cudaErrorInvalidValue;
    if (kernel_of(function) == nullptr) return cudaErrorInvalidDeviceFunction;
    *out = {};
    const std::lock_guard lock(here.mutex);
    out->maxThreadsPerBlock = kMaxThreadsPerBlock;
    out->ptxVersion = out->binaryVersion = here.settings.architecture;
    return cudaSuccess;
  });
}

cudaError_t max_active_blocks(int* out, const void* function, int threads, std::size_t shared_bytes) {
  return device_call([&](Process& here) {
    if (out == nullptr || threads <= 0 || threads > kMaxThreadsPerBlock) return cudaErrorInvalidValue;
    if (kernel_of(function) == nullptr) return cudaErrorInvalidDeviceFunction;
    if (shared_bytes != 0) return cudaErrorNotSupported;
    const std::lock_guard lock(here.mutex);
    *out = blocks_per_multiprocessor(here.settings, threads);
    return cudaSuccess;
  });
}

}  // namespace

void add_launch_calls(cuda::Api& api) {
  api.LaunchKernel = &launch_kernel;
  api.LaunchKernelExC = &launch_with;
  api.LaunchHostFunc = &launch_host;
  api.FuncGetAttributes = &attributes;
  api.OccupancyMaxActiveBlocksPerMultiprocessor = &max_active_blocks;
}

}  // namespace rondo::soft
