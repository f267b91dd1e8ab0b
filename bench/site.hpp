// SPDX-License-Identifier: Apache-2.0
// Where a rank's buffers lie and how its calls are timed: host memory and the clock, or a device's memory and events.
// All that differs between the two is behind this. Used by the rank's own thread alone.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include <rondo/communicator.hpp>

namespace rondo::bench {

// Calls that are timed together, again and again.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual double seconds() = 0;             // of one pass through the calls, from before the first until all are done
  virtual double host_seconds() const = 0;  // of the latest pass, until its last call had returned
};

class Site {
 public:
  // On the device that `communicator` uses.
  static std::unique_ptr<Site> make(const Communicator& communicator);
  virtual ~Site() = default;

  struct Free {
    Site* site;
    void operator()(std::byte* memory) const { site->free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  static constexpr std::size_t kAlignment = 4096;
  Memory allocate(std::size_t bytes) { return Memory(allocate_bytes(bytes), Free{this}); }

  virtual Stream stream() const = 0;
  virtual void drain() = 0;  // returns when all that was enqueued on stream() is done
  virtual void fill(std::byte* to, std::byte value, std::size_t bytes) = 0;
  // What `make` puts into host memory of `bytes`.
  virtual void write(std::byte* to, std::size_t bytes, const std::function<void(std::byte*)>& make) = 0;
  // The same bytes in host memory, valid until the next write() or read().
  virtual const std::byte* read(const std::byte* from, std::size_t bytes) = 0;

  // With `replays`, the calls are captured into a graph now, and a pass launches it so many times; its seconds are
  // those of one replay. `calls` enqueues on stream().
  virtual std::unique_ptr<Batch> batch(std::function<void()> calls, int replays) = 0;

  // Buffers that are used in turn should not fit in this much; 0: one set of them is enough.
  virtual std::size_t cache_bytes() const = 0;
  virtual nlohmann::json describe() const = 0;  // null, or a device's name, uuid, driver
  // Bytes read and written in a second, 1e9 of them, by copies within the device's memory; 0 where that says nothing.
  virtual double copy_gbps() = 0;

 private:
  virtual std::byte* allocate_bytes(std::size_t bytes) = 0;
  virtual void free(std::byte* memory) = 0;
};

std::unique_ptr<Site> make_host_site();
std::unique_ptr<Site> make_device_site(const Device& device);  // with its index

}  // namespace rondo::bench
