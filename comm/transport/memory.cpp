// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "comm/base/system_error.hpp"

namespace rondo {
namespace {

Mapping map_shared(int fd, std::size_t bytes, int flags) {
  if (bytes == 0) return {};
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
  if (data == MAP_FAILED) throw_errno(fmt::format("cannot map {} bytes of shared memory", bytes));
  return {static_cast<std::byte*>(data), bytes};
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
  if (!fd) throw_errno(fmt::format("cannot create shared memory '{}'", name));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw_errno(fmt::format("cannot give shared memory '{}' its {} bytes", name, bytes));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw_errno(fmt::format("cannot seal shared memory '{}'", name));
  }
  return fd;
}

Mapping map(const Fd& fd, std::size_t bytes) {
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
  return map_shared(fd.get(), bytes, 0);
}

Mapping map_anonymous(std::size_t bytes) { return map_shared(-1, bytes, MAP_ANONYMOUS); }

}  // namespace rondo
