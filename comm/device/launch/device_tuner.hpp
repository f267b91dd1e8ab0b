// SPDX-License-Identifier: Apache-2.0
// Which kernel and algorithm a call on a device takes, as data: the first row that fits wins. Every rank comes to the
// same choice, from the call and from what was agreed when the communicator was made.
#pragma once
#include <string>
#include <string_view>

#include <rondo/communicator.hpp>

#include "comm/call/shape.hpp"
#include "comm/setup/tuning.hpp"
#include "kernels/device/layout.hpp"

namespace rondo::comm::device {

enum class KernelKind : std::uint8_t { simple, ll, ll128, window, push };  // the protocols' order
std::string_view name_of(KernelKind kind);

// Agreed on when the communicator is made.
struct Terms {
  int world_size = 1;
  bool windows = true;                                                   // all ranks reach each other's memory
  bool protocols[kernels::device::kProtocolCount] = {true, true, true};  // that have FIFOs
  Determinism determinism = Determinism::deterministic;
  std::string algorithm{}, protocol{};  // wanted by name, used where they apply; empty: the table's choice
  int channels = 1;                     // at most, of FIFO kernels
  int blocks = 1;                       // at most, of window kernels
  int threads = 64;                     // of a block, at most
  std::size_t push_bytes = 0;           // of one rank for another, at most, in push kernels; 0: there are none
  // Ranks are processes that take turns on a device: every dependent round of a call costs a turn or two, whatever its
  // bytes.
  bool time_sliced = false;
  std::size_t round_bytes = 0;  // that pass the staging area in one round of all blocks, of each rank
  bool is_level = false;        // the ranks are some of a communicator in two levels
  std::size_t slots_bytes = 0;  // that the slots between two ranks hold: a longer message waits for its receiver
  // Thresholds of the tuning file, of the larger buffer of a rank.
  std::size_t push_most = Tuning{}.device_push_bytes, push_block_most = Tuning{}.device_push_block_bytes,
              one_shot_most = Tuning{}.device_one_shot_bytes, window_most = Tuning{}.device_window_bytes,
              ll_most = Tuning{}.device_ll_bytes, ll128_most = Tuning{}.device_ll128_bytes;
};

struct Choice {
  KernelKind kernel = KernelKind::simple;
  int row = 0;                 // of kAlgorithms; of window and push of kWindowAlgorithms
  std::string_view algorithm;  // its name, for people
  int channels = 1, threads = 32;
  std::string_view why{};
  bool refers = false;  // of a message: the receiver may read it where it lies, if that is in a window
  bool stages = false;  // input that lies in a window, too, so that nobody waits until others have read it
};

Choice choose(const CallShape& shape, const Terms& terms);
// Of a send or a receive: by its size alone, which both ends give.
Choice choose_for_message(std::size_t bytes, const Terms& terms);

// invalid_argument when it is none of simple, ll, ll128, window, push, host.
void check_protocol_name(std::string_view name);

}  // namespace rondo::comm::device
