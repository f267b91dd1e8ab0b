// SPDX-License-Identifier: Apache-2.0
// The rules of words on planted violations; the repository itself is checked in lint_test.cpp.
#include "tests/tree/words.hpp"

#include "tests/support/catch.hpp"

namespace {

bool refused(const std::string& path, const std::string& line) {
  return rondo::tree::word_violations({path, line + "\n"}).size() == 1;
}
bool accepted(const std::string& path, const std::string& line) {
  return rondo::tree::word_violations({path, line + "\n"}).empty();
}

}  // namespace

TEST_CASE("getenv and detached threads are kept where they belong") {
  CHECK(refused("comm/a.cpp", "const char* a = std::getenv(\"A\");"));
  CHECK(refused("tools/a.cpp", "auto a = secure_getenv(\"A\");"));
  CHECK(accepted("comm/base/env.cpp", "const char* a = std::getenv(\"A\");"));
  CHECK(accepted("comm/a.cpp", "// getenv is not for us\nconst char* a = \"getenv\"; /* getenv */"));
  CHECK(refused("comm/a.cpp", "thread.detach();"));
  CHECK(accepted("tests/a.cpp", "thread.detach();"));
}

TEST_CASE("threads are started where signals are blocked") {
  for (const char* path : {"kernels/soft/a.cpp", "comm/a.cpp", "rendezvous/a.cpp", "runtime/a.cpp"}) {
    INFO(path);
    CHECK(refused(path, "thread_ = std::thread([this] { run(); });"));
    CHECK(refused(path, "const std::jthread other([] {});"));
    CHECK(accepted(path, "thread_ = start_thread(\"rondo-a\", [this] { run(); });"));
    CHECK(accepted(path, "std::thread thread_;"));
  }
  CHECK(accepted("kernels/thread.hpp", "return std::thread([] {});"));
  CHECK(accepted("tests/a.cpp", "std::thread([] {}).join();"));
}

TEST_CASE("kernels use no raw CUDA spelling") {
  for (const char* path : {"kernels/device/a.cuh", "kernels/device/kernels.cu", "kernels/algorithms/a.hpp"}) {
    INFO(path);
    CHECK(refused(path, "const unsigned t = threadIdx.x;"));
    CHECK(refused(path, "if (blockIdx.x == 0) return;"));
    CHECK(refused(path, "__shared__ int n;"));
    CHECK(refused(path, "__global__ void kernel(int);"));
    CHECK(refused(path, "__syncthreads();"));
    CHECK(refused(path, "__threadfence_system();"));
    CHECK(refused(path, "#ifdef __CUDA_ARCH__"));
    CHECK(refused(path, "asm(\"trap;\");"));
    CHECK(refused(path, "volatile int* p;"));
    CHECK(refused(path, "atomicAdd(p, 1);"));
    CHECK(refused(path, "std::atomic_ref<int> a(*p);"));
    CHECK(refused(path, "printf(\"x\");"));
    CHECK(refused(path, "simt::yield_point();"));
    CHECK(accepted(path, "const unsigned t = thread_index();  // not threadIdx"));
    CHECK(accepted(path, "return __builtin_bit_cast(float, bits);"));
  }
  CHECK(accepted("kernels/device/seam_cuda.cuh", "return threadIdx.x;"));
  CHECK(accepted("kernels/device/seam.cuh", "#if defined(__CUDACC__)"));
  CHECK(accepted("kernels/simt/a.cpp", "__atomic_load_n(p, 0);"));
}

TEST_CASE("the CUDA runtime is called through its table") {
  for (const char* path : {"kernels/soft/a.cpp", "comm/device/a.cpp", "bench/a.cpp", "tests/gpu/a_test.cpp"}) {
    INFO(path);
    CHECK(refused(path, "check(cudaMalloc(&p, 8));"));
    CHECK(refused(path, "auto* f = &cudaFree;"));
    CHECK(refused(path, "cuMemGetAddressRange(&base, &bytes, p);"));
    CHECK(accepted(path, "cudaError_t status = api.Malloc(&p, 8);"));
    CHECK(accepted(path, "cudaError_t (*Malloc)(void**, std::size_t);"));
    CHECK(accepted(path, "cuda_kernels(); current(); custom(1);"));
    CHECK(accepted(path, "const cudaPointerAttributes attributes{};"));
  }
  CHECK(accepted("kernels/cuda/libcudart.cpp", ".Malloc = &cudaMalloc,"));
}
