// SPDX-License-Identifier: Apache-2.0
// Our side, on the public interface alone. --windows 1: buffers from Communicator::allocate; --determinism
// reproducible. --launched 1: as one rank, which a launcher has started.
#include <rondo/rondo.hpp>
#include <span>

#include "forked.hpp"
#include "measure.hpp"

namespace rondo::peers {
namespace {

class Rondo : public Library {
 public:
  Rondo(Communicator& communicator, bool windows) : communicator_(communicator), windows_(windows) {}
  float* allocate(std::size_t count) override {
    if (!windows_) return Library::allocate(count);
    held_.push_back(communicator_.allocate<float>(std::max<std::size_t>(count, 1)));
    return held_.back().data();
  }
  void prepare(const Cell& cell, float* in, float* out) override {
    collective_ = cell.collective;
    // A rank's block of a reduce_scatter in place is where it was in its input; MPI's is at the begin.
    const bool among_others = cell.in_place && cell.is(Collective::reduce_scatter);
    in_ = {in, cell.count}, out_ = {among_others ? out + cell.own_offset() : out, cell.count};
    block_ = cell.block(), mine_ = cell.own_block();
    counts_ = cell.is_variable() ? cell.counts() : std::vector<std::size_t>{};
  }
  void run() override {
    switch (collective_) {
      case Collective::all_reduce:
        return communicator_.all_reduce(in_, out_, ReduceOp::sum);
      case Collective::all_gather:
        return communicator_.all_gather(in_.first(block_), out_);
      case Collective::broadcast:
        return communicator_.broadcast(out_, 0);
      case Collective::reduce_scatter:
        return communicator_.reduce_scatter(in_, out_.first(block_), ReduceOp::sum);
      case Collective::all_to_all:
        return communicator_.all_to_all(in_, out_);
      case Collective::barrier:
        return communicator_.barrier();
      case Collective::reduce:
        return communicator_.reduce(in_, out_, ReduceOp::sum, 0);
      case Collective::gather:
        return communicator_.gather(in_.first(block_), out_, 0);
      case Collective::scatter:
        return communicator_.scatter(in_, out_.first(block_), 0);
      case Collective::all_gather_v:
        return communicator_.all_gather_v(in_.first(mine_), out_, counts_);
      case Collective::all_to_all_v:
        return communicator_.all_to_all_v(in_, counts_, out_, counts_);
      case Collective::gather_v:
        return communicator_.gather_v(in_.first(mine_), out_, counts_, 0);
      case Collective::scatter_v:
        return communicator_.scatter_v(in_, out_.first(mine_), counts_, 0);
    }
  }
  const float* result() override { return out_.data(); }
  void release() override {
    Library::release();
    held_.clear();
  }

 private:
  Communicator& communicator_;
  bool windows_;
  Collective collective_{};
  std::span<const float> in_;
  std::span<float> out_;
  std::size_t block_ = 0, mine_ = 0;
  std::vector<std::size_t> counts_;  // of blocks that differ
  std::vector<Window<float>> held_;
};

int run(const Arguments& arguments, int rank, int np) {
  Options options;
  if (arguments.text("determinism", "") == "reproducible") options.determinism = Determinism::reproducible;
  const bool launched = arguments.number("launched", 0) != 0;
  Rendezvous rendezvous;
  if (!launched) rendezvous = {.rank = rank, .world_size = np, .url = "file://" + arguments.needed("meeting") + ".url"};
  Communicator communicator = Communicator::create(rendezvous, options);
  Rondo library(communicator, arguments.number("windows", 0) != 0);
  return Runner(library, arguments, communicator.rank(), np).run();
}

}  // namespace
}  // namespace rondo::peers

int main(int argc, char** argv) {
  using namespace rondo::peers;
  const Arguments arguments(argc, argv);
  const int np = static_cast<int>(arguments.number("np", 2));
  const auto limit_s = static_cast<unsigned>(arguments.number("limit-s", 120));
  const bool launched = arguments.number("launched", 0) != 0;
  if (launched) return run_rank(0, limit_s, [&](int) { return run(arguments, -1, np); });
  return run_forked(np, limit_s, [&](int rank) { return run(arguments, rank, np); });
}
