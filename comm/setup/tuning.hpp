// SPDX-License-Identifier: Apache-2.0
// What measurement decides, as data: thresholds, and which algorithm runs over links. Read from the file that
// RONDO_TUNING names (rondo-tune writes it); rank 0's values are everybody's.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/collective.hpp>

#include "kernels/algorithms/tuner.hpp"

namespace rondo::comm {

// Bytes are those of a rank's larger buffer unless said otherwise. To add one: a member and its row in tuning.cpp,
// which has the meaning, and the default where that follows another value.
struct Tuning {
  Tuning();

  // Ranks that share memory.
  std::uint64_t flat_bytes_of_two = 32 << 10;
  std::uint64_t flat_bytes = 4 << 10;
  std::uint64_t chunk_bytes = 512 << 10;
  std::uint64_t ahead_bytes = 1 << 20;
  std::uint64_t cached_bytes = 16 << 20;
  std::uint64_t poured_bytes = 8 << 20;
  std::uint64_t cold_bytes = 256 << 20;
  std::uint64_t cold_string_bytes = 0;
  std::uint64_t streaming_bytes = 0;  // the processor's: see cache_demand()
  std::uint64_t streaming_string_bytes = 0;
  std::uint64_t streaming_in_place_bytes = 0;
  std::uint64_t streaming_copied_bytes = 0;
  std::uint64_t warm_bytes = 0;
  std::uint64_t handed_bytes = 0;
  std::uint64_t few_sum_chunk_bytes = 0;
  std::uint64_t direct_bytes = 4 << 10;
  std::uint64_t direct_crowd_bytes = 0;
  std::uint64_t direct_crowd_reduce_bytes = 0;
  std::uint64_t single_copy_bytes = 32 << 10;
  std::uint64_t single_copy_root_bytes = 0;
  std::uint64_t single_copy_sum_bytes = 0;
  std::uint64_t single_copy_crowd_bytes = 0;
  std::uint64_t single_copy_crowd_bytes_of_two = 0;
  std::uint64_t single_copy_crowd_block_bytes = 0;
  // Ranks on several nodes.
  std::uint64_t two_level_leader_bytes = 256 << 10;
  std::uint64_t two_level_chunk_bytes = 256 << 10;
  std::uint64_t two_level_reduce_bytes = 64 << 10;
  std::uint64_t two_level_gather_bytes = 64 << 10;
  // Devices. Arithmetic, not a measurement: see docs/decisions/gpu-memory.md.
  std::uint64_t device_host_bytes = 1 << 20;
  std::uint64_t device_push_bytes = 16 << 10;
  std::uint64_t device_push_block_bytes = 64 << 10;
  std::uint64_t device_one_shot_bytes = 128 << 10;
  std::uint64_t device_window_bytes = UINT64_MAX;
  std::uint64_t device_ll_bytes = 64 << 10;
  std::uint64_t device_ll128_bytes = 0;
  // Links.
  std::uint64_t kept_bytes = 8 << 20;
  std::vector<kernels::TunerRow> links;  // tried before kernels::kTuner; names are those of the algorithm table

  std::string source = "built in";  // where the values come from, for the log
};

// How rondo-tune finds a value out: what it tries, and what it measures with each.
struct TuningTrial {
  // Of a device's memory: the value is a threshold. Calls are measured under the least value and under the greatest.
  enum class Buffers : std::uint8_t { ordinary, windows, device };
  struct Meanwhile {
    std::uint64_t Tuning::*value;
    std::uint64_t is;
  };
  std::span<const std::uint64_t> values;
  std::span<const Collective> collectives;
  std::span<const std::uint64_t> sizes;
  Buffers buffers = Buffers::ordinary;
  int least_ranks = 2, most_ranks = kernels::kAnyWorld;  // worlds in which the value matters
  std::span<const Meanwhile> meanwhile{};                // what else is so while it is tried, that it alone decides
  bool captured = true;                                  // on a device: calls are measured in graphs

  bool is_tried() const { return !values.empty(); }  // by rondo-tune
};

struct TuningField {
  std::string_view name;
  std::uint64_t Tuning::*value;
  std::uint64_t low, high;
  std::string_view meaning;
  TuningTrial trial;
  // Its default, from the value of a field before it; null: the member's own.
  std::uint64_t Tuning::*leader = nullptr;
  std::uint64_t (*from_leader)(std::uint64_t leader) = nullptr;
};
std::span<const TuningField> tuning_fields();
// And the default to all that follow it.
void set_value(Tuning& tuning, std::uint64_t Tuning::*value, std::uint64_t to);
inline constexpr std::string_view kLinksName = "links";

// Lines of `NAME VALUE` (bytes; K, M and G are powers of 1024; "never": beyond any size) and of `links PATTERN
// MAX_BYTES MAX_WORLD_SIZE ALGORITHM`, where a * is no limit; # begins a comment. What is not named keeps its default,
// which follows what is named where that is its leader. invalid_argument names `source` and the line.
Tuning parse_tuning(std::string_view text, std::string_view source);
Tuning read_tuning(const std::string& path);
std::string bytes_text(std::uint64_t value);  // 4K, never
std::string to_text(const Tuning& tuning);    // what parse_tuning takes, every field and its meaning
std::string to_text(const Tuning& tuning, const TuningField& field);  // its line of that

}  // namespace rondo::comm
