// SPDX-License-Identifier: Apache-2.0
// What the program writes to its standard error while `body` runs.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "comm/base/fd.hpp"

namespace rondo::test {

template <class Body>
std::string logged(Body body) {
  const Fd file(::memfd_create("rondo-test-log", MFD_CLOEXEC)), before(::dup(2));
  ::dup2(file.get(), 2);
  body();
  ::dup2(before.get(), 2);
  std::string text(static_cast<std::size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
  if (::pread(file.get(), text.data(), text.size(), 0) < 0) return "cannot read what was logged";
  return text;
}

}  // namespace rondo::test
