// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

#include "kernels/reduce_table.hpp"
#ifdef RONDO_X86
#include <cpuid.h>
#endif

namespace rondo {
namespace {

constexpr std::string_view kOpNames[kReduceOpCount] = {"sum",     "product", "min",     "max",       "average",
                                                       "bit_and", "bit_or",  "bit_xor", "premul_sum"};

#ifdef RONDO_X86
// Clang 14 does not know these in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx512fp16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bit_AVX512FP16) != 0;
}
#endif

// Of recent processors: their string instructions do not read the lines that they are going to overwrite. Those of Zen
// 3 and 4 take up to twice as long as a loop for what another core has just written.
bool has_fast_strings() {
#if defined(RONDO_X86) && !defined(RONDO_SANITIZED)  // sanitizers do not see what the instruction touches
  constexpr unsigned kEnhancedRepMov = 1U << 9, kFastShortRepMov = 1U << 4;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_strings =
      __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kEnhancedRepMov) != 0 && (d & kFastShortRepMov) != 0;
  return has_strings && __builtin_cpu_is("amdfam19h") == 0;
#else
  return false;
#endif
}

bool pays_as_string(std::size_t bytes) {
  constexpr std::size_t kLeast = 4 << 10;
  return bytes >= kLeast && kernels::copies_as_strings();
}

// As Intel's do; those of AMD lose by several pages at once.
bool has_prefetch_within_pages() {
#ifdef RONDO_X86
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

// Some move twenty times as slowly what goes a few bytes behind where it comes from, in terms of pages.
bool is_close_behind(const void* to, const void* from) {
  constexpr std::size_t kPage = 4 << 10, kClose = 128;
  const std::size_t behind = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
  return behind != 0 && behind < kClose;
}

void copy_string([[maybe_unused]] void* to, [[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes) {
#ifdef RONDO_X86
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
#endif
}

kernels::ReduceTables runnable_tables() {
  kernels::ReduceTables tables{};
  const kernels::ReduceTable** next = tables.table;
  *next++ = &kernels::reduce_table_baseline();
#ifdef RONDO_X86
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return tables;
  *next++ = &kernels::reduce_table_avx2();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    *next++ = &kernels::reduce_table_avx512();
    if (has_avx512fp16()) *next++ = &kernels::reduce_table_avx512fp16();
  }
#endif
  return tables;
}

const kernels::ReduceTable& best_table() {
  static const kernels::ReduceTable& best = [] {
    const auto& tables = kernels::reduce_tables();
    const kernels::ReduceTable* last = nullptr;
    for (const auto* table : tables.table) last = table != nullptr ? table : last;
    return std::cref(*last);
  }();
  return best;
}

const kernels::ReduceRow& row_of(DataType dtype) { return best_table().rows[static_cast<int>(dtype)]; }

}  // namespace

std::string_view name_of(ReduceOp::Kind op) { return op < kReduceOpCount ? kOpNames[op] : "unknown reduce_op"; }
bool is_supported(DataType dtype, ReduceOp::Kind op) {
  return static_cast<int>(dtype) < kDataTypeCount && op < kReduceOpCount && row_of(dtype).fold[op] != nullptr;
}

namespace kernels {

bool fetches_within_pages = has_prefetch_within_pages();

const ReduceTables& reduce_tables() {
  static const ReduceTables tables = runnable_tables();
  return tables;
}

FoldFunction find_fold(DataType dtype, ReduceOp::Kind op) { return row_of(dtype).fold[op]; }
Scale find_multiply(DataType dtype) { return row_of(dtype).multiply; }
Scale find_divide(DataType dtype) { return row_of(dtype).divide; }
bool averages_widely(DataType dtype, ReduceOp::Kind op) {
  return op == ReduceOp::average && row_of(dtype).divide_wide != nullptr;
}
DataType wide_type_of(DataType dtype) {
  switch (dtype) {
    case DataType::i8:
      return DataType::i32;
    case DataType::u8:
      return DataType::u32;
    case DataType::i32:
      return DataType::i64;
    case DataType::u32:
      return DataType::u64;
    case DataType::f16:
    case DataType::bf16:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      return DataType::f32;
    case DataType::i64:
    case DataType::u64:
    case DataType::f32:
    case DataType::f64:
      break;
  }
  return dtype;
}
Widen find_widen(DataType dtype) { return row_of(dtype).widen; }
Scale find_divide_wide(DataType dtype) { return row_of(dtype).divide_wide; }
Copy find_copy() { return best_table().copy; }

bool copies_as_strings() {
  static const bool fast = has_fast_strings();
  return fast;
}

void copy(void* out, const void* in, std::size_t bytes, Stores stores) {
  if (bytes == 0) return;
  if (stores == Stores::streaming) return best_table().stream(out, in, bytes);
  if (pays_as_string(bytes) && !is_close_behind(out, in)) return copy_string(out, in, bytes);
  best_table().copy(out, in, bytes);
}

void fetch(void* out, const void* in, std::size_t bytes) {
  constexpr std::size_t kLeast = 16 << 10;
  const Copy side_by_side = best_table().fetch;
  if (bytes < kLeast || side_by_side == nullptr || !fetches_within_pages) return copy(out, in, bytes, Stores::plain);
  side_by_side(out, in, bytes);
}

// Through the caches in turns, each as long as the nearest one holds until it is read again.
void copy_twice(const CopyTarget& first, const CopyTarget& second, const void* in, std::size_t bytes) {
  const std::size_t turn = copies_as_strings() ? 16 << 10 : 4 << 10;
  const bool streams = first.stores == Stores::streaming || second.stores == Stores::streaming;
  if (streams || bytes < turn) return best_table().copy_twice(first, second, in, bytes);
  for (std::size_t at = 0; at < bytes; at += turn) {
    const std::size_t now = std::min(turn, bytes - at);
    const auto* from = static_cast<const unsigned char*>(in) + at;
    copy(static_cast<unsigned char*>(first.out) + at, from, now, Stores::plain);
    copy(static_cast<unsigned char*>(second.out) + at, from, now, Stores::plain);
  }
}

// Past the caches a vector to all of them at a time: what is read once need not stay. Through them in turns so short
// that what a loop has the processor fetch ahead of it is still there when its next turn comes.
void copy_to_all(std::span<void* const> out, const void* in, std::size_t bytes, Stores stores) {
  constexpr std::size_t kTurn = 512, kTurnOfTwo = 1024;
  if (stores == Stores::streaming && out.size() == 2) return copy_twice({out[0], stores}, {out[1], stores}, in, bytes);
  if (stores == Stores::streaming && out.size() > 1) {
    const int outputs = static_cast<int>(out.size());
    return fold(DataType::u8, ReduceOp::sum,
                {.out = out.data(), .outputs = outputs, .in = &in, .inputs = 1, .count = bytes, .stores = stores});
  }
  const bool takes_turns = out.size() > 1 && !copies_as_strings();
  const std::size_t turn = !takes_turns ? bytes : out.size() == 2 ? kTurnOfTwo : kTurn;
  for (std::size_t at = 0; at < bytes; at += turn) {
    const std::size_t now = std::min(turn, bytes - at);
    for (void* to : out)
      copy(static_cast<unsigned char*>(to) + at, static_cast<const unsigned char*>(in) + at, now, stores);
  }
}

}  // namespace kernels
}  // namespace rondo
