// SPDX-License-Identifier: Apache-2.0
#include "comm/setup/tuning.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include <rondo/error.hpp>

namespace rondo::comm {
namespace {

using kernels::kPatterns;
using kernels::TunerRow;

constexpr std::uint64_t kNever = UINT64_MAX;

constexpr std::uint64_t K = 1 << 10, M = 1 << 20;
constexpr std::uint64_t kShort[] = {1 * K, 2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K};
constexpr std::uint64_t kMiddle[] = {32 * K, 64 * K, 128 * K, 256 * K, 512 * K, 1 * M, 2 * M};
constexpr std::uint64_t kLong[] = {1 * M, 4 * M, 16 * M};
constexpr std::uint64_t kLongOrNever[] = {64 * K, 256 * K, 1 * M, 4 * M, 16 * M, kNever};
constexpr std::uint64_t kSingleCopy[] = {32 * K, 128 * K, 1 * M, kNever};
constexpr Collective kCopies[] = {Collective::all_gather, Collective::broadcast};
constexpr Collective kSums[] = {Collective::all_reduce};
constexpr Collective kPoured[] = {Collective::reduce};
constexpr Collective kBoth[] = {Collective::all_reduce, Collective::all_gather};
constexpr Collective kPushed[] = {Collective::all_reduce, Collective::broadcast};
constexpr Collective kPushedBlocks[] = {Collective::all_gather, Collective::reduce_scatter};
constexpr Collective kOverWindows[] = {Collective::all_reduce, Collective::all_gather, Collective::broadcast};
constexpr Collective kOverLines[] = {Collective::reduce, Collective::broadcast};
constexpr Collective kInRings[] = {Collective::all_reduce, Collective::all_gather, Collective::broadcast};
constexpr std::uint64_t kPushes[] = {1 * K, 2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K};
constexpr std::uint64_t kPushMost[] = {0, 1 * K, 2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K, kNever};
constexpr std::uint64_t kBlocks[] = {4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K, 256 * K};
constexpr std::uint64_t kBlockMost[] = {0, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K, 256 * K, kNever};
constexpr std::uint64_t kShots[] = {8 * K, 32 * K, 64 * K, 128 * K, 256 * K, 512 * K, 1 * M};
constexpr std::uint64_t kShotMost[] = {0, 8 * K, 32 * K, 64 * K, 128 * K, 256 * K, 512 * K, 1 * M, kNever};
constexpr std::uint64_t kWindowed[] = {16 * K, 64 * K, 1 * M, 16 * M, 64 * M};
constexpr std::uint64_t kWindowMost[] = {0, 16 * K, 64 * K, 1 * M, 16 * M, 64 * M, kNever};
constexpr std::uint64_t kLines[] = {1 * K, 4 * K, 16 * K, 64 * K, 256 * K, 1 * M};
constexpr std::uint64_t kLineMost[] = {0, 1 * K, 4 * K, 16 * K, 64 * K, 256 * K, 1 * M, kNever};
constexpr std::uint64_t kLongLines[] = {16 * K, 64 * K, 256 * K, 1 * M, 4 * M, 16 * M};
constexpr std::uint64_t kLongLineMost[] = {0, 16 * K, 64 * K, 256 * K, 1 * M, 4 * M, 16 * M, kNever};
constexpr std::uint64_t kByHost[] = {1 * K, 64 * K, 1 * M, 4 * M, 16 * M};
constexpr std::uint64_t kByHostMost[] = {0, 1 * K, 64 * K, 1 * M, 4 * M, 16 * M};  // so much pinned memory
constexpr TuningTrial::Meanwhile kNoPush[] = {{&Tuning::device_push_bytes, 0}, {&Tuning::device_push_block_bytes, 0}};
constexpr TuningTrial::Meanwhile kNoWindow[] = {
    {&Tuning::device_push_bytes, 0}, {&Tuning::device_push_block_bytes, 0}, {&Tuning::device_window_bytes, 0}};
constexpr TuningTrial::Meanwhile kRingsAlone[] = {{&Tuning::device_push_bytes, 0},
                                                  {&Tuning::device_push_block_bytes, 0},
                                                  {&Tuning::device_window_bytes, 0},
                                                  {&Tuning::device_ll_bytes, 0}};
constexpr TuningTrial kNotTried{.values = {}, .collectives = {}, .sizes = {}, .most_ranks = 0};  // by rondo-tune

// So many eighths of the leader. A value beyond any size stays that.
template <std::uint64_t kEighths>
constexpr std::uint64_t eighths(std::uint64_t leader) {
  return leader > kNever / kEighths ? kNever : leader * kEighths / 8;
}

// AMD: what a group of cores has in its last cache was still worth keeping results in. Intel's is slow beyond the cache
// that a core has to itself.
std::uint64_t streaming_bytes_here() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel") != 0) {
    constexpr long kLeast = 1 << 20, kMost = 4 << 20;
    static const long of_core = std::clamp(sysconf(_SC_LEVEL2_CACHE_SIZE), kLeast, kMost);
    return static_cast<std::uint64_t>(of_core);
  }
#endif
  return 16 << 20;
}

// What a longer call brings into the caches puts places out that change hands: then a rank had better run ahead. Where
// results go past the caches early on, that is less.
constexpr std::uint64_t handed_bytes(std::uint64_t streaming) { return streaming < 6 * M ? kNever : 6 * M; }

// Where only one other rank waits for the core, small caches count for more than turns.
constexpr std::uint64_t few_sum_chunk_bytes(std::uint64_t streaming) { return streaming < 4 * M ? 256 * K : kNever; }

constexpr TuningField kFields[] = {
    {"flat_bytes_of_two",
     &Tuning::flat_bytes_of_two,
     0,
     kNever,
     "two ranks that share memory: reductions up to here are one meeting, where each reads all of the other",
     {.values = kShort, .collectives = kSums, .sizes = kShort, .most_ranks = 2}},
    {"flat_bytes",
     &Tuning::flat_bytes,
     0,
     kNever,
     "the same with more ranks, where each has a core",
     {.values = kShort, .collectives = kSums, .sizes = kShort, .least_ranks = 3}},
    {"chunk_bytes",
     &Tuning::chunk_bytes,
     4 * K,
     1024 * M,
     "published at a time in shared memory, by all ranks together; by each, of sums by more ranks than cores",
     {.values = kMiddle, .collectives = kBoth, .sizes = kLong}},
    {"ahead_bytes",
     &Tuning::ahead_bytes,
     4 * K,
     1024 * M,
     "that a rank may have published and others not yet read",
     {.values = kMiddle, .collectives = kBoth, .sizes = kLong}},
    {"cached_bytes",
     &Tuning::cached_bytes,
     0,
     kNever,
     "that the caches are taken to hold: two ranks' inputs of a sum below it go in longer chunks, and all results of "
     "an "
     "all_gather by ranks that share cores, up to it, in a single chunk",
     {.values = kLongOrNever, .collectives = kBoth, .sizes = kLong}},
    {"poured_bytes",
     &Tuning::poured_bytes,
     0,
     kNever,
     "two ranks with a core each: a reduce up to here is poured into the root, which adds piece by piece",
     {.values = kLongOrNever, .collectives = kPoured, .sizes = kLong, .most_ranks = 2}},
    {"cold_bytes", &Tuning::cold_bytes, 0, kNever,
     "ranks that share cores: sums in place go past the caches where all that they read is so much", kNotTried},
    {"cold_string_bytes", &Tuning::cold_string_bytes, 0, kNever,
     "the same of an all_reduce, on processors that copy long stretches as strings", kNotTried, &Tuning::cold_bytes,
     eighths<12>},
    {"streaming_bytes",
     &Tuning::streaming_bytes,
     0,
     kNever,
     "results are stored past the caches where all that the ranks read, and a third of what they write, is so much",
     {.values = kLongOrNever, .collectives = kBoth, .sizes = kLong}},
    {"streaming_string_bytes", &Tuning::streaming_string_bytes, 0, kNever,
     "the same in all_reduce, all_gather and all_to_all, on processors that copy long stretches as strings", kNotTried,
     &Tuning::streaming_bytes, eighths<12>},
    {"streaming_in_place_bytes", &Tuning::streaming_in_place_bytes, 0, kNever,
     "the same of what goes between buffers within reach: no rings take room", kNotTried, &Tuning::streaming_bytes,
     eighths<16>},
    {"streaming_copied_bytes", &Tuning::streaming_copied_bytes, 0, kNever,
     "two ranks with a core each, where pages are cheap: beside the kernel's copies from or to a root, a rank's own "
     "block goes past the caches where the root's buffer is so long",
     kNotTried, &Tuning::streaming_bytes, eighths<7>},
    {"warm_bytes", &Tuning::warm_bytes, 0, kNever,
     "ranks that share cores: that a single source puts into all rings ahead of its readers", kNotTried,
     &Tuning::streaming_bytes, eighths<2>},
    {"handed_bytes", &Tuning::handed_bytes, 0, kNever,
     "two ranks write where they read last in calls of up to so many bytes of all pieces", kNotTried,
     &Tuning::streaming_bytes, handed_bytes},
    {"few_sum_chunk_bytes", &Tuning::few_sum_chunk_bytes, 4 * K, kNever,
     "up to 4 ranks that share cores: the most that each publishes at a time of a sum longer than chunk_bytes",
     kNotTried, &Tuning::streaming_bytes, few_sum_chunk_bytes},
    {"direct_bytes",
     &Tuning::direct_bytes,
     0,
     kNever,
     "from here on, memory that peers can reach is used in place; what would be short, where a rank brings more",
     {.values = kShort, .collectives = kBoth, .sizes = kShort, .buffers = TuningTrial::Buffers::windows}},
    {"direct_crowd_bytes", &Tuning::direct_crowd_bytes, 0, kNever,
     "ranks that share cores: what would be short is used in place where a rank brings more, or the root's buffer is "
     "longer; what brings a piece for each goes by direct_bytes",
     kNotTried, &Tuning::direct_bytes, eighths<16>},
    {"direct_crowd_reduce_bytes", &Tuning::direct_crowd_reduce_bytes, 0, kNever,
     "the same of a reduce, whose root must know where all buffers lie", kNotTried, &Tuning::direct_bytes, eighths<32>},
    {"single_copy_bytes",
     &Tuning::single_copy_bytes,
     0,
     kNever,
     "ranks with a core each: from here on the kernel also tries to copy ordinary memory of processes at once, and "
     "goes on where that was faster",
     {.values = kSingleCopy, .collectives = kCopies, .sizes = kLong}},
    {"single_copy_root_bytes", &Tuning::single_copy_root_bytes, 0, kNever,
     "the same of two ranks where pages are cheap: the block that goes from or to a root", kNotTried,
     &Tuning::single_copy_bytes, eighths<2>},
    {"single_copy_sum_bytes", &Tuning::single_copy_sum_bytes, 0, kNever, "the same of two ranks' sums for both",
     kNotTried, &Tuning::single_copy_bytes, eighths<32>},
    {"single_copy_crowd_bytes", &Tuning::single_copy_crowd_bytes, 0, kNever,
     "the same of more than two ranks that share cores", kNotTried, &Tuning::single_copy_bytes, eighths<32>},
    {"single_copy_crowd_bytes_of_two", &Tuning::single_copy_crowd_bytes_of_two, 0, kNever,
     "the same of two that share a core, for whom a meeting more is a turn each", kNotTried, &Tuning::single_copy_bytes,
     eighths<64>},
    {"single_copy_crowd_block_bytes", &Tuning::single_copy_crowd_block_bytes, 0, kNever,
     "and of their blocks from everybody to everybody, each of which must be so long", kNotTried,
     &Tuning::single_copy_bytes, eighths<8>},
    {"two_level_leader_bytes", &Tuning::two_level_leader_bytes, 0, kNever,
     "several nodes: all_reduces up to here cross between nodes by one rank of each", kNotTried},
    {"two_level_chunk_bytes", &Tuning::two_level_chunk_bytes, 4 * K, 1024 * M,
     "several nodes: that a node works on at a time", kNotTried},
    {"two_level_reduce_bytes", &Tuning::two_level_reduce_bytes, 0, kNever,
     "several nodes: reductions to one rank from here on cross once", kNotTried},
    {"two_level_gather_bytes", &Tuning::two_level_gather_bytes, 0, kNever,
     "several nodes: gathers and scatters up to here cross as one message a node", kNotTried},
    {"device_host_bytes",
     &Tuning::device_host_bytes,
     0,
     256 * M,
     "processes that take turns on a GPU: calls up to here go by way of host memory; 0: none",
     {.values = kByHostMost,
      .collectives = kPushed,
      .sizes = kByHost,
      .buffers = TuningTrial::Buffers::device,
      .captured = false}},
    {"device_push_bytes",
     &Tuning::device_push_bytes,
     0,
     kNever,
     "GPUs: all_reduces and broadcasts up to here are pushed, where inboxes take them; by more than 8 ranks no "
     "broadcast, and all_reduces of up to 1K",
     {.values = kPushMost,
      .collectives = kPushed,
      .sizes = kPushes,
      .buffers = TuningTrial::Buffers::device,
      .most_ranks = 8}},
    {"device_push_block_bytes",
     &Tuning::device_push_block_bytes,
     0,
     kNever,
     "GPUs, up to 8 ranks: all_gathers and reduce_scatters up to here are pushed, where inboxes take a rank's block",
     {.values = kBlockMost,
      .collectives = kPushedBlocks,
      .sizes = kBlocks,
      .buffers = TuningTrial::Buffers::device,
      .most_ranks = 8}},
    {"device_one_shot_bytes",
     &Tuning::device_one_shot_bytes,
     0,
     kNever,
     "GPUs, up to 8 ranks: all_reduces up to here read all windows, longer ones a part each",
     {.values = kShotMost,
      .collectives = kSums,
      .sizes = kShots,
      .buffers = TuningTrial::Buffers::device,
      .most_ranks = 8,
      .meanwhile = kNoPush}},
    {"device_window_bytes",
     &Tuning::device_window_bytes,
     0,
     kNever,
     "GPUs: calls up to here go over windows, longer ones over rings and their like",
     {.values = kWindowMost,
      .collectives = kOverWindows,
      .sizes = kWindowed,
      .buffers = TuningTrial::Buffers::device,
      .meanwhile = kNoPush}},
    {"device_ll_bytes",
     &Tuning::device_ll_bytes,
     0,
     kNever,
     "GPUs without windows: reduces and broadcasts up to here go by LL, in trees where they can",
     {.values = kLineMost,
      .collectives = kOverLines,
      .sizes = kLines,
      .buffers = TuningTrial::Buffers::device,
      .meanwhile = kNoWindow}},
    {"device_ll128_bytes",
     &Tuning::device_ll128_bytes,
     0,
     kNever,
     "GPUs whose pairs all have NVLink: where calls go over rings, those up to here go by LL128; 0: none",
     {.values = kLongLineMost,
      .collectives = kInRings,
      .sizes = kLongLines,
      .buffers = TuningTrial::Buffers::device,
      .meanwhile = kRingsAlone}},
    {"kept_bytes", &Tuning::kept_bytes, 0, kNever,
     "over links: a block that a rank copies to itself goes past the caches where those of all ranks take so much",
     kNotTried},
};

[[noreturn]] void refuse(std::string_view source, std::size_t line, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}, line {}: {}", source, line, why));
}

bool parse_number(std::string_view text, std::uint64_t& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc()) return false;
  constexpr std::string_view kUnits = "KMG";
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit.empty()) return true;
  const std::size_t power = unit.size() == 1 ? kUnits.find(unit.front()) : std::string_view::npos;
  return power != std::string_view::npos && !__builtin_mul_overflow(value, 1024ULL << 10 * power, &value);
}

bool parse_bytes(std::string_view text, std::uint64_t& value) {
  if (text != "never") return parse_number(text, value);
  value = kNever;
  return true;
}

// What stands before `end`, which is taken with it.
std::string_view cut(std::string_view& text, std::string_view end) {
  const std::string_view before = text.substr(0, text.find_first_of(end));
  text.remove_prefix(std::min(text.size(), before.size() + 1));
  return before;
}

// The words of a line, one after the other; an empty one behind the last. No stream: that would ask a locale of each.
std::string_view next_word(std::string_view& line) {
  constexpr std::string_view kBlanks = " \t\v\f\r";
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlanks)));
  return cut(line, kBlanks);
}

// What comes after "links". An empty string: no fault found.
std::string parse_row(std::string_view& words, TunerRow& row) {
  const std::string_view pattern = next_word(words), bytes = next_word(words), world = next_word(words),
                         algorithm = next_word(words);
  if (algorithm.empty()) {
    return "links takes PATTERN MAX_BYTES MAX_WORLD_SIZE ALGORITHM";
  }
  const auto found = std::find_if(kPatterns.begin(), kPatterns.end(), [&](const auto& p) { return p.name == pattern; });
  if (found == kPatterns.end()) return fmt::format("{} is not a collective", pattern);
  const int id = kernels::find_algorithm(found->pattern, algorithm);
  if (id == kernels::kNoAlgorithm) return fmt::format("{} is not an algorithm of {}", algorithm, pattern);
  std::uint64_t limit = kernels::kAnyBytes, ranks = kernels::kAnyWorld;
  if (bytes != "*" && !parse_number(bytes, limit)) return fmt::format("{} is not a number of bytes", bytes);
  if (world != "*" && (!parse_number(world, ranks) || ranks > kernels::kAnyWorld)) {
    return fmt::format("{} is not a number of ranks", world);
  }
  const auto& chosen = kernels::algorithm_row(id);
  row = {found->pattern, chosen.canonical_order, limit, static_cast<int>(ranks), chosen.name};
  return {};
}

// By field; what the text does not name is empty.
using Named = std::array<std::optional<std::uint64_t>, std::size(kFields)>;

std::string parse_field(std::string_view name, std::string_view& words, Named& named) {
  const auto* field =
      std::find_if(std::begin(kFields), std::end(kFields), [&](const auto& f) { return f.name == name; });
  if (field == std::end(kFields)) return fmt::format("{} is not a setting", name);
  const std::string_view text = next_word(words);
  std::uint64_t value = 0;
  if (text.empty()) return fmt::format("{} needs a value", name);
  if (!parse_bytes(text, value) || value < field->low || value > field->high) {
    return fmt::format("{} takes {} to {}, not {}", name, bytes_text(field->low), bytes_text(field->high), text);
  }
  named[static_cast<std::size_t>(field - std::begin(kFields))] = value;
  return {};
}

}  // namespace

Tuning::Tuning() {
  set_value(*this, &Tuning::cold_bytes, cold_bytes);
  set_value(*this, &Tuning::streaming_bytes, streaming_bytes_here());
  set_value(*this, &Tuning::direct_bytes, direct_bytes);
  set_value(*this, &Tuning::single_copy_bytes, single_copy_bytes);
}

std::span<const TuningField> tuning_fields() { return kFields; }

void set_value(Tuning& tuning, std::uint64_t Tuning::*value, std::uint64_t to) {
  tuning.*value = to;
  for (const TuningField& field : kFields) {
    if (field.leader == value) tuning.*field.value = field.from_leader(to);
  }
}

std::string bytes_text(std::uint64_t value) {
  if (value == kNever) return "never";
  std::string_view units = "KMG";
  char unit = 0;
  for (; !units.empty() && value != 0 && value % 1024 == 0; units.remove_prefix(1)) {
    value /= 1024;
    unit = units.front();
  }
  return unit == 0 ? fmt::format("{}", value) : fmt::format("{}{}", value, unit);
}

Tuning parse_tuning(std::string_view text, std::string_view source) {
  Tuning tuning;
  tuning.source = source;
  Named named;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = cut(text, "\n");
    std::string_view words = cut(line, "#");
    const std::string_view name = next_word(words);
    if (name.empty()) continue;
    TunerRow row{};
    const std::string fault = name == kLinksName ? parse_row(words, row) : parse_field(name, words, named);
    if (!fault.empty()) refuse(source, number, fault);
    if (const auto rest = next_word(words); !rest.empty())
      refuse(source, number, fmt::format("{} does not belong there", rest));
    if (name == kLinksName) tuning.links.push_back(row);
  }
  for (std::size_t i = 0; i < named.size(); ++i) {  // leaders come first
    if (named[i]) set_value(tuning, kFields[i].value, *named[i]);
  }
  return tuning;
}

Tuning read_tuning(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("RONDO_TUNING={}: the file cannot be read, or is empty", path));
  }
  return parse_tuning(text.str(), path);
}

std::string to_text(const Tuning& tuning, const TuningField& field) {
  return fmt::format("{} {}  # {}\n", field.name, bytes_text(tuning.*field.value), field.meaning);
}

std::string to_text(const Tuning& tuning) {
  std::string text;
  for (const TuningField& field : kFields) text += to_text(tuning, field);
  for (const TunerRow& row : tuning.links) {
    text += fmt::format("{} {} {} {} {}\n", kLinksName, kernels::row_of(row.pattern).name,
                        row.max_bytes == kernels::kAnyBytes ? "*" : bytes_text(row.max_bytes),
                        row.max_world_size == kernels::kAnyWorld ? "*" : fmt::format("{}", row.max_world_size),
                        row.algorithm);
  }
  return text;
}

}  // namespace rondo::comm
