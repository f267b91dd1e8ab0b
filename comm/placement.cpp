// SPDX-License-Identifier: Apache-2.0
#include "comm/placement.hpp"

#include <sched.h>
#include <unistd.h>

#include <array>

namespace rondo::comm {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More cores than a cpu_set_t holds: then there are plenty.
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
}

std::string pid_namespace() {
  std::array<char, 64> link{};
  return ::readlink("/proc/self/ns/pid", link.data(), link.size() - 1) > 0 ? link.data() : "";
}

FifoShape fit_fifos(const Config& config, int local_size) {
  FifoShape shape{.slots = config.slots, .slice_bytes = config.slice_bytes};
  while (Segment::bytes(local_size, shape) > config.segment_bytes && shape.slots > 2) --shape.slots;
  while (Segment::bytes(local_size, shape) > config.segment_bytes && shape.slice_bytes > 1024) shape.slice_bytes /= 2;
  shape.slice_bytes = (shape.slice_bytes + 63) / 64 * 64;
  return shape;
}

}  // namespace rondo::comm
