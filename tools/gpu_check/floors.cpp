// SPDX-License-Identifier: Apache-2.0
// What no kernel of the library can be faster than, on this GPU today: a launch, a hop between blocks, a fence, a copy,
// and the least that an all_reduce by lines takes. Ends with 77 and "skipped: " where there is no GPU.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tools/command_line.hpp"
#include "tools/gpu_check/gpu.hpp"
#include "tools/gpu_check/kernels.hpp"
#include "tools/gpu_check/on_streams.hpp"

namespace {

using namespace rondo::gpu_check;

struct Sizes {
  Batches calls;
  std::uint32_t rounds;  // of hops and fences in a kernel
  std::vector<int> ranks;
  std::vector<std::size_t> ping_bytes, copy_bytes;
  std::vector<unsigned> copy_blocks;
};
Sizes sizes_for(bool simulated) {
  if (simulated) return {{2, 1, 1}, 4, {1, 2, 8}, {8, 1024}, {1 << 16}, {2}};
  constexpr std::size_t kMiB = 1 << 20;
  return {{20, 10, 11}, 1000, {1, 2, 4, 8}, {8, 1024, 16384}, {8 * kMiB, 256 * kMiB}, {16, 32, 64, 128}};
}

class Floors {
 public:
  Floors(const Api& api, const FloorKernels& kernels, bool simulated)
      : api_(api), kernels_(kernels), simulated_(simulated), sizes_(sizes_for(simulated)), failed_(api, 8) {
    for (const void* kernel : {kernels.small, kernels.large, kernels.ping, kernels.hop, kernels.fences, kernels.copy}) {
      cudaFuncAttributes loaded{};  // asking loads it: no first launch meets a kernel that waits
      if (!simulated) check(api_, api_.FuncGetAttributes(&loaded, kernel), "FuncGetAttributes");
    }
  }

  void run() {
    fmt::print("# floor,device,what,how,streams,bytes,median_us,least_us,most_us,gbps\n");
    empty();
    for (const std::size_t bytes : sizes_.ping_bytes) {
      for (const int ranks : sizes_.ranks) ping(ranks, bytes, true);
    }
    for (const int ranks : sizes_.ranks) ping(ranks, sizes_.ping_bytes[0], false);
    hops();
    fences();
    for (const std::size_t bytes : sizes_.copy_bytes) copies(bytes);
  }

 private:
  // per: how often a call does what is told.
  void tell(std::string_view what, std::string_view how, int streams, std::size_t bytes, const Timing& timing,
            double per = 1, std::size_t moved = 0) {
    fmt::print(
        "floor,{},{},{},{},{},{:.3f},{:.3f},{:.3f},{}\n", simulated_ ? "simulated" : "cuda", what, how, streams, bytes,
        timing.median_us / per, timing.least_us / per, timing.most_us / per,
        moved == 0 ? std::string() : fmt::format("{:.1f}", 1e-3 * static_cast<double>(moved) / timing.median_us));
    std::fflush(stdout);
  }
  void expect_no_failure(std::string_view what) {
    std::uint64_t failed = 0;
    failed_.read(&failed, sizeof failed);
    if (failed != 0) throw std::runtime_error(fmt::format("{}: a wait took longer than 2 s", what));
  }

  void empty() {
    for (const bool in_graph : {true, false}) {
      for (const int streams : {1, 2}) {
        const char* const how = in_graph ? "graph" : "launch";
        tell("empty <<<1 32>>> 8 B", how, streams, 0,
             time_calls(api_, streams, in_graph, sizes_.calls, [&](int, cudaStream_t stream) {
               launch(api_, kernels_.small, 1, 32, SmallArgument{}, stream);
             }));
        tell(fmt::format("empty <<<1 512>>> {} B", sizeof(LargeArgument)), how, streams, 0,
             time_calls(api_, streams, in_graph, sizes_.calls, [&](int, cudaStream_t stream) {
               launch(api_, kernels_.large, 1, 512, LargeArgument{}, stream);
             }));
      }
    }
  }

  void ping(int ranks, std::size_t bytes, bool in_graph) {
    const std::size_t words = bytes / 8;
    std::vector<DeviceMemory> memory;
    for (int rank = 0; rank < ranks; ++rank) {
      memory.emplace_back(api_, inbox_bytes(ranks, words) + 2 * bytes + 8);
      const std::vector<float> input(2 * words, static_cast<float>(rank + 1));
      memory.back().write(input.data(), bytes, inbox_bytes(ranks, words));
    }
    const auto argument = [&](int rank) {
      const DeviceMemory& own = memory[static_cast<std::size_t>(rank)];
      const std::size_t input = inbox_bytes(ranks, words);
      Ping ping{.inbox = {},
                .input = own.as<std::uint64_t>(input),
                .output = own.as<std::uint64_t>(input + bytes),
                .epoch = own.as<std::uint64_t>(input + 2 * bytes),
                .failed = failed_.as<std::uint64_t>(),
                .rank = rank,
                .ranks = ranks,
                .words = static_cast<std::uint32_t>(words)};
      for (int peer = 0; peer < ranks; ++peer)
        ping.inbox[peer] = memory[static_cast<std::size_t>(peer)].as<std::byte>();
      return ping;
    };
    const auto threads = static_cast<unsigned>(words < 32 ? 32 : words < 512 ? (words + 31) / 32 * 32 : 512);
    const Timing timing = time_calls(api_, ranks, in_graph, sizes_.calls, [&](int rank, cudaStream_t stream) {
      launch(api_, kernels_.ping, 1, simulated_ ? 32 : threads, argument(rank), stream);
    });
    expect_no_failure("ping");
    for (const DeviceMemory& own : memory) {
      std::vector<float> output(2 * words);
      own.read(output.data(), bytes, inbox_bytes(ranks, words) + bytes);
      for (const float value : output) {
        if (value != static_cast<float>(ranks * (ranks + 1) / 2)) throw std::runtime_error("ping: a sum is wrong");
      }
    }
    tell("ping", in_graph ? "graph" : "launch", ranks, bytes, timing);
  }

  void hops() {
    constexpr std::array<std::pair<const char*, HopBy>, 3> kKinds = {{{"hop release acquire system", HopBy::system},
                                                                      {"hop release acquire gpu", HopBy::gpu},
                                                                      {"hop line", HopBy::lines}}};
    for (const auto& [name, by] : kKinds) {
      const DeviceMemory words(api_, 2 * kHopApart * 8);
      const Hop hop{words.as<std::uint64_t>(), failed_.as<std::uint64_t>(), sizes_.rounds, by};
      const Timing timing = time_calls(api_, 1, false, {1, 1, sizes_.calls.batches}, [&](int, cudaStream_t stream) {
        launch(api_, kernels_.hop, 2, 32, hop, stream);
      });
      expect_no_failure(name);
      std::uint64_t last = 0;
      words.read(&last, sizeof last);
      if (last == 0) throw std::runtime_error(fmt::format("{}: nothing went to and fro", name));
      tell(name, "in kernel", 1, 0, timing, 2.0 * sizes_.rounds);
    }
  }

  void fences() {
    const DeviceMemory words(api_, kFenceWords * 8);
    constexpr std::array<std::pair<const char*, Fence>, 3> kKinds = {
        {{"store", Fence::none}, {"store and fence gpu", Fence::gpu}, {"store and fence system", Fence::system}}};
    for (const auto& [name, fence] : kKinds) {
      const Fences argument{words.as<std::uint64_t>(), sizes_.rounds, fence};
      tell(name, "in kernel", 1, 0,
           time_calls(api_, 1, false, {1, 1, sizes_.calls.batches},
                      [&](int, cudaStream_t stream) { launch(api_, kernels_.fences, 1, 32, argument, stream); }),
           sizes_.rounds);
    }
  }

  void copies(std::size_t bytes) {
    const DeviceMemory from(api_, bytes), to(api_, bytes);
    const Batches calls = {simulated_ ? 1 : 5, 1, sizes_.calls.batches};
    tell("copy by the driver", "launch", 1, bytes,
         time_calls(api_, 1, false, calls,
                    [&](int, cudaStream_t stream) {
                      check(api_,
                            api_.MemcpyAsync(to.as<std::byte>(), from.as<std::byte>(), bytes, cudaMemcpyDeviceToDevice,
                                             stream),
                            "MemcpyAsync");
                    }),
         1, 2 * bytes);
    for (const unsigned blocks : sizes_.copy_blocks) {
      const Copy copy{from.as<std::byte>(), to.as<std::byte>(), bytes / 16};
      tell(fmt::format("copy by {} blocks", blocks), "graph", 1, bytes,
           time_calls(api_, 1, true, calls,
                      [&](int, cudaStream_t stream) {
                        launch(api_, kernels_.copy, blocks, simulated_ ? 32 : 512, copy, stream);
                      }),
           1, 2 * bytes);
    }
  }

  const Api& api_;
  const FloorKernels kernels_;
  const bool simulated_;
  const Sizes sizes_;
  DeviceMemory failed_;
};

}  // namespace

int main(int argc, char** argv) {
  bool simulated = false;
  CLI::App app{"Launches, hops, fences, copies and the least all_reduce on GPU 0, as rows of commas"};
  app.add_flag("--sim", simulated, "on the simulated device: whether it works, not how fast");
  if (const auto code = rondo::parse(app, "floors", argc, argv)) return *code;
  const Api* const api = find_gpu(simulated);
  if (api == nullptr) return kSkipped;
  try {
#ifdef RONDO_CUDA_TOOLKIT
    const FloorKernels kernels = simulated ? soft_floor_kernels() : cuda_floor_kernels();
#else
    const FloorKernels kernels = soft_floor_kernels();
#endif
    Floors(*api, kernels, simulated).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "floors: {}\n", error.what());
    return 1;
  }
  return 0;
}
