// SPDX-License-Identifier: Apache-2.0
// Processes that share memory through IPC handles, die, and fork. This process itself never uses the devices, so that
// every child starts with a runtime of its own. A child returns the line of the check that failed.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>

#include "kernels/cuda/api.hpp"
#include "kernels/soft/settings.hpp"
#include "tests/kernels/soft/child.hpp"
#include "tests/kernels/soft/kernels.hpp"
#include "tests/support/catch.hpp"

#define EXPECT(condition) \
  if (!(condition)) return std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), 1

namespace rondo::soft::testing {
namespace {

const cuda::Api& api() { return cuda::soft_api(); }

std::atomic<int> g_reports{0};
void note_report(const char*) { ++g_reports; }

template <class Argument>
cudaError_t launch(const Kernel& kernel, Argument argument) {
  void* arguments[] = {&argument};
  return api().LaunchKernel(&kernel, dim3(1), dim3(32), arguments, 0, nullptr);
}

// Allocates `count` zeros and tells the handle.
std::uint32_t* export_zeros(const Wire& wire, std::uint32_t count) {
  void* data = nullptr;
  cudaIpcMemHandle_t handle{};
  const bool done = api().Malloc(&data, count * 4) == cudaSuccess && api().Memset(data, 0, count * 4) == cudaSuccess &&
                    api().DeviceSynchronize() == cudaSuccess && api().IpcGetMemHandle(&handle, data) == cudaSuccess &&
                    wire.send(handle);
  return done ? static_cast<std::uint32_t*>(data) : nullptr;
}
cudaError_t open(const cudaIpcMemHandle_t& handle, std::uint32_t*& data) {
  void* opened = nullptr;
  const cudaError_t code = api().IpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
  data = static_cast<std::uint32_t*>(opened);
  return code;
}
cudaIpcMemHandle_t handle_from(const Child& child) {
  cudaIpcMemHandle_t handle{};
  REQUIRE(child.wire().receive(handle));
  return handle;
}

// Exports, then lives until it is told to go.
int export_and_wait(const Wire& wire) {
  EXPECT(export_zeros(wire, 1000) != nullptr);
  wire.wait_word();
  return 0;
}

// Opens what it is told, closes it when told, and stays until it is told to go.
int import_and_wait(const Wire& wire) {
  cudaIpcMemHandle_t handle{};
  std::uint32_t* data = nullptr;
  EXPECT(wire.receive(handle));
  EXPECT(open(handle, data) == cudaSuccess);
  EXPECT(wire.send_word() && wire.wait_word());
  EXPECT(api().IpcCloseMemHandle(data) == cudaSuccess);
  EXPECT(wire.send_word());
  wire.wait_word();
  return 0;
}

// Tells what opening gives in a process of its own.
cudaError_t open_elsewhere(const cudaIpcMemHandle_t& handle, const Settings& chosen = {}) {
  Child child([&](const Wire& wire) {
    std::uint32_t* data = nullptr;
    EXPECT(configure(chosen));
    EXPECT(wire.send(open(handle, data)));
    return 0;
  });
  cudaError_t code = cudaErrorUnknown;
  REQUIRE(child.wire().receive(code));
  REQUIRE(child.wait() == 0);
  return code;
}

// Allocates, exports, and frees when told, with an importer that is alive, gone or killed.
int free_when_told(const Wire& wire, bool strict) {
  EXPECT(configure({.strict = strict, .report = &note_report}));
  std::uint32_t* const data = export_zeros(wire, 10);
  EXPECT(data != nullptr && wire.wait_word());
  EXPECT(api().Free(data) == cudaSuccess);
  return g_reports == 0 ? 0 : 77;
}

}  // namespace

TEST_CASE("Kernels of two processes meet in memory that one exports", "[soft]") {
  Child exporter([](const Wire& wire) {
    std::uint32_t* const data = export_zeros(wire, 1000);
    EXPECT(data != nullptr);
    EXPECT(launch(kGate, Gate{data, 1, data + 1}) == cudaSuccess);
    EXPECT(api().DeviceSynchronize() == cudaSuccess);
    EXPECT(wire.wait_word());  // closed there
    std::uint32_t last = 0;
    EXPECT(api().Memcpy(&last, data + 999, 4, cudaMemcpyDefault) == cudaSuccess);
    EXPECT(last == 42);
    EXPECT(configure({}) && settings().report == nullptr);
    EXPECT(api().Free(data) == cudaSuccess);
    return 0;
  });
  const cudaIpcMemHandle_t handle = handle_from(exporter);
  Child importer([&](const Wire&) {
    std::uint32_t *data = nullptr, *again = nullptr;
    EXPECT(open(handle, data) == cudaSuccess);
    EXPECT(open(handle, again) == cudaSuccess);
    EXPECT(data == again);  // one mapping, counted
    EXPECT(data[999] == 0);
    EXPECT(launch(kAdd, Add{data + 999, 1, 42}) == cudaSuccess);
    EXPECT(launch(kAdd, Add{data, 1, 1}) == cudaSuccess);
    EXPECT(launch(kGate, Gate{data + 1, 1, data + 2}) == cudaSuccess);
    cudaIpcMemHandle_t other{};
    EXPECT(api().IpcGetMemHandle(&other, data) == cudaErrorInvalidValue);  // not to be passed on
    EXPECT(api().Free(data) == cudaErrorInvalidValue);
    void* base = nullptr;
    std::size_t bytes = 0;
    bool exportable = true;
    EXPECT(api().MemGetAllocation(&base, &bytes, &exportable, data + 10) == cudaSuccess);
    EXPECT(base == data && bytes == 4000 && !exportable);
    EXPECT(api().IpcCloseMemHandle(data + 1) == cudaErrorInvalidValue);
    EXPECT(api().IpcCloseMemHandle(data) == cudaSuccess);
    EXPECT(api().DeviceSynchronize() == cudaSuccess);
    EXPECT(data[1] == 1);  // mapped still
    EXPECT(api().IpcCloseMemHandle(data) == cudaSuccess);
    EXPECT(api().IpcCloseMemHandle(data) == cudaErrorInvalidValue);
    return 0;
  });
  CHECK(importer.wait() == 0);
  REQUIRE(exporter.wire().send_word());
  CHECK(exporter.wait() == 0);
}

TEST_CASE("A killed exporter leaves its importers their memory, and nothing else", "[soft]") {
  Child exporter(&export_and_wait);
  const cudaIpcMemHandle_t handle = handle_from(exporter);
  Child importer([&](const Wire& wire) {
    std::uint32_t* data = nullptr;
    EXPECT(open(handle, data) == cudaSuccess);
    EXPECT(wire.send_word() && wire.wait_word());
    EXPECT(launch(kAdd, Add{data, 1000, 2}) == cudaSuccess);
    EXPECT(api().DeviceSynchronize() == cudaSuccess);
    EXPECT(data[999] == 2);
    EXPECT(api().IpcCloseMemHandle(data) == cudaSuccess);
    EXPECT(open(handle, data) == cudaErrorInvalidResourceHandle);
    return 0;
  });
  REQUIRE(importer.wire().wait_word());
  exporter.kill_hard();
  CHECK(open_elsewhere(handle) == cudaErrorInvalidResourceHandle);  // of a zombie
  CHECK(exporter.wait() == 128 + SIGKILL);
  CHECK(open_elsewhere(handle) == cudaErrorInvalidResourceHandle);
  REQUIRE(importer.wire().send_word());
  CHECK(importer.wait() == 0);
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    CHECK(entry.path().filename().string().find("rondo-sim") == std::string::npos);
  }
}

TEST_CASE("A handle is dead once the memory is freed, though its descriptor lives again", "[soft]") {
  Child exporter([](const Wire& wire) {
    std::uint32_t* const data = export_zeros(wire, 1000);
    EXPECT(data != nullptr && wire.wait_word());
    EXPECT(api().Free(data) == cudaSuccess);
    EXPECT(wire.send_word() && wire.wait_word());
    EXPECT(export_zeros(wire, 1000) != nullptr);  // the same descriptor, the same size
    wire.wait_word();
    return 0;
  });
  const cudaIpcMemHandle_t first = handle_from(exporter);
  CHECK(open_elsewhere(first) == cudaSuccess);
  REQUIRE(exporter.wire().send_word());
  REQUIRE(exporter.wire().wait_word());
  CHECK(open_elsewhere(first) == cudaErrorInvalidResourceHandle);
  REQUIRE(exporter.wire().send_word());
  const cudaIpcMemHandle_t second = handle_from(exporter);
  CHECK(open_elsewhere(second) == cudaSuccess);
  CHECK(open_elsewhere(first) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("Memory freed while others map it is reported, and fatal when strict", "[soft]") {
  const bool strict = GENERATE(false, true);
  Child exporter([&](const Wire& wire) { return free_when_told(wire, strict); });
  const cudaIpcMemHandle_t handle = handle_from(exporter);
  Child importer(&import_and_wait);
  REQUIRE(importer.wire().send(handle));
  REQUIRE(importer.wire().wait_word());
  int expected = strict ? 128 + SIGABRT : 77;
  SECTION("the importer lives") {}
  SECTION("the importer has been killed") {
    importer.kill_hard();
    expected = 0;
  }
  SECTION("the importer has closed it") {
    REQUIRE(importer.wire().send_word());
    REQUIRE(importer.wire().wait_word());
    expected = 0;
  }
  REQUIRE(exporter.wire().send_word());
  CHECK(exporter.wait() == expected);
}

TEST_CASE("Memory of a device that is no peer cannot be opened", "[soft]") {
  Child exporter([](const Wire& wire) {
    EXPECT(configure({.visible_devices = std::vector<int>{5}}));
    return export_and_wait(wire);
  });
  const cudaIpcMemHandle_t handle = handle_from(exporter);
  CHECK(open_elsewhere(handle) == cudaSuccess);
  CHECK(open_elsewhere(handle, {.peer_access = false}) == cudaErrorPeerAccessUnsupported);
  CHECK(open_elsewhere(handle, {.denied_peers = {{0, 5}}}) == cudaErrorPeerAccessUnsupported);
  CHECK(open_elsewhere(handle, {.denied_peers = {{1, 5}}}) == cudaSuccess);
  CHECK(open_elsewhere(handle, {.visible_devices = std::vector<int>{5}, .peer_access = false}) == cudaSuccess);
}

TEST_CASE("A device has one UUID in all processes", "[soft]") {
  struct Uuid {
    unsigned char bytes[16];
  };
  const auto uuid_in_child = [](const Settings& chosen, int device) {
    Child child([&](const Wire& wire) {
      Uuid uuid{};
      EXPECT(configure(chosen));
      EXPECT(api().DeviceUuid(&uuid.bytes, device) == cudaSuccess);
      EXPECT(wire.send(uuid));
      return 0;
    });
    Uuid uuid{};
    REQUIRE(child.wire().receive(uuid));
    REQUIRE(child.wait() == 0);
    return std::string(reinterpret_cast<char*>(uuid.bytes), sizeof uuid.bytes);
  };
  CHECK(uuid_in_child({}, 2) == uuid_in_child({.visible_devices = std::vector<int>{7, 2}}, 1));
  CHECK(uuid_in_child({}, 2) != uuid_in_child({}, 1));
}

TEST_CASE("A child of a process that uses devices starts afresh", "[soft]") {
#if defined(__SANITIZE_THREAD__) || defined(RONDO_TEST_TSAN)
  WARN("skipped: ThreadSanitizer ends a child of a process with threads that starts threads");
#else
  Child parent([](const Wire&) {
    EXPECT(configure({.devices = 3}));
    void* data = nullptr;
    cudaStream_t stream = nullptr;
    EXPECT(api().Malloc(&data, 4) == cudaSuccess);
    EXPECT(api().StreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    EXPECT(api().MemsetAsync(data, 0, 4, stream) == cudaSuccess);
    EXPECT(api().StreamSynchronize(stream) == cudaSuccess);
    cudaIpcMemHandle_t handle{};
    EXPECT(api().IpcGetMemHandle(&handle, data) == cudaSuccess);
    Child child([&](const Wire&) {
      EXPECT(settings().devices == 3);
      EXPECT(api().StreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
      EXPECT(api().Free(data) == cudaErrorInvalidValue);
      std::uint32_t* mapped = nullptr;
      EXPECT(open(handle, mapped) == cudaSuccess);  // the parent's memory is another process's
      EXPECT(launch(kAdd, Add{mapped, 1, 5}) == cudaSuccess);
      EXPECT(api().DeviceSynchronize() == cudaSuccess);
      _exit(0);  // LeakSanitizer knows nothing of what the parent's threads hold
    });
    EXPECT(child.wait() == 0);
    EXPECT(*static_cast<std::uint32_t*>(data) == 5);
    EXPECT(api().StreamDestroy(stream) == cudaSuccess);
    return 0;
  });
  CHECK(parent.wait() == 0);
#endif
}

TEST_CASE("A process leaves with streams forgotten and a kernel that waits for ever", "[soft]") {
  Child child([](const Wire&) {
    struct Late {  // constructed before the runtime's state, so destroyed after it
      cudaStream_t stream = nullptr;
      ~Late() {
        if (api().StreamDestroy(stream) != cudaErrorCudartUnloading) _exit(9);
      }
    };
    static Late late;
    void* words = nullptr;
    EXPECT(api().StreamCreateWithFlags(&late.stream, cudaStreamNonBlocking) == cudaSuccess);
    EXPECT(api().Malloc(&words, 16) == cudaSuccess);
    EXPECT(api().Memset(words, 0, 16) == cudaSuccess);
    EXPECT(api().DeviceSynchronize() == cudaSuccess);
    auto* const gate = static_cast<std::uint32_t*>(words);
    EXPECT(launch(kGate, Gate{gate, 1, gate + 1}) == cudaSuccess);
    EXPECT(api().MemsetAsync(gate + 2, 0, 4, late.stream) == cudaSuccess);
    cudaStream_t behind = nullptr;
    EXPECT(api().StreamCreateWithFlags(&behind, cudaStreamDefault) == cudaSuccess);
    EXPECT(api().MemsetAsync(words, 0, 8, behind) == cudaSuccess);
    return 0;
  });
  CHECK(child.wait() == 0);
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("A kernel that writes behind device memory is reported", "[soft]") {
  const bool imported = GENERATE(false, true);
  Child exporter(&export_and_wait);
  const cudaIpcMemHandle_t handle = handle_from(exporter);
  Child child([&](const Wire&) {
    std::uint32_t* data = nullptr;
    void* own = nullptr;
    EXPECT(open(handle, data) == cudaSuccess);
    EXPECT(api().Malloc(&own, 4000) == cudaSuccess);
    if (!imported) data = static_cast<std::uint32_t*>(own);
    std::freopen("/dev/null", "w", stderr);
    launch(kAdd, Add{data, 1001, 1});
    api().DeviceSynchronize();
    return 0;
  });
  CHECK(child.wait() != 0);
}
#endif

}  // namespace rondo::soft::testing
