// SPDX-License-Identifier: Apache-2.0
#include "trainer/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
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

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail("open", path_);
  }
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
  std::string read() {
    std::string text;
    std::vector<char> block(1 << 20);
    for (;;) {
      const ssize_t count = ::read(fd_, block.data(), block.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("read", path_);
      if (count == 0) return text;
      text.append(block.data(), static_cast<std::size_t>(count));
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) fail("sync", path_);
  }

 private:
  std::string path_;
  int fd_;
};

}  // namespace

void replace_file(const std::string& path, std::span<const std::byte> bytes, const std::function<void(FileStep)>& at) {
  const auto reached = [&](FileStep step) {
    if (at) at(step);
  };
  // One name, not one per process: what a crash has left is overwritten by the next attempt.
  const std::string temporary = path + ".new";
  {
    File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    reached(FileStep::opened);
    file.write(bytes.first(bytes.size() / 2));
    reached(FileStep::half_written);
    file.write(bytes.subspan(bytes.size() / 2));
    reached(FileStep::written);
    file.sync();
  }
  reached(FileStep::synced);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("rename to", path);
  reached(FileStep::renamed);
  const std::string folder = std::filesystem::path(path).parent_path();
  File(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY).sync();
}

std::string read_file(const std::string& path) { return File(path, O_RDONLY).read(); }

void on_rank_zero(Communicator& communicator, const std::function<void()>& work) {
  std::exception_ptr failure;
  std::string sentence;
  if (communicator.rank() == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      sentence = std::string("!") + error.what();
    }
  }
  const auto told = communicator.all_gather_bytes(std::as_bytes(std::span(sentence))).front();
  if (failure) std::rethrow_exception(failure);
  if (told.empty()) return;
  throw Error(ErrorCode::system,
              fmt::format("rank 0: {}", std::string(reinterpret_cast<const char*>(told.data()) + 1, told.size() - 1)),
              0);
}

}  // namespace rondo::trainer
