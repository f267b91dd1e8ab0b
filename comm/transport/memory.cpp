// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "comm/base/system_error.hpp"

namespace rondo {
namespace {

std::byte* map_at(void* place, std::size_t bytes, int protection, int flags, int fd) {
  void* const data = ::mmap(place, bytes, protection, flags, fd, 0);
  if (data == MAP_FAILED) throw_errno(fmt::format("cannot map {} bytes of shared memory", bytes));
  return static_cast<std::byte*>(data);
}

Mapping map_shared(int fd, std::size_t bytes, int flags, std::size_t alignment) {
  if (bytes == 0) return {};
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  if (alignment == 0) return {map_at(nullptr, bytes, kAccess, MAP_SHARED | flags, fd), bytes};
  // Addresses enough for an aligned start among them; what is left over on both sides goes back.
  const std::size_t reserved = bytes + alignment;
  std::byte* const start = map_at(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  Mapping whole(start, reserved);
  const std::size_t before = (alignment - reinterpret_cast<std::uintptr_t>(start) % alignment) % alignment;
  std::byte* const data = map_at(start + before, bytes, kAccess, MAP_SHARED | MAP_FIXED | flags, fd);
  whole.keep(data, bytes);
  return whole;
}

}  // namespace

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::reset() noexcept {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

Fd make_sealed_memfd(const std::string& name, std::size_t bytes) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_errno(fmt::format("cannot create shared memory '{}' (memfd_create)", name));
  rlimit size{};
  if (::getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur < bytes) {  // beyond it ftruncate ends in SIGXFSZ
    errno = EFBIG;
    throw_errno(fmt::format("cannot give shared memory '{}' its {} bytes", name, bytes));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw_errno(fmt::format("cannot give shared memory '{}' its {} bytes", name, bytes));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw_errno(fmt::format("cannot seal shared memory '{}'", name));
  }
  return fd;
}

// The kernel cuts at pages, so what is kept must end where the rest begins.
void Mapping::keep(std::byte* data, std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const end = data + (bytes + page - 1) / page * page;
  std::byte* const whole_end = data_ + (bytes_ + page - 1) / page * page;
  if (data != data_) ::munmap(data_, static_cast<std::size_t>(data - data_));
  if (end != whole_end) ::munmap(end, static_cast<std::size_t>(whole_end - end));
  data_ = data;
  bytes_ = bytes;
}

Mapping map(const Fd& fd, std::size_t bytes, std::size_t alignment) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorCode::corrupt_message, "the descriptor received for shared memory is not a sealed memfd");
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw_errno("cannot ask for the size of shared memory");
  const auto present = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  if (present < bytes) {
    throw Error(ErrorCode::corrupt_message,
                fmt::format("the shared memory received holds {} bytes where {} were agreed on", present, bytes));
  }
  return map_shared(fd.get(), bytes, 0, alignment);
}

Mapping map_anonymous(std::size_t bytes, std::size_t alignment) {
  return map_shared(-1, bytes, MAP_ANONYMOUS, alignment);
}

}  // namespace rondo
