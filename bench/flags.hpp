// SPDX-License-Identifier: Apache-2.0
// Command line of the *_perf programs: the letters and meanings of nccl-tests, where they mean something here.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include <rondo/communicator.hpp>

namespace rondo::bench {

// On a device, after every call: the host waits for it, and then, or not, for all ranks.
enum class Blocking { no, wait_and_meet, wait };

struct Flags {
  std::size_t min_bytes = std::size_t{32} << 20, max_bytes = std::size_t{32} << 20;
  std::size_t step_bytes = std::size_t{1} << 20;
  std::size_t step_factor = 0;  // above 1: sizes grow by this factor instead of step_bytes
  int iterations = 20;          // timed calls of a batch
  int warmups = 1;
  int aggregate = 1;  // calls of a group
  int batches = 11;   // at most; a batch gives one sample
  int checks = 1;
  int cycles = 1;  // through all sizes
  std::vector<DataType> dtypes{DataType::f32};
  std::vector<ReduceOp::Kind> ops{ReduceOp::sum};
  int root = 0;
  bool all_roots = false;
  int average = 3;    // of the ranks' times: 0 rank 0's, 1 mean, 2 shortest, 3 longest
  int timeout_s = 0;  // of one call; 0: the library's
  int threads = 1, ranks_per_thread = 1;
  bool windows = false;  // buffers from Communicator::allocate
  int replays = 0;       // on a device: a batch is captured into a graph that is launched so many times; 0: none
  Blocking blocking = Blocking::no;
  bool cpu_time = false;  // on a device: times are the host's, until its calls have returned
  int sets = 0;           // buffers used in turn; 0: as many as the caches of the device ask for
  Device device = Device::cpu();
  std::string algorithm, protocol;  // as RONDO_ALGORITHM and RONDO_PROTOCOL; empty: the library's choice
  std::string json;                 // file to write
  bool csv = false;
  std::vector<std::string> remarks;  // one sentence for each given flag that means nothing here

  bool simulated() const { return device.kind == Device::Kind::sim; }
  // "cpu", "cuda", or "simulated": what every result is labelled with.
  std::string_view device_label() const;
  int local_ranks() const { return threads * ranks_per_thread; }
  std::vector<std::size_t> sizes() const;
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The flags; or the exit status when the program is done (help: 0, printed).
// UsageError, one sentence, for anything that cannot be meant.
std::variant<Flags, int> parse_flags(const std::string& program, int argc, const char* const* argv);

// "8", "1K", "128M", "1G": powers of 1024.
std::size_t parse_bytes(const std::string& text);

// Names of nccl-tests ("float", "avg"), which the table prints; the library's own ("f32", "average") are read as well.
std::string_view table_name(DataType dtype);
std::string_view table_name(ReduceOp::Kind op);

}  // namespace rondo::bench
