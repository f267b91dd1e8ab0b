// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/output.hpp"

#include <fcntl.h>
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
#include <iterator>
#include <utility>

#include "comm/base/env.hpp"

namespace rondo::launcher {
namespace {

constexpr std::size_t kQueueLimit = std::size_t{1} << 20;  // then the ranks have to wait
constexpr std::size_t kKept = 4096;                        // of each stream, for the end
constexpr std::size_t kRoom = 4096;            // what a pipe that polls as writable takes at once (PIPE_BUF)
constexpr std::size_t kTerminalHolds = 65536;  // more than the kernel keeps for the reader of a terminal
constexpr std::size_t kFrame = 65536;          // of lines on a screen; then they do not wait for the next frame
constexpr std::chrono::milliseconds kBetweenFrames{50}, kBetweenFramesNotDrawn{1000};
constexpr std::chrono::milliseconds kPromptDelay{50};  // a line that takes longer is seen before it is finished
constexpr std::chrono::milliseconds kHold{100};        // in which ranks that lost another say so
constexpr int kHeight = 24;                            // of a terminal that does not say

bool is_regular(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool has_room(int fd) {
  pollfd poll{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&poll, 1, 0) == 1;
}

Fd reopened(int terminal) {
  return Fd(::open(fmt::format("/proc/self/fd/{}", terminal).c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
}

bool can_draw() {
  const auto kind = env("TERM");
  return kind && *kind != "dumb";
}

}  // namespace

Sink::Sink(process::EventLoop& loop, int fd, Color color)
    : loop_(loop), fd_(fd), colored_(color == Color::always), regular_(is_regular(fd)) {
  if (::isatty(fd) != 1) return;
  colored_ = color != Color::never;
  screen_.emplace(can_draw());
  between_frames_ = can_draw() ? kBetweenFrames : kBetweenFramesNotDrawn;
  own_ = reopened(fd);
  if (own_) fd_ = own_.get();
}

Sink::~Sink() {
  if (watched_) loop_.forget(fd_);
}

bool Sink::full() const { return queue_.size() - written_ + lines_.size() > kQueueLimit; }

void Sink::hold() {
  if (std::exchange(holds_, true)) return;
  loop_.at(Clock::now() + kHold, [this] {
    release();
    flush();
  });
}

void Sink::release() {
  holds_ = false;
  held_.release(folds_, [this](std::string_view prefix, std::string_view text) { line(prefix, text); });
}

void Sink::line_of_rank(int rank, bool folds, std::string_view prefix, std::string_view text) {
  if (!holds_) return line(prefix, text);
  held_.add(folds ? rank : -1, prefix, text);
  if (held_.bytes() > kQueueLimit) release();
}

void Sink::line(std::string_view prefix, std::string_view text) {
  if (closed_) return;
  ++line_count_;
  (screen_ ? lines_ : queue_).append(prefix).append(text).push_back('\n');
}

std::optional<Sink::Clock::time_point> Sink::first_row_due() const {
  if (!own_rows_.empty()) return Clock::time_point{};
  std::optional<Clock::time_point> first;
  for (const Source* source : sources_)
    if (const auto due = source->row_due(); due && (!first || *due < *first)) first = due;
  return first;
}

// Lines pass at once as long as there are no rows below them.
void Sink::compose() {
  const auto now = Clock::now();
  const auto due = first_row_due();
  if (!screen_->has_rows() && (!due || *due > now)) {
    queue_.append(lines_);
    lines_.clear();
    if (due) compose_at(*due);
    return;
  }
  const auto next = last_frame_ + between_frames_;
  if (!due || now >= next || lines_.size() > kFrame) return compose_frame(now);
  if (!screen_->draws()) queue_.append(std::exchange(lines_, {}));
  compose_at(next);
}

// Prompts below what is drawn over: the cursor stays behind the last.
void Sink::compose_frame(Clock::time_point now) {
  std::vector<std::string> rows = own_rows_, prompts;
  for (const Source* source : sources_) {
    const auto due = source->row_due();
    if (due && *due > now) compose_at(*due);
    if (!due || *due > now) continue;
    if (source->row_is_drawn_over())
      rows.push_back(source->row());
    else if (!source->has_more())  // else it is our being late that leaves it unfinished
      prompts.push_back(source->row());
  }
  std::move(prompts.begin(), prompts.end(), std::back_inserter(rows));
  const auto size = size_of(fd_);
  queue_.append(screen_->frame(lines_, std::move(rows), size ? size->ws_row : kHeight));
  lines_.clear();
  last_frame_ = now;
}

void Sink::compose_at(Clock::time_point time) {
  if (timer_ && *timer_ <= time) return;
  timer_ = time;
  loop_.at(time, [this, time] {
    if (timer_ == time) timer_.reset();
    flush();
  });
}

void Sink::flush_soon() {
  if (std::exchange(flushes_soon_, true)) return;
  loop_.at(Clock::now(), [this] {
    flushes_soon_ = false;
    flush();
  });
}

void Sink::flush() {
  if (screen_ && !closed_) compose();
  while (!all_written() && !closed_ && (regular_ || has_room(fd_)))
    if (!write_some()) break;
  if (closed_ || all_written()) {
    queue_.clear();
    written_ = 0;
    if (closed_) lines_.clear();
  }
  if (written_ > kQueueLimit) queue_.erase(0, std::exchange(written_, 0));
  const bool blocked = !all_written();
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
  if (regular_ || own_ || left <= kRoom) return left;
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
  if (errno == EAGAIN) return false;
  if (errno == EPIPE || !left_out_) {
    closed_ = true;  // the ranks get to feel it
    return false;
  }
  const int reason = errno;
  written_ = queue_.size();
  if (const auto tell = std::exchange(told_left_out_, true) ? nullptr : left_out_) tell(reason);
  return false;
}

void Sink::wake() {
  for (auto& waiter : std::exchange(waiting_, {})) waiter();
}

Source::Source(process::EventLoop& loop, Fd pipe, Handling handling, Sink& sink)
    : loop_(loop),
      pipe_(std::move(pipe)),
      is_terminal_(::isatty(pipe_.get()) == 1),
      handling_(std::move(handling)),
      sink_(sink) {
  follow_size();
  sink_.add(*this);
  loop_.watch(pipe_.get(), EPOLLIN, [this] { readable(); });
}

Source::~Source() {
  sink_.remove(*this);
  close();
}

bool Source::has_more() const {
  pollfd poll{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) == 1 && (poll.revents & POLLIN) != 0;
}

// The prefix takes its part of the line.
void Source::follow_size() {
  auto size = size_of(sink_.fd());
  if (!is_terminal_ || !pipe_ || !size) return;
  size->ws_col = static_cast<unsigned short>(std::max(1, size->ws_col - handling_.prefix_width));
  set_size(pipe_.get(), *size);
}

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
  if (sink_.closed()) return close();  // the rank's next write fails as if it had the closed stream itself
  std::size_t left = kTerminalHolds;   // a terminal gives little at once
  for (auto count = read_some(); is_terminal_ && count >= kRoom / 2 && left > count; count = read_some()) left -= count;
  sink_.flush_soon();
}

std::size_t Source::read_some() {
  if (!pipe_) return 0;
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(pipe_.get(), buffer.data(), buffer.size());
  if (count == 0 || (count < 0 && errno == EIO)) close();  // EIO: nobody has the terminal open any more
  if (count <= 0) return 0;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
  log(text);
  if (handling_.shown) take(text);
  keep(text);
  return static_cast<std::size_t>(count);
}

void Source::log(std::string_view text) {
  while (handling_.log && !text.empty()) {
    const ssize_t count = ::write(handling_.log.get(), text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      const int reason = errno;
      handling_.log.reset();
      handling_.log_ends(reason);
    }
  }
}

// What ranks draw over, and lines that take their time, are due as rows.
void Source::take_on_screen(std::string_view text) {
  bool is_new = !row_due_;
  on_screen_.take(text, [&](std::string_view whole) {
    line(whole);
    is_new = true;
  });
  if (!on_screen_.has_row()) {
    row_due_.reset();
  } else if (on_screen_.drawn_over()) {
    row_due_ = Sink::Clock::time_point{};
  } else if (is_new) {
    row_due_ = Sink::Clock::now() + kPromptDelay;
  }
}

void Source::take(std::string_view text) {
  if (sink_.is_terminal()) return take_on_screen(text);
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    if (partial_.empty()) {
      line(text.substr(0, end));
    } else {
      partial_.append(text.substr(0, end));
      line(partial_);
      partial_.clear();
    }
    text.remove_prefix(end + 1);
  }
  partial_.append(text);
  if (partial_.size() > kLongestLine) {
    line(partial_);
    partial_.clear();
  }
}

void Source::keep(std::string_view text) {
  if (text.size() > kKept) text.remove_prefix(text.size() - kKept);
  kept_.append(text);
  if (kept_.size() > kKept) kept_.erase(0, kept_.size() - kKept);
}

// Whole lines, unless one is longer than what is kept.
void Source::show_last() {
  if (!handling_.shown_at_end) return;
  if (kept_.size() == kKept) kept_.erase(0, kept_.find('\n') + 1);
  take(std::exchange(kept_, {}));
  sink_.flush();
}

std::vector<std::string> Source::last_lines() const {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> lines;
  const auto add = [&lines](std::string_view line) { lines.emplace_back(line); };
  ScreenText text;
  text.take(kept_.size() == kKept ? std::string_view(kept_).substr(kept_.find('\n') + 1) : kept_, add);
  text.finish(add);
  if (lines.size() > kMost) lines.erase(lines.begin(), lines.end() - kMost);
  return lines;
}

void Source::drain() {
  int there = 0;  // others that hold the pipe may write for ever
  if (pipe_) ::ioctl(pipe_.get(), FIONREAD, &there);
  if (is_terminal_) there = static_cast<int>(kTerminalHolds);  // it does not count what is on its way
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
  on_screen_.finish([this](std::string_view whole) { line(whole); });
  row_due_.reset();
  if (!partial_.empty()) line(std::exchange(partial_, {}));
  sink_.flush();
}

}  // namespace rondo::launcher
