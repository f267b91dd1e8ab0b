// SPDX-License-Identifier: Apache-2.0
#include "bench/flags.hpp"

#include "tests/support/catch.hpp"

namespace {

using rondo::bench::Blocking;
using rondo::bench::Flags;
using rondo::bench::UsageError;

Flags parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "x_perf");
  return std::get<Flags>(rondo::bench::parse_flags("x_perf", static_cast<int>(arguments.size()), arguments.data()));
}

std::string error_of(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("sizes have suffixes of 1024") {
  CHECK(rondo::bench::parse_bytes("8") == 8);
  CHECK(rondo::bench::parse_bytes("1K") == 1024);
  CHECK(rondo::bench::parse_bytes("128m") == 128U << 20);
  CHECK(rondo::bench::parse_bytes("1G") == 1U << 30);
  for (const char* wrong : {"", "K", "1X", "-1", "1.5M", "8 ", "99999999999G", "18446744073709551616"}) {
    CHECK_THROWS_AS(rondo::bench::parse_bytes(wrong), UsageError);
  }
}

TEST_CASE("sizes grow by a factor or by steps") {
  CHECK(parse({"-b", "8", "-e", "128", "-f", "2"}).sizes() == std::vector<std::size_t>{8, 16, 32, 64, 128});
  CHECK(parse({"-b", "1K", "-e", "3K", "-i", "1K"}).sizes() == std::vector<std::size_t>{1024, 2048, 3072});
  CHECK(parse({}).sizes() == std::vector<std::size_t>{32U << 20});
  CHECK(parse({"-b", "64M"}).sizes() == std::vector<std::size_t>{64U << 20});
}

TEST_CASE("operators and types are read by both their names, and as all") {
  CHECK(parse({"-d", "bfloat16"}).dtypes == std::vector{rondo::DataType::bf16});
  CHECK(parse({"-d", "bf16"}).dtypes == std::vector{rondo::DataType::bf16});
  CHECK(parse({"-d", "all"}).dtypes.size() == rondo::kDataTypeCount);
  CHECK(parse({"-o", "avg"}).ops == std::vector{rondo::ReduceOp::average});
  CHECK(parse({"-o", "average"}).ops == std::vector{rondo::ReduceOp::average});
  CHECK(parse({"-o", "all"}).ops.size() == rondo::kReduceOpCount);
  CHECK(parse({"-r", "all"}).all_roots);
  CHECK(parse({"-r", "3"}).root == 3);
}

TEST_CASE("every name of a type and an operator in the table reads back as itself") {
  for (int i = 0; i < rondo::kDataTypeCount; ++i) {
    const auto dtype = static_cast<rondo::DataType>(i);
    CHECK(parse({"-d", std::string(rondo::bench::table_name(dtype)).c_str()}).dtypes == std::vector{dtype});
  }
  for (int i = 0; i < rondo::kReduceOpCount; ++i) {
    const auto op = static_cast<rondo::ReduceOp::Kind>(i);
    CHECK(parse({"-o", std::string(rondo::bench::table_name(op)).c_str()}).ops == std::vector{op});
  }
}

TEST_CASE("flags for devices are told to have no effect on a CPU, and have one on a device") {
  CHECK(parse({"-G", "0", "-z", "0"}).remarks.empty());
  CHECK(parse({"-G", "2", "-z", "1", "--protocol", "ll"}).remarks.size() == 3);
  for (const char* device : {"sim", "cuda"}) {
    const Flags flags = parse({"--device", device, "-G", "2", "--protocol", "window", "--algorithm", "ring"});
    CHECK(flags.remarks.empty());
    CHECK(flags.replays == 2);
    CHECK(flags.protocol == "window");
    CHECK(flags.algorithm == "ring");
    CHECK(parse({"--device", device}).blocking == Blocking::no);
    CHECK(parse({"--device", device, "-z", "1"}).blocking == Blocking::wait_and_meet);
    CHECK(parse({"--device", device, "-z", "2"}).blocking == Blocking::wait);
  }
}

TEST_CASE("sizes end where they should, also where the next one is beyond any number") {
  using Sizes = std::vector<std::size_t>;
  const std::size_t most = std::size_t{1} << 50;
  CHECK(parse({"-b", "1048576G", "-e", "1048576G", "-f", "65536"}).sizes() == Sizes{most});
  CHECK(parse({"-b", "1", "-e", "1048576G", "-f", "2147483647"}).sizes() == Sizes{1, 2147483647});
  CHECK(parse({"-b", "1", "-e", "1048576G", "-f", "33554432"}).sizes() == Sizes{1, std::size_t{1} << 25, most});
  CHECK(parse({"-b", "8", "-e", "1048576G", "-i", "1048575G"}).sizes() == Sizes{8, 8 + most - (std::size_t{1} << 30)});
  CHECK(parse({"-b", "0", "-e", "10", "-i", "5"}).sizes() == Sizes{0, 5, 10});
  CHECK(parse({"-b", "8", "-e", "100", "-f", "3"}).sizes() == Sizes{8, 24, 72});
}

TEST_CASE("more of nccl-tests' flags: served, or said to have no effect") {
  const Flags cpu = parse({"-p", "1", "-y", "1", "-C", "1", "-N", "3"});
  CHECK(cpu.cycles == 3);
  CHECK_FALSE(cpu.cpu_time);
  CHECK(cpu.remarks.size() == 3);
  const Flags sim = parse({"--device", "sim", "-p", "1", "-y", "0", "-C", "1"});
  CHECK(sim.cpu_time);
  CHECK(sim.remarks.size() == 1);
  CHECK(parse({"-p", "0", "-y", "0", "-C", "0"}).remarks.empty());
  CHECK(parse({"--output_file", "out.json"}).json == "out.json");
  CHECK(parse({"-d", "f8e5m2"}).dtypes == std::vector{rondo::DataType::f8e5m2});
  CHECK(rondo::bench::table_name(rondo::DataType::f8e4m3) == "f8e4m3");
  CHECK(parse({"-b", "1M", "-e", "3M", "-f", "1"}).sizes().size() == 3);
}

TEST_CASE("results of a simulated device bear a label of their own") {
  CHECK(parse({}).device_label() == "cpu");
  CHECK(parse({"--device", "cuda"}).device_label() == "cuda");
  CHECK(parse({"--device", "sim"}).device_label() == "simulated");
}

TEST_CASE("wrong flags get one sentence that names them") {
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{"--frobnicate"}, "--frobnicate"},
      {{"-n"}, "--iters"},
      {{"-n", "x"}, "x"},
      {{"-n", "0"}, "--iters"},
      {{"-a", "4"}, "--average"},
      {{"-b", "1M", "-e", "1K"}, "-b 1M is more than -e 1K"},
      {{"-b", "12X"}, "'12X' is not a size"},
      {{"-f", "0"}, "--stepfactor"},
      {{"-f", "2", "-i", "8"}, "-i and -f"},
      {{"-b", "0", "-f", "2"}, "-b 0"},
      {{"-i", "0"}, "-i 0"},
      {{"-d", "complex"}, "-d complex: choose one of all, int8"},
      {{"-o", "xor"}, "-o xor: choose one of all, sum"},
      {{"-r", "first"}, "-r first"},
      {{"--device", "tpu"}, "--device"},
      {{"--device", "sim", "-G", "1", "-z", "1"}, "-G and -z"},
      {{"--protocol", "ll256"}, "--protocol"},
      {{"--sets", "0"}, "--sets"},
      {{"-N", "0"}, "-N 0"},
      {{"-N", "-1"}, "--run_cycles"},
      {{"-z", "3"}, "-z 3"},
      {{"-z", "4"}, "--blocking"},
      {{"-D", "1"}, "-D is not served: the library chooses the kernel"},
      {{"-I", "1"}, "-I is not served: each batch is a sample"},
      {{"--per_iter_skip", "1"}, "-K is not served"},
      {{"-M", "1"}, "-M is not served"},
      {{"-S", "1"}, "-S is not served"},
      {{"-V", "8"}, "-V is not served"},
      {{"-u", "1"}, "-u is not served"},
      {{"-x", "1"}, "-x is not served"},
      {{"-C", "2"}, "--report_cputime"},
      {{"-p", "2"}, "--parallel_init"},
      {{"--device", "sim", "-y", "1"}, "-y 1"},
      {{"-b", "1048577G"}, "'1048577G' is not a size"},
      {{"-b", "99999999999999999999999"}, "is not a size"},
      {{"-b", "1", "-e", "1G", "-i", "1"}, "-i 1 makes 1073741824 sizes"},
      {{"-t", "65536", "-g", "65536"}, "-t 65536 -g 65536: 4294967296 ranks"},
  };
  for (const auto& [arguments, part] : cases) {
    const std::string error = error_of(arguments);
    INFO(part);
    INFO(error);
    CHECK(error.find(part) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  }
}
