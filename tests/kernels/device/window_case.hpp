// SPDX-License-Identifier: Apache-2.0
// One collective on the window kernel. Buffers and what must come out are those of a FIFO case of the same pattern;
// here it is decided which of them lie in windows.
#pragma once
#include <string>
#include <vector>

#include "kernels/device/window_sum.hpp"
#include "tests/kernels/device/fifo_case.hpp"

namespace rondo::test {

enum class Windows { all, none, some_inputs, some_outputs, inputs, outputs };
inline constexpr int kWindowsCount = 6;

struct WindowCase {
  int row = 0;  // of kWindowAlgorithms
  FifoCase call;
  Windows windows = Windows::all;
  std::size_t staging_bytes = 0;  // 0: the least
  int blocks = 1;                 // of the layout; channels of the call may be fewer
  bool apart = false;             // in different windows, at different offsets

  const kernels::AlgorithmRow& algorithm() const { return kernels::window_algorithm_row(row); }
  bool has_window(int rank, bool sends) const;
  bool is_special() const;             // there are kernels for it alone
  const void* special_kernel() const;  // where it is
  std::string describe() const;
};

// What does not fit together is given up.
WindowCase sensible(WindowCase c);

DeviceWorld world_of(const WindowCase& c);
// Operation `index` of each launch, with windows 2 * index + 1 and 2 * index + 2.
void add_operation(const WindowCase& c, const FifoBuffers& buffers, DeviceWorld& world,
                   std::vector<device::Launch>& launches, int index = 0);

// The operations of `launches`, which are sums of one dtype, for the kernel made for them.
std::vector<device::WindowSumLaunch> window_sum_launches(DeviceWorld& world,
                                                         const std::vector<device::Launch>& launches);

// `launches` kernels one after the other: the one made for it alone, or the general one where there is none. What went
// wrong, or "".
std::string run_case(const WindowCase& c, std::uint32_t seed, int launches = 2, const simt::Options& options = {});

}  // namespace rondo::test
