// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include <rondo/device.hpp>

#include "comm/device/memory/cuda_handles.hpp"
#include "comm/device/setup/device_cards.hpp"
#include "comm/device/setup/simulation.hpp"

namespace rondo {
namespace {

using comm::device::check;
using comm::device::DeviceScope;

// Before the first use of simulated devices they are made as the environment wants them.
const cuda::Api& table_of(Device::Kind kind) {
  if (kind == Device::Kind::sim) comm::device::configure_simulation();
  return comm::device::api_of(kind);
}
Device chosen(Device device) {
  return {.kind = device.kind, .index = comm::device::choose_device(table_of(device.kind), device.index, 0)};
}

void check_memory(std::string_view call, std::string_view what, const void* memory, std::size_t bytes) {
  if (memory != nullptr || bytes == 0) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} of {} bytes is null", call, what, bytes));
}
std::size_t product(std::size_t count, std::size_t element_bytes) {
  std::size_t bytes = 0;
  if (!__builtin_mul_overflow(count, element_bytes, &bytes)) return bytes;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} elements of {} bytes are beyond all memory", count, element_bytes));
}
void check_made(std::string_view call, const void* handle) {
  if (handle != nullptr) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: it was made without a device, or moved elsewhere", call));
}

}  // namespace

int device_count(Device::Kind kind) {
  int count = 0;
  const cuda::Api& api = table_of(kind);
  check(api, api.GetDeviceCount(&count), 0, "counting devices");
  return count;
}

DeviceMemory::DeviceMemory(Device device, std::size_t bytes) : device_(chosen(device)), bytes_(bytes) {
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  auto memory = comm::device::allocate_device(api, device_.index, std::max<std::size_t>(bytes, 1));
  data_ = memory.get();
  fill(0);
  memory.release();  // NOLINT(bugprone-unused-return-value): ours now
}
DeviceMemory::DeviceMemory(Device device, std::size_t count, std::size_t element_bytes)
    : DeviceMemory(device, product(count, element_bytes)) {}
DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  const comm::device::DeviceMemory owner(comm::device::api_of(device_.kind), device_.index,
                                         static_cast<std::byte*>(data_));
}

void DeviceMemory::copy_from(const void* host, std::size_t bytes, std::size_t offset) {
  if (bytes == 0) return;
  check_memory("copy_from", "host", host, bytes);
  if (offset > bytes_ || bytes > bytes_ - offset) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} bytes at {} do not fit into {} bytes of device memory", bytes, offset, bytes_));
  }
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  check(api, api.Memcpy(static_cast<std::byte*>(data_) + offset, host, bytes, cudaMemcpyHostToDevice), device_.index,
        "copying to the device");
  check(api, api.StreamSynchronize(nullptr), device_.index,
        "copying to the device");  // Memcpy itself may return before
}
void DeviceMemory::copy_to(void* host, std::size_t bytes, std::size_t offset) const {
  if (bytes == 0) return;
  check_memory("copy_to", "host", host, bytes);
  if (offset > bytes_ || bytes > bytes_ - offset) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} bytes at {} are not in {} bytes of device memory", bytes, offset, bytes_));
  }
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  check(api, api.Memcpy(host, static_cast<std::byte*>(data_) + offset, bytes, cudaMemcpyDeviceToHost), device_.index,
        "copying from the device");
}
void DeviceMemory::fill(unsigned char byte) {
  if (bytes_ == 0) return;
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  check(api, api.Memset(data_, byte, bytes_), device_.index, "filling device memory");
  check(api, api.StreamSynchronize(nullptr), device_.index, "filling device memory");
}

void copy_on(Device device, Stream stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check_memory("copy_on", "to", to, bytes);
  check_memory("copy_on", "from", from, bytes);
  const Device on = chosen(device);
  const cuda::Api& api = comm::device::api_of(on.kind);
  const DeviceScope scope(api, on.index);
  check(api, api.MemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), on.index,
        "copying on a stream");
}
void fill_on(Device device, Stream stream, void* to, unsigned char byte, std::size_t bytes) {
  if (bytes == 0) return;
  check_memory("fill_on", "to", to, bytes);
  const Device on = chosen(device);
  const cuda::Api& api = comm::device::api_of(on.kind);
  const DeviceScope scope(api, on.index);
  check(api, api.MemsetAsync(to, byte, bytes, static_cast<cudaStream_t>(stream)), on.index, "filling on a stream");
}

DeviceStream::DeviceStream(Device device) : device_(chosen(device)) {
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  stream_ = comm::device::make_stream(api, device_.index).release();
}
DeviceStream::DeviceStream(DeviceStream&& other) noexcept
    : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}
DeviceStream& DeviceStream::operator=(DeviceStream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(stream_, other.stream_);
  return *this;
}
DeviceStream::~DeviceStream() {
  if (stream_ == nullptr) return;
  const comm::device::Stream owner(comm::device::api_of(device_.kind), device_.index,
                                   static_cast<cudaStream_t>(stream_));
}
void DeviceStream::synchronize() const {
  check_made("DeviceStream::synchronize", stream_);
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  check(api, api.StreamSynchronize(static_cast<cudaStream_t>(stream_)), device_.index, "waiting for a stream");
}

DeviceEvent::DeviceEvent(Device device) : device_(chosen(device)) {
  event_ =
      comm::device::make_event(comm::device::api_of(device_.kind), device_.index, comm::device::Timing::on).release();
}
DeviceEvent::DeviceEvent(DeviceEvent&& other) noexcept
    : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
DeviceEvent& DeviceEvent::operator=(DeviceEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
  return *this;
}
DeviceEvent::~DeviceEvent() {
  if (event_ == nullptr) return;
  const comm::device::Event owner(comm::device::api_of(device_.kind), device_.index, static_cast<cudaEvent_t>(event_));
}
void DeviceEvent::record(Stream stream) {
  check_made("DeviceEvent::record", event_);
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  check(api, api.EventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)), device_.index,
        "recording an event");
}
double DeviceEvent::seconds_since(const DeviceEvent& earlier) const {
  check_made("DeviceEvent::seconds_since", event_);
  check_made("DeviceEvent::seconds_since: the earlier one", earlier.event_);
  const cuda::Api& api = comm::device::api_of(device_.kind);
  const DeviceScope scope(api, device_.index);
  float ms = 0;
  check(api, api.EventElapsedTime(&ms, static_cast<cudaEvent_t>(earlier.event_), static_cast<cudaEvent_t>(event_)),
        device_.index, "taking the time between two events");
  return static_cast<double>(ms) / 1e3;
}

}  // namespace rondo
