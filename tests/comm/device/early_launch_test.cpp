// SPDX-License-Identifier: Apache-2.0
// The attributes that kernels are launched with, and calls behind kernels that let them begin early.
#include <map>

#include "comm/device/launch/launch_way.hpp"
#include "comm/device/memory/frees.hpp"
#include "tests/comm/device/graph.hpp"
#include "tests/kernels/soft/kernels.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/setting.hpp"

using namespace rondo;
using namespace rondo::test;
using comm::device::LaunchWay;
using comm::device::Settings;

namespace {

struct Seen {
  int launches = 0, early = 0, remote = 0;
};
std::mutex seen_mutex;
std::map<const void*, Seen> seen;  // by kernel

cudaError_t look_and_launch(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  {
    const std::lock_guard lock(seen_mutex);
    Seen& of = seen[kernel];
    ++of.launches;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const cudaLaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
        of.early += attribute.val.programmaticStreamSerializationAllowed;
      if (attribute.id == cudaLaunchAttributeMemSyncDomain)
        of.remote += attribute.val.memSyncDomain == cudaLaunchMemSyncDomainRemote ? 1 : 0;
    }
  }
  return cuda::soft_api().LaunchKernelExC(config, kernel, arguments);
}
const cuda::Api& looking_api() {
  static const cuda::Api api = [] {
    cuda::Api copy = cuda::soft_api();
    copy.LaunchKernelExC = &look_and_launch;
    return copy;
  }();
  return api;
}

// The caller's kernel before a call: lets it begin, waits for the gate, then writes the call's input.
struct Produce {
  const std::uint32_t* gate;
  std::int32_t* data;
  std::uint32_t count;
  std::int32_t first;
};
void produce(const Produce& argument) {
  using namespace kernels::device;
  Spin spin;
  while (load_acquire(argument.gate) == 0) spin.pause(argument.gate, 0u, nullptr);
  for (unsigned i = thread_index(); i < argument.count; i += block_threads())
    store<std::uint32_t>(argument.data + i, static_cast<std::uint32_t>(argument.first) + i);
}
constexpr soft::Kernel kProduce = soft::kernel<produce, Produce>("produce", true);

// What is left to be freed waits for all kernels of the process, gates among them, and calls wait for it. So nobody
// shuts a gate before all ranks are here and nothing is left.
void settle(Communicator& comm, Stream stream) {
  for (int i = 0; i < 2; ++i) {
    comm.barrier(stream);
    comm.synchronize(stream);
    must(comm::device::await_no_frees(api_under_test(), std::chrono::seconds(60)) ? cudaSuccess : cudaErrorUnknown);
  }
}

// Short, long, and by slots: a push, a window, a FIFO kernel.
void sum_what_is_produced(Communicator& comm, bool in_graph) {
  const DeviceStream stream(comm.device());
  auto* const raw = static_cast<cudaStream_t>(stream.get());
  DeviceArray<std::uint32_t> gates(comm.device(), std::vector<std::uint32_t>(2, 0));
  std::uint32_t* const gate = gates.span().data();
  must(api_under_test().SetDevice(comm.device().index));
  for (const std::size_t count : {std::size_t{40}, std::size_t{3000}}) {
    DeviceArray<std::int32_t> data(comm.device(), count);
    __atomic_store_n(gate, 0u, __ATOMIC_RELEASE);
    const auto enqueue = [&] {
      Produce argument{gate, data.span().data(), static_cast<std::uint32_t>(count), comm.rank()};
      void* arguments[] = {&argument};
      must(api_under_test().LaunchKernel(&kProduce, dim3(1), dim3(32), arguments, 0, raw));
      comm.all_reduce(data.span(), ReduceOp::sum, stream.get());
    };
    std::optional<Graph> graph;
    settle(comm, stream.get());
    // Both are on the stream before the first begins.
    soft::testing::Gate shut{gate + 1, 1, gate + 1};
    void* arguments[] = {&shut};
    __atomic_store_n(gate + 1, 0u, __ATOMIC_RELEASE);
    if (in_graph) graph.emplace(raw, enqueue);
    must(api_under_test().LaunchKernel(&soft::testing::kGate, dim3(1), dim3(32), arguments, 0, raw));
    if (graph) {
      graph->launch();
    } else {
      enqueue();
    }
    __atomic_store_n(gate + 1, 1u, __ATOMIC_RELEASE);
    __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
    comm.synchronize(stream.get());
    expect_sum_of_ramps(data.to_host(), comm.world_size());
  }
}

LaunchWay way_of(const cuda::Api& api) { return {api, 0, Settings::from_environment(Device::Kind::sim)}; }

}  // namespace

TEST_CASE("device communicators: a call behind a kernel that lets it begin early uses its data when that has ended") {
  if (on_cuda()) return;
  const bool in_graph = GENERATE(false, true);
  const test::Setting protocol("RONDO_PROTOCOL", GENERATE("", "simple", "ll"));
  on_ranks(
      3, [&](Communicator& comm) { sum_what_is_produced(comm, in_graph); }, on_sim());
}

TEST_CASE("device communicators: kernels may begin early, and those with fences have a domain, unless switched off") {
  if (on_cuda()) return;
  const bool early = GENERATE(true, false), domain = GENERATE(true, false);
  const test::Setting early_launch("RONDO_DEVICE_EARLY_LAUNCH", early ? "on" : "off");
  const test::Setting sync_domain("RONDO_DEVICE_SYNC_DOMAIN", domain ? "on" : "off");
  const test::Setting push_blocks("RONDO_DEVICE_PUSH_BLOCKS", "1");
  seen.clear();
  rethrow(in_threads(comm::make_local(2, on_sim(), &looking_api()), [&](Communicator& comm) {
    const DeviceStream stream(comm.device()), other(comm.device());
    DeviceArray<std::int32_t> few(comm.device(), 4), all(comm.device(), 8), many(comm.device(), 20000);
    comm.all_reduce(few.span(), ReduceOp::sum, stream.get());
    comm.all_gather(few.span(), all.span(), stream.get());
    comm.all_reduce(many.span(), ReduceOp::sum, stream.get());
    comm.all_reduce(many.span(), ReduceOp::sum, other.get());  // behind an event
    comm.synchronize(other.get());
  }));
  Seen pushes, others;
  const cuda::Kernels kernels = cuda::soft_kernels();
  for (const auto& [kernel, of] : seen) {
    const bool push = std::find(std::begin(kernels.push), std::end(kernels.push), kernel) != std::end(kernels.push);
    Seen& sum = push ? pushes : others;
    sum = {sum.launches + of.launches, sum.early + of.early, sum.remote + of.remote};
  }
  CHECK(pushes.launches > 0);
  CHECK(others.launches >= 4);
  CHECK(pushes.early + others.early == (early ? pushes.launches + others.launches - 2 : 0));
  CHECK(pushes.remote == 0);
  CHECK(others.remote == (domain ? others.launches : 0));
}

TEST_CASE("who may not launch early, or has no domains, says why") {
  if (on_cuda()) return;
  CHECK(way_of(cuda::soft_api()).no_early_launch().empty());
  CHECK(way_of(cuda::soft_api()).no_sync_domain().empty());
  cuda::Api api = cuda::soft_api();
  api.DriverGetVersion = [](int* version) { return *version = 12020, cudaSuccess; };
  CHECK(way_of(api).no_early_launch() == "the driver is of CUDA 12.2, and 12.3 is needed");
  api = cuda::soft_api();
  api.FuncGetAttributes = [](cudaFuncAttributes* code, const void*) {
    code->ptxVersion = 80;  // compiled for sm_80, and by the driver for the device
    code->binaryVersion = 90;
    return cudaSuccess;
  };
  CHECK(way_of(api).no_early_launch() == "the kernels are compiled for sm_80, and sm_90 is needed");
  static const void* old;
  api.FuncGetAttributes = [](cudaFuncAttributes* code, const void* kernel) {
    code->ptxVersion = code->binaryVersion = kernel == old ? 80 : 90;
    return cudaSuccess;
  };
  for (const void* kernel : cuda::all_of(api.kernels)) {
    old = kernel;
    CHECK(way_of(api).no_early_launch() == "the kernels are compiled for sm_80, and sm_90 is needed");
  }
  api.FuncGetAttributes = [](cudaFuncAttributes*, const void*) { return cudaErrorInvalidDeviceFunction; };
  CHECK(way_of(api).no_early_launch() == "the kernels do not say what they are compiled for");
  api.DeviceGetAttribute = [](int* value, cudaDeviceAttr, int) { return *value = 1, cudaSuccess; };
  CHECK(way_of(api).no_sync_domain() == "the device has one memory synchronisation domain");
  const test::Setting early_launch("RONDO_DEVICE_EARLY_LAUNCH", "off"), domain("RONDO_DEVICE_SYNC_DOMAIN", "off");
  CHECK(way_of(api).no_early_launch().empty());
  CHECK(way_of(api).no_sync_domain().empty());
}

TEST_CASE("RONDO_DEVICE_EARLY_LAUNCH and RONDO_DEVICE_SYNC_DOMAIN are on or off") {
  const char* const name = GENERATE("RONDO_DEVICE_EARLY_LAUNCH", "RONDO_DEVICE_SYNC_DOMAIN");
  const test::Setting setting(name, "no");
  const auto error = test::thrown_by([] { Settings::from_environment(Device::Kind::sim); });
  CHECK(test::code_of(error) == ErrorCode::invalid_argument);
  CHECK(test::sentence_of(error) == std::string(name) + "=no is neither on nor off");
}
