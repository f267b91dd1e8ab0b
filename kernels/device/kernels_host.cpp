// SPDX-License-Identifier: Apache-2.0
// The same kernels for the host executor.
#include "kernels/device/fifo_kernel.cuh"
#include "kernels/device/kernels.hpp"
#include "kernels/device/push.cuh"
#include "kernels/device/window_sum.cuh"
#include "kernels/simt/lane_api.hpp"
#include "kernels/soft/kernel.hpp"

namespace rondo::cuda {
namespace {

namespace device = kernels::device;

template <class P>
constexpr soft::Kernel fifo(const char* name) {
  return soft::kernel<&device::fifo_kernel<P>, device::Launch>(name);
}

template <class Column>
constexpr soft::Kernel push(const char* name) {
  return soft::kernel<&device::push_kernel<Column>, device::PushLaunch>(name);
}

template <class E>
constexpr soft::Kernel window_sum(const char* name) {
  return soft::kernel<&device::window_sum_kernel<E>, device::WindowSumLaunch>(name);
}

constexpr soft::Kernel kSimple = fifo<device::Simple>("fifo_simple");
constexpr soft::Kernel kLL = fifo<device::LL>("fifo_ll");
constexpr soft::Kernel kLL128 = fifo<device::LL128>("fifo_ll128");
constexpr soft::Kernel kWindow = soft::kernel<&device::window_kernel, device::Launch>("window");
constexpr soft::Kernel kPushF32 = push<device::PushSum<device::PlainElement<float>>>("push_sum_f32");
constexpr soft::Kernel kPushF16 = push<device::PushSum<device::F16Element>>("push_sum_f16");
constexpr soft::Kernel kPushBf16 = push<device::PushSum<device::Bf16Element>>("push_sum_bf16");
constexpr soft::Kernel kPushCopy = push<device::PushCopy>("push_copy");
constexpr soft::Kernel kSumF32 = window_sum<device::PlainElement<float>>("window_sum_f32");
constexpr soft::Kernel kSumF16 = window_sum<device::F16Element>("window_sum_f16");
constexpr soft::Kernel kSumBf16 = window_sum<device::Bf16Element>("window_sum_bf16");

}  // namespace

Kernels soft_kernels() {
  return {{&kSimple, &kLL, &kLL128},
          &kWindow,
          {&kPushF32, &kPushF16, &kPushBf16, &kPushCopy},
          {&kSumF32, &kSumF16, &kSumBf16}};
}

std::uint64_t load_credit(const std::uint64_t& word) {
  const std::uint64_t value = __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  simt::after_credit(&word);
  return value;
}

}  // namespace rondo::cuda
