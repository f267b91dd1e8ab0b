// SPDX-License-Identifier: Apache-2.0
#include "trainer/text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <rondo/communicator.hpp>

namespace rondo::trainer {

using Json = nlohmann::json;

std::string quoted(const std::string& text) {
  std::string all = Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
  all.front() = all.back() = '\'';
  return all;
}

void check_utf8(const char* what, const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
  } catch (const Json::type_error&) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} {} is not UTF-8, so no checkpoint can hold it; choose another", what, quoted(text)));
  }
}

}  // namespace rondo::trainer
