// SPDX-License-Identifier: Apache-2.0
// Gloo's side: ranks as children, TCP over loopback, which is all it has. --algorithm ring or bcube for all_reduce.
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>

#include "forked.hpp"
#include "measure.hpp"

namespace rondo::peers {
namespace {

class Gloo : public Library {
 public:
  Gloo(const Arguments& arguments, int rank, int np)
      : folder_(arguments.needed("meeting") + ".store"),
        bcube_(arguments.text("algorithm", "ring") == "bcube"),
        rank_(rank),
        np_(np),
        device_(gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"))),
        context_(connect()) {}

  void prepare(const Cell& cell, float* in, float* out) override {
    cell_ = cell, in_ = in, out_ = out;
    if (!cell.is(Collective::reduce_scatter)) return;
    // Only the class of an older generation has it. It works in place, on connections of its own.
    own_context_ = connect();
    work_ = pages(cell.count);
    reduce_scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        own_context_, std::vector<float*>{work_.get()}, static_cast<int>(cell.count),
        std::vector<int>(static_cast<std::size_t>(np_), static_cast<int>(cell.block())));
  }
  void load() override {
    if (reduce_scatter_) std::memcpy(work_.get(), in_, cell_.count * sizeof(float));
  }
  const float* result() override { return reduce_scatter_ ? work_.get() : out_; }
  void finish() override {
    reduce_scatter_.reset();
    own_context_.reset();
    work_.reset();
  }
  void run() override {
    switch (cell_.collective) {
      case Collective::all_reduce:
        return all_reduce();
      case Collective::reduce:
        return reduce();
      case Collective::reduce_scatter:
        return reduce_scatter_->run();
      case Collective::barrier: {
        gloo::BarrierOptions options(context_);
        return gloo::barrier(options);
      }
      case Collective::broadcast:
      case Collective::all_gather:
      case Collective::all_to_all:
      case Collective::gather:
      case Collective::scatter:
      case Collective::all_gather_v:
      case Collective::all_to_all_v:
      case Collective::gather_v:
      case Collective::scatter_v:
        return move();
    }
  }

 private:
  using Context = std::shared_ptr<gloo::rendezvous::Context>;
  using Store = std::shared_ptr<gloo::rendezvous::Store>;
  using Device = std::shared_ptr<gloo::transport::Device>;

  // A full mesh through a fresh folder. The store must outlive the contexts of old releases.
  Context connect() {
    const std::string folder = folder_ + std::to_string(stores_.size());
    ::mkdir(folder.c_str(), 0700);
    stores_.push_back(std::make_shared<gloo::rendezvous::FileStore>(folder));
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, np_);
    join(*context, stores_.back(), device_, 0);
    return context;
  }
  // Current releases take a shared_ptr, that of 2022 a reference.
  template <class C>
  auto join(C& context, Store store, Device device, int) -> decltype(context.connectFullMesh(store, device), void()) {
    context.connectFullMesh(store, device);
  }
  template <class C>
  void join(C& context, Store store, Device device, long) {
    context.connectFullMesh(*store, device);
  }

  using Sum = void (*)(void*, const void*, const void*, std::size_t);
  void all_reduce() {
    using Algorithm = gloo::AllreduceOptions::Algorithm;
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(bcube_ ? Algorithm::BCUBE : Algorithm::RING);
    if (!cell_.in_place) options.setInput(in_, cell_.count);
    options.setOutput(out_, cell_.count);
    options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
    gloo::allreduce(options);
  }
  void reduce() {
    gloo::ReduceOptions options(context_);
    if (!cell_.in_place) options.setInput(in_, cell_.count);
    options.setOutput(out_, cell_.count);
    options.setRoot(0);
    options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
    gloo::reduce(options);
  }
  void move() {
    if (cell_.is(Collective::all_gather)) {
      gloo::AllgatherOptions options(context_);
      if (!cell_.in_place) options.setInput(in_, cell_.block());
      options.setOutput(out_, cell_.count);
      gloo::allgather(options);
    } else if (cell_.is(Collective::all_gather_v)) {
      gloo::AllgathervOptions options(context_);
      options.setInput(in_, cell_.own_block());
      options.setOutput(out_, cell_.counts());
      gloo::allgatherv(options);
    } else if (cell_.is(Collective::all_to_all_v)) {
      const std::vector<std::size_t> counts = cell_.counts();
      const std::vector<std::int64_t> signed_counts(counts.begin(), counts.end());
      gloo::AlltoallvOptions options(context_);
      options.setInput(in_, signed_counts);
      options.setOutput(out_, signed_counts);
      gloo::alltoallv(options);
    } else if (cell_.is(Collective::all_to_all)) {
      gloo::AlltoallOptions options(context_);
      options.setInput(in_, cell_.count);
      options.setOutput(out_, cell_.count);
      gloo::alltoall(options);
    } else if (cell_.is(Collective::broadcast)) {
      gloo::BroadcastOptions options(context_);
      options.setOutput(out_, cell_.count);
      options.setRoot(0);
      gloo::broadcast(options);
    } else if (cell_.is(Collective::gather)) {
      gloo::GatherOptions options(context_);
      options.setInput(in_, cell_.block());
      if (rank_ == 0) options.setOutput(out_, cell_.count);
      options.setRoot(0);
      gloo::gather(options);
    } else {
      gloo::ScatterOptions options(context_);
      std::vector<float*> blocks;
      for (int rank = 0; rank_ == 0 && rank < np_; ++rank)
        blocks.push_back(in_ + static_cast<std::size_t>(rank) * cell_.block());
      if (rank_ == 0) options.setInputs(blocks, cell_.block());
      options.setOutput(out_, cell_.block());
      options.setRoot(0);
      gloo::scatter(options);
    }
  }

  std::string folder_;
  bool bcube_;
  int rank_, np_;
  Device device_;
  std::vector<Store> stores_;
  Context context_, own_context_;
  std::unique_ptr<gloo::Algorithm> reduce_scatter_;
  Cell cell_;
  float *in_ = nullptr, *out_ = nullptr;
  Memory work_;
};

}  // namespace
}  // namespace rondo::peers

int main(int argc, char** argv) {
  using namespace rondo::peers;
  const Arguments arguments(argc, argv);
  const int np = static_cast<int>(arguments.number("np", 2));
  const auto limit_s = static_cast<unsigned>(arguments.number("limit-s", 120));
  return run_forked(np, limit_s, [&](int rank) {
    Gloo library(arguments, rank, np);
    return Runner(library, arguments, rank, np).run();
  });
}
