// SPDX-License-Identifier: Apache-2.0
// What the host executor's seam tells a test that counts what a GPU takes long for, in builds with RONDO_COSTS alone.
// Who counts defines these functions: tests/kernels/device/costs. No device code.
#pragma once

namespace rondo::kernels::device::costs {

void fence();                       // of system scope: a release, an exchange
void wrote(const void* p);          // anything in memory
void wrote_flag(const void* word);  // for which somebody may wait
void read_flag(const void* word, bool acquires);
void lines_have_come();  // all that the lane has looked at since it was last told so

class BlockMeeting {  // a barrier: from the lane's coming until it goes on
 public:
  explicit BlockMeeting(unsigned id);
  ~BlockMeeting();
  BlockMeeting(const BlockMeeting&) = delete;
  BlockMeeting& operator=(const BlockMeeting&) = delete;

 private:
  unsigned id_;
};
class WarpMeeting {
 public:
  WarpMeeting();
  ~WarpMeeting();
  WarpMeeting(const WarpMeeting&) = delete;
  WarpMeeting& operator=(const WarpMeeting&) = delete;
};

}  // namespace rondo::kernels::device::costs
