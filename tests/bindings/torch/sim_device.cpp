// SPDX-License-Identifier: Apache-2.0
// A device "rondosim" for PyTorch over a simulated device of the library: memory, streams, events, and copies. All
// other operators run on the CPU (PyTorch's fallback). Its kernels run on the host, when the current stream is through.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <deque>
#include <mutex>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <rondo/device.hpp>

namespace {

using rondo::DeviceMemory;

// Streams live as long as the process; number 0 is the default one.
class Streams {
 public:
  static Streams& all() {
    static auto* const streams = new Streams;
    return *streams;
  }
  c10::StreamId make() {
    const std::lock_guard lock(mutex_);
    streams_.emplace_back(rondo::Device::sim(0));
    return static_cast<c10::StreamId>(streams_.size()) - 1;
  }
  const rondo::DeviceStream& at(c10::StreamId id) {
    const std::lock_guard lock(mutex_);
    return streams_.at(static_cast<std::size_t>(id));
  }

 private:
  Streams() { streams_.emplace_back(rondo::Device::sim(0)); }
  std::mutex mutex_;
  std::deque<rondo::DeviceStream> streams_;
};

thread_local c10::StreamId current = 0;
const c10::Device kSim(c10::kPrivateUse1, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return kSim; }
  c10::Device getDevice() const override { return kSim; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kSim, id); }
  c10::Stream getStream(c10::Device) const override { return stream(current); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(Streams::all().make()); }
  c10::Stream exchangeStream(c10::Stream next) const override { return stream(std::exchange(current, next.id())); }
  void* getStreamNativeHandle(const c10::Stream one) const override { return Streams::all().at(one.id()).get(); }
  void synchronizeStream(const c10::Stream& one) const override { Streams::all().at(one.id()).synchronize(); }
  // An event is its stream, and who waits for it lets the host wait.
  void record(void** event, const c10::Stream& one, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new c10::StreamId;
    *static_cast<c10::StreamId*>(*event) = one.id();
  }
  void block(void* event, const c10::Stream&) const override {
    Streams::all().at(*static_cast<c10::StreamId*>(event)).synchronize();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<c10::StreamId*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  const auto lengths = C10_AS_INTARRAYREF_SLOW(sizes), steps = C10_AS_INTARRAYREF_SLOW(strides);
  const auto dtype = type.value_or(at::kFloat);
  const auto bytes = at::detail::computeStorageNbytes(lengths, steps, c10::elementSize(dtype));
  auto memory = std::make_shared<DeviceMemory>(rondo::Device::sim(0), std::max<std::size_t>(bytes, 1));
  void* const data = memory->data();
  return at::for_blob(data, lengths)
      .strides(steps)
      .deleter([memory](void*) mutable { memory.reset(); })
      .options(at::TensorOptions().dtype(dtype).device(kSim))
      .target_device(kSim)
      .make_tensor();
}

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat>) {
  std::vector<c10::SymInt> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return empty_strided(sizes, strides, type, layout, device, pinned);
}

// The same memory as the host sees it.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options().device(at::kCPU))
      .make_tensor();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  Streams::all().at(current).synchronize();
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_back(const at::Tensor& from, const at::Tensor& to) {
  TORCH_CHECK(from.sizes() == to.sizes(), "rondosim: an output of another size");
  return copy_from(from, to, false);
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      tensor, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? std::optional(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef sizes) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(sizes));
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_back);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  module.def("use_stream", [](bool other) {  // of the calling thread
    static const c10::StreamId id = Streams::all().make();
    current = other ? id : 0;
  });
}
