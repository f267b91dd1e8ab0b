// SPDX-License-Identifier: Apache-2.0
#include "trainer/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "trainer/text.hpp"

namespace rondo::trainer {

void refuse_argument(std::string_view who, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", who, why));
}

void check_parameter(std::string_view who, const Parameter& p) {
  if (p.name.empty()) refuse_argument(who, fmt::format("a tensor of {} elements has no name", p.count));
  if (static_cast<int>(p.dtype) >= kDataTypeCount) {
    refuse_argument(who, fmt::format("the dtype of {} is {}, which is none of ours: they are 0 to {}", quoted(p.name),
                                     static_cast<int>(p.dtype), kDataTypeCount - 1));
  }
  if (p.count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(p.dtype))
    refuse_argument(who, fmt::format("the {} elements of {} are beyond all memory", p.count, quoted(p.name)));
  if (!p.shape) return;
  std::size_t count = 1;
  bool fits = true;
  for (const std::size_t extent : *p.shape) fits = !__builtin_mul_overflow(count, extent, &count) && fits;
  if (fits && count == p.count) return;
  refuse_argument(who, fmt::format("parameter {} has {} elements, not those of shape [{}]", quoted(p.name), p.count,
                                   fmt::join(*p.shape, ", ")));
}

void check_parameters(std::string_view who, std::span<const Parameter> parameters) {
  for (const Parameter& p : parameters) check_parameter(who, p);
}

void check_path(std::string_view who, const std::string& path) {
  if (path.empty()) refuse_argument(who, "the path is empty; name a file");
  if (path.find('\0') != std::string::npos)
    refuse_argument(who, fmt::format("the path {} has a zero byte in it", quoted(path)));
}

}  // namespace rondo::trainer
