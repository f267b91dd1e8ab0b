// SPDX-License-Identifier: Apache-2.0
// What is said of machines that are not at hand: the soft runtime's table with some answers replaced.
#include "kernels/cuda/find_cuda.hpp"

#include <cstring>

#include "kernels/soft/kernel.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/same_kernels.hpp"

namespace rondo::cuda {
namespace {

void no_body(const int&) {}
constexpr soft::Kernel kKernel = soft::kernel<no_body, int>("none");

cudaError_t one_device(int* count) {
  *count = 1;
  return cudaSuccess;
}

Api table() {
  Api api = soft_api();
  api.kernels = test::same_kernels(&kKernel);
  api.GetDeviceCount = &one_device;
  return api;
}
bool says(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
bool is_one_sentence(const std::string& text) {
  return text.find('\n') == std::string::npos && !text.empty() && text.back() == '.';
}

}  // namespace

TEST_CASE("Nothing stands in the way of a table whose kernels load", "[cuda]") {
  const Api api = table();
  CHECK(obstacle_of(&api).empty());
}

TEST_CASE("A build without nvcc says so", "[cuda]") {
  const std::string text = obstacle_of(nullptr);
  CHECK(says(text, "configured without nvcc"));
  CHECK(is_one_sentence(text));
}

TEST_CASE("No driver and an old driver are told apart", "[cuda]") {
  Api api = table();
  api.GetDeviceCount = [](int*) { return cudaErrorInsufficientDriver; };
  api.RuntimeGetVersion = [](int* version) {
    *version = 13000;
    return cudaSuccess;
  };
  api.DriverGetVersion = [](int* version) {
    *version = 0;
    return cudaSuccess;
  };
  CHECK(says(obstacle_of(&api), "no NVIDIA driver is loaded"));
  CHECK(is_one_sentence(obstacle_of(&api)));
  api.DriverGetVersion = [](int* version) {
    *version = 12040;
    return cudaSuccess;
  };
  CHECK(says(obstacle_of(&api), "is for CUDA 12.4, which is too old for the CUDA 13.0"));
  CHECK(is_one_sentence(obstacle_of(&api)));
}

TEST_CASE("A driver without a GPU, and one that fails, say so", "[cuda]") {
  Api api = table();
  api.GetDeviceCount = [](int*) { return cudaErrorNoDevice; };
  CHECK(says(obstacle_of(&api), "finds no GPU"));
  CHECK(is_one_sentence(obstacle_of(&api)));
  api.GetDeviceCount = [](int*) { return cudaErrorInitializationError; };
  CHECK(says(obstacle_of(&api), "cudaErrorInitializationError"));
  CHECK(is_one_sentence(obstacle_of(&api)));
}

TEST_CASE("A GPU for which there is no code is named with its capability", "[cuda]") {
  Api api = table();
  api.FuncGetAttributes = [](cudaFuncAttributes*, const void*) { return cudaErrorNoKernelImageForDevice; };
  CHECK(says(obstacle_of(&api), "no code for GPU 0 (Rondo simulated device) of compute capability 9.0"));
  CHECK(is_one_sentence(obstacle_of(&api)));
  api.FuncGetAttributes = [](cudaFuncAttributes*, const void*) { return cudaErrorUnknown; };
  CHECK(says(obstacle_of(&api), "does not load the kernels"));
  static const void* missing;
  api.kernels = soft_kernels();
  api.FuncGetAttributes = [](cudaFuncAttributes*, const void* kernel) {
    return kernel == missing ? cudaErrorUnknown : cudaSuccess;
  };
  for (const void* kernel : all_of(api.kernels)) {
    missing = kernel;
    CHECK(says(obstacle_of(&api), "does not load the kernels"));
  }
}

TEST_CASE("With several GPUs none is touched before one is chosen", "[cuda]") {
  Api api = table();
  api.GetDeviceCount = soft_api().GetDeviceCount;
  api.FuncGetAttributes = [](cudaFuncAttributes*, const void*) { return cudaErrorNoKernelImageForDevice; };
  CHECK(obstacle_of(&api).empty());
  CHECK(says(code_obstacle(api, 1), "GPU 1"));
}

TEST_CASE("Every row of a table is filled", "[cuda]") {
  for (const Api* api : {&soft_api(), libcudart_api()}) {
    if (api == nullptr) continue;  // built without nvcc
    using Call = void (*)();
    const auto* first = reinterpret_cast<const std::byte*>(&api->GetDeviceCount);
    const auto* last = reinterpret_cast<const std::byte*>(api) + sizeof(Api);
    for (int row = 0; first != last; first += sizeof(Call), ++row) {
      Call call = nullptr;
      std::memcpy(&call, first, sizeof call);
      INFO(api->name << " row " << row);
      CHECK(call != nullptr);
    }
  }
}

TEST_CASE("find_cuda gives a table or a sentence, never both", "[cuda]") {
  std::string obstacle;
  const Api* api = find_cuda(obstacle);
  CHECK((api == nullptr) != obstacle.empty());
  if (api == nullptr) CHECK(is_one_sentence(obstacle));
}

}  // namespace rondo::cuda
