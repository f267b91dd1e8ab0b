// SPDX-License-Identifier: Apache-2.0
// A group of sends and receives between random ranks, and what must arrive.
#pragma once
#include <string>
#include <vector>

#include "kernels/simt/random.hpp"
#include "tests/kernels/device/world.hpp"

namespace rondo::test {

class MessageGroup {
 public:
  MessageGroup(const WorldShape& shape, simt::Random& random);
  void add_to(std::vector<device::Launch>& launches, simt::Random& random) const;
  std::string check(int rank) const;  // what has come to it wrong, or ""
  void spoil(int rank);               // as FifoBuffers::spoil

 private:
  struct Letter {
    int from, to;
    GuardedBuffer sent, received;
    std::vector<std::byte> given;
    std::uint8_t channels;
  };
  std::vector<device::Message> list_of(int rank, simt::Random& random) const;

  std::vector<Letter> letters_;
};

}  // namespace rondo::test
