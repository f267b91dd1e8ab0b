// SPDX-License-Identifier: Apache-2.0
// on_gpu PROGRAM ARGUMENTS...: runs a test program on real GPUs (RONDO_TEST_DEVICE=cuda); without one it prints
// "skipped: " and the reason, and ends with 77. on_gpu --describe: what there is. --sim first: the simulated device.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/api.hpp"
#include "tools/gpu_check/gpu.hpp"

namespace {

using rondo::cuda::Api;

constexpr unsigned kPattern = 0x5eed1e55;

bool failed(const Api& api, cudaError_t status, const char* what) {
  if (status == cudaSuccess) return false;
  fmt::print("{}: {}\n", what, api.GetErrorString(status));
  return true;
}

int attribute(const Api& api, cudaDeviceAttr which, int index) {
  int value = 0;
  return api.DeviceGetAttribute(&value, which, index) == cudaSuccess ? value : -1;
}

void describe_device(const Api& api, int index, int count) {
  char name[256] = "?";
  unsigned char uuid[16] = {};
  api.DeviceName(name, sizeof name, index);
  api.DeviceUuid(&uuid, index);
  std::string id;
  for (const unsigned char byte : uuid) id += fmt::format("{:02x}", byte);
  fmt::print("device {}: {}, {}, compute capability {}.{}, {} multiprocessors, {} KiB of L2\n", index, name, id,
             attribute(api, cudaDevAttrComputeCapabilityMajor, index),
             attribute(api, cudaDevAttrComputeCapabilityMinor, index),
             attribute(api, cudaDevAttrMultiProcessorCount, index),
             attribute(api, cudaDevAttrL2CacheSize, index) / 1024);
  std::string reached;
  for (int peer = 0; peer < count; ++peer) {
    int yes = 0;
    if (peer == index || api.DeviceCanAccessPeer(&yes, index, peer) != cudaSuccess) continue;
    if (yes != 0) reached += fmt::format(" {}", peer);
  }
  if (count > 1) fmt::print("device {}: peer access to:{}\n", index, reached.empty() ? " none" : reached);
}

// Is there code for this GPU, and what does it take? It is loaded by asking.
bool describe_kernels(const Api& api) {
  const std::array<std::pair<const char*, const void*>, 11> kernels = {
      {{"simple", api.kernels.fifo[0]},
       {"ll", api.kernels.fifo[1]},
       {"ll128", api.kernels.fifo[2]},
       {"window", api.kernels.window},
       {"push of f32", api.kernels.push[0]},
       {"push of f16", api.kernels.push[1]},
       {"push of bf16", api.kernels.push[2]},
       {"push of copies", api.kernels.push[3]},
       {"window sum of f32", api.kernels.window_sum[0]},
       {"window sum of f16", api.kernels.window_sum[1]},
       {"window sum of bf16", api.kernels.window_sum[2]}}};
  for (const auto& [name, kernel] : kernels) {
    cudaFuncAttributes what{};
    if (failed(api, api.FuncGetAttributes(&what, kernel), name)) return false;
    fmt::print("kernel {}: {} registers, {} bytes local, {} bytes shared, code for {}\n", name, what.numRegs,
               what.localSizeBytes, what.sharedSizeBytes, what.binaryVersion);
  }
  return true;
}

std::string hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// The other process's half of describe_ipc().
int open_handle(const Api& api, const std::string& text) {
  cudaIpcMemHandle_t handle{};
  if (text.size() != 2 * sizeof handle) return 1;
  for (std::size_t i = 0; i < sizeof handle; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  void* memory = nullptr;
  if (failed(api, api.IpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "opening")) return 1;
  unsigned word = 0;
  if (failed(api, api.Memcpy(&word, memory, sizeof word, cudaMemcpyDeviceToHost), "reading")) return 1;
  api.IpcCloseMemHandle(memory);
  return word == kPattern ? 0 : 1;
}

int run_self(std::vector<std::string> arguments) {
  std::string self = "/proc/self/exe";
  std::vector<char*> words = {self.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, self.c_str(), nullptr, nullptr, words.data(), environ) != 0) return -1;
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool describe_ipc(const Api& api, bool simulated) {
  void* memory = nullptr;
  cudaIpcMemHandle_t handle{};
  if (failed(api, api.Malloc(&memory, 1 << 21), "Malloc")) return false;
  std::fflush(stdout);
  const bool works = !failed(api, api.Memcpy(memory, &kPattern, sizeof kPattern, cudaMemcpyHostToDevice), "Memcpy") &&
                     !failed(api, api.IpcGetMemHandle(&handle, memory), "IpcGetMemHandle") &&
                     run_self({simulated ? "--sim" : "--cuda", "--open",
                               hex({reinterpret_cast<const unsigned char*>(&handle), sizeof handle})}) == 0;
  fmt::print("memory shared between processes: {}\n", works ? "works" : "does not work");
  api.Free(memory);
  return works;
}

int describe(const Api& api, bool simulated) {
  int driver = 0, runtime = 0, count = 0;
  if (failed(api, api.GetDeviceCount(&count), "GetDeviceCount")) return 1;
  api.DriverGetVersion(&driver);
  api.RuntimeGetVersion(&runtime);
  fmt::print("{}: driver for CUDA {}.{}, runtime {}.{}, {} device{}\n", api.name, driver / 1000, driver % 1000 / 10,
             runtime / 1000, runtime % 1000 / 10, count, count == 1 ? "" : "s");
  for (int index = 0; index < count; ++index) describe_device(api, index, count);
  const bool kernels = simulated || describe_kernels(api);
  describe_ipc(api, simulated);  // without it the ranks are threads: no reason to stop
  return kernels ? 0 : 1;
}

int run(std::span<char*> words, bool simulated) {
  setenv("RONDO_TEST_DEVICE", simulated ? "sim" : "cuda", 1);
  execvp(words[0], words.data());
  fmt::print(stderr, "on_gpu: cannot run {}: {}\n", words[0], std::strerror(errno));
  return 1;
}

int help() {
  fmt::print("usage: on_gpu [--sim] --describe | on_gpu [--sim] PROGRAM ARGUMENTS...\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::span<char*> words(argv + 1, static_cast<std::size_t>(argc - 1));  // and a null behind them
  const bool simulated = !words.empty() && std::string_view(words[0]) == "--sim";
  if (simulated || (!words.empty() && std::string_view(words[0]) == "--cuda")) words = words.subspan(1);
  if (words.empty() || std::string_view(words[0]) == "--help") return help();

  const Api* api = rondo::gpu_check::find_gpu(simulated);
  if (api == nullptr) return rondo::gpu_check::kSkipped;
  if (std::string_view(words[0]) == "--describe") return describe(*api, simulated);
  if (std::string_view(words[0]) == "--open" && words.size() == 2) return open_handle(*api, words[1]);
  return run(words, simulated);
}
