// SPDX-License-Identifier: Apache-2.0
// A ring of memory per rank of a segment, for what some put there and others read. All ranks reserve alike, so an
// offset means the same in every ring. Who may overwrite what is the user's business: nothing is ever freed here.
#pragma once
#include <cstddef>

#include "comm/segment.hpp"

namespace rondo::comm {

class Rings {
 public:
  Rings(Segment segment, int own_index);

  // The offset in every ring of so many bytes, at most capacity(). Overwrites none of what was reserved just before.
  std::size_t reserve(std::size_t bytes);
  std::size_t capacity() const { return long_.bytes / 3; }  // two of them, and what is left over at the ring's end
  std::byte* at(int index, std::size_t offset) const { return segment_.ring(index) + offset; }

 private:
  struct Turn {  // a stretch of every ring
    std::size_t start, bytes, head = 0;
    bool populated = false;
  };
  void populate(const Turn& turn);

  Segment segment_;
  int own_;
  Turn short_, long_;
};

}  // namespace rondo::comm
