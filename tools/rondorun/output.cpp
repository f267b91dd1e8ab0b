// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/output.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace rondo::launcher {
namespace {

constexpr std::size_t kQueueLimit = std::size_t{1} << 20;   // then the ranks have to wait
constexpr std::size_t kLongestLine = std::size_t{4} << 20;  // then it is broken in two
constexpr std::size_t kKept = 4096;                         // of a stream that is not shown
constexpr std::size_t kRoom = 4096;  // what a pipe that polls as writable takes at once (PIPE_BUF)

bool is_regular(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool has_room(int fd) {
  pollfd poll{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&poll, 1, 0) == 1;
}

}  // namespace

Sink::Sink(process::EventLoop& loop, int fd)
    : loop_(loop), fd_(fd), colored_(::isatty(fd) == 1), regular_(is_regular(fd)) {}

Sink::~Sink() {
  if (watched_) loop_.forget(fd_);
}

bool Sink::full() const { return queue_.size() - written_ > kQueueLimit; }

void Sink::line(std::string_view prefix, std::string_view text) {
  if (closed_) return;
  queue_.append(prefix).append(text).push_back('\n');
}

void Sink::flush() {
  while (!empty() && !closed_ && (regular_ || has_room(fd_)))
    if (!write_some()) break;
  if (closed_ || empty()) {
    queue_.clear();
    written_ = 0;
  }
  if (written_ > kQueueLimit) queue_.erase(0, std::exchange(written_, 0));
  const bool blocked = !empty();
  if (blocked && !watched_) watched_ = loop_.watch(fd_, EPOLLOUT, [this] { flush(); });
  if (!blocked && watched_) {
    loop_.forget(fd_);
    watched_ = false;
  }
  if (!full()) wake();
}

// Whole lines where they fit, as others may write to the same file.
std::size_t Sink::portion() const {
  const std::size_t left = queue_.size() - written_;
  if (regular_ || left <= kRoom) return left;
  const auto line_end = queue_.rfind('\n', written_ + kRoom - 1);
  return line_end == std::string::npos || line_end < written_ ? kRoom : line_end + 1 - written_;
}

bool Sink::write_some() {
  const ssize_t count = ::write(fd_, queue_.data() + written_, portion());
  if (count >= 0) {
    written_ += static_cast<std::size_t>(count);
    return true;
  }
  if (errno == EINTR) return true;
  if (errno != EAGAIN) closed_ = true;  // EPIPE, or a full disk: the ranks get to feel it
  return false;
}

void Sink::wake() {
  for (auto& waiter : std::exchange(waiting_, {})) waiter();
}

Source::Source(process::EventLoop& loop, Fd pipe, Handling handling, Sink& sink)
    : loop_(loop), pipe_(std::move(pipe)), handling_(std::move(handling)), sink_(sink) {
  loop_.watch(pipe_.get(), EPOLLIN, [this] { readable(); });
}

Source::~Source() { close(); }

void Source::close() {
  if (pipe_) loop_.forget(pipe_.get());
  pipe_.reset();
}

void Source::readable() {
  if (sink_.full()) {
    loop_.forget(pipe_.get());
    sink_.when_room([this, alive = std::weak_ptr<char>(alive_)] {
      if (!alive.expired() && pipe_) loop_.watch(pipe_.get(), EPOLLIN, [this] { readable(); });
    });
    return;
  }
  read_some();
  sink_.flush();
  if (sink_.closed()) close();  // the rank's next write fails as if it had the closed stream itself
}

std::size_t Source::read_some() {
  if (!pipe_) return 0;
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(pipe_.get(), buffer.data(), buffer.size());
  if (count == 0) close();
  if (count <= 0) return 0;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
  log(text);
  if (handling_.shown) take(text);
  if (handling_.kept) keep(text);
  return static_cast<std::size_t>(count);
}

void Source::log(std::string_view text) {
  while (handling_.log && !text.empty()) {
    const ssize_t count = ::write(handling_.log.get(), text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      sink_.line("rondorun: ", fmt::format("a rank's log ends here: {}", std::strerror(errno)));
      handling_.log.reset();
    }
  }
}

void Source::take(std::string_view text) {
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    if (partial_.empty()) {
      sink_.line(handling_.prefix, text.substr(0, end));
    } else {
      partial_.append(text.substr(0, end));
      sink_.line(handling_.prefix, partial_);
      partial_.clear();
    }
    text.remove_prefix(end + 1);
  }
  partial_.append(text);
  if (partial_.size() > kLongestLine) {
    sink_.line(handling_.prefix, partial_);
    partial_.clear();
  }
}

void Source::keep(std::string_view text) {
  kept_.append(text);
  if (kept_.size() > kKept) kept_.erase(0, kept_.size() - kKept);
}

// Whole lines, unless one is longer than what is kept.
void Source::show_last() {
  if (kept_.size() == kKept) kept_.erase(0, kept_.find('\n') + 1);
  take(std::exchange(kept_, {}));
  sink_.flush();
}

void Source::drain() {
  int there = 0;  // others that hold the pipe may write for ever
  if (pipe_) ::ioctl(pipe_.get(), FIONREAD, &there);
  for (auto left = static_cast<std::ptrdiff_t>(there); left > 0;) {
    const std::size_t count = read_some();
    if (count == 0) break;
    left -= static_cast<std::ptrdiff_t>(count);
  }
  sink_.flush();
}

void Source::finish() {
  drain();
  close();
  if (!partial_.empty()) sink_.line(handling_.prefix, std::exchange(partial_, {}));
  sink_.flush();
}

}  // namespace rondo::launcher
