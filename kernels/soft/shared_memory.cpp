// SPDX-License-Identifier: Apache-2.0
#include "kernels/soft/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/soft/pages.hpp"
#include "kernels/soft/poison.hpp"

namespace rondo::soft {
namespace {

constexpr std::string_view kMemoryName = "rondo-sim";

std::size_t mapped_bytes(std::size_t bytes) { return 2 * kPage + whole_pages(bytes); }

// A process that was killed has no memory any more, even before its parent has waited for it; and before its sockets
// are closed, which is what others see first. Memory is the 21st word of its line in /proc from the state on.
bool is_alive(pid_t pid) {
  std::array<char, 512> line{};
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(pid));
  const int fd = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kill(pid, 0) == 0;
  const ssize_t got = read(fd, line.data(), line.size() - 1);
  close(fd);
  if (got <= 0) return false;
  const char* word = std::strrchr(line.data(), ')');
  for (int skipped = 0; word != nullptr && skipped < 21; ++skipped) word = std::strchr(word + 1, ' ');
  return word == nullptr || std::string_view(word).substr(0, 3) != " 0 ";
}

// The descriptor's number may mean a terminal or a pipe by now: look before opening.
int open_memory_of(const SharedMemoryName& name) {
  std::array<char, 48> path{};
  std::array<char, 64> target{};
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", static_cast<int>(name.pid), name.fd);
  const ssize_t length = readlink(path.data(), target.data(), target.size());
  if (length <= 0) return -1;
  const std::string expected = "/memfd:" + std::string(kMemoryName);
  if (!std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with(expected)) return -1;
  return ::open(path.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

// Neither stdin, stdout nor stderr, where the process was started without: what is written there would go to memory.
int make_memfd() {
  const int fd = memfd_create(kMemoryName.data(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

}  // namespace

struct SharedMemory::Header {
  std::uint64_t identity;
  std::uint64_t bytes;
  std::array<std::atomic<pid_t>, 512> importers;  // 0: free
};

SharedMemory::Header& SharedMemory::header() const { return *reinterpret_cast<Header*>(start_); }
std::byte* SharedMemory::data() const { return start_ + kPage; }
SharedMemoryName SharedMemory::name() const { return {header().identity, bytes_, getpid(), fd_}; }

std::optional<SharedMemory> SharedMemory::map(int fd, std::size_t bytes) {
  static_assert(sizeof(Header) <= kPage && std::atomic<pid_t>::is_always_lock_free);
  void* start = mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (start == MAP_FAILED) return std::nullopt;
  auto* const first = static_cast<std::byte*>(start);
  SharedMemory memory(first, bytes, -1);
  const bool guarded = mprotect(first + mapped_bytes(bytes) - kPage, kPage, PROT_NONE) == 0;
  // A child of fork() does not have the parent's devices; it sees that at once.
  if (!guarded || madvise(start, mapped_bytes(bytes), MADV_DONTFORK) != 0) return std::nullopt;
  poison(memory.data() + bytes, whole_pages(bytes) - bytes);
  return memory;
}

std::optional<SharedMemory> SharedMemory::create(std::size_t bytes) {
  if (bytes > SIZE_MAX / 4) return std::nullopt;
  const int fd = make_memfd();
  if (fd < 0) return std::nullopt;
  std::optional<SharedMemory> memory;
  if (ftruncate(fd, static_cast<off_t>(mapped_bytes(bytes))) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    memory = map(fd, bytes);
  }
  std::uint64_t identity = 0;
  if (!memory || getrandom(&identity, sizeof identity, 0) != sizeof identity) {
    close(fd);
    return std::nullopt;
  }
  memory->fd_ = fd;
  memory->header().identity = identity;
  memory->header().bytes = bytes;
  std::memset(memory->data(), 0xDB, bytes);
  return memory;
}

std::optional<SharedMemory> SharedMemory::open(const SharedMemoryName& name) {
  const int fd = open_memory_of(name);
  if (fd < 0) return std::nullopt;
  struct stat status {};
  std::optional<SharedMemory> memory;
  const bool fits = name.bytes <= SIZE_MAX / 4 && fstat(fd, &status) == 0 &&
                    static_cast<std::size_t>(status.st_size) == mapped_bytes(name.bytes);
  if (fits) memory = map(fd, name.bytes);
  close(fd);
  if (!memory || memory->header().identity != name.identity || memory->header().bytes != name.bytes) {
    return std::nullopt;
  }
  memory->enter();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)),
      bytes_(other.bytes_),
      fd_(std::exchange(other.fd_, -1)),
      imported_(other.imported_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  std::swap(imported_, other.imported_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (start_ == nullptr) return;
  if (imported_) leave();
  unpoison(data(), whole_pages(bytes_));  // the shadow outlives the mapping
  munmap(start_, mapped_bytes(bytes_));
  if (fd_ >= 0) close(fd_);
}

// A full table is no error: this importer is only not counted.
void SharedMemory::enter() {
  imported_ = true;
  for (std::atomic<pid_t>& entry : header().importers) {
    pid_t expected = 0;
    if (entry.compare_exchange_strong(expected, getpid())) return;
  }
}

void SharedMemory::leave() {
  for (std::atomic<pid_t>& entry : header().importers) {
    pid_t expected = getpid();
    if (entry.compare_exchange_strong(expected, 0)) return;
  }
}

int SharedMemory::living_importers() const {
  int living = 0;
  for (const std::atomic<pid_t>& entry : header().importers) {
    const pid_t pid = entry.load();
    if (pid != 0 && is_alive(pid)) ++living;
  }
  return living;
}

}  // namespace rondo::soft
