// SPDX-License-Identifier: Apache-2.0
#include "trainer/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace rondo::trainer {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(ErrorCode::system, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

int opened(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) fail("open", path);
  return fd;
}

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(opened(path, flags)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("write", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) fail("sync", path_);
  }

 private:
  std::string path_;
  int fd_;
};

// Removed on the way out, unless it became the file.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  void become(const std::string& path) {
    if (std::rename(path_.c_str(), path.c_str()) != 0) fail("rename to", path);
    path_.clear();
  }

 private:
  std::string path_;
};

}  // namespace

void replace_file(const std::string& path, std::span<const std::span<const std::byte>> parts,
                  const std::function<void(FileStep)>& at) {
  const auto reached = [&](FileStep step) {
    if (at) at(step);
  };
  std::size_t half = 0;
  for (const auto part : parts) half += part.size();
  half /= 2;
  // One name, not one per process: what a crash has left is overwritten by the next attempt.
  const std::string name = path + ".new";
  File file(name, O_WRONLY | O_CREAT | O_TRUNC);
  Temporary temporary(name);
  reached(FileStep::opened);
  for (const auto part : parts) {
    const std::size_t before = std::min(half, part.size());
    file.write(part.first(before));
    if (half > 0 && (half -= before) == 0) reached(FileStep::half_written);
    file.write(part.subspan(before));
  }
  reached(FileStep::written);
  file.sync();
  reached(FileStep::synced);
  temporary.become(path);
  reached(FileStep::renamed);
  const std::string folder = std::filesystem::path(path).parent_path();
  File(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY).sync();
}

FileReader::FileReader(const std::string& path) : path_(path), fd_(opened(path, O_RDONLY)) {
  struct stat about {};
  const bool known = ::fstat(fd_, &about) == 0;
  if (known && S_ISREG(about.st_mode)) {
    bytes_ = static_cast<std::uint64_t>(about.st_size);
    return;
  }
  ::close(fd_);
  throw Error(ErrorCode::system, fmt::format("cannot read {}: it is not a regular file", path_));
}
FileReader::~FileReader() { ::close(fd_); }

void FileReader::read(std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t count = ::read(fd_, to.data(), to.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path_);
    if (count == 0) throw Error(ErrorCode::system, fmt::format("cannot read {}: it became shorter meanwhile", path_));
    to = to.subspan(static_cast<std::size_t>(count));
  }
}

void on_rank_zero(Communicator& communicator, const std::function<void()>& work) {
  std::exception_ptr failure;
  std::string told_by_me;  // the error's code and its sentence
  const auto tell = [&](ErrorCode code, const char* sentence) {
    failure = std::current_exception();
    told_by_me = static_cast<char>(code);
    told_by_me += sentence;
  };
  if (communicator.rank() == 0) {
    try {
      work();
    } catch (const Error& error) {
      tell(error.error_code(), error.what());
    } catch (const std::exception& error) {
      tell(ErrorCode::system, error.what());
    }
  }
  const auto told = communicator.all_gather_bytes(std::as_bytes(std::span(told_by_me))).front();
  if (failure) std::rethrow_exception(failure);
  if (told.empty()) return;
  throw Error(static_cast<ErrorCode>(told[0]),
              fmt::format("rank 0: {}", std::string(reinterpret_cast<const char*>(told.data()) + 1, told.size() - 1)),
              0);
}

}  // namespace rondo::trainer
