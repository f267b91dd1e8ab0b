// SPDX-License-Identifier: Apache-2.0
#include "tools/rondorun/terminal.hpp"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>
#include <cstdlib>

#include <utility>

#include "comm/base/system_error.hpp"

namespace rondo::launcher {

Channel make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe for a rank's output");
  Channel pipe{.reader = Fd(ends[0]), .writer = Fd(ends[1])};
  ::fcntl(pipe.reader.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

std::optional<Channel> try_make_terminal() {
  Channel terminal{.reader = Fd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)), .writer = {}};
  if (!terminal.reader || ::grantpt(terminal.reader.get()) != 0 || ::unlockpt(terminal.reader.get()) != 0) return {};
  // By descriptor: its name may lie in another mount namespace.
  terminal.writer.reset(::ioctl(terminal.reader.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios modes{};
  if (!terminal.writer || ::tcgetattr(terminal.writer.get(), &modes) != 0) return {};
  modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // a newline stays one byte
  modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL);
  if (::tcsetattr(terminal.writer.get(), TCSANOW, &modes) != 0) return {};
  return terminal;
}

std::optional<winsize> size_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return size;
}

void set_size(int terminal, winsize size) { ::ioctl(terminal, TIOCSWINSZ, &size); }

}  // namespace rondo::launcher
