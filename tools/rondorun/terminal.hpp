// SPDX-License-Identifier: Apache-2.0
// What a rank's stdout or stderr is: a pipe, or a terminal of its own, so that programs write each line when it is
// complete and draw what they draw for people.
#pragma once
#include <sys/ioctl.h>

#include <optional>

#include "comm/base/fd.hpp"

namespace rondo::launcher {

struct Channel {
  Fd reader, writer;  // the reader does not block
};

Channel make_pipe();
// A pseudo-terminal that passes bytes as they are and echoes nothing; nullopt and errno where the system has none.
// It is nobody's controlling terminal: no key and no end of it sends a signal.
std::optional<Channel> try_make_terminal();

// Of the terminal `fd`; nullopt: it has no size, or is no terminal.
std::optional<winsize> size_of(int fd);
void set_size(int terminal, winsize size);

}  // namespace rondo::launcher
