// SPDX-License-Identifier: Apache-2.0
#include "trainer/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

namespace rondo::trainer {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(ErrorCode::system, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

int opened(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) fail("open", path);
  return fd;
}

class File {
 public:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
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
  // While it is held, nobody takes the file for what a crash has left.
  bool lock() { return ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }
  bool has_a_name() const {
    struct stat about {};
    return ::fstat(fd_, &about) == 0 && about.st_nlink > 0;
  }

 private:
  std::string path_;
  int fd_;
};

constexpr std::string_view kTemporary = ".new";
constexpr std::size_t kDigits = 16;

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

// Of the file's own, as much as leaves room in a name of 255 bytes.
std::string stem_of(const std::string& path) {
  constexpr std::size_t kMost = 200;
  return std::filesystem::path(path).filename().native().substr(0, kMost);
}
// Writers in several processes, and on several machines, have names of their own beside the file.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  return fmt::format("{}/{}.{:08x}{:08x}{}", folder_of(path), stem_of(path), random(), random(), kTemporary);
}
bool is_temporary(std::string_view name, std::string_view file) {
  if (name.size() != file.size() + 1 + kDigits + kTemporary.size()) return false;
  if (!name.starts_with(file) || name[file.size()] != '.' || !name.ends_with(kTemporary)) return false;
  return name.substr(file.size() + 1, kDigits).find_first_not_of("0123456789abcdef") == name.npos;
}

// Whose writer is gone, and its lock with it. Nothing depends on it but the room that it takes.
void remove_leftovers(const std::string& path) {
  const std::string file = stem_of(path);
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_of(path), error), end; !error && at != end; at.increment(error)) {
    if (!is_temporary(at->path().filename().native(), file)) continue;
    const int fd = ::open(at->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(at->path().c_str());
    ::close(fd);
  }
}

// A new file beside `path`, removed on the way out unless it became the file.
class Temporary {
 public:
  explicit Temporary(const std::string& path) {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
      path_ = temporary_name(path);
      const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd < 0 && errno == EEXIST) continue;
      if (fd < 0) {
        path_.clear();
        fail("make a file beside", path);
      }
      file_.emplace(path_, fd);
      // Another writer may have taken it for a leftover before it was locked.
      if (file_->lock() && file_->has_a_name()) return;
      file_.reset();
      ::unlink(path_.c_str());
    }
    path_.clear();
    throw Error(ErrorCode::system, fmt::format("cannot make a file beside {}: every name was taken", path));
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  File& file() { return *file_; }
  void become(const std::string& path) {
    if (std::rename(path_.c_str(), path.c_str()) != 0) fail("rename to", path);
    path_.clear();
  }

 private:
  std::string path_;
  std::optional<File> file_;
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
  remove_leftovers(path);
  Temporary temporary(path);
  File& file = temporary.file();
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
  const std::string folder = folder_of(path);
  File(folder, opened(folder, O_RDONLY | O_DIRECTORY)).sync();
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
