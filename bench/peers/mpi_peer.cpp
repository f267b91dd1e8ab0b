// SPDX-License-Identifier: Apache-2.0
// The side of an MPI; built once with each one's compiler wrapper. The launcher's flags choose the transport.
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "measure.hpp"

namespace rondo::peers {
namespace {

class Mpi : public Library {
 public:
  void prepare(const Cell& cell, float* in, float* out) override {
    cell_ = cell, out_ = out;
    count_ = static_cast<int>(cell.count), block_ = static_cast<int>(cell.block());
    mine_ = static_cast<int>(cell.own_block());
    counts_.clear(), offsets_.clear();
    for (const std::size_t count : cell.is_variable() ? cell.counts() : std::vector<std::size_t>{}) {
      offsets_.push_back(offsets_.empty() ? 0 : offsets_.back() + counts_.back());
      counts_.push_back(static_cast<int>(count));
    }
    const bool at_root = cell.rank == 0;
    send_ = in, recv_ = out;
    if (cell.in_place && (at_root || !cell.rooted())) (cell.from_root() ? recv_ : send_) = MPI_IN_PLACE;
  }
  void run() override {
    const MPI_Comm world = MPI_COMM_WORLD;
    switch (cell_.collective) {
      case Collective::all_reduce:
        MPI_Allreduce(send_, recv_, count_, MPI_FLOAT, MPI_SUM, world);
        break;
      case Collective::all_gather:
        MPI_Allgather(send_, block_, MPI_FLOAT, recv_, block_, MPI_FLOAT, world);
        break;
      case Collective::broadcast:
        MPI_Bcast(out_, count_, MPI_FLOAT, 0, world);
        break;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(send_, recv_, block_, MPI_FLOAT, MPI_SUM, world);
        break;
      case Collective::all_to_all:
        MPI_Alltoall(send_, block_, MPI_FLOAT, recv_, block_, MPI_FLOAT, world);
        break;
      case Collective::barrier:
        MPI_Barrier(world);
        break;
      case Collective::reduce:
        MPI_Reduce(send_, recv_, count_, MPI_FLOAT, MPI_SUM, 0, world);
        break;
      case Collective::gather:
        MPI_Gather(send_, block_, MPI_FLOAT, recv_, block_, MPI_FLOAT, 0, world);
        break;
      case Collective::scatter:
        MPI_Scatter(send_, block_, MPI_FLOAT, recv_, block_, MPI_FLOAT, 0, world);
        break;
      case Collective::all_gather_v:
        MPI_Allgatherv(send_, mine_, MPI_FLOAT, recv_, counts_.data(), offsets_.data(), MPI_FLOAT, world);
        break;
      case Collective::all_to_all_v:
        MPI_Alltoallv(send_, counts_.data(), offsets_.data(), MPI_FLOAT, recv_, counts_.data(), offsets_.data(),
                      MPI_FLOAT, world);
        break;
      case Collective::gather_v:
        MPI_Gatherv(send_, mine_, MPI_FLOAT, recv_, counts_.data(), offsets_.data(), MPI_FLOAT, 0, world);
        break;
      case Collective::scatter_v:
        MPI_Scatterv(send_, counts_.data(), offsets_.data(), MPI_FLOAT, recv_, mine_, MPI_FLOAT, 0, world);
        break;
    }
  }
  const float* result() override { return out_; }
  void progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }

 private:
  Cell cell_;
  float* out_ = nullptr;
  void *send_ = nullptr, *recv_ = nullptr;  // or MPI_IN_PLACE
  int count_ = 0, block_ = 0, mine_ = 0;
  std::vector<int> counts_, offsets_;  // of blocks that differ
};

}  // namespace
}  // namespace rondo::peers

int main(int argc, char** argv) {
  using namespace rondo::peers;
  MPI_Init(&argc, &argv);
  const Arguments arguments(argc, argv);
  ::alarm(static_cast<unsigned>(arguments.number("limit-s", 120)));
  int rank = 0, np = 0, status = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &np);
  {
    Mpi library;
    status = Runner(library, arguments, rank, np).run();
  }
  MPI_Finalize();
  return status;
}
