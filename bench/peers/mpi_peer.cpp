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
    cell_ = cell, in_ = in, out_ = out;
    count_ = static_cast<int>(cell.count), block_ = static_cast<int>(cell.block());
  }
  void run() override {
    const MPI_Comm world = MPI_COMM_WORLD;
    switch (cell_.collective) {
      case Collective::all_reduce:
        MPI_Allreduce(in_, out_, count_, MPI_FLOAT, MPI_SUM, world);
        break;
      case Collective::all_gather:
        MPI_Allgather(in_, block_, MPI_FLOAT, out_, block_, MPI_FLOAT, world);
        break;
      case Collective::broadcast:
        MPI_Bcast(out_, count_, MPI_FLOAT, 0, world);
        break;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(in_, out_, block_, MPI_FLOAT, MPI_SUM, world);
        break;
      case Collective::all_to_all:
        MPI_Alltoall(in_, block_, MPI_FLOAT, out_, block_, MPI_FLOAT, world);
        break;
      case Collective::barrier:
        MPI_Barrier(world);
        break;
      case Collective::reduce:
        MPI_Reduce(in_, out_, count_, MPI_FLOAT, MPI_SUM, 0, world);
        break;
      case Collective::gather:
        MPI_Gather(in_, block_, MPI_FLOAT, out_, block_, MPI_FLOAT, 0, world);
        break;
      case Collective::scatter:
        MPI_Scatter(in_, block_, MPI_FLOAT, out_, block_, MPI_FLOAT, 0, world);
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
  float *in_ = nullptr, *out_ = nullptr;
  int count_ = 0, block_ = 0;
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
