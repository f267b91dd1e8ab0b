// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/voice.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "comm/base/plain_text.hpp"

namespace rondo::launcher {
namespace {

bool same_file(int left, int right) {
  struct stat a {
  }, b{};
  return ::fstat(left, &a) == 0 && ::fstat(right, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Voice::Voice(process::EventLoop& loop, Color color) : out_(loop, STDOUT_FILENO, color), err_(&out_) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) {
    own_err_ = std::make_unique<Sink>(loop, STDERR_FILENO, color);
    err_ = own_err_.get();
    own_err_->when_left_out([this](int reason) { leave_out("stderr", reason, &out_); });
  }
  out_.when_left_out([this](int reason) { leave_out("stdout", reason, own_err_.get()); });
}

void Voice::say(const std::string& sentence, const std::vector<std::string>& lines_of_ranks) {
  err_->line(kSpoken, plain_text(sentence));
  for (const auto& line : lines_of_ranks) err_->line("rondorun:   ", line);
  err_->flush();
}

std::size_t Voice::lines() const { return out_.lines() + (own_err_ ? own_err_->lines() : 0); }

void Voice::when_written(std::function<void()> handler) {
  if (out_.empty() && err_->empty()) return handler();
  Sink& unfinished = out_.empty() ? *err_ : out_;
  unfinished.when_room([this, handler = std::move(handler)] { when_written(handler); });
}

// The job goes on, as it does not run for its log; but it does not end as if all had been written.
void Voice::leave_out(const std::string& what, int reason, Sink* teller) {
  left_out_ = true;
  if (teller == nullptr) return;  // stdout and stderr are the one that is full
  teller->line(kSpoken, fmt::format("cannot write {}: {}; what ranks write there is lost from here on, and the exit "
                                    "code will not be 0",
                                    what, std::strerror(reason)));
  teller->flush();
}

}  // namespace rondo::launcher
