// SPDX-License-Identifier: Apache-2.0
// A ring of memory per rank of a segment, for what some put there and others read. All ranks reserve alike, so an
// offset means the same in every ring. Who may overwrite what is the user's business: nothing is ever freed here.
#pragma once
#include <cstddef>

#include "comm/node/policy/node_facts.hpp"
#include "comm/team/segment.hpp"

namespace rondo::comm {

class Rings {
 public:
  Rings(Segment segment, int own_index, bool crowded);  // crowded: ranks outnumber their cores

  // The offset in every ring of so many bytes, at most capacity(). Overwrites none of what was reserved just before.
  std::size_t reserve(std::size_t bytes);
  std::size_t capacity() const { return layout_.capacity(); }
  // The offset of a stretch that nothing else touches, the same every time, for calls that fill their places several
  // times: it is for the caller to see that what lies there was read.
  std::size_t reserve_reused();
  std::size_t reused_bytes() const { return layout_.reused.bytes; }
  // The same of another one, for two ranks who hand places over to each other (see Flow); of others it is empty.
  std::size_t reserve_shared();
  std::size_t reserve_shared_in_turn(std::size_t bytes);  // a part of it, another one each time
  std::size_t shared_bytes() const { return layout_.shared.bytes; }
  // Bytes behind a place of so many where nobody writes: a core that reads the place fetches on beyond its end, and
  // whoever wrote there next would wait for each of these lines. 0 in a crowd.
  std::size_t gap_behind(std::size_t bytes) const { return layout_.gap_behind(bytes); }
  std::byte* at(int index, std::size_t offset) const { return segment_.ring(index) + offset; }

 private:
  struct Turn {                         // a stretch of every ring
    std::size_t start, bytes, end = 0;  // of the latest place
    bool populated = false;
  };
  std::size_t take(Turn& turn, std::size_t bytes, std::size_t gap = 0);
  void populate(const Turn& turn);

  Segment segment_;
  int own_;
  RingLayout layout_;
  Turn reused_, shared_, shared_turn_, short_, long_;
};

}  // namespace rondo::comm
