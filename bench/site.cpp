// SPDX-License-Identifier: Apache-2.0
#include "bench/site.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>

namespace rondo::bench {
namespace {

class HostBatch : public Batch {
 public:
  explicit HostBatch(std::function<void()> calls) : calls_(std::move(calls)) {}
  double seconds() override {
    const auto begin = std::chrono::steady_clock::now();
    calls_();
    return took_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  double host_seconds() const override { return took_; }

 private:
  std::function<void()> calls_;
  double took_ = 0;
};

// Every call blocks, and memory is what it is.
class HostSite : public Site {
 public:
  Stream stream() const override { return nullptr; }
  void drain() override {}
  void fill(std::byte* to, std::byte value, std::size_t bytes) override {
    std::memset(to, std::to_integer<int>(value), bytes);
  }
  void write(std::byte* to, std::size_t, const std::function<void(std::byte*)>& make) override { make(to); }
  const std::byte* read(const std::byte* from, std::size_t) override { return from; }
  std::unique_ptr<Batch> batch(std::function<void()> calls, int) override {
    return std::make_unique<HostBatch>(std::move(calls));
  }
  std::size_t cache_bytes() const override { return 0; }
  nlohmann::json describe() const override { return nullptr; }
  double copy_gbps() override { return 0; }

 private:
  std::byte* allocate_bytes(std::size_t bytes) override {
    void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory) override { std::free(memory); }
};

}  // namespace

std::unique_ptr<Site> make_host_site() { return std::make_unique<HostSite>(); }

std::unique_ptr<Site> Site::make(const Communicator& communicator) {
  const Device device = communicator.device();
  return device.kind == Device::Kind::cpu ? make_host_site() : make_device_site(device);
}

}  // namespace rondo::bench
