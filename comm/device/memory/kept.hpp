// SPDX-License-Identifier: Apache-2.0
// What a destroyed communicator had to leave behind because a device or a graph may still use it. Never freed, but
// reachable: it is no leak that a tool should report.
#pragma once
#include "comm/device/memory/windows.hpp"

namespace rondo::comm::device {

struct Kept {
  std::unique_ptr<Windows> windows;
  std::unique_ptr<Regions> regions;
  Stream stream;
};
void keep_for_good(Kept kept);

}  // namespace rondo::comm::device
