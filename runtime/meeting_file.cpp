// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iomanip>
#include <sstream>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "comm/base/system_error.hpp"
#include "rendezvous/crypto.hpp"
#include "rendezvous/socket.hpp"
#include "runtime/launchers/environment.hpp"

namespace rondo::runtime {
namespace {

constexpr std::size_t kMostBytes = 4096;
constexpr std::string_view kTitle = "rondo-meeting-2";
constexpr int kReplacements = 16;  // of what lies at the path and cannot be used

// Nothing: the descriptor is of a file that belongs to this user alone.
std::string obstacle_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::getuid() &&
      (status.st_mode & 077U) == 0) {
    return {};
  }
  return "it does not belong to this user alone (mode 0600)";
}

// What the file holds, or the reason why it is not to be used.
std::string read_file(const std::filesystem::path& path, std::string& reason) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    reason = fmt::format("cannot open it: {}", std::strerror(errno));
    return {};
  }
  reason = obstacle_of(file.get());
  if (!reason.empty()) return {};
  std::string text(kMostBytes, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

// The path's file, locked by this process; nothing: by another.
Fd lock_file(const std::filesystem::path& path) {
  for (int replaced = 0; replaced < kReplacements;) {
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!file && errno != ELOOP && errno != EACCES && errno != ENXIO) break;
    if (!file || !obstacle_of(file.get()).empty()) {
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) break;
      ++replaced;
      continue;
    }
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(file.get(), F_SETLK, &whole) != 0) {
      if (errno == EAGAIN || errno == EACCES) return {};
      throw_errno(
          fmt::format("cannot lock {}, where the ranks are to meet, so two jobs could not be told apart; put it "
                      "on a file system with locks",
                      path.string()));
    }
    struct stat held {
    }, there{};
    const bool same = ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
                      held.st_ino == there.st_ino && held.st_dev == there.st_dev;
    if (same) return file;  // and not one that its last owner removed meanwhile
  }
  throw_errno(fmt::format("cannot write {}, where the ranks are to meet", path.string()));
}

// The lock is the process's: a forked child has none, and must not remove the file.
class FileClaim {
 public:
  FileClaim(std::filesystem::path path, Fd file) : path_(std::move(path)), file_(std::move(file)), owner_(::getpid()) {
    clear();
  }
  ~FileClaim() {
    if (owner_ == ::getpid()) ::unlink(path_.c_str());
    rendezvous::wipe(std::as_writable_bytes(std::span(text_)));
  }
  FileClaim(const FileClaim&) = delete;
  FileClaim& operator=(const FileClaim&) = delete;

  void write(const rendezvous::Endpoint& endpoint) {
    text_ = meeting_file_text(endpoint);
    if (::pwrite(file_.get(), text_.data(), text_.size(), 0) != static_cast<ssize_t>(text_.size())) {
      throw_errno(fmt::format("cannot write {}, where the ranks are to meet", path_.string()));
    }
  }

 private:
  void clear() {
    if (::ftruncate(file_.get(), 0) != 0) throw_errno(fmt::format("cannot empty {}", path_.string()));
  }
  std::filesystem::path path_;
  Fd file_;
  pid_t owner_;
  std::string text_;
};

}  // namespace

std::optional<rendezvous::Endpoint> read_meeting_file(const std::string& text, std::string& reason) {
  std::istringstream lines(text);
  std::string title, address, secret, job, host, end;
  lines >> title >> address >> secret >> std::quoted(job) >> host >> end;
  if (title != kTitle || end != "end") {  // the last line is there when all others are
    reason = "it is not what a rank 0 wrote, or not all of it";
    return std::nullopt;
  }
  rendezvous::Endpoint endpoint;
  parse_endpoint(address, "the server in the file, ", endpoint.host, endpoint.port);
  endpoint.secret = rendezvous::Secret::from_hex(secret);
  endpoint.job = job;
  reason = fmt::format("rank 0 on host {} serves at {} (set RONDO_INTERFACE there if that is another machine)", host,
                       address);
  return endpoint;
}

std::string meeting_file_text(const rendezvous::Endpoint& endpoint) {
  std::ostringstream text;
  text << kTitle << '\n'
       << rendezvous::endpoint_text(endpoint.host, endpoint.port) << '\n'
       << endpoint.secret->to_hex() << '\n'
       << std::quoted(endpoint.job) << '\n'
       << host_name() << "\nend\n";
  return text.str();
}

std::shared_ptr<Hosting> FilePoint::try_host(int world_size) {
  Fd file = lock_file(path_);
  held_ = !file;
  if (held_) return nullptr;
  auto claim = std::make_shared<FileClaim>(path_, std::move(file));
  auto hosting = std::make_shared<Hosting>();
  hosting->endpoint = {.host = host_, .secret = secret_of_job(), .job = job_, .encrypted = encrypted_};
  hosting->server =
      std::make_unique<rendezvous::Server>(rendezvous::ServerOptions{.bind = {host_},
                                                                     .secret = hosting->endpoint.secret,
                                                                     .encrypted = hosting->endpoint.encrypted,
                                                                     .job = hosting->endpoint.job,
                                                                     .world_size = world_size,
                                                                     .is_rank_0s = true,
                                                                     .starter = parent_identity()});
  hosting->endpoint.port = hosting->server->port();
  claim->write(hosting->endpoint);
  hosting->claim = std::move(claim);
  return hosting;
}

std::optional<rendezvous::Endpoint> FilePoint::find(std::string& reason, Store::Deadline) {
  const std::string text = read_file(path_, reason);
  if (!reason.empty()) return std::nullopt;
  std::optional<rendezvous::Endpoint> endpoint;
  try {
    endpoint = read_meeting_file(text, reason);
  } catch (const Error& error) {  // what a dead run or another program left
    reason = error.what();
  }
  if (endpoint) endpoint->encrypted = encrypted_;
  if (!endpoint || endpoint->job == job_) return endpoint;
  reason = fmt::format("job '{}' meets there and this rank is of job '{}'; give each job a file of its own",
                       endpoint->job, job_);
  if (held_) throw Error(ErrorCode::mismatch, reason);
  return std::nullopt;
}

}  // namespace rondo::runtime
