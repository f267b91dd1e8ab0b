// SPDX-License-Identifier: Apache-2.0
// One allocation of device memory: an unnamed file (memfd), mapped as [header page][data][guard page]. Another process
// opens it through /proc/PID/fd/FD, so nothing is named and nothing stays behind a process that was killed. Under
// AddressSanitizer the rest of the last page of data is poisoned.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace rondo::soft {

// What an IPC handle says.
struct SharedMemoryName {
  std::uint64_t identity;  // random, in the header too: the descriptor's number may have been given to something else
  std::uint64_t bytes;
  pid_t pid;
  int fd;
};

class SharedMemory {
 public:
  static std::optional<SharedMemory> create(std::size_t bytes);           // contents: 0xDB
  static std::optional<SharedMemory> open(const SharedMemoryName& name);  // none: it is gone, or was never there
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const;
  std::size_t bytes() const { return bytes_; }
  SharedMemoryName name() const;
  int living_importers() const;  // mappings of other processes

 private:
  struct Header;
  SharedMemory(std::byte* start, std::size_t bytes, int fd) : start_(start), bytes_(bytes), fd_(fd) {}
  static std::optional<SharedMemory> map(int fd, std::size_t bytes);
  Header& header() const;
  void enter();
  void leave();

  std::byte* start_;
  std::size_t bytes_;
  int fd_;  // of the owner
  bool imported_ = false;
};

}  // namespace rondo::soft
