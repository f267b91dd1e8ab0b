// SPDX-License-Identifier: Apache-2.0
#include "comm/device/launch/device_tuner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/device/host/host_way.hpp"
#include "kernels/algorithms/tuner.hpp"
#include "kernels/device/push.hpp"
#include "kernels/device/runs_on_device.hpp"
#include "kernels/device/window_table.hpp"

namespace rondo::comm::device {
namespace {

using kernels::kAnyBytes;
using kernels::kAnyOrder;
using kernels::kAnyWorld;
using kernels::kCanonical;
using kernels::kKiB;
using kernels::kNoAlgorithm;
using kernels::Pattern;
using enum KernelKind;

constexpr int kMost = kernels::device::kMaxThreads;
enum class When : std::uint8_t { always, without_windows, time_sliced };  // the latter: before all others
using enum When;

struct Most {  // bytes of the larger buffer of a rank: the least of what is given
  std::size_t bytes = kAnyBytes;
  std::size_t Terms::*thresholds[2] = {};  // of the tuning file
  constexpr Most(std::size_t most) : bytes(most) {}
  constexpr Most(std::size_t Terms::*most, std::size_t bytes_most = kAnyBytes) : bytes(bytes_most), thresholds{most} {}
  constexpr Most(std::size_t Terms::*one, std::size_t Terms::*other) : thresholds{one, other} {}
  constexpr bool is_any() const { return bytes == kAnyBytes && thresholds[0] == nullptr; }
  constexpr std::size_t in(const Terms& terms) const {
    std::size_t most = bytes;
    for (const auto threshold : thresholds) {
      if (threshold != nullptr) most = std::min(most, terms.*threshold);
    }
    return most;
  }
};

struct TunerRow {
  Pattern pattern;
  bool canonical;  // for calls that need the canonical order; the others may use any row
  Most most;
  int max_world_size;
  KernelKind kernel;
  std::string_view algorithm;
  int threads;
  std::size_t bytes_per_channel;  // another channel for each
  When when = always;             // it is taken, unless it is asked for
};

constexpr Most kOneShotMost{&Terms::one_shot_most, &Terms::window_most};

// Pushes first, then windows: fewest dependent rounds and least traffic on a GPU that ranks share. Rows of push,
// window, ll and ll128 are passed over where a rank is on another node, and those of push for what its kernels do not
// run. No GPU has measured a push: on one, LL and windows took 13 to 36 us for 8 bytes, and a push does less than
// either at any step. Of the thresholds, LL's alone comes from measurements.
constexpr TunerRow kTable[] = {
    {Pattern::all_reduce, kCanonical, &Terms::push_most, 8, push, "one_shot", kMost, kAnyBytes},
    {Pattern::all_reduce, kCanonical, {&Terms::push_most, 1 * kKiB}, kAnyWorld, push, "one_shot", kMost, kAnyBytes},
    {Pattern::reduce_scatter, kCanonical, &Terms::push_block_most, 8, push, "direct", kMost, kAnyBytes},
    {Pattern::all_gather, kCanonical, &Terms::push_block_most, 8, push, "direct", kMost, kAnyBytes},
    {Pattern::broadcast, kCanonical, &Terms::push_most, 8, push, "direct", kMost, kAnyBytes},
    {Pattern::barrier, kCanonical, kAnyBytes, kAnyWorld, push, "direct", 64, kAnyBytes},
    // One crossing, data and flags in one line; a window's one_shot takes two, and a release before each. The LL that
    // was measured sent to one peer after the other, which took longer from 4 ranks on.
    {Pattern::all_reduce, kCanonical, 2 * kKiB, 2, ll, "one_shot", 128, kAnyBytes},
    {Pattern::all_reduce, kCanonical, 2 * kKiB, 8, ll, "one_shot", 128, kAnyBytes, without_windows},
    {Pattern::all_reduce, kCanonical, 2 * kKiB, 8, ll, "one_shot", 128, kAnyBytes, time_sliced},
    {Pattern::all_reduce, kCanonical, &Terms::window_most, kAnyWorld, window, "one_shot", kMost, 16 * kKiB,
     time_sliced},
    {Pattern::all_reduce, kCanonical, kOneShotMost, 8, window, "one_shot", kMost, 16 * kKiB},
    {Pattern::all_reduce, kCanonical, &Terms::window_most, kAnyWorld, window, "two_shot", kMost, 64 * kKiB},
    {Pattern::all_reduce, kAnyOrder, &Terms::ll128_most, kAnyWorld, ll128, "ring", kMost, 64 * kKiB},
    {Pattern::all_reduce, kAnyOrder, kAnyBytes, kAnyWorld, simple, "ring", kMost, 128 * kKiB},
    {Pattern::all_reduce, kCanonical, kAnyBytes, kAnyWorld, simple, "two_shot", kMost, 128 * kKiB},
    {Pattern::reduce, kCanonical, &Terms::window_most, kAnyWorld, window, "direct", kMost, 64 * kKiB},
    {Pattern::reduce, kAnyOrder, &Terms::ll_most, kAnyWorld, ll, "ring", 256, 16 * kKiB},
    {Pattern::reduce, kAnyOrder, &Terms::ll128_most, kAnyWorld, ll128, "ring", kMost, 64 * kKiB},
    {Pattern::reduce, kAnyOrder, kAnyBytes, kAnyWorld, simple, "ring", kMost, 128 * kKiB},
    {Pattern::reduce, kCanonical, &Terms::ll_most, kAnyWorld, ll, "direct", 256, 16 * kKiB},
    {Pattern::reduce, kCanonical, kAnyBytes, kAnyWorld, simple, "direct", kMost, 128 * kKiB},
    {Pattern::broadcast, kCanonical, &Terms::window_most, kAnyWorld, window, "direct", kMost, 64 * kKiB},
    {Pattern::broadcast, kCanonical, &Terms::ll_most, kAnyWorld, ll, "tree", 256, 16 * kKiB},
    {Pattern::broadcast, kCanonical, &Terms::ll128_most, kAnyWorld, ll128, "ring", kMost, 64 * kKiB},
    {Pattern::broadcast, kCanonical, kAnyBytes, kAnyWorld, simple, "ring", kMost, 128 * kKiB},
    {Pattern::all_gather, kCanonical, &Terms::window_most, kAnyWorld, window, "direct", kMost, 64 * kKiB},
    {Pattern::all_gather, kCanonical, &Terms::ll128_most, kAnyWorld, ll128, "ring", kMost, 64 * kKiB},
    {Pattern::all_gather, kCanonical, kAnyBytes, kAnyWorld, simple, "ring", kMost, 128 * kKiB},
    {Pattern::reduce_scatter, kCanonical, &Terms::window_most, kAnyWorld, window, "direct", kMost, 64 * kKiB},
    {Pattern::reduce_scatter, kAnyOrder, &Terms::ll128_most, kAnyWorld, ll128, "ring", kMost, 64 * kKiB},
    {Pattern::reduce_scatter, kAnyOrder, kAnyBytes, kAnyWorld, simple, "ring", kMost, 128 * kKiB},
    {Pattern::reduce_scatter, kCanonical, kAnyBytes, kAnyWorld, simple, "direct", kMost, 128 * kKiB},
    {Pattern::all_to_all, kCanonical, &Terms::window_most, kAnyWorld, window, "direct", kMost, 64 * kKiB},
    {Pattern::all_to_all, kCanonical, kAnyBytes, kAnyWorld, simple, "pairwise", kMost, 128 * kKiB},
    {Pattern::gather, kCanonical, &Terms::window_most, kAnyWorld, window, "direct", kMost, 64 * kKiB},
    {Pattern::gather, kCanonical, kAnyBytes, kAnyWorld, simple, "direct", kMost, 128 * kKiB},
    {Pattern::scatter, kCanonical, &Terms::window_most, kAnyWorld, window, "direct", kMost, 64 * kKiB},
    {Pattern::scatter, kCanonical, kAnyBytes, kAnyWorld, simple, "direct", kMost, 128 * kKiB},
    {Pattern::barrier, kCanonical, kAnyBytes, kAnyWorld, window, "direct", 128, kAnyBytes},
    {Pattern::barrier, kCanonical, kAnyBytes, kAnyWorld, ll, "dissemination", 32, kAnyBytes},
    {Pattern::barrier, kCanonical, kAnyBytes, kAnyWorld, simple, "dissemination", 32, kAnyBytes},
};

// Wherever ranks are, and whatever is asked for.
consteval bool always_finds_one() {
  for (const kernels::PatternRow& pattern : kernels::kPatterns) {
    bool found = false;
    for (const TunerRow& row : kTable) {
      if (row.pattern != pattern.pattern || row.kernel != simple || row.canonical != kCanonical) continue;
      found |= row.most.is_any() && row.max_world_size == kAnyWorld && row.when == always;
    }
    if (!found) return false;
  }
  return true;
}
static_assert(always_finds_one(), "each pattern has a row of simple for any size, any world and the canonical order");

constexpr std::size_t kMessageBytesPerChannel = 128 * kKiB;

const kernels::AlgorithmRow& row_of(KernelKind kernel, int row) {
  return kernel == window || kernel == push ? kernels::window_algorithm_row(row) : kernels::algorithm_row(row);
}
int find(KernelKind kernel, Pattern pattern, std::string_view name) {
  // A push is one_shot or direct, and knows no parts.
  if (kernel == push && pattern == Pattern::all_reduce && name != "one_shot") return kNoAlgorithm;
  if (kernel == window || kernel == push) return kernels::find_window_algorithm(pattern, name);
  const int id = kernels::find_algorithm(pattern, name);
  return id != kNoAlgorithm && kernels::device::runs_on_device(kernels::algorithm_row(id)) ? id : kNoAlgorithm;
}

// Every rank's counts of an all_to_all_v are its own, so only a constant is agreed on.
int channels_for(const CallShape& shape, std::size_t bytes_per_channel, int most) {
  if (shape.variable_counts && shape.bytes == 0 && shape.pattern != Pattern::barrier) return most;
  const std::size_t wanted = shape.bytes / bytes_per_channel + (shape.bytes % bytes_per_channel != 0 ? 1 : 0);
  return static_cast<int>(std::clamp<std::size_t>(wanted, 1, static_cast<std::size_t>(most)));
}

// Of one rank for another. Where every rank has a block, the larger buffer holds one of each.
std::size_t pushed_bytes(const CallShape& shape, int world_size) {
  const bool blocks = shape.pattern == Pattern::all_gather || shape.pattern == Pattern::reduce_scatter;
  return blocks ? shape.bytes / static_cast<std::size_t>(world_size) : shape.bytes;
}
int push_channels(std::size_t bytes) {
  return channels_for({.bytes = bytes}, kernels::device::push_capacity(1), kMost);
}
// A thread for each line; not fewer than two warps, one of which writes the history meanwhile.
int push_threads(std::size_t bytes) {
  const auto lines = static_cast<int>(std::min(bytes, kernels::device::push_capacity(1)) / 8);
  return std::clamp((lines + 32) / 32 * 32, 64, kMost);
}

class RowSearch {
 public:
  RowSearch(const CallShape& shape, const Terms& terms) : shape_(shape), terms_(terms) {}

  Choice run() {
    // What was asked for by name: both, else one of them, else neither where nothing of that name fits the call.
    if (try_named(terms_.algorithm, terms_.protocol) || try_named(terms_.algorithm, {}) ||
        try_named({}, terms_.protocol)) {
      choice_.why = "it was asked for";
      return choice_;
    }
    for (const TunerRow& row : kTable) {
      if (!is_time_for(row)) continue;
      if (!fits(row) || !take(row, row.kernel, row.algorithm)) continue;
      choice_.why = "a row of the table for devices";
      return choice_;
    }
    throw Error(ErrorCode::unsupported,
                "no algorithm on devices fits the call");  // always_finds_one() says that one does
  }

 private:
  bool is_time_for(const TunerRow& row) const {
    switch (row.when) {
      case always:
        return true;
      case without_windows:
        return !terms_.windows;
      case time_sliced:
        return terms_.time_sliced && (row.kernel != window || shape_.bytes <= terms_.round_bytes);
    }
    return false;
  }

  bool fits(const TunerRow& row) const {
    const std::size_t most = row.most.in(terms_);  // 0: nothing, whatever its size
    return most != 0 && shape_.bytes <= most && terms_.world_size <= row.max_world_size;
  }

  // Rows whose size fits first; then any row of the pattern, for an algorithm that the table would not take here.
  bool try_named(std::string_view algorithm, std::string_view protocol) {
    if (algorithm.empty() && protocol.empty()) return false;
    for (const bool any_size : {false, true}) {
      for (const TunerRow& row : kTable) {
        if (!any_size && !fits(row)) continue;
        for (const KernelKind kernel : {row.kernel, window, simple, ll, ll128, push}) {
          if (!protocol.empty() && name_of(kernel) != protocol) continue;
          if (row.kernel == push && kernel != push) continue;  // its threads and sizes are a push's alone
          if (take(row, kernel, algorithm.empty() ? row.algorithm : algorithm)) return true;
        }
      }
    }
    return false;
  }

  bool available(KernelKind kernel) const {
    if (kernel == push) return runs_as_push();
    return kernel == window ? terms_.windows : terms_.protocols[static_cast<std::size_t>(kernel)];
  }

  bool runs_as_push() const {
    return terms_.push_bytes != 0 && !shape_.variable_counts &&
           kernels::device::push_kernel_for(shape_.pattern, shape_.dtype, shape_.op) >= 0 &&
           pushed_bytes(shape_, terms_.world_size) <= terms_.push_bytes;
  }

  bool take(const TunerRow& row, KernelKind kernel, std::string_view algorithm) {
    if (row.pattern != shape_.pattern || !available(kernel)) return false;
    // Each pair's counts are its own, and only links carry them for the other end to compare.
    if (kernel == window && shape_.pattern == Pattern::all_to_all && shape_.variable_counts) return false;
    const int id = find(kernel, shape_.pattern, algorithm);
    if (id == kNoAlgorithm) return false;
    const kernels::AlgorithmRow& found = row_of(kernel, id);
    const bool canonical = terms_.determinism == Determinism::reproducible || shape_.one_fold;
    if (canonical && !found.canonical_order) return false;
    if (shape_.variable_counts && shape_.pattern != Pattern::barrier && !found.variable_counts) return false;
    choice_ = {
        .kernel = kernel,
        .row = id,
        .algorithm = found.name,
        .channels = channels_for(shape_, row.bytes_per_channel, kernel == window ? terms_.blocks : terms_.channels),
        .threads = std::min(row.threads, terms_.threads)};
    if (kernel == push) {
      const std::size_t bytes = shape_.pattern == Pattern::barrier ? 0 : pushed_bytes(shape_, terms_.world_size);
      choice_.channels = push_channels(bytes);
      choice_.threads = std::min(push_threads(bytes), terms_.threads);
    }
    // One meeting, where peers read what is staged and write nothing; two, where they read the input itself.
    choice_.stages = terms_.time_sliced && kernel == window && shape_.bytes <= terms_.round_bytes &&
                     kernels::kWindowAlgorithms[id].writes == kernels::Writes::own;
    if (choice_.stages) choice_.channels = terms_.blocks;
    return true;
  }

  const CallShape& shape_;
  const Terms& terms_;
  Choice choice_;
};

constexpr std::string_view kKernelNames[] = {"simple", "ll", "ll128", "window", "push"};

}  // namespace

std::string_view name_of(KernelKind kind) { return kKernelNames[static_cast<std::size_t>(kind)]; }

void check_protocol_name(std::string_view name) {
  if (name == HostWay::kName) return;
  if (std::find(std::begin(kKernelNames), std::end(kKernelNames), name) != std::end(kKernelNames)) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("RONDO_PROTOCOL={} is not a protocol: simple, ll, ll128, window, push, host, or unset", name));
}

Choice choose(const CallShape& shape, const Terms& terms) { return RowSearch(shape, terms).run(); }

Choice choose_for_message(std::size_t bytes, const Terms& terms) {
  const CallShape shape{.bytes = bytes};
  return {.kernel = simple,
          .row = kNoAlgorithm,
          .algorithm = "direct",
          .channels = channels_for(shape, kMessageBytesPerChannel, terms.channels),
          .threads = std::min(kMost, terms.threads),
          .refers = terms.windows && bytes > terms.slots_bytes};
}

}  // namespace rondo::comm::device
