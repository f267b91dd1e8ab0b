// SPDX-License-Identifier: Apache-2.0
// Which devices there are and what they are like.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "kernels/soft/call.hpp"
#include "kernels/soft/devices.hpp"
#include "kernels/soft/graph.hpp"
#include "kernels/soft/submit.hpp"
#include "kernels/soft/synchronize.hpp"

namespace rondo::soft {

bool is_among(const std::vector<std::pair<int, int>>& pairs, int number, int peer) {
  return std::any_of(pairs.begin(), pairs.end(), [&](const std::pair<int, int>& pair) {
    return pair == std::pair(number, peer) || pair == std::pair(peer, number);
  });
}

bool can_access(const Settings& settings, int number, int peer) {
  return number == peer || (settings.peer_access && !is_among(settings.denied_peers, number, peer));
}

int multiprocessors(const Settings& settings) {
  return std::max(1, std::min(settings.multiprocessors, settings.resident_blocks));
}

int blocks_per_multiprocessor(const Settings& settings, int threads) {
  const int by_setting = std::max(1, settings.resident_blocks) / multiprocessors(settings);
  return std::min(by_setting, kMaxThreadsPerMultiprocessor / std::max(threads, 1));
}

namespace {

constexpr int kVersion = 13000;  // of CUDA, whose semantics these are

cudaError_t count(int* out) {
  return call([&](Process& here) {
    if (out == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(here.mutex);
    *out = static_cast<int>(here.has.devices.size());
    return *out == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t set_device(int index) {
  return call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    if (here.device(index) == nullptr) return cudaErrorInvalidDevice;
    current_device() = index;
    return cudaSuccess;
  });
}

cudaError_t get_device(int* out) {
  return call([&](Process&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = current_device();
    return cudaSuccess;
  });
}

struct Attribute {
  cudaDeviceAttr attribute;
  int (*value)(const Settings&, const Device&);
};
constexpr Attribute kAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, [](const Settings&, const Device&) { return kMaxThreadsPerBlock; }},
    {cudaDevAttrMaxSharedMemoryPerBlock, [](const Settings&, const Device&) { return 48 * 1024; }},
    {cudaDevAttrWarpSize, [](const Settings&, const Device&) { return 32; }},
    {cudaDevAttrMultiProcessorCount, [](const Settings& s, const Device&) { return multiprocessors(s); }},
    {cudaDevAttrMaxThreadsPerMultiProcessor,
     [](const Settings&, const Device&) { return kMaxThreadsPerMultiprocessor; }},
    {cudaDevAttrMaxBlocksPerMultiprocessor,
     [](const Settings& s, const Device&) { return blocks_per_multiprocessor(s, 1); }},
    {cudaDevAttrComputeCapabilityMajor, [](const Settings& s, const Device&) { return s.architecture / 10; }},
    {cudaDevAttrComputeCapabilityMinor, [](const Settings& s, const Device&) { return s.architecture % 10; }},
    {cudaDevAttrMemSyncDomainCount, [](const Settings& s, const Device&) { return s.architecture < 90 ? 1 : 4; }},
    {cudaDevAttrUnifiedAddressing, [](const Settings&, const Device&) { return 1; }},
    {cudaDevAttrCanMapHostMemory, [](const Settings&, const Device&) { return 1; }},
    {cudaDevAttrIntegrated, [](const Settings&, const Device&) { return 0; }},
    {cudaDevAttrComputeMode, [](const Settings&, const Device&) { return 0; }},  // shared by processes
    {cudaDevAttrHostNativeAtomicSupported, [](const Settings&, const Device&) { return 0; }},
    {cudaDevAttrCooperativeLaunch, [](const Settings&, const Device&) { return 0; }},
    {cudaDevAttrMpsEnabled, [](const Settings& s, const Device&) { return s.mps; }},
    {cudaDevAttrPciDomainId, [](const Settings&, const Device&) { return 0; }},
    {cudaDevAttrPciBusId, [](const Settings&, const Device& device) { return device.number + 1; }},
    {cudaDevAttrPciDeviceId, [](const Settings&, const Device&) { return 0; }},
};

cudaError_t attribute(int* out, cudaDeviceAttr wanted, int index) {
  return call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    const Device* const device = here.device(index);
    if (device == nullptr) return cudaErrorInvalidDevice;
    const auto* const row = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                         [&](const Attribute& a) { return a.attribute == wanted; });
    if (out == nullptr || row == std::end(kAttributes)) return cudaErrorInvalidValue;
    if (wanted == cudaDevAttrMpsEnabled && here.settings.mps < 0) return cudaErrorInvalidValue;  // an older runtime
    *out = row->value(here.settings, *device);
    return cudaSuccess;
  });
}

cudaError_t can_access_peer(int* out, int index, int peer_index) {
  return call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    const Device* const device = here.device(index);
    const Device* const peer = here.device(peer_index);
    if (device == nullptr || peer == nullptr) return cudaErrorInvalidDevice;
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = device != peer && can_access(here.settings, device->number, peer->number) ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t peer_attribute(int* out, cudaDeviceP2PAttr wanted, int index, int peer_index) {
  return call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    const Device* const device = here.device(index);
    const Device* const peer = here.device(peer_index);
    if (device == nullptr || peer == nullptr || device == peer) return cudaErrorInvalidDevice;
    if (out == nullptr || wanted != cudaDevP2PAttrNativeAtomicSupported) return cudaErrorInvalidValue;
    *out = can_access(here.settings, device->number, peer->number) &&
           !is_among(here.settings.plain_peers, device->number, peer->number);
    return cudaSuccess;
  });
}

cudaError_t enable_peer_access(int peer_index, unsigned flags) {
  return device_call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    Device& device = here.current();
    const Device* const peer = here.device(peer_index);
    if (peer == nullptr || peer == &device) return cudaErrorInvalidDevice;
    if (flags != 0) return cudaErrorInvalidValue;
    if (!can_access(here.settings, device.number, peer->number)) return cudaErrorPeerAccessUnsupported;
    return device.peers.insert(peer_index).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t synchronize_device() {
  return device_call([&](Process& here) {
    const Device* device = nullptr;
    {
      const std::lock_guard lock(here.mutex);
      device = &here.current();
      for (const auto& stream : here.streams_of(*device)) {
        if (stream->capture == nullptr) continue;
        stream->capture->invalidated = true;
        return cudaErrorStreamCaptureUnsupported;
      }
      const cudaError_t refused = refuse_unsafe_call(here);
      if (refused != cudaSuccess) return refused;
    }
    here.join_retired();
    synchronize(here, *device);
    return cudaSuccess;
  });
}

cudaError_t version(int* out) {
  return call([&](Process&) {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = kVersion;
    return cudaSuccess;
  });
}

cudaError_t name(char* out, int bytes, int index) {
  return call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    if (here.device(index) == nullptr) return cudaErrorInvalidDevice;
    if (out == nullptr || bytes <= 0) return cudaErrorInvalidValue;
    std::snprintf(out, static_cast<std::size_t>(bytes), "Rondo simulated device");
    return cudaSuccess;
  });
}

// What all processes of this machine since it was started have in common.
std::string machine_identity(const Settings& settings) {
  std::array<char, 64> id{};
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
    if (std::fgets(id.data(), static_cast<int>(id.size()), file) == nullptr) id[0] = 0;
    std::fclose(file);
  }
  return id.data() + settings.machine;
}

std::uint64_t hash(std::string_view text, std::uint64_t seed) {  // FNV-1a, then mixed
  std::uint64_t value = 0xCBF2'9CE4'8422'2325 ^ seed;
  for (const char letter : text) value = (value ^ static_cast<unsigned char>(letter)) * 0x100'0000'01B3;
  value = (value ^ (value >> 30)) * 0xBF58'476D'1CE4'E5B9;
  value = (value ^ (value >> 27)) * 0x94D0'49BB'1331'11EB;
  return value ^ (value >> 31);
}

cudaError_t uuid(unsigned char (*out)[16], int index) {
  return call([&](Process& here) {
    const std::lock_guard lock(here.mutex);
    const Device* const device = here.device(index);
    if (device == nullptr) return cudaErrorInvalidDevice;
    if (out == nullptr) return cudaErrorInvalidValue;
    const std::string text = machine_identity(here.settings) + "/" + std::to_string(device->number);
    const std::uint64_t words[2] = {hash(text, 1), hash(text, 2)};
    static_assert(sizeof words == sizeof *out);
    std::memcpy(*out, words, sizeof words);
    return cudaSuccess;
  });
}

}  // namespace

void add_device_calls(cuda::Api& api) {
  api.GetDeviceCount = &count;
  api.SetDevice = &set_device;
  api.GetDevice = &get_device;
  api.DeviceGetAttribute = &attribute;
  api.DeviceCanAccessPeer = &can_access_peer;
  api.DeviceEnablePeerAccess = &enable_peer_access;
  api.DeviceGetP2PAttribute = &peer_attribute;
  api.DeviceSynchronize = &synchronize_device;
  api.DriverGetVersion = &version;
  api.RuntimeGetVersion = &version;
  api.DeviceUuid = &uuid;
  api.DeviceName = &name;
}

}  // namespace rondo::soft
