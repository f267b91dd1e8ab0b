// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/growth_word.hpp"

#include "comm/base/bytes.hpp"

namespace rondo::comm {

Store::Bytes GrowthWord::encode() const {
  ByteWriter out;
  out.number(error.has_value());
  if (error) return out.number(error->error_code()).number(error->culprit()).text(error->what()).take();
  out.text(growth.name).number(growth.generation);
  return out.numbers(std::span<const int>(growth.job_ranks)).take();
}

GrowthWord GrowthWord::decode(const Store::Bytes& bytes) {
  ByteReader in(bytes);
  GrowthWord word;
  if (in.number<bool>()) {
    const auto code = in.number<ErrorCode>();
    const int culprit = in.number<int>();
    word.error = Error(code, in.text(), culprit);
    return word;
  }
  word.growth.name = in.text();
  word.growth.generation = in.number<std::uint32_t>();
  word.growth.job_ranks = in.numbers<int>();
  return word;
}

}  // namespace rondo::comm
