// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/measure.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "comm/base/fd.hpp"
#include "comm/base/system_error.hpp"
#include "comm/setup/create.hpp"

namespace rondo::tune {
namespace {

constexpr int kBatches = 7;
constexpr double kBatchSeconds = 2e-3;
constexpr double kMostCalls = 500;

// One call of a cell, and the memory it works on.
class Case {
 public:
  Case(Communicator& communicator, const Cell& cell)
      : communicator_(communicator),
        ordinary_(cell.windows ? 0 : 2 * elements(cell)),
        window_(cell.windows ? communicator.allocate<float>(2 * elements(cell)) : Window<float>()) {
    const auto world = static_cast<std::size_t>(communicator.world_size());
    const std::span<float> all = cell.windows ? window_.span() : std::span<float>(ordinary_);
    std::fill(all.begin(), all.end(), 1.0F);
    const CollectiveRow& row = row_of(cell.collective);
    const bool blocks = row.send == Extent::world || row.recv == Extent::world;
    call_ = {.collective = cell.collective,
             .send = all.data(),
             .recv = all.data() + elements(cell),
             .count = blocks ? elements(cell) / world : elements(cell),
             .dtype = DataType::f32,
             .root = row.rooted ? 0 : -1};
  }
  void run() { communicator_.submit(call_); }

 private:
  static std::size_t elements(const Cell& cell) { return std::max<std::size_t>(cell.bytes / sizeof(float), 1); }
  Communicator& communicator_;
  std::vector<float> ordinary_;
  Window<float> window_;
  Call call_;
};

double slowest(Communicator& communicator, double seconds) {
  communicator.all_reduce(std::span(&seconds, 1), ReduceOp::max);
  return seconds;
}

double time_batch(Communicator& communicator, Case& what, int calls) {
  communicator.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) what.run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return slowest(communicator, took.count() / calls);
}

double time_cell(Communicator& communicator, const Cell& cell) {
  Case what(communicator, cell);
  const double first = std::min(time_batch(communicator, what, 1), time_batch(communicator, what, 1));
  const int calls = static_cast<int>(std::clamp(kBatchSeconds / first, 1.0, kMostCalls));
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) times.push_back(time_batch(communicator, what, calls));
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

void set_variable(const char* name, const std::string& value) {
  if (::setenv(name, value.c_str(), 1) != 0) throw_errno(fmt::format("cannot set {}", name));
}

// A file in memory that RONDO_TUNING names as long as this lives.
class TuningFile {
 public:
  explicit TuningFile(const std::string& text) : file_(::memfd_create("rondo-tune", MFD_CLOEXEC)) {
    if (!file_) throw_errno("cannot make a file in memory");
    if (::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw_errno("cannot write to a file in memory");
    }
    set_variable(kName, fmt::format("/proc/self/fd/{}", file_.get()));
  }
  ~TuningFile() { ::unsetenv(kName); }
  TuningFile(const TuningFile&) = delete;
  TuningFile& operator=(const TuningFile&) = delete;

 private:
  static constexpr const char* kName = "RONDO_TUNING";
  Fd file_;
};

}  // namespace

Communicator with_tuning(Communicator& parent, const std::string& text, bool over_sockets) {
  const TuningFile file(text);
  if (over_sockets) set_variable("RONDO_TRANSPORT", "tcp");
  Communicator made = parent.split(0, parent.rank());
  if (over_sockets) ::unsetenv("RONDO_TRANSPORT");
  return made;
}

Communicator with_tuning(Communicator& parent, const std::string& text, Device device, bool as_threads) {
  std::optional<TuningFile> file;
  if (!as_threads || parent.rank() == 0) file.emplace(text);
  parent.barrier();  // threads read the variable that one of them has set
  Communicator made = comm::move_to(parent, device);
  parent.barrier();
  return made;
}

std::vector<double> measure(Communicator& communicator, std::span<const Cell> cells) {
  std::vector<double> times;
  for (const Cell& cell : cells) times.push_back(time_cell(communicator, cell));
  return times;
}

}  // namespace rondo::tune
