// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "tests/kernels/soft/kernels.hpp"
#include "tests/kernels/soft/soft.hpp"

namespace rondo::soft::testing {
namespace {

using Uuid = std::array<unsigned char, 16>;
Uuid uuid_of(int device) {
  unsigned char raw[16];
  REQUIRE(api().DeviceUuid(&raw, device) == cudaSuccess);
  Uuid uuid;
  std::memcpy(uuid.data(), raw, sizeof raw);
  return uuid;
}
int attribute_of(cudaDeviceAttr attribute, int device = 0) {
  int value = -1;
  REQUIRE(api().DeviceGetAttribute(&value, attribute, device) == cudaSuccess);
  return value;
}
std::vector<std::string> g_reports;  // one device fails at a time
void note_report(const char* sentence) { g_reports.emplace_back(sentence); }

int device_count() {
  int count = -1;
  api().GetDeviceCount(&count);
  return count;
}

}  // namespace

TEST_CASE("Devices are counted, named and chosen by thread", "[soft]") {
  const Machine machine({.devices = 3});
  CHECK(device_count() == 3);
  CHECK(api().SetDevice(3) == cudaErrorInvalidDevice);
  CHECK(api().SetDevice(-1) == cudaErrorInvalidDevice);
  REQUIRE(api().SetDevice(2) == cudaSuccess);
  int elsewhere = -1;
  std::thread([&] { api().GetDevice(&elsewhere); }).join();
  CHECK(elsewhere == 0);
  int here = -1;
  REQUIRE(api().GetDevice(&here) == cudaSuccess);
  CHECK(here == 2);
  char name[64] = "";
  REQUIRE(api().DeviceName(name, sizeof name, 1) == cudaSuccess);
  CHECK(std::string(name) == "Rondo simulated device");
  CHECK(api().DeviceName(name, sizeof name, 3) == cudaErrorInvalidDevice);
  CHECK(std::string(api().name) == "sim");
}

TEST_CASE("A machine without devices says so", "[soft]") {
  const Settings settings = {.devices = 0};
  reset();
  REQUIRE(configure(settings));
  int count = -1;
  CHECK(api().GetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  void* pointer = nullptr;
  CHECK(api().Malloc(&pointer, 1) == cudaErrorInvalidDevice);
  REQUIRE(configure({}));
  CHECK(device_count() == 8);
}

TEST_CASE("UUIDs follow the device, whatever is visible", "[soft]") {
  std::vector<Uuid> all;
  {
    const Machine machine({.devices = 4});
    for (int device = 0; device < 4; ++device) all.push_back(uuid_of(device));
    CHECK(std::set<Uuid>(all.begin(), all.end()).size() == 4);
  }
  {
    const Machine machine({.devices = 4, .visible_devices = std::vector<int>{3, 1, 7, 0}});
    CHECK(device_count() == 2);  // the 7 ends the list
    CHECK(uuid_of(0) == all[3]);
    CHECK(uuid_of(1) == all[1]);
    CHECK(attribute_of(cudaDevAttrPciBusId, 0) != attribute_of(cudaDevAttrPciBusId, 1));
  }
  const Machine machine({.devices = 4, .machine = "another"});
  CHECK(uuid_of(0) != all[0]);
}

TEST_CASE("Peer access follows the matrix, by device of the machine", "[soft]") {
  const auto can = [](int device, int peer) {
    int yes = -1;
    REQUIRE(api().DeviceCanAccessPeer(&yes, device, peer) == cudaSuccess);
    return yes;
  };
  {
    const Machine machine({.devices = 3, .visible_devices = std::vector<int>{2, 0, 1}, .denied_peers = {{0, 2}}});
    CHECK(can(0, 1) == 0);  // 2 and 0
    CHECK(can(1, 0) == 0);
    CHECK(can(0, 2) == 1);  // 2 and 1
    CHECK(can(0, 0) == 0);  // as CUDA: a device is no peer of itself
    CHECK(api().DeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessUnsupported);
    CHECK(api().DeviceEnablePeerAccess(2, 0) == cudaSuccess);
    CHECK(api().DeviceEnablePeerAccess(2, 0) == cudaErrorPeerAccessAlreadyEnabled);
    CHECK(api().DeviceEnablePeerAccess(2, 1) == cudaErrorInvalidValue);
    CHECK(api().DeviceEnablePeerAccess(0, 0) == cudaErrorInvalidDevice);
    CHECK(api().DeviceEnablePeerAccess(3, 0) == cudaErrorInvalidDevice);
  }
  const Machine machine({.devices = 2, .peer_access = false});
  CHECK(can(0, 1) == 0);
}

TEST_CASE("Occupancy follows the limit of resident blocks", "[soft]") {
  const auto active = [](int threads) {
    int blocks = -1;
    REQUIRE(api().OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &kAdd, threads, 0) == cudaSuccess);
    return blocks;
  };
  {
    const Machine machine({.multiprocessors = 4, .resident_blocks = 12});
    CHECK(attribute_of(cudaDevAttrMultiProcessorCount) == 4);
    CHECK(active(64) == 3);
    CHECK(active(1024) == 2);
  }
  const Machine machine({.multiprocessors = 16, .resident_blocks = 5});
  CHECK(attribute_of(cudaDevAttrMultiProcessorCount) == 5);
  CHECK(active(64) == 1);
  int blocks = 0;
  CHECK(api().OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &blocks, 64, 0) == cudaErrorInvalidDeviceFunction);
  CHECK(api().OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &kAdd, 2000, 0) == cudaErrorInvalidValue);
  cudaFuncAttributes attributes{};
  REQUIRE(api().FuncGetAttributes(&attributes, &kAdd) == cudaSuccess);
  CHECK(attributes.maxThreadsPerBlock == 1024);
}

TEST_CASE("Kernels beyond the resident blocks wait for others to end", "[soft]") {
  const Machine machine({.resident_blocks = 4});
  auto* const words = zeros(5);
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  auto* const elsewhere = zeros(3);
  const cudaStream_t there = make_stream();
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  const cudaStream_t first = make_stream();
  const cudaStream_t second = make_stream();
  REQUIRE(launch(kGate, Gate{words, 1, words + 1, words + 4}, first, 3) == cudaSuccess);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);  // streams run when they get a core
  while (__atomic_load_n(words + 4, __ATOMIC_ACQUIRE) == 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  REQUIRE(launch(kGate, Gate{words + 3, 0, words + 2}, second, 1) == cudaSuccess);  // open, and fits
  REQUIRE(api().StreamSynchronize(second) == cudaSuccess);
  REQUIRE(launch(kGate, Gate{words + 3, 0, words + 2}, second, 2) == cudaSuccess);  // does not fit
  REQUIRE(api().SetDevice(1) == cudaSuccess);
  REQUIRE(launch(kDawdle, Dawdle{5'000'000, elsewhere, elsewhere + 1, elsewhere + 2}, there, 4) == cudaSuccess);
  REQUIRE(api().StreamSynchronize(there) == cudaSuccess);
  REQUIRE(api().SetDevice(0) == cudaSuccess);
  CHECK(api().StreamQuery(second) == cudaErrorNotReady);
  __atomic_store_n(words, 1u, __ATOMIC_RELEASE);
  REQUIRE(api().DeviceSynchronize() == cudaSuccess);
  CHECK(read(words, 5) == std::vector<std::uint32_t>{1, 1, 1, 0, 1});
}

TEST_CASE("A grid larger than the device runs in turns", "[soft]") {
  const Machine machine({.resident_blocks = 2});
  auto* const data = allocate<std::uint32_t>(64);
  REQUIRE(api().Memset(data, 0, 256) == cudaSuccess);
  REQUIRE(launch(kAdd, Add{data, 64, 1}, nullptr, 16, 32) == cudaSuccess);
  CHECK(read(data, 64) == std::vector<std::uint32_t>(64, 1));
}

TEST_CASE("Blocks that wait for one that has no place stand still, and are ended", "[soft]") {
  g_reports.clear();
  const Machine machine({.resident_blocks = 2, .kernel_timeout = std::chrono::seconds(1), .report = &note_report});
  auto* const words = allocate<std::uint32_t>(1);
  REQUIRE(api().Memset(words, 0, 4) == cudaSuccess);
  REQUIRE(launch(kMeet, Meet{words}, nullptr, 2) == cudaSuccess);
  REQUIRE(api().DeviceSynchronize() == cudaSuccess);
  REQUIRE(api().Memset(words, 0, 4) == cudaSuccess);
  REQUIRE(launch(kMeet, Meet{words}, nullptr, 3) == cudaSuccess);
  CHECK(api().DeviceSynchronize() == cudaErrorLaunchTimeout);
  REQUIRE(g_reports.size() == 1);
  CHECK(g_reports[0].find("meet") != std::string::npos);
}

TEST_CASE("Settings hold while something is in use", "[soft]") {
  reset();
  REQUIRE(configure({}));
  auto* const data = allocate<int>(1);
  CHECK(configure({}));
  CHECK_FALSE(configure({.devices = 2}));
  CHECK(settings().devices == 8);
  REQUIRE(api().Free(data) == cudaSuccess);
  CHECK(configure({.devices = 2}));
  CHECK(settings().devices == 2);
  reset();
  CHECK(configure({}));
}

TEST_CASE("Errors have names", "[soft]") {
  CHECK(std::string(api().GetErrorName(cudaErrorInvalidResourceHandle)) == "cudaErrorInvalidResourceHandle");
  CHECK(std::string(api().GetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(api().GetErrorName(static_cast<cudaError_t>(1000))) == "unrecognized error code");
  int version = 0;
  CHECK(api().DriverGetVersion(&version) == cudaSuccess);
  CHECK(version >= 12000);
}

}  // namespace rondo::soft::testing
