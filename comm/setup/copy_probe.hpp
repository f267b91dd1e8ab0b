// SPDX-License-Identifier: Apache-2.0
// What neighbours read and write to find out whether the kernel copies between them and this process.
#pragma once
#include <cstdint>
#include <string>

#include "comm/setup/card.hpp"

namespace rondo::comm {

class CopyProbe {
 public:
  CopyProbe();
  void describe(Card& own) const;  // where it lies, and what it holds
  // Why the kernel does not copy between this process and that rank's; empty: it does, both ways.
  std::string obstacle(const Card& own, int own_rank, const Card& theirs, int rank) const;

 private:
  struct Words {
    std::uint64_t held = 0, written = 0;
  };
  Words words_;
};

}  // namespace rondo::comm
