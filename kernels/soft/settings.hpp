// SPDX-License-Identifier: Apache-2.0
// What the simulated machine is like, and what a caller may ask of it that the CUDA runtime has no call for.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rondo::soft {

struct Settings {
  int devices = 8;  // of the machine
  std::optional<std::vector<int>> visible_devices =
      {};                                              // this process's, in this order; the first bad one ends the list
  bool peer_access = true;                             // between any two devices,
  std::vector<std::pair<int, int>> denied_peers = {};  // but not between these, by number in the machine, either way
  std::vector<std::pair<int, int>> broken_peers = {};  // offered, but what one copies to the other is lost
  std::vector<std::pair<int, int>> plain_peers = {};   // by a bus that has no atomics and cuts lines of 128 bytes
  int mps = 1;            // 1: processes run side by side on a device, as is so here; 0: in turns; -1: nobody can tell
  int architecture = 90;  // of the devices and of the kernels' code; below 90 no launch may begin early
  int multiprocessors = 16;                        // of a device; no more than its resident blocks
  int resident_blocks = 64;                        // that run on a device at the same time, per process
  std::size_t memory_bytes = 0;                    // of a device, per process; 0: what the machine has
  std::chrono::seconds kernel_timeout{900};        // a kernel in which nothing moves for so long has failed
  bool strict = false;                             // abort() on misuse that CUDA lets pass: memory freed while mapped
  std::string machine = {};                        // makes UUIDs differ where several machines are simulated on one
  void (*report)(const char* sentence) = nullptr;  // a failed kernel, misuse; from any thread. null: to stderr

  bool operator==(const Settings&) const = default;
};

// Before the first use of the devices, or when nothing of theirs is left. False: something is in use, and the settings
// stay what they were (true all the same where they are equal).
bool configure(const Settings& settings);
Settings settings();

// Device memory stands for memory of a pool: other processes cannot open it. False: not the base of an allocation.
bool make_unexportable(void* base);

// Kernels of this process that found too few blocks free when their turn had come, so far: on a GPU some of their
// blocks would have been resident and waited for the others.
std::uint64_t kernels_short_of_blocks();

// As cudaDeviceReset on every device: ends what runs, frees everything, forgets failures. No call may be in progress.
void reset();

}  // namespace rondo::soft
