// SPDX-License-Identifier: Apache-2.0
// NCCL's all_reduce with several ranks on one GPU, ranks as threads, in CUDA graphs: what ours is compared with. NCCL
// is loaded at run time through its public interface. Ends with 77 and "skipped: " where it cannot do that.
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/api.hpp"
#include "tools/command_line.hpp"
#include "tools/gpu_check/gpu.hpp"

namespace {

using rondo::cuda::Api;
using rondo::gpu_check::kSkipped;

constexpr int kOldest = 23000;                    // 2.30: the first that allows several ranks on a GPU
constexpr int kNcclFloat = 7, kNcclSum = 0;       // of ncclDataType_t and ncclRedOp_t
constexpr int kBatches = 11, kCallsInGraph = 20;  // a sample is a batch of replays

struct UniqueId {
  char bytes[128];
};

// The functions of nccl.h that are used, with its own types spelled as what they are.
struct Nccl {
  explicit Nccl(const std::string& path) : library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library == nullptr) throw std::runtime_error(dlerror());
    find(GetVersion, "ncclGetVersion");
    find(GetErrorString, "ncclGetErrorString");
    find(GetUniqueId, "ncclGetUniqueId");
    find(CommInitRank, "ncclCommInitRank");
    find(CommDestroy, "ncclCommDestroy");
    find(AllReduce, "ncclAllReduce");
  }

  void check(int status, const char* what) const {
    if (status != 0) throw std::runtime_error(fmt::format("{}: {}", what, GetErrorString(status)));
  }

  void* library;
  int (*GetVersion)(int*) = nullptr;
  const char* (*GetErrorString)(int) = nullptr;
  int (*GetUniqueId)(UniqueId*) = nullptr;
  int (*CommInitRank)(void**, int, UniqueId, int) = nullptr;
  int (*CommDestroy)(void*) = nullptr;
  int (*AllReduce)(const void*, void*, std::size_t, int, int, void*, cudaStream_t) = nullptr;

 private:
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(fmt::format("the library has no {}", name));
  }
};

struct Setup {
  int ranks = 2, replays = 10;
  std::size_t min_bytes = 8, max_bytes = std::size_t{256} << 20, factor = 8;
};

void check(const Api& api, cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(fmt::format("{}: {}", what, api.GetErrorString(status)));
}

// Shared by the ranks' threads: each writes its own element between two meetings.
struct Times {
  explicit Times(int ranks) : us(static_cast<std::size_t>(ranks)), meeting(ranks) {}
  std::vector<float> us;
  std::barrier<> meeting;
};

class Rank {
 public:
  Rank(const Api& api, const Nccl& nccl, const Setup& setup, int rank, UniqueId id, Times& times)
      : api_(api), nccl_(nccl), setup_(setup), rank_(rank), times_(times) {
    check(api_, api_.SetDevice(0), "SetDevice");
    check(api_, api_.StreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "StreamCreateWithFlags");
    check(api_, api_.EventCreateWithFlags(&begin_, 0), "EventCreateWithFlags");
    check(api_, api_.EventCreateWithFlags(&end_, 0), "EventCreateWithFlags");
    check(api_, api_.Malloc(reinterpret_cast<void**>(&send_), setup_.max_bytes), "Malloc");
    check(api_, api_.Malloc(reinterpret_cast<void**>(&recv_), setup_.max_bytes), "Malloc");
    const std::vector<float> ones(setup_.max_bytes / sizeof(float), 1.0F);
    check(api_, api_.Memcpy(send_, ones.data(), setup_.max_bytes, cudaMemcpyHostToDevice), "Memcpy");
    check(api_, api_.DeviceSynchronize(), "DeviceSynchronize");  // the copy may return before the bytes are there
    nccl_.check(nccl_.CommInitRank(&comm_, setup_.ranks, id, rank_), "ncclCommInitRank");
  }

  void sweep(int version) {
    for (std::size_t bytes = setup_.min_bytes; bytes <= setup_.max_bytes; bytes *= setup_.factor) {
      const double us = median_us(bytes);
      check_result(bytes);
      if (rank_ != 0) continue;
      const double busbw = static_cast<double>(bytes) / us * 1e-3 * 2 * (setup_.ranks - 1) / setup_.ranks;
      fmt::print("nccl,{},{},{},{:.3f},{:.2f}\n", version, setup_.ranks, bytes, us, busbw);
      std::fflush(stdout);
    }
    nccl_.check(nccl_.CommDestroy(comm_), "ncclCommDestroy");
  }

 private:
  void call(std::size_t bytes) {
    nccl_.check(nccl_.AllReduce(send_, recv_, bytes / sizeof(float), kNcclFloat, kNcclSum, comm_, stream_),
                "ncclAllReduce");
  }
  void drain() { check(api_, api_.StreamSynchronize(stream_), "StreamSynchronize"); }

  double median_us(std::size_t bytes) {
    call(bytes);  // what is set up at the first call is not in a graph
    drain();
    times_.meeting.arrive_and_wait();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replayable = nullptr;
    check(api_, api_.StreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "StreamBeginCapture");
    for (int i = 0; i < kCallsInGraph; ++i) call(bytes);
    check(api_, api_.StreamEndCapture(stream_, &graph), "StreamEndCapture");
    check(api_, api_.GraphInstantiate(&replayable, graph, 0), "GraphInstantiate");
    std::vector<double> samples;
    for (int i = 0; i < kBatches; ++i) samples.push_back(sample_us(replayable));
    api_.GraphExecDestroy(replayable);
    api_.GraphDestroy(graph);
    std::nth_element(samples.begin(), samples.begin() + kBatches / 2, samples.end());
    return samples[kBatches / 2];
  }

  // Of one call, by the slowest rank.
  double sample_us(cudaGraphExec_t graph) {
    times_.meeting.arrive_and_wait();
    check(api_, api_.EventRecord(begin_, stream_), "EventRecord");
    for (int i = 0; i < setup_.replays; ++i) check(api_, api_.GraphLaunch(graph, stream_), "GraphLaunch");
    check(api_, api_.EventRecord(end_, stream_), "EventRecord");
    drain();
    float ms = 0;
    check(api_, api_.EventElapsedTime(&ms, begin_, end_), "EventElapsedTime");
    times_.us[static_cast<std::size_t>(rank_)] =
        ms * 1e3F / static_cast<float>(setup_.replays) / static_cast<float>(kCallsInGraph);
    times_.meeting.arrive_and_wait();
    return *std::max_element(times_.us.begin(), times_.us.end());
  }

  void check_result(std::size_t bytes) {
    std::vector<float> host(bytes / sizeof(float));
    check(api_, api_.Memcpy(host.data(), recv_, bytes, cudaMemcpyDeviceToHost), "Memcpy");
    const auto right = [&](float value) { return value == static_cast<float>(setup_.ranks); };
    if (!std::all_of(host.begin(), host.end(), right)) throw std::runtime_error("NCCL's result is wrong");
  }

  const Api& api_;
  const Nccl& nccl_;
  const Setup& setup_;
  const int rank_;
  Times& times_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  float *send_ = nullptr, *recv_ = nullptr;
  void* comm_ = nullptr;
};

// A rank that fails ends the program: the others would wait for it.
void measure(const Api& api, const Nccl& nccl, const Setup& setup, int version) {
  UniqueId id{};
  nccl.check(nccl.GetUniqueId(&id), "ncclGetUniqueId");
  Times times(setup.ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < setup.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rank(api, nccl, setup, rank, id, times).sweep(version);
      } catch (const std::exception& error) {
        fmt::print(stderr, "nccl_perf: rank {}: {}\n", rank, error.what());
        std::_Exit(1);
      }
    });
  }
}

int run(const std::string& library, const Setup& setup, bool version_alone) {
  const Nccl nccl(library);
  int version = 0;
  nccl.check(nccl.GetVersion(&version), "ncclGetVersion");
  fmt::print("{}: NCCL {}.{}.{}\n", library, version / 10000, version % 10000 / 100, version % 100);
  if (version < kOldest) {
    fmt::print("skipped: {} is older than 2.30, which is the first to allow several ranks on a GPU\n", library);
    return kSkipped;
  }
  if (version_alone) return 0;
  const Api* api = rondo::gpu_check::find_gpu(false);
  if (api == nullptr) return kSkipped;
  measure(*api, nccl, setup, version);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Setup setup;
  std::string library = "libnccl.so.2";
  bool version_alone = false;
  CLI::App app{"NCCL's all_reduce, several ranks on one GPU"};
  app.add_option("--library", library, "path of libnccl.so.2");
  app.add_flag("--version", version_alone, "only say which it is, and whether it will do");
  app.add_option("-g,--ngpus", setup.ranks, "ranks, as threads, all on GPU 0")->check(CLI::Range(1, 8));
  app.add_option("-G,--cudagraph", setup.replays, "launches of the graph in a sample")->check(CLI::Range(1, 1'000'000));
  const CLI::Range sizes(std::uint64_t{0}, std::uint64_t{1} << 40);
  app.add_option("-b,--minbytes", setup.min_bytes, "smallest size")->transform(CLI::AsSizeValue(false))->check(sizes);
  app.add_option("-e,--maxbytes", setup.max_bytes, "largest size")->transform(CLI::AsSizeValue(false))->check(sizes);
  app.add_option("-f,--stepfactor", setup.factor, "factor between sizes")->check(CLI::Range(2, 1024));
  if (const auto code = rondo::parse(app, "nccl_perf", argc, argv)) return *code;
  try {
    return run(library, setup, version_alone);
  } catch (const std::exception& error) {
    fmt::print(stderr, "nccl_perf: {}\n", error.what());
    return 1;
  }
}
