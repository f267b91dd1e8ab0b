// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <thread>

#include <rondo/error.hpp>

#include "comm/base/machine.hpp"
#include "comm/base/system_error.hpp"
#include "rendezvous/crypto.hpp"
#include "rendezvous/socket.hpp"
#include "runtime/environment.hpp"

namespace rondo::runtime {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstPause{5}, kLongestPause{250};
constexpr std::chrono::milliseconds kFirstAttempt{200}, kLongestAttempt{5000};
constexpr std::size_t kMostBytes = 4096;

// What the file holds, or the reason why it is not to be used.
std::string read_file(const std::filesystem::path& path, std::string& reason) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) {
    reason = fmt::format("cannot open it: {}", std::strerror(errno));
    return {};
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || status.st_uid != ::getuid() || (status.st_mode & 077U) != 0) {
    reason = "it does not belong to this user alone (mode 0600)";
    return {};
  }
  std::string text(kMostBytes, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

std::optional<rendezvous::Endpoint> parse(const std::string& text, std::string& reason) {
  std::istringstream lines(text);
  std::string title, address, secret, job, host;
  lines >> title >> address >> secret >> job >> host;
  if (!lines || title != "rondo-meeting-1") {
    if (!text.empty()) reason = "it is not a file that rank 0 wrote";
    return std::nullopt;
  }
  rendezvous::Endpoint endpoint;
  parse_endpoint(address, "the server in the file, ", endpoint.host, endpoint.port);
  if (secret != "-") endpoint.secret = rendezvous::Secret::from_hex(secret);
  endpoint.job = job;
  reason = fmt::format("rank 0 on host {} serves at {} (set RONDO_INTERFACE there if that is another machine)", host,
                       address);
  return endpoint;
}

std::string text_of(const rendezvous::Endpoint& endpoint) {
  return fmt::format("rondo-meeting-1\n{}\n{}\n{}\n{}\n", rendezvous::endpoint_text(endpoint.host, endpoint.port),
                     endpoint.secret ? endpoint.secret->to_hex() : "-", endpoint.job, host_name());
}

}  // namespace

MeetingFile::MeetingFile(std::filesystem::path path, const rendezvous::Endpoint& endpoint)
    : path_(std::move(path)), text_(text_of(endpoint)) {
  std::string temporary = path_.string() + ".XXXXXX";
  const Fd file(::mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (!file) throw_errno(fmt::format("cannot write {}, where the ranks are to meet", path_.string()));
  const bool written = ::write(file.get(), text_.data(), text_.size()) == static_cast<ssize_t>(text_.size()) &&
                       ::rename(temporary.c_str(), path_.c_str()) == 0;
  if (written) return;
  const int reason = errno;
  ::unlink(temporary.c_str());
  errno = reason;
  throw_errno(fmt::format("cannot write {}, where the ranks are to meet", path_.string()));
}

MeetingFile::~MeetingFile() {
  std::string ignored;
  if (read_file(path_, ignored) == text_) ::unlink(path_.c_str());
  rendezvous::wipe(std::as_writable_bytes(std::span(text_)));
}

FileMeeting connect_by_file(const std::filesystem::path& path, Store::Deadline deadline) {
  std::string reason, failed;
  auto pause = kFirstPause, attempt = kFirstAttempt;
  do {
    const std::string text = read_file(path, reason);
    if (text != failed) {
      pause = kFirstPause;
      attempt = kFirstAttempt;
    }
    try {
      const auto endpoint = parse(text, reason);
      if (endpoint) {
        const auto until = std::min<Store::Deadline>(deadline, Clock::now() + attempt);
        attempt = std::min(2 * attempt, kLongestAttempt);
        return {rendezvous::Client::connect(*endpoint, until), endpoint->secret, endpoint->host};
      }
    } catch (const Error& error) {
      reason += fmt::format("{}{}", reason.empty() ? "" : "; ", error.what());
    }
    failed = text;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - Clock::now()));
    pause = std::min(2 * pause, kLongestPause);
  } while (Clock::now() < deadline);
  throw Error(ErrorCode::timeout,
              fmt::format("cannot meet rank 0 by the file {} before the deadline: {}", path.string(), reason));
}

}  // namespace rondo::runtime
