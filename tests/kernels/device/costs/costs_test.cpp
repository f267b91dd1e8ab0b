// SPDX-License-Identifier: Apache-2.0
// What calls cost on a GPU, as far as it can be counted without one, as a text file that lies beside this test: see the
// page there.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/device/costs/counted_kernels.hpp"
#include "tests/kernels/device/costs/ledger.hpp"
#include "tests/kernels/device/push_case.hpp"
#include "tests/kernels/device/window_case.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using kernels::Pattern;
namespace device = rondo::kernels::device;
using test::Chain;
using test::RankCosts;

namespace {

constexpr std::size_t K = 1 << 10;
constexpr int kThreads = 64;
constexpr std::uint64_t kStart = 1000;  // of links and epochs: at 0 LL refreshes its slots

enum class Kernel { window, simple, ll, ll128, push };
constexpr const char* kNames[] = {"window", "simple", "ll", "ll128", "push"};

struct Row {
  Kernel kernel;
  Pattern pattern;
  std::string_view algorithm;
  std::size_t most = 256 * K;  // bytes; more no tuner would give it
  bool windows = true;         // of a window row: whether the buffers lie in windows
  DataType dtype = DataType::f32;
};
constexpr bool kNoWindows = false;

// What the push kernels run, all rows of windows, and of each protocol what the devices' tuner takes somewhere or its
// kin.
constexpr Row kRows[] = {
    {Kernel::push, Pattern::all_reduce, "one_shot", 4 * K},
    {Kernel::push, Pattern::reduce_scatter, "direct", 4 * K},
    {Kernel::push, Pattern::all_gather, "direct", 4 * K},
    {Kernel::push, Pattern::broadcast, "direct", 4 * K},
    {Kernel::push, Pattern::barrier, "direct", 4 * K},
    {Kernel::window, Pattern::all_reduce, "one_shot"},
    {Kernel::window, Pattern::all_reduce, "two_shot"},
    {Kernel::window, Pattern::reduce, "direct"},
    {Kernel::window, Pattern::broadcast, "direct"},
    {Kernel::window, Pattern::all_gather, "direct"},
    {Kernel::window, Pattern::reduce_scatter, "direct"},
    {Kernel::window, Pattern::all_to_all, "direct"},
    {Kernel::window, Pattern::gather, "direct"},
    {Kernel::window, Pattern::scatter, "direct"},
    {Kernel::window, Pattern::barrier, "direct"},
    {Kernel::window, Pattern::all_reduce, "one_shot", 256 * K, kNoWindows},
    {Kernel::window, Pattern::all_reduce, "two_shot", 256 * K, kNoWindows},
    {Kernel::window, Pattern::all_gather, "direct", 256 * K, kNoWindows},
    {Kernel::window, Pattern::all_reduce, "one_shot", 256 * K, true, DataType::i32},
    {Kernel::window, Pattern::all_reduce, "two_shot", 256 * K, true, DataType::i32},
    {Kernel::window, Pattern::all_reduce, "one_shot", 256 * K, kNoWindows, DataType::i32},
    {Kernel::window, Pattern::all_reduce, "two_shot", 256 * K, kNoWindows, DataType::i32},
    {Kernel::simple, Pattern::all_reduce, "ring"},
    {Kernel::simple, Pattern::all_reduce, "two_shot"},
    {Kernel::simple, Pattern::reduce, "ring"},
    {Kernel::simple, Pattern::reduce, "direct"},
    {Kernel::simple, Pattern::broadcast, "ring"},
    {Kernel::simple, Pattern::all_gather, "ring"},
    {Kernel::simple, Pattern::reduce_scatter, "ring"},
    {Kernel::simple, Pattern::reduce_scatter, "direct"},
    {Kernel::simple, Pattern::all_to_all, "pairwise"},
    {Kernel::simple, Pattern::gather, "direct"},
    {Kernel::simple, Pattern::scatter, "direct"},
    {Kernel::simple, Pattern::barrier, "dissemination"},
    {Kernel::ll, Pattern::all_reduce, "one_shot", 4 * K},
    {Kernel::ll, Pattern::all_reduce, "ring"},
    {Kernel::ll, Pattern::reduce, "ring"},
    {Kernel::ll, Pattern::reduce, "direct", 4 * K},
    {Kernel::ll, Pattern::broadcast, "tree"},
    {Kernel::ll, Pattern::all_gather, "pairwise", 4 * K},
    {Kernel::ll, Pattern::reduce_scatter, "direct", 4 * K},
    {Kernel::ll, Pattern::barrier, "dissemination"},
    {Kernel::ll128, Pattern::all_reduce, "one_shot", 4 * K},
    {Kernel::ll128, Pattern::all_reduce, "ring"},
    {Kernel::ll128, Pattern::broadcast, "tree"},
};

struct Costs {
  Chain chain;
  RankCosts most;  // of any rank, each
};

// The devices' defaults: comm/device/setup/settings.cpp.
device::FifoShape shape_of(Kernel kernel) {
  return kernel == Kernel::simple ? device::FifoShape{8, 32 << 10} : device::FifoShape{4, 8 << 10};
}

test::WindowCase case_of(const Row& row, int ranks, std::size_t bytes) {
  test::WindowCase c;
  c.call.dtype = row.dtype;
  c.call.ranks = ranks;
  c.call.count = bytes / 4;
  c.call.threads = kThreads;
  c.call.fifo = shape_of(row.kernel);
  if (row.kernel == Kernel::push) {
    c.call = test::sensible({.pattern = row.pattern, .call = c.call}).call;
    return c;
  }
  if (row.kernel != Kernel::window) {
    c.call.protocol = static_cast<device::Protocol>(static_cast<int>(row.kernel) - 1);
    c.call.row = kernels::find_algorithm(row.pattern, row.algorithm);
    REQUIRE(c.call.makes_sense());
    return c;
  }
  c.row = kernels::find_window_algorithm(row.pattern, row.algorithm);
  REQUIRE(c.row != kernels::kNoAlgorithm);
  c.windows = row.windows ? test::Windows::all : test::Windows::none;
  c.staging_bytes = 8 << 20;
  return test::sensible(c);
}

class Count {
 public:
  Count(const Row& row, int ranks, std::size_t bytes)
      : row_(row),
        case_(case_of(row, ranks, bytes)),
        buffers_(case_.call),
        world_({.ranks = ranks,
                .threads = kThreads,
                .fifo = case_.call.fifo,
                .staging_bytes = row.kernel == Kernel::window ? case_.staging_bytes : 0,
                .push = row.kernel == Kernel::push}) {
    world_.start_steps(kStart);
    for (int rank = 0; rank < ranks; ++rank) world_.header(rank).block_epoch[0] = kStart;
    for (int rank = 0; rank < ranks; ++rank) world_.header(rank).opening_epoch[0] = kStart;
    for (int rank = 0; rank < ranks; ++rank) world_.header(rank).push_epoch[0] = kStart;
  }

  // Of the third call: the second has the first's credits.
  Costs run() {
    launch(1);
    launch(2);
    std::vector<std::pair<const std::byte*, const std::byte*>> regions;
    for (int rank = 0; rank < case_.call.ranks; ++rank) {
      regions.emplace_back(world_.region(rank), world_.region(rank) + world_.layout().bytes());
    }
    const test::Ledger ledger(std::move(regions), 1, kThreads);
    launch(3);
    Costs costs{.chain = ledger.chain(), .most = {}};
    for (int rank = 0; rank < case_.call.ranks; ++rank) add(costs.most, ledger.of(rank));
    return costs;
  }

 private:
  void launch(std::uint32_t seed) {
    buffers_.fill(seed);
    const cuda::Kernels kernels = test::counted_kernels();
    if (row_.kernel == Kernel::push) {
      const test::PushCase what{.pattern = row_.pattern, .call = case_.call};
      auto launches = test::push_launches(world_);
      test::add_operation(what, buffers_, launches);
      return run(kernels.push[device::push_kernel_for(what.pattern, what.call.dtype, what.call.op)], launches);
    }
    std::vector<device::Launch> launches;
    for (int rank = 0; rank < case_.call.ranks; ++rank) launches.push_back(world_.launch(rank));
    const void* kernel = kernels.window;
    if (row_.kernel == Kernel::window) {
      test::add_operation(case_, buffers_, world_, launches);
      if (case_.is_special()) {
        auto sums = test::window_sum_launches(world_, launches);
        return run(kernels.window_sum[static_cast<int>(device::WindowSum::f32)], sums);
      }
    } else {
      kernel = kernels.fifo[static_cast<int>(case_.call.protocol)];
      buffers_.add_to(launches);
    }
    run(kernel, launches);
  }

  template <class L>
  void run(const void* kernel, std::vector<L>& launches) {
    simt::Options options;  // one schedule, and a clock that counts its steps
    options.explore = true;
    REQUIRE(world_.run(kernel, launches, options) == "");
    REQUIRE(buffers_.check() == "");
  }

  static void add(RankCosts& most, const RankCosts& costs) {
    most.barriers = std::max(most.barriers, costs.barriers);
    most.fences = std::max(most.fences, costs.fences);
    most.waits = std::max(most.waits, costs.waits);
    most.first_barriers = std::max(most.first_barriers, costs.first_barriers);
    most.last_barriers = std::max(most.last_barriers, costs.last_barriers);
  }

  Row row_;
  test::WindowCase case_;
  test::FifoBuffers buffers_;
  test::DeviceWorld world_;
};

std::string text_of(std::size_t bytes) { return bytes < K ? fmt::format("{}", bytes) : fmt::format("{}K", bytes / K); }

std::string figures(const Costs& costs) {
  const RankCosts& most = costs.most;
  return fmt::format("{:>9} {:>8} {:>7} {:>9} {:>9} {:>10} {:>7} {:>6} {:>7}\n", most.barriers, costs.chain.fences,
                     most.fences, costs.chain.acquires, costs.chain.looks, costs.chain.crossings, most.first_barriers,
                     most.last_barriers, most.waits);
}

// Sizes in a row that cost the same are one line.
std::string lines_of(const Row& row, int ranks) {
  std::string text, latest, sizes;
  const auto tell = [&] {
    if (!latest.empty()) text += fmt::format("{:>5} {:>12} {}", ranks, sizes, latest);
  };
  for (const std::size_t bytes : {std::size_t{8}, 4 * K, 256 * K}) {
    const std::size_t size = row.pattern == Pattern::barrier ? 0 : bytes;
    if (bytes > row.most || (size == 0 && bytes != 8)) continue;
    const std::string now = figures(Count(row, ranks, size).run());
    if (now != latest) {
      tell();
      sizes = text_of(size);
    } else {
      sizes = fmt::format("{} .. {}", sizes.substr(0, sizes.find(' ')), text_of(size));
    }
    latest = now;
  }
  tell();
  return text;
}

std::string text_of(const Row& row) {
  std::string text;
  for (const int ranks : {1, 2, 4, 8}) text += lines_of(row, ranks);
  return text;
}

// Rows that cost the same are told together.
std::string whole_text() {
  std::vector<std::pair<std::string, std::string>> told;  // the lines, and whose they are
  for (const Row& row : kRows) {
    const std::string lines = text_of(row);
    const std::string name =
        fmt::format("{} {}{}{}", kernels::row_of(row.pattern).name, row.algorithm,
                    row.dtype == DataType::f32 ? "" : " of i32", row.windows ? "" : " without windows");
    const std::string kernel = fmt::format("== {} ", kNames[static_cast<int>(row.kernel)]);
    const auto same = std::ranges::find_if(
        told, [&](const auto& other) { return other.first == lines && other.second.starts_with(kernel); });
    if (same == told.end()) {
      told.emplace_back(lines, kernel + name);
    } else {
      same->second += ", " + name;
    }
  }
  std::string text =
      "# Costs of kernels, written by costs_test: README.md beside this file tells how to read it.\n"
      "#                   block    fences           acquires     looks  crossings  barriers before\n"
      "# ranks  bytes   barriers in a row     all  in a row  in a row   in a row   first   last   waits\n";
  for (const auto& [lines, names] : told) text += fmt::format("\n{}\n{}", names, lines);
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// The lines that differ, beneath the heads that they stand under.
std::string differences(const std::string& written, const std::string& counted) {
  const auto was = split(written), is = split(counted);
  std::string head, found;
  for (std::size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
    const std::string a = i < was.size() ? was[i] : "(the end)", b = i < is.size() ? is[i] : "(the end)";
    if (b.starts_with("==")) head = b;
    if (a != b) found += fmt::format("line {}, {}:\n  written {}\n  counted {}\n", i + 1, head, a, b);
    if (a.starts_with("==") != b.starts_with("==")) return found;
  }
  return found;
}

}  // namespace

TEST_CASE("calls cost what is written down") {
  const std::string counted = whole_text();
  if (std::getenv("RONDO_WRITE_COSTS") != nullptr) {
    std::ofstream out(RONDO_COSTS_FILE);
    out << counted;
    REQUIRE(out.flush());
  }
  std::ifstream in(RONDO_COSTS_FILE);
  const std::string written{std::istreambuf_iterator<char>(in), {}};
  INFO(RONDO_COSTS_FILE << ": if it is meant, RONDO_WRITE_COSTS=1 writes it anew");
  CHECK(differences(written, counted) == "");
}

// What the file says today may be written anew; this may not.
TEST_CASE("eight bytes cross once, with no fence and at most two block barriers") {
  for (const int ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    const Costs costs = Count({Kernel::push, Pattern::all_reduce, "one_shot"}, ranks, 8).run();
    CHECK(costs.chain.crossings == 1);
    CHECK(costs.most.fences == 0);
    CHECK(costs.most.barriers <= 2);
  }
}

TEST_CASE("who sends to all peers sends to all of them at once") {
  const auto sends_to_all = [](std::string_view name) {
    return name == "one_shot" || name == "two_shot" || name == "direct" || name == "pairwise";
  };
  int rows = 0;
  for (const Row& row : kRows) {
    if (!sends_to_all(row.algorithm)) continue;
    ++rows;
    for (const int ranks : {4, 8}) {
      CAPTURE(static_cast<int>(row.kernel), static_cast<int>(row.pattern), row.algorithm, ranks);
      const RankCosts most = Count(row, ranks, row.pattern == Pattern::barrier ? 0 : 4 * K).run().most;
      CHECK(most.first_barriers == most.last_barriers);
    }
  }
  CHECK(rows > 20);
}
