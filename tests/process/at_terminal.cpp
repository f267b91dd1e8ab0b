// SPDX-License-Identifier: Apache-2.0
#include "tests/process/at_terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>

namespace rondo::test {
namespace {

constexpr std::chrono::seconds kShown{20};  // what is expected is, within this time

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class Emulator {
 public:
  Emulator(int rows, int columns) : height_(rows), width_(static_cast<std::size_t>(columns)), lines_(1) {}
  void take(const std::string& bytes);
  std::vector<std::string> text() const;

 private:
  using Line = std::vector<std::string>;  // letters
  void put(const std::string& letter);
  void down();
  void sequence(const std::string& parameters, char last);

  int height_;
  std::size_t width_, row_ = 0, column_ = 0;
  bool wraps_ = true;
  std::vector<Line> lines_;
};

void Emulator::down() {
  if (++row_ == lines_.size()) lines_.emplace_back();
}

void Emulator::put(const std::string& letter) {
  if (column_ == width_ && wraps_) {
    down();
    column_ = 0;
  }
  column_ = std::min(column_, width_ - 1);
  Line& line = lines_[row_];
  if (line.size() <= column_) line.resize(column_ + 1, " ");
  line[column_++] = letter;
}

void Emulator::sequence(const std::string& parameters, char last) {
  if (last == 'm') return;
  if (last == 'A') {
    const auto top = lines_.size() - std::min(lines_.size(), static_cast<std::size_t>(height_));
    const auto by = static_cast<std::size_t>(std::max(1, std::atoi(parameters.c_str())));
    row_ = std::max(top, row_ - std::min(row_, by));
  } else if (last == 'J' && parameters.empty()) {
    lines_.resize(row_ + 1);
    lines_[row_].resize(std::min(lines_[row_].size(), column_));
  } else if (parameters == "?7" && (last == 'l' || last == 'h')) {
    wraps_ = last == 'h';
  } else {
    throw std::runtime_error("a terminal got the escape sequence " + parameters + last);
  }
}

void Emulator::take(const std::string& bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte == '\r') {
      column_ = 0;
    } else if (byte == '\n') {
      down();
    } else if (byte == '\b') {
      column_ -= std::min<std::size_t>(column_, 1);
    } else if (byte == '\033') {
      if (i + 1 == bytes.size()) return;
      const auto end = bytes.find_first_of("ABCDEFGHJKLMPXhlmnrsu@", i + 2);
      if (bytes[i + 1] != '[') throw std::runtime_error("a terminal got an escape sequence that is none of styles");
      if (end == bytes.npos) return;  // the rest has not come yet
      sequence(bytes.substr(i + 2, end - i - 2), bytes[end]);
      i = end;
    } else {
      std::size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
      put(bytes.substr(i, length));
      i += length - 1;
    }
  }
}

std::vector<std::string> Emulator::text() const {
  std::vector<std::string> result;
  for (const Line& line : lines_) {
    std::string text;
    for (const auto& letter : line) text += letter;
    result.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
  }
  while (!result.empty() && result.back().empty()) result.pop_back();
  return result;
}

}  // namespace

std::vector<std::string> screen_after(const std::string& bytes, int rows, int columns) {
  Emulator emulator(rows, columns);
  emulator.take(bytes);
  return emulator.text();
}

AtTerminal::AtTerminal(const std::vector<std::string>& command, const How& how)
    : how_(how), master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
  if (!master_ || ::grantpt(master_.get()) != 0 || ::unlockpt(master_.get()) != 0)
    throw std::runtime_error("cannot open a pseudo-terminal");
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string name = ::ptsname(master_.get());
  const Fd ours(::open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  resize(how.rows, how.columns);
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::setsid();
  const int terminal = ::open(name.c_str(), O_RDWR);
  ::ioctl(terminal, TIOCSCTTY, 0);
  for (int fd = 0; fd < 3; ++fd) ::dup2(terminal, fd);
  for (const auto& variable : how.environment) ::putenv(const_cast<char*>(variable.c_str()));
  ::execvp(argv[0], argv.data());
  ::_exit(125);
}

AtTerminal::~AtTerminal() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void AtTerminal::type(const std::string& keys) const {
  if (::write(master_.get(), keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("cannot type at the terminal");
}

void AtTerminal::resize(int rows, int columns) {
  how_.rows = rows;
  how_.columns = columns;
  winsize size{};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  if (::ioctl(master_.get(), TIOCSWINSZ, &size) != 0) throw std::runtime_error("cannot resize the terminal");
}

bool AtTerminal::read_some(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd poll{.fd = master_.get(), .events = POLLIN, .revents = 0};
  if (left.count() <= 0 || ::poll(&poll, 1, static_cast<int>(left.count())) != 1) return false;
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(master_.get(), buffer.data(), buffer.size());
  if (got <= 0) return false;  // EIO: nobody has the terminal open any more
  shown_.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

std::string AtTerminal::read_until(const std::string& text, std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + kShown;
  while (text.empty() || occurrences(shown_, text) < count) {
    if (read_some(deadline)) continue;
    if (text.empty() && std::chrono::steady_clock::now() < deadline) break;
    throw std::runtime_error("the terminal did not show " + text + " but " + shown_);
  }
  return shown_;
}

std::vector<std::string> AtTerminal::screen_when(
    const std::function<bool(const std::vector<std::string>&)>& as_expected) {
  const auto deadline = std::chrono::steady_clock::now() + kShown;
  while (!as_expected(screen()))
    if (!read_some(deadline)) break;
  return screen();
}

std::vector<std::string> AtTerminal::screen_at_end() {
  read_until("");
  return screen();
}

int AtTerminal::wait() {
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace rondo::test
