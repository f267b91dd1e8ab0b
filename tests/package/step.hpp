// SPDX-License-Identifier: Apache-2.0
// One call of a random sequence, drawn alike on every rank.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/rondo.hpp>

#include "random.hpp"

namespace consumer {

enum class Style { blocking, untyped, async, group, window };

struct Step {
  rondo::Collective collective{};
  rondo::DataType dtype{};
  rondo::ReduceOp op = rondo::ReduceOp::sum;
  Style style = Style::blocking;
  int size = 1;           // ranks of the group
  int root = 0;           // send: the sender. recv: everybody sends to the rank `shift` places on
  int shift = 0;          // send: the receiver is root + shift
  std::size_t count = 0;  // elements, as the collective counts them
  bool in_place = false;
  bool rough = false;              // any floats, reduced: ranks must agree to the bit
  std::size_t offset = 0;          // elements that the buffers start off their alignment
  std::vector<std::size_t> parts;  // the _v forms: counts per rank; all_to_all_v: size * size, row = sender
  std::uint64_t seed = 0;          // of the values
};

// `size` ranks, the style given; everything else is drawn.
Step draw_step(Random& random, int size, Style style);
std::string describe(const Step& step);

}  // namespace consumer
