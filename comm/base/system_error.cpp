// SPDX-License-Identifier: Apache-2.0
#include "comm/base/system_error.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include "comm/base/limits.hpp"

namespace rondo {

void throw_errno(std::string_view what) {
  const int code = errno;
  throw Error(ErrorCode::system, std::string(what) + ": " + std::strerror(code) + remedy_of(code));
}

}  // namespace rondo
