// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sstream>
#include <string>

namespace rondo::kernels {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace rondo::kernels
