// SPDX-License-Identifier: Apache-2.0
// Windows themselves: what they may be, whose they are, and that nothing of them is left behind.
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "tests/comm/node/zero_copy_worlds.hpp"

using namespace rondo;
using namespace rondo::test;

namespace {

std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}
std::size_t maps_of_windows() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("rondo-node") != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("sizes that differ are a mismatch, and the communicator goes on") {
  check_all(Kind::shm, 3, {}, [](Communicator& comm) {
    expect(code_of(thrown_by([&] { comm.allocate<float>(comm.rank() == 2 ? 11 : 10); })) == ErrorCode::mismatch,
           "rank 2 asked for more");
    const auto window = comm.allocate<float>(10);
    expect(window.size() == 10 && window.data() != nullptr, "a window");
  });
}

TEST_CASE("a window beyond all memory is refused, not a shorter one given") {
  const Kind kind = GENERATE(Kind::shm, Kind::local);
  check_all(kind, 2, {}, [](Communicator& comm) {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    for (const std::size_t count : {kMost, kMost / sizeof(float) + 2, kMost / 1024}) {
      expect(code_of(thrown_by([&] { comm.allocate<float>(count); })) == ErrorCode::invalid_argument, "it is refused");
    }
    expect(comm.allocate<float>(10).size() == 10, "the communicator goes on");
  });
}

TEST_CASE("windows of nothing, of bytes, and of many megabytes are aligned and zeroed") {
  const Kind kind = GENERATE(Kind::shm, Kind::local);
  const std::size_t count = GENERATE(0u, 1u, 4097u, 33u << 20);
  check_all(kind, 2, {}, [&](Communicator& comm) {
    auto window = comm.allocate<std::uint8_t>(count);
    expect(window.size() == count && window.data() != nullptr, "a window");
    expect(reinterpret_cast<std::uintptr_t>(window.data()) % 64 == 0, "it is aligned");
    expect(std::all_of(window.span().begin(), window.span().end(), [](auto byte) { return byte == 0; }), "zeroes");
    std::fill(window.span().begin(), window.span().end(), std::uint8_t{1});
    comm.all_reduce(window.span(), ReduceOp::sum);
    expect(std::all_of(window.span().begin(), window.span().end(), [](auto byte) { return byte == 2; }), "twos");
  });
}

TEST_CASE("ranks that let go of a window early do not disturb those that still use it") {
  check_all(Kind::shm, 2, {}, [](Communicator& comm) {
    std::optional<Window<float>> first = comm.allocate<float>(kCount);
    const auto second = comm.allocate<float>(kCount);
    if (comm.rank() == 0) first.reset();
    const auto data = comm.rank() == 0 ? second.span() : first->span();
    for (int i = 0; i < 3; ++i) {
      std::fill(data.begin(), data.end(), 1.0F);
      comm.all_reduce(data, ReduceOp::sum);
      expect(went_direct(comm), "both lie in windows");
      expect(std::all_of(data.begin(), data.end(), [](float value) { return value == 2.0F; }), "the sum");
    }
  });
}

TEST_CASE("windows of split communicators, of several at once, leave no descriptor and no mapping behind") {
  std::size_t descriptors = 0, mappings = 0;
  check_all(Kind::shm, 4, {}, [&](Communicator& comm) {
    const auto count = [&](auto then) {
      comm.barrier();
      if (comm.rank() == 0) then();
      comm.barrier();
    };
    count([&] {
      descriptors = entries_of("/proc/self/fd");
      mappings = maps_of_windows();
    });
    for (int round = 0; round < 5; ++round) {
      std::vector<Window<float>> windows;
      for (int i = 0; i < 4; ++i) windows.push_back(comm.allocate<float>(kCount + as_size(i)));
      count([&] { expect(maps_of_windows() >= mappings + 4 * 4, "four ranks map four windows"); });
      windows.erase(windows.begin() + (comm.rank() + round) % 4);
      windows.erase(windows.begin());
    }
    const auto last = comm.allocate<float>(1);  // what others let go of is unmapped when a rank comes by
    const auto one_more = comm.allocate<float>(1);
    count([&] {
      expect(entries_of("/proc/self/fd") == descriptors, "descriptors are left");
      expect(maps_of_windows() == mappings + 2 * 4, "mappings are left");
    });
    Communicator half = comm.split(comm.rank() % 2, 0);
    const auto window = half.allocate<float>(kCount);
    std::fill(window.span().begin(), window.span().end(), 1.0F);
    half.all_reduce(window.span(), ReduceOp::sum);
    expect(went_direct(half) && window.span().back() == 2.0F, "the child's window");
    comm.all_reduce(window.span(), ReduceOp::sum);
    expect(!went_direct(comm) && window.span().back() == 8.0F, "the parent knows nothing of it");
  });
}
