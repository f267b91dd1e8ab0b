// SPDX-License-Identifier: Apache-2.0
// The side of oneCCL's build for CPUs, on top of Intel MPI: its mpiexec starts the ranks, oneCCL loads its library. It
// has no gather and no scatter. --rank R: which rank this is.
#include <oneapi/ccl.hpp>

#include <fstream>

#include "measure.hpp"

namespace rondo::peers {
namespace {

class OneCcl : public Library {
 public:
  OneCcl(const std::string& store, int rank, int np) : communicator_(connect(store, rank, np)) {}

  void prepare(const Cell& cell, float* in, float* out) override {
    // A rank's block of a reduce_scatter in place is where it was in its input; MPI's is at the begin.
    const bool among_others = cell.in_place && cell.is(Collective::reduce_scatter);
    cell_ = cell, in_ = in, out_ = among_others ? out + cell.own_offset() : out;
    counts_ = cell.is_variable() ? cell.counts() : std::vector<std::size_t>{};
  }
  void run() override { start().wait(); }
  const float* result() override { return out_; }

 private:
  // Rank 0's address reaches the others through a file.
  static ccl::communicator connect(const std::string& path, int rank, int np) {
    ccl::init();
    ccl::shared_ptr_class<ccl::kvs> store;
    if (rank == 0) {
      store = ccl::create_main_kvs();
      write(path, store->get_address());
    } else {
      store = ccl::create_kvs(read(path));
    }
    return ccl::create_communicator(np, rank, store);
  }
  using Address = ccl::kvs::address_type;
  static void write(const std::string& path, const Address& address) {
    const std::string unfinished = path + ".new";
    std::ofstream(unfinished, std::ios::binary).write(address.data(), static_cast<std::streamsize>(address.size()));
    if (std::rename(unfinished.c_str(), path.c_str()) != 0) std::perror(path.c_str()), std::exit(2);
  }
  // Until rank 0 has written it; the alarm ends a rank whose rank 0 never does.
  static Address read(const std::string& path) {
    Address address{};
    std::ifstream file;
    while (!file.is_open()) {
      ::sched_yield();
      file.open(path, std::ios::binary);
    }
    file.read(address.data(), static_cast<std::streamsize>(address.size()));
    return address;
  }
  ccl::event start() {
    constexpr auto kSum = ccl::reduction::sum;
    switch (cell_.collective) {
      case Collective::all_reduce:
        return ccl::allreduce(in_, out_, cell_.count, kSum, communicator_);
      case Collective::all_gather:
        return ccl::allgather(in_, out_, cell_.block(), communicator_);
      case Collective::broadcast:
        return ccl::broadcast(out_, cell_.count, 0, communicator_);
      case Collective::reduce_scatter:
        return ccl::reduce_scatter(in_, out_, cell_.block(), kSum, communicator_);
      case Collective::all_to_all:
        return ccl::alltoall(in_, out_, cell_.block(), communicator_);
      case Collective::barrier:
        return ccl::barrier(communicator_);
      case Collective::reduce:
        return ccl::reduce(in_, out_, cell_.count, kSum, 0, communicator_);
      case Collective::all_gather_v:
        return ccl::allgatherv(in_, cell_.own_block(), out_, counts_, communicator_);
      case Collective::all_to_all_v:
        return ccl::alltoallv(in_, counts_, out_, counts_, communicator_);
      case Collective::gather:
      case Collective::scatter:
      case Collective::gather_v:
      case Collective::scatter_v:
        break;
    }
    std::fprintf(stderr, "oneCCL has no %s\n", cell_.name().c_str());
    std::exit(2);
  }

  ccl::communicator communicator_;
  Cell cell_;
  float *in_ = nullptr, *out_ = nullptr;
  std::vector<std::size_t> counts_;  // of blocks that differ
};

}  // namespace
}  // namespace rondo::peers

// Hooks of Intel's profiler, which the static library calls where they are set and which its package lacks.
extern "C" {
void* __itt_domain_create_ptr__3_0 = nullptr;
void* __itt_event_create_ptr__3_0 = nullptr;
void* __itt_event_end_ptr__3_0 = nullptr;
void* __itt_event_start_ptr__3_0 = nullptr;
void* __itt_metadata_add_ptr__3_0 = nullptr;
void* __itt_string_handle_create_ptr__3_0 = nullptr;
void* __itt_task_begin_ptr__3_0 = nullptr;
void* __itt_task_end_ptr__3_0 = nullptr;
void* __itt_thread_set_name_ptr__3_0 = nullptr;
}

int main(int argc, char** argv) {
  using namespace rondo::peers;
  const Arguments arguments(argc, argv);
  ::alarm(static_cast<unsigned>(arguments.number("limit-s", 120)));
  const int rank = static_cast<int>(arguments.number("rank", 0)), np = static_cast<int>(arguments.number("np", 2));
  OneCcl library(arguments.needed("meeting") + ".store", rank, np);
  return Runner(library, arguments, rank, np).run();
}
