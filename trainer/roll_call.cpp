// SPDX-License-Identifier: Apache-2.0
#include "trainer/roll_call.hpp"

#include <algorithm>
#include <cstring>

namespace rondo::trainer {
namespace {

// One, as an element of this type.
std::vector<std::byte> one(DataType dtype) {
  const auto bytes_of = [](auto value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  switch (dtype) {
    case DataType::f16:
      return bytes_of(float16(1.0F));
    case DataType::bf16:
      return bytes_of(bfloat16(1.0F));
    case DataType::f32:
      return bytes_of(1.0F);
    case DataType::f64:
      return bytes_of(1.0);
    case DataType::f8e4m3:
      return bytes_of(float8_e4m3(1.0F));
    case DataType::f8e5m2:
      return bytes_of(float8_e5m2(1.0F));
    case DataType::i8:
    case DataType::u8:
    case DataType::i32:
    case DataType::u32:
    case DataType::i64:
    case DataType::u64:
      break;
  }
  throw Error(ErrorCode::invalid_argument, "marks ride with gradients, which have a floating type");
}

}  // namespace

RollCall::RollCall(std::size_t parameters, int world_size, DataType dtype)
    : parameters_(parameters), world_size_(static_cast<std::size_t>(world_size)), dtype_(dtype) {}

void RollCall::write(std::span<std::byte> to, std::span<const char> used, int rank, std::size_t step,
                     bool strayed) const {
  const std::vector<std::byte> mark = one(dtype_);
  std::fill(to.begin(), to.end(), std::byte{0});
  const auto set = [&](std::size_t i) { std::copy(mark.begin(), mark.end(), to.data() + i * mark.size()); };
  for (std::size_t i = 0; i < parameters_; ++i) {
    if (used[i]) set(i);
  }
  if (strayed) set(count() - 1);
  if (step == kAbsent) return;
  const std::size_t own = parameters_ + kMarksOfRank * static_cast<std::size_t>(rank);
  set(own);
  for (std::size_t digit = 1; digit < kMarksOfRank; ++digit) {
    if ((step >> (digit - 1) & 1U) != 0) set(own + digit);
  }
}

RollCall::Answer RollCall::read(std::span<const std::byte> from) const {
  const std::size_t size = size_of(dtype_);
  const auto is_set = [&](std::size_t i) {  // zero is zero in every floating type
    const auto element = from.subspan(i * size, size);
    return std::any_of(element.begin(), element.end(), [](std::byte b) { return b != std::byte{0}; });
  };
  Answer answer{.used = std::vector<char>(parameters_), .present = {}};
  for (std::size_t i = 0; i < parameters_; ++i) answer.used[i] = is_set(i) ? 1 : 0;
  for (std::size_t rank = 0; rank < world_size_; ++rank) {
    const std::size_t marks = parameters_ + kMarksOfRank * rank;
    if (!is_set(marks)) continue;
    answer.present.push_back(static_cast<int>(rank));
    const std::size_t first = parameters_ + kMarksOfRank * static_cast<std::size_t>(answer.present.front());
    for (std::size_t digit = 1; digit < kMarksOfRank; ++digit)
      answer.same_step &= is_set(marks + digit) == is_set(first + digit);
  }
  answer.strayed = is_set(count() - 1);
  return answer;
}

}  // namespace rondo::trainer
