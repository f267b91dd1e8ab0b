// SPDX-License-Identifier: Apache-2.0
#include "trainer/text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

std::string quoted(const std::string& text) {
  std::string all = nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  all.front() = all.back() = '\'';
  return all;
}

void check_utf8(const char* what, const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::type_error&) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} {} is not UTF-8, so no checkpoint can hold it; choose another", what, quoted(text)));
  }
}

}  // namespace rondo::trainer
