// SPDX-License-Identifier: Apache-2.0
// Prints, as rows of commas, when a short all_reduce's kernels pass which place: window, LL and push, 1, 2 and 8 ranks.
// Ends with 77 and "skipped: " where there is no GPU.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/command_line.hpp"
#include "tools/gpu_check/anatomy.hpp"
#include "tools/gpu_check/gpu.hpp"

namespace {

using namespace rondo::gpu_check;

void print(const AnatomyCase& what, const Anatomy& found, const char* device) {
  const std::string head = fmt::format("{},{},{},{}", device, what.name(), what.ranks, what.bytes);
  fmt::print("call,{},,,,{:.3f},{:.3f},{:.3f}\n", head, found.call.median_us, found.call.least_us, found.call.most_us);
  for (std::size_t rank = 0; rank < found.late_us.size(); ++rank) {
    fmt::print("late,{},{},,,{:.3f},,\n", head, rank, found.late_us[rank]);
  }
  for (const PlaceRow& row : found.rows) {
    fmt::print("stamp,{},{},{},{},{:.3f},{:.3f},{:.3f}\n", head, row.rank, row.order,
               rondo::kernels::device::kStampNames[static_cast<std::size_t>(row.place)], row.median_us, row.least_us,
               row.most_us);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bool simulated = false;
  std::vector<int> worlds = {2, 1, 8};
  std::size_t bytes = 8;
  CLI::App app{"When a short all_reduce's kernels pass which place, on GPU 0, as rows of commas"};
  app.add_flag("--sim", simulated, "on the simulated device: whether it works, not how fast");
  app.add_option("-g,--ngpus", worlds, "numbers of ranks, as streams of GPU 0")->check(CLI::Range(1, 8));
  app.add_option("-b,--bytes", bytes, "of the message, floats")->check(CLI::Range(4, 4096));
  if (const auto code = rondo::parse(app, "anatomy", argc, argv)) return *code;
  const Api* const api = find_gpu(simulated);
  if (api == nullptr) return kSkipped;
  try {
#ifdef RONDO_CUDA_TOOLKIT
    const StampedKernels kernels = simulated ? soft_stamped_kernels() : cuda_stamped_kernels();
#else
    const StampedKernels kernels = soft_stamped_kernels();
#endif
    for (const void* kernel : {kernels.ll, kernels.window, kernels.push}) {
      cudaFuncAttributes loaded{};  // asking loads it: no first launch meets a kernel that waits
      if (!simulated) check(*api, api->FuncGetAttributes(&loaded, kernel), "FuncGetAttributes");
    }
    int major = 0;
    check(*api, api->DeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "DeviceGetAttribute");
    const bool has_early_launches = major >= 9;
    const Batches batches = simulated ? Batches{2, 2, 1} : Batches{};
    fmt::print(
        "# stamp,device,kernel,ranks,bytes,rank,order,place,median_us,least_us,most_us: since the kernel began\n");
    for (const int ranks : worlds) {
      for (const AnatomyCase& what :
           {AnatomyCase{true, true, ranks, bytes}, AnatomyCase{false, false, ranks, bytes},
            AnatomyCase{true, false, ranks, bytes}, AnatomyCase{false, false, ranks, bytes, true},
            AnatomyCase{true, true, ranks, bytes, false, true}, AnatomyCase{false, false, ranks, bytes, true, true}}) {
        if (what.early && !has_early_launches) continue;
        print(what, take_apart(*api, kernels, what, batches), simulated ? "simulated" : "cuda");
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "anatomy: {}\n", error.what());
    return 1;
  }
  return 0;
}
