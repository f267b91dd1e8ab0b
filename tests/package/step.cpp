// SPDX-License-Identifier: Apache-2.0
#include "step.hpp"

#include <array>

namespace consumer {
namespace {

using rondo::Collective;

// Mostly small; now and then past every threshold that an implementation could have.
std::size_t draw_count(Random& random, int size) {
  const int kind = random.index(100);
  if (kind < 10) return 0;
  if (kind < 40) return random.below(static_cast<std::size_t>(size) + 3);
  if (kind < 75) return random.below(600);
  if (kind < 96) return random.below(20'000);
  return random.below(300'000);
}

bool has_blocks(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::all_to_all || c == Collective::all_gather ||
         c == Collective::gather || c == Collective::scatter;
}

// What the contract lets be in place; the typed broadcast always is.
bool draw_in_place(Random& random, const Step& step) {
  const bool wanted = random.chance(40);
  switch (step.collective) {
    case Collective::broadcast:
      return wanted || step.style != Style::untyped;
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
      return wanted;
    default:
      return false;
  }
}

void draw_reduction(Random& random, Step& step) {
  do {
    step.op = static_cast<rondo::ReduceOp::Kind>(random.index(rondo::kReduceOpCount));
  } while (!rondo::is_supported(step.dtype, step.op));
  const bool is_float = step.dtype >= rondo::DataType::f16;
  const bool adds = step.op == rondo::ReduceOp::sum || step.op == rondo::ReduceOp::average;
  step.rough = is_float && adds && step.collective == Collective::all_reduce && step.style == Style::blocking &&
               random.chance(25);
}

void draw_parts(Random& random, Step& step) {
  const auto n = static_cast<std::size_t>(step.size);
  const bool is_matrix = step.collective == Collective::all_to_all_v;
  const bool is_vector = step.collective == Collective::all_gather_v || step.collective == Collective::gather_v ||
                         step.collective == Collective::scatter_v;
  if (!is_matrix && !is_vector) return;
  const std::size_t bound = step.count / n + 2;
  for (std::size_t i = 0; i < (is_matrix ? n * n : n); ++i) {
    step.parts.push_back(random.chance(25) ? 0 : random.below(bound));
  }
}

}  // namespace

Step draw_step(Random& random, int size, Style style) {
  Step step;
  step.size = size;
  step.style = style;
  do {
    step.collective = static_cast<Collective>(random.index(rondo::kCollectiveCount));
    // Everybody sends, then receives: only a group may do that. A window is for a receive buffer of all ranks.
  } while (((step.collective == Collective::send || step.collective == Collective::recv) && size == 1) ||
           (step.collective == Collective::recv && style != Style::group) ||
           (style == Style::window && !has_blocks(step.collective) && step.collective != Collective::all_reduce));
  step.dtype = static_cast<rondo::DataType>(random.index(rondo::kDataTypeCount));
  step.root = random.index(size);
  step.shift = size == 1 ? 0 : 1 + random.index(size - 1);
  step.count = draw_count(random, size);
  if (has_blocks(step.collective))
    step.count = (step.count + static_cast<std::size_t>(size) - 1) / static_cast<std::size_t>(size);
  step.offset = random.chance(30) ? random.below(16) : 0;
  step.seed = random.next();
  step.in_place = draw_in_place(random, step);
  if (rondo::row_of(step.collective).reduces) draw_reduction(random, step);
  draw_parts(random, step);
  return step;
}

std::string describe(const Step& step) {
  static constexpr std::array<const char*, 5> kStyles = {"blocking", "untyped", "async", "in a group", "in a window"};
  std::string text(rondo::name_of(step.collective));
  text.append(" of ").append(std::to_string(step.count)).append(" ").append(rondo::name_of(step.dtype));
  if (rondo::row_of(step.collective).reduces) text.append(" ").append(rondo::name_of(step.op.kind()));
  text += ", root " + std::to_string(step.root) + ", " + kStyles[static_cast<std::size_t>(step.style)];
  if (step.in_place) text += ", in place";
  if (step.rough) text += ", any floats";
  return text + ", offset " + std::to_string(step.offset);
}

}  // namespace consumer
