// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm/hierarchy/two_level.hpp"

namespace rondo::comm {

using kernels::output;
using kernels::Pattern;

void TwoLevel::all_reduce() {
  if (call_.count * element_ <= tuning_.two_level_leader_bytes) return all_reduce_by_leaders();
  all_reduce_in_parts();
}

void TwoLevel::all_reduce_by_leaders() {
  on_board({.collective = Collective::reduce, .send = send(0), .recv = recv(0), .count = call_.count, .root = 0});
  if (nodes_.index == 0) {
    turn_to(leaders_, recv(0), recv(0));
    run_row(Pattern::all_reduce, call_.count * element_, 0, call_.count);
  }
  on_board({.collective = Collective::broadcast, .send = recv(0), .recv = recv(0), .count = call_.count, .root = 0});
}

// Chunk by chunk: the node reduces, each rank its part; the ranks at the same index of all nodes, a rail, reduce that
// part, each its piece of it; everybody gets the parts of its node. As many rails as the smallest node has ranks. While
// a chunk's pieces are on their way, the next chunk is on the board: a chunk takes three turns,
//   down: reduced in the node, pieces sent;  across: own piece reduced and sent;  up: pieces received, parts shared.
// A link then holds up to three pieces that were not taken yet.
void TwoLevel::all_reduce_in_parts() {
  const FifoShape shape = team_.segment().shape();
  const std::size_t lag = shape.slots >= 3 ? 1 : 0;  // turns between the stages of a chunk
  const std::size_t room = (lag != 0 ? shape.slots / 3 : shape.slices_per_chunk()) * shape.slice_bytes / element_;
  const std::size_t pieces = static_cast<std::size_t>(nodes_.least) * static_cast<std::size_t>(nodes_.count());
  const std::size_t step = pieces * std::min(room, piece_of_chunk(pieces));
  const std::size_t chunks = (call_.count + step - 1) / step;
  const auto chunk = [&](std::size_t k) { return Range{k * step, std::min(step, call_.count - k * step)}; };
  turn_to(peers_, nullptr, recv(0));
  for (std::size_t turn = 0; turn < chunks + 2 * lag; ++turn) {
    if (turn < chunks) go_down(chunk(turn));
    if (turn >= lag && turn - lag < chunks) go_across(chunk(turn - lag));
    if (turn >= 2 * lag) go_up(chunk(turn - 2 * lag));
  }
}

kernels::Range TwoLevel::part_of(Range chunk, int index) const {
  return index < nodes_.least ? kernels::part(chunk, nodes_.least, index) : Range{chunk.offset, 0};
}

void TwoLevel::set_parts(Range chunk) {
  blocks_.clear();
  for (int index = 0; index < static_cast<int>(nodes_.own().size()); ++index) blocks_.push_back(part_of(chunk, index));
}

void TwoLevel::go_down(Range chunk) {
  const Range mine = part_of(chunk, nodes_.index);
  set_parts(chunk);
  on_board({.collective = Collective::reduce_scatter, .send = send(0), .recv = recv(mine.offset), .blocks = blocks_});
  moves_.clear();
  for (int step = 1; step < nodes_.count(); ++step) {
    const int to = (nodes_.mine + step) % nodes_.count();
    const Range theirs = kernels::part(mine, nodes_.count(), to);
    moves_.push_back({.count = theirs.count, .to = to, .local = output(theirs.offset)});
  }
  links_.run(moves_);
}

void TwoLevel::go_across(Range chunk) {
  const Range mine = kernels::part(part_of(chunk, nodes_.index), nodes_.count(), nodes_.mine);
  links_.fold({.count = mine.count, .local = output(mine.offset), .store = output(mine.offset)});
  moves_.clear();
  for (int step = 1; step < nodes_.count(); ++step) {
    const int to = (nodes_.mine + step) % nodes_.count();
    moves_.push_back({.count = mine.count, .to = to, .local = output(mine.offset)});
  }
  links_.run(moves_);
}

void TwoLevel::go_up(Range chunk) {
  const Range mine = part_of(chunk, nodes_.index);
  moves_.clear();
  for (int step = 1; step < nodes_.count(); ++step) {
    const int from = (nodes_.mine + nodes_.count() - step) % nodes_.count();
    const Range theirs = kernels::part(mine, nodes_.count(), from);
    moves_.push_back({.count = theirs.count, .from = from, .store = output(theirs.offset)});
  }
  links_.run(moves_);
  set_parts(chunk);
  on_board({.collective = Collective::all_gather_v, .send = recv(mine.offset), .recv = recv(0), .blocks = blocks_});
}

}  // namespace rondo::comm
