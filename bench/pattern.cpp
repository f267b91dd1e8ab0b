// SPDX-License-Identifier: Apache-2.0
#include "bench/pattern.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace rondo::bench {
namespace {

constexpr std::size_t kBlock = 512;         // elements worked on at once, so that they stay in the nearest cache
constexpr std::int32_t kMaxFactors = 6;     // of two in a product: 2^6 is exact in every type
constexpr std::int32_t kLargest = 1 << 20;  // partial sums of the wide types

template <class Function>
auto visit(DataType dtype, Function&& function) {
  switch (dtype) {
    case DataType::i8:
      return function(std::int8_t{});
    case DataType::u8:
      return function(std::uint8_t{});
    case DataType::i32:
      return function(std::int32_t{});
    case DataType::u32:
      return function(std::uint32_t{});
    case DataType::i64:
      return function(std::int64_t{});
    case DataType::u64:
      return function(std::uint64_t{});
    case DataType::f16:
      return function(float16{});
    case DataType::bf16:
      return function(bfloat16{});
    case DataType::f32:
      return function(float{});
    case DataType::f64:
      return function(double{});
    case DataType::f8e4m3:
      return function(float8_e4m3{});
    case DataType::f8e5m2:
      return function(float8_e5m2{});
  }
  return function(std::uint8_t{});
}

std::uint32_t hash(std::size_t index, int rank, std::uint32_t seed) {
  std::uint32_t x = static_cast<std::uint32_t>(index) * 0x9E3779B1U +
                    static_cast<std::uint32_t>(index >> 32) * 0x7FEB352DU +
                    static_cast<std::uint32_t>(rank) * 0x85EBCA6BU + seed * 0xC2B2AE35U;
  x = (x ^ x >> 15) * 0x2C1B3C6DU;
  x = (x ^ x >> 12) * 0x297A2D39U;
  return x ^ x >> 15;
}

// Integers up to here, and all sums of them that stay below, are exact.
std::int32_t exact_up_to(DataType dtype) {
  switch (dtype) {
    case DataType::f8e5m2:
      return 8;
    case DataType::f8e4m3:
      return 16;
    case DataType::i8:
      return 127;
    case DataType::u8:
      return 255;
    case DataType::bf16:
      return 256;
    case DataType::f16:
      return 2048;
    case DataType::i32:
    case DataType::u32:
    case DataType::i64:
    case DataType::u64:
    case DataType::f32:
    case DataType::f64:
      break;
  }
  return kLargest;
}

bool is_signed(DataType dtype) { return dtype != DataType::u8 && dtype != DataType::u32 && dtype != DataType::u64; }

// How contributions are drawn, so that no partial result leaves what the type holds exactly.
struct Draw {
  std::int32_t low = 0;
  std::uint32_t choices = 1;  // values low .. low + choices - 1
  std::size_t every = 1;      // where ranks are too many, each contributes to every so manyeth element only
  std::size_t of = 1;         // product: to `factors` elements of so many
};

Draw draw_for(const Reduction& r) {
  const std::int32_t weight = r.op == ReduceOp::premultiplied_sum ? 2 : 1;
  const std::int32_t limit = exact_up_to(r.dtype);
  const bool sums = r.op == ReduceOp::sum || r.op == ReduceOp::average || r.op == ReduceOp::premultiplied_sum;
  const std::int32_t parts = sums ? r.world_size * weight : 1;
  const std::int32_t most = std::clamp(limit / parts, 1, 1000);
  Draw draw;
  draw.low = is_signed(r.dtype) ? -most : 0;
  draw.choices = static_cast<std::uint32_t>(most - draw.low + 1);
  draw.every = static_cast<std::size_t>((parts + limit - 1) / limit);
  draw.of = static_cast<std::size_t>(std::max(r.world_size, kMaxFactors));
  return draw;
}

std::int32_t value_at(const Reduction& r, const Draw& draw, std::size_t index, int rank, std::uint32_t seed) {
  const std::uint32_t h = hash(index, rank, seed);
  const std::size_t turn = index + static_cast<std::size_t>(rank);
  switch (r.op) {
    case ReduceOp::product: {
      const std::int32_t two = turn % draw.of < static_cast<std::size_t>(kMaxFactors) && (h & 1) != 0 ? 2 : 1;
      return draw.low < 0 && (h & 2) != 0 ? -two : two;
    }
    case ReduceOp::bit_and:
      return static_cast<std::int32_t>(h | h << 16 | h >> 16);
    case ReduceOp::bit_or:
      return static_cast<std::int32_t>(h & (h << 16 | h >> 16));
    case ReduceOp::bit_xor:
      return static_cast<std::int32_t>(h);
    case ReduceOp::sum:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      break;
  }
  if (draw.every > 1 && turn % draw.every != 0) return 0;
  return draw.low + static_cast<std::int32_t>(std::uint64_t{h} * draw.choices >> 32);
}

void combine(ReduceOp::Kind op, std::int32_t& sum, std::int32_t value, int rank) {
  switch (op) {
    case ReduceOp::product:
      sum *= value;
      break;
    case ReduceOp::min:
      sum = std::min(sum, value);
      break;
    case ReduceOp::max:
      sum = std::max(sum, value);
      break;
    case ReduceOp::bit_and:
      sum &= value;
      break;
    case ReduceOp::bit_or:
      sum |= value;
      break;
    case ReduceOp::bit_xor:
      sum ^= value;
      break;
    case ReduceOp::premultiplied_sum:
      sum += value * static_cast<std::int32_t>(factor_of(rank));
      break;
    case ReduceOp::sum:
    case ReduceOp::average:
      sum += value;
      break;
  }
}

template <class T>
T converted(std::int32_t value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

// The complete sum, divided once: in the type itself, halves and fp8 in float.
template <class T>
T divided(std::int32_t sum, int divisor) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum / divisor);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(sum) / static_cast<T>(divisor);
  } else {
    return static_cast<T>(static_cast<float>(sum) / static_cast<float>(divisor));
  }
}

template <class T>
T bits_at(std::size_t index, const Source& source) {
  const std::uint64_t h = hash(index, source.rank, source.seed);
  return static_cast<T>(h << 32 ^ h * 0x9E3779B97F4A7C15U ^ h);
}

template <class Function>
auto visit_width(DataType dtype, Function&& function) {
  switch (size_of(dtype)) {
    case 1:
      return function(std::uint8_t{});
    case 2:
      return function(std::uint16_t{});
    case 4:
      return function(std::uint32_t{});
    default:
      return function(std::uint64_t{});
  }
}

template <class T>
std::size_t count_different(const std::byte* got, const T* expected, std::size_t count) {
  if (std::memcmp(got, expected, count * sizeof(T)) == 0) return 0;
  std::size_t wrong = 0;
  // The bits are what must be right. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  for (std::size_t i = 0; i < count; ++i) wrong += std::memcmp(got + i * sizeof(T), expected + i, sizeof(T)) != 0;
  return wrong;
}

// Expected values, a block at a time: make(T* out, first, count), then use(out, offset in bytes, count).
template <class T, class Make, class Use>
void by_blocks(std::size_t count, Make&& make, Use&& use) {
  T block[kBlock];
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t part = std::min(kBlock, count - done);
    make(block, done, part);
    use(block, done * sizeof(T), part);
  }
}

template <class T>
auto make_bits(const Source& source) {
  return [source](T* out, std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = bits_at<T>(source.first + first + i, source);
  };
}

template <class T>
auto make_reduced(const Reduction& r, const Source& source) {
  return [=, draw = draw_for(r)](T* out, std::size_t first, std::size_t count) {
    std::int32_t sum[kBlock];
    for (int rank = 0; rank < r.world_size; ++rank) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::int32_t value = value_at(r, draw, source.first + first + i, rank, source.seed);
        if (rank == 0) {
          sum[i] = value * (r.op == ReduceOp::premultiplied_sum ? static_cast<std::int32_t>(factor_of(0)) : 1);
        } else {
          combine(r.op, sum[i], value, rank);
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = r.op == ReduceOp::average ? divided<T>(sum[i], r.world_size) : converted<T>(sum[i]);
    }
  };
}

auto copy_to(void* out) {
  return [out](const auto* block, std::size_t offset, std::size_t count) {
    std::memcpy(static_cast<std::byte*>(out) + offset, block, count * sizeof(*block));
  };
}
auto compare_to(const void* got, std::size_t& wrong) {
  return [got, &wrong](const auto* block, std::size_t offset, std::size_t count) {
    wrong += count_different(static_cast<const std::byte*>(got) + offset, block, count);
  };
}

}  // namespace

void fill_bits(void* out, std::size_t count, DataType dtype, const Source& source) {
  visit_width(dtype, [&]<class T>(T) { by_blocks<T>(count, make_bits<T>(source), copy_to(out)); });
}

std::size_t count_wrong_bits(const void* got, std::size_t count, DataType dtype, const Source& source) {
  std::size_t wrong = 0;
  visit_width(dtype, [&]<class T>(T) { by_blocks<T>(count, make_bits<T>(source), compare_to(got, wrong)); });
  return wrong;
}

void fill_values(void* out, std::size_t count, const Reduction& reduction, const Source& source) {
  const Draw draw = draw_for(reduction);
  visit(reduction.dtype, [&]<class T>(T) {
    const auto make = [&](T* block, std::size_t first, std::size_t part) {
      for (std::size_t i = 0; i < part; ++i) {
        block[i] = converted<T>(value_at(reduction, draw, source.first + first + i, source.rank, source.seed));
      }
    };
    by_blocks<T>(count, make, copy_to(out));
  });
}

std::size_t count_wrong_values(const void* got, std::size_t count, const Reduction& reduction, const Source& source) {
  std::size_t wrong = 0;
  visit(reduction.dtype,
        [&]<class T>(T) { by_blocks<T>(count, make_reduced<T>(reduction, source), compare_to(got, wrong)); });
  return wrong;
}

}  // namespace rondo::bench
