// SPDX-License-Identifier: Apache-2.0
// A ring of memory per rank of a segment, for what some put there and others read. All ranks reserve alike, so an
// offset means the same in every ring. Who may overwrite what is the user's business: nothing is ever freed here.
#pragma once
#include <cstddef>

#include "comm/segment.hpp"

namespace rondo::comm {

class Rings {
 public:
  Rings(Segment segment, int own_index, bool crowded);  // crowded: ranks outnumber their cores

  // The offset in every ring of so many bytes, at most capacity(). Overwrites none of what was reserved just before.
  // folds: ranks fold each its part of what was put there, in place.
  std::size_t reserve(std::size_t bytes, bool folds = false);
  // The same for a call that fills its places several times, for which a shorter stretch is long enough: what passes
  // through the readers' caches meanwhile is the call itself. At the front of the ring or at its back; the same again
  // while nothing else is reserved, and it is for the caller to see that it was read. 0 bytes where rings are too
  // short.
  std::size_t reserve_window();
  bool window_is_latest() const { return window_is_latest_; }  // the next one is the same again
  std::size_t window_bytes() const { return window_bytes_; }
  std::size_t capacity() const { return long_.bytes / 3; }  // two of them, and what is left over at the ring's end
  std::byte* at(int index, std::size_t offset) const { return segment_.ring(index) + offset; }

 private:
  struct Turn {  // a stretch of every ring
    std::size_t start, bytes, latest = 0, head = 0;
    bool populated = false;
  };
  std::size_t take(Turn& turn, std::size_t from, std::size_t bytes);
  void populate(const Turn& turn);

  Segment segment_;
  int own_;
  Turn short_, long_;
  std::size_t short_place_, folded_place_;  // bytes of the longest that turns in the short stretch
  std::size_t window_bytes_;
  bool window_is_latest_ = false;  // of what was reserved for long places
};

}  // namespace rondo::comm
