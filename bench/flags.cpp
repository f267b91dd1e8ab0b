// SPDX-License-Identifier: Apache-2.0
#include "bench/flags.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>

namespace rondo::bench {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kDtypeNames = {
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "bfloat16", "float", "double", "f8e4m3", "f8e5m2"};
constexpr std::array<std::string_view, kReduceOpCount> kOpNames = {"sum",  "prod", "min",  "max",   "avg",
                                                                   "band", "bor",  "bxor", "mulsum"};

template <class T>
T parse_number(const std::string& text, const std::string& flag) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError(fmt::format("{} {}: that is not a number", flag, text));
  }
  return value;
}

// The values that `text` names, all of them for "all".
template <class Value>
std::vector<Value> parse_names(const std::string& text, int count, const char* flag) {
  std::vector<Value> chosen;
  std::string known = "all";
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Value>(i);
    if (text == "all" || text == table_name(value) || text == name_of(value)) chosen.push_back(value);
    known += fmt::format(", {}", table_name(value));
  }
  if (chosen.empty()) throw UsageError(fmt::format("{} {}: choose one of {}", flag, text, known));
  return chosen;
}

void remark(Flags& flags, bool given, const char* sentence) {
  if (given) flags.remarks.emplace_back(sentence);
}

struct Words {  // flags that are more than a number
  std::string min = "32M", max = "32M", step = "1M", op = "sum", dtype = "float", root = "0";
  std::string device = "cpu";
  int blocking = 0, windows = 0, null_stream = 0, parallel = 0, cpu_time = 0;
};

// What nccl-tests take beside these.
struct Refused {
  const char* flag;
  const char* why;
};
constexpr Refused kRefused[] = {
    {"-D,--device_implementation", "the library chooses the kernel, or --algorithm and --protocol do"},
    {"-I,--per_iter_timing", "each batch is a sample; --json has all of them"},
    {"-K,--per_iter_skip", "no sample is left out; see -w"},
    {"-M,--memory", "RONDO_LOG=info says what a communicator takes"},
    {"-S,--report_timestamps", "--json has the time of the run"},
    {"-V,--device_cta_count", "RONDO_DEVICE_CHANNELS bounds the blocks of a kernel"},
    {"-u,--unalign", "buffers are aligned"},
    {"-x,--cta_policy", "the library chooses the number of blocks"},
};

void refuse_others(CLI::App& app) {
  for (const Refused& other : kRefused) {
    const auto refuse = [flag = std::string(other.flag).substr(0, 2), why = other.why](const std::string&) {
      throw UsageError(fmt::format("{} is not served: {}", flag, why));
    };
    app.add_option_function<std::string>(other.flag, refuse)->group("");  // not listed
  }
}

void add_options(CLI::App& app, Flags& f, Words& w) {
  const auto at_least = [](int low) { return CLI::Range(low, std::numeric_limits<int>::max()); };
  app.add_option("-t,--nthreads", f.threads, "ranks as threads of this process: -t times -g")->check(at_least(1));
  app.add_option("-g,--ngpus", f.ranks_per_thread, "see -t; without either, ranks come from the environment")
      ->check(at_least(1));
  app.add_option("-b,--minbytes", w.min, "smallest size, with K, M or G; 32M");
  app.add_option("-e,--maxbytes", w.max, "largest size; 32M, or -b when that is larger");
  app.add_option("-i,--stepbytes", w.step, "step between sizes; 1M");
  app.add_option("-f,--stepfactor", f.step_factor, "factor between sizes, instead of -i; 1 is none")
      ->check(at_least(1));
  app.add_option("-n,--iters", f.iterations, "calls in a timed batch; 20")->check(at_least(1));
  app.add_option("-w,--warmup_iters", f.warmups, "calls before the first batch; 1")->check(at_least(0));
  app.add_option("-N,--run_cycles", f.cycles, "times that all sizes are run, one after the other; 1")
      ->check(at_least(0));
  app.add_option("-m,--agg_iters", f.aggregate, "calls started together as a group; 1")->check(at_least(1));
  app.add_option("--batches", f.batches, "batches at most, 3 at least for sizes that take long; 11")
      ->check(at_least(1));
  app.add_option("-c,--check", f.checks, "calls whose results are checked; 1")->check(at_least(0));
  app.add_option("-o,--op", w.op, "sum, prod, min, max, avg, mulsum, band, bor, bxor or all");
  app.add_option("-d,--datatype", w.dtype, "float, half, int32, ... or all");
  app.add_option("-r,--root", w.root, "root of a rooted collective, or all; 0");
  app.add_option("-a,--average", f.average, "time of: 0 rank 0, 1 the ranks' mean, 2 the fastest, 3 the slowest; 3")
      ->check(CLI::Range(0, 3));
  app.add_option("-C,--report_cputime", w.cpu_time, "on a device: 1 the time that the host's calls take; 0")
      ->check(CLI::Range(0, 1));
  app.add_option("-T,--timeout", f.timeout_s, "seconds that a call may take; 600")->check(at_least(0));
  app.add_option("-R,--local_register", w.windows, "1, 2: buffers from Communicator::allocate; 0")
      ->check(CLI::Range(0, 2));
  app.add_option("-G,--cudagraph", f.replays, "on a device: a batch as a graph, launched so many times; 0")
      ->check(at_least(0));
  app.add_option("-z,--blocking", w.blocking,
                 "on a device, after every call: 1 the host waits, and for all ranks, 2 it waits; 0")
      ->check(CLI::Range(0, 3));
  app.add_option("-y,--stream_null", w.null_stream, "0; 1, the null stream, is refused on a device")
      ->check(CLI::Range(0, 1));
  app.add_option("-p,--parallel_init", w.parallel, "0 or 1: ranks are made at the same time in any case")
      ->check(CLI::Range(0, 1));
  app.add_option("--device", w.device, "where the buffers lie: cpu, cuda, or sim, the GPU code run on the CPU; cpu")
      ->check(CLI::IsMember({"cpu", "cuda", "sim"}));
  app.add_option("--sets", f.sets, "buffers used in turn; by the size of a device's cache")->check(CLI::Range(1, 64));
  app.add_option("--algorithm", f.algorithm, "ring, two_shot, ...; sets RONDO_ALGORITHM");
  app.add_option("--protocol", f.protocol, "on a device: simple, ll, ll128, window, push or host; sets RONDO_PROTOCOL")
      ->check(CLI::IsMember({"simple", "ll", "ll128", "window", "push", "host"}));
  app.add_option("-J,--json,--output_file", f.json, "file to write with everything that comparing two runs needs");
  app.add_flag("--csv", f.csv, "rows with commas instead of the table");
}

void check_ranks(const Flags& f) {
  constexpr std::int64_t kMost = 4096;  // threads of a process
  const std::int64_t ranks = std::int64_t{f.threads} * f.ranks_per_thread;
  if (ranks > kMost)
    throw UsageError(
        fmt::format("-t {} -g {}: {} ranks are more than {}", f.threads, f.ranks_per_thread, ranks, kMost));
}

void check_number_of_sizes(const Flags& f, const Words& w) {
  constexpr std::size_t kMost = 1'000'000;
  if (f.step_factor > 1 || (f.max_bytes - f.min_bytes) / f.step_bytes < kMost) return;
  throw UsageError(fmt::format("-i {} makes {} sizes from {} to {} bytes, which is more than {}; choose a larger step",
                               w.step, (f.max_bytes - f.min_bytes) / f.step_bytes + 1, f.min_bytes, f.max_bytes,
                               kMost));
}

void finish(Flags& f, const Words& w, const CLI::App& app) {
  f.min_bytes = parse_bytes(w.min);
  f.max_bytes = parse_bytes(w.max);
  if (app.count("--maxbytes") == 0 && f.min_bytes > f.max_bytes) f.max_bytes = f.min_bytes;
  f.step_bytes = parse_bytes(w.step);
  if (f.min_bytes > f.max_bytes) throw UsageError(fmt::format("-b {} is more than -e {}", w.min, w.max));
  if (f.step_factor > 1 && app.count("--stepbytes") != 0) throw UsageError("-i and -f: choose one of them");
  if (f.step_factor > 1 && f.min_bytes == 0) throw UsageError("-b 0 never grows by a factor; use -i");
  if (f.cycles == 0) throw UsageError("-N 0: cycles without an end are not run; say how many");
  if (f.step_factor <= 1 && f.step_bytes == 0) throw UsageError("-i 0 never reaches -e");
  f.ops = parse_names<ReduceOp::Kind>(w.op, kReduceOpCount, "-o");
  f.dtypes = parse_names<DataType>(w.dtype, kDataTypeCount, "-d");
  f.all_roots = w.root == "all";
  if (!f.all_roots) f.root = parse_number<int>(w.root, "-r");
  f.windows = w.windows != 0;
  if (w.blocking == 3) throw UsageError("-z 3: no wait between batches is timed here; choose 0, 1 or 2");
  f.blocking = static_cast<Blocking>(w.blocking);
  f.cpu_time = w.cpu_time != 0;
  check_ranks(f);
  check_number_of_sizes(f, w);
  remark(f, w.parallel != 0, "-p has no effect: ranks are made at the same time in any case");
  if (w.device != "cpu") {
    if (w.null_stream != 0) {
      throw UsageError("-y 1: not on the null stream, which waits for other ranks' kernels, as these wait for ours");
    }
    f.device = w.device == "sim" ? Device::sim() : Device::cuda();
    if (f.replays > 0 && f.blocking != Blocking::no)
      throw UsageError("-G and -z: the host cannot wait inside a graph; choose one");
    return;
  }
  remark(f, f.replays != 0, "-G has no effect: there are no CUDA graphs on a CPU");
  remark(f, w.null_stream != 0, "-y has no effect: there are no streams on a CPU");
  remark(f, f.cpu_time, "-C has no effect: on a CPU a call takes the host's time alone");
  f.cpu_time = false;
  remark(f, f.blocking != Blocking::no, "-z has no effect: on a CPU every call blocks until its result is there");
  remark(f, !f.protocol.empty(), "--protocol has no effect: links between CPUs have one");
}

}  // namespace

std::string_view Flags::device_label() const {
  constexpr std::array<std::string_view, 3> kLabels = {"cpu", "cuda", "simulated"};
  return kLabels.at(static_cast<std::size_t>(device.kind));
}

std::string_view table_name(DataType dtype) { return kDtypeNames.at(static_cast<std::size_t>(dtype)); }
std::string_view table_name(ReduceOp::Kind op) { return kOpNames.at(static_cast<std::size_t>(op)); }

std::size_t parse_bytes(const std::string& text) {
  std::string digits = text;
  int shift = 0;
  if (!digits.empty()) {
    switch (std::toupper(static_cast<unsigned char>(digits.back()))) {
      case 'K':
        shift = 10;
        break;
      case 'M':
        shift = 20;
        break;
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
  }
  if (shift != 0) digits.pop_back();
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value > (std::size_t{1} << 50) >> shift) {
    throw UsageError(fmt::format("'{}' is not a size; write bytes as 8, 1K, 128M or 1G", text));
  }
  return value << shift;
}

std::vector<std::size_t> Flags::sizes() const {
  std::vector<std::size_t> all;
  for (std::size_t bytes = min_bytes;;) {
    all.push_back(bytes);
    const bool is_last = step_factor > 1 ? bytes > max_bytes / step_factor : max_bytes - bytes < step_bytes;
    if (is_last) return all;
    bytes = step_factor > 1 ? bytes * step_factor : bytes + step_bytes;
  }
}

std::variant<Flags, int> parse_flags(const std::string& program, int argc, const char* const* argv) {
  Flags flags;
  Words words;
  CLI::App app(fmt::format("{}: time and bandwidth of a collective, its results checked.", program), program);
  add_options(app, flags, words);
  refuse_others(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  finish(flags, words, app);
  return flags;
}

}  // namespace rondo::bench
