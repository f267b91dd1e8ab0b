// SPDX-License-Identifier: Apache-2.0
// rondo-tune as a user starts it, and what becomes of the file it writes.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "comm/setup/tuning.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

using namespace rondo::test;

Ended reduce_with(const std::string& tuning) {
  return run({tool("all_reduce_perf"), "-b", "8", "-e", "1M", "-f", "64", "-g", "3", "-n", "1", "-w", "0"},
             {.environment = {"RONDO_TUNING=" + tuning}});
}

}  // namespace

TEST_CASE("what rondo-tune writes is what RONDO_TUNING reads, from child processes and from a job") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning");
  const std::vector<std::string> flags{"--rounds", "1", "--only", "flat_bytes", "-o", file};
  const bool in_job = GENERATE(false, true);
  const auto command = in_job ? rondorun({"--nproc-per-node", "3", tool("rondo-tune")})
                              : std::vector<std::string>{tool("rondo-tune"), "--ranks", "3"};
  auto whole = command;
  whole.insert(whole.end(), flags.begin(), flags.end());
  const Ended tuned = run(whole);
  INFO(tuned.err);
  CHECK(tuned.code == 0);
  CHECK(tuned.err.find("flat_bytes ") != std::string::npos);
  const Ended used = reduce_with(file);
  INFO(used.err);
  CHECK(used.code == 0);
}

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Bytes, and the kernel and algorithm that ran, of every row.
std::vector<std::pair<std::uint64_t, std::string>> kernels_with(const std::string& tuning, const char* program,
                                                                const std::vector<std::string>& flags = {}) {
  std::vector<std::string> command{tool(program), "--device", "sim", "--csv", "-g", "3",  "-b", "512",       "-e",
                                   "32K",         "-f",       "2",   "-n",    "1",  "-w", "0",  "--batches", "1"};
  command.insert(command.end(), flags.begin(), flags.end());
  const Ended ended = run(command, {.environment = {"RONDO_TUNING=" + tuning}});
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  std::vector<std::pair<std::uint64_t, std::string>> rows;
  for (const std::string& line : lines_of(ended.out)) {
    std::vector<std::string> columns;
    std::istringstream in(line);
    for (std::string column; std::getline(in, column, ',');) columns.push_back(column);
    REQUIRE(columns.size() == 23);
    if (columns[0] == "simulated") rows.emplace_back(std::stoull(columns[3]), columns[22] + " " + columns[18]);
  }
  return rows;
}

}  // namespace

TEST_CASE("what rondo-tune finds out of a device stands in its file, and calls go by it") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning");
  const auto command = GENERATE(as<std::vector<std::string>>(),
                                std::vector{tool("rondo-tune"), std::string("--ranks"), std::string("3")},
                                std::vector{tool("rondo-tune"), std::string("--threads"), std::string("3")},
                                rondorun({"--nproc-per-node", "3", tool("rondo-tune")}));
  auto whole = command;
  for (const char* word : {"--device", "sim", "--rounds", "1", "--only", "device_push_bytes", "-o"})
    whole.push_back(word);
  whole.push_back(file);
  const Ended tuned = run(whole, {.limit = std::chrono::seconds(120)});
  INFO(tuned.out << tuned.err);
  REQUIRE(tuned.code == 0);
  const std::string said = tuned.out + tuned.err;
  CHECK(said.find("all_reduce of 4K: up to it push one_shot ") != std::string::npos);
  CHECK(said.find(" us, beyond it window one_shot ") != std::string::npos);
  for (const std::string& line : lines_of(tuned.err)) CHECK(line.ends_with("simulated"));

  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  CHECK(text.str().find("\n# simulated: ") != std::string::npos);
  CHECK(text.str().find("chunk_bytes") == std::string::npos);
  const rondo::comm::Tuning found = rondo::comm::read_tuning(file);
  constexpr std::uint64_t kInboxes = 4 << 10;
  for (const auto& [bytes, kernel] : kernels_with(file, "all_reduce_perf")) {
    INFO(bytes << " " << kernel << " with device_push_bytes " << found.device_push_bytes);
    CHECK((kernel == "push one_shot") == (bytes <= std::min(found.device_push_bytes, kInboxes)));
  }
}

TEST_CASE("every threshold of devices is obeyed, and the table of a program says what ran") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning");
  std::ofstream(file)
      << "device_push_bytes 1K\ndevice_push_block_bytes 2K\ndevice_one_shot_bytes 4K\ndevice_window_bytes 8K\n"
         "device_ll_bytes 16K\ndevice_ll128_bytes 16K\n";
  const auto in = [](std::uint64_t bytes, const char* push, const char* one, const char* two, const char* lines,
                     const char* rest) {
    if (bytes <= 1 << 10) return std::string(push);
    if (bytes <= 4 << 10) return std::string(one);
    if (bytes <= 8 << 10) return std::string(two);
    return std::string(bytes <= 16 << 10 ? lines : rest);
  };
  for (const auto& [bytes, kernel] : kernels_with(file, "all_reduce_perf"))
    CHECK(kernel == in(bytes, "push one_shot", "window one_shot", "window two_shot", "ll128 ring", "simple ring"));
  for (const auto& [bytes, kernel] : kernels_with(file, "broadcast_perf"))
    CHECK(kernel == in(bytes, "push direct", "window direct", "window direct", "ll tree", "simple ring"));
  for (const auto& [bytes, kernel] : kernels_with(file, "all_gather_perf")) {
    INFO(bytes);
    CHECK(kernel == (bytes <= 2 << 10 ? "push direct"
                                      : in(bytes, "", "window direct", "window direct", "ll128 ring", "simple ring")));
  }
  for (const auto& [bytes, kernel] : kernels_with(file, "reduce_perf"))
    CHECK(kernel == in(bytes, "window direct", "window direct", "window direct", "ll ring", "simple ring"));
}

TEST_CASE("a kernel or an algorithm that is asked for by name is the one that the table names") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tuning");
  std::ofstream(file) << "device_push_bytes 0\n";
  for (const std::string protocol : {"simple", "ll", "ll128", "window"}) {
    for (const auto& [bytes, kernel] :
         kernels_with(file, "all_reduce_perf", {"--protocol", protocol, "--algorithm", "two_shot"}))
      CHECK(kernel == protocol + " two_shot");
  }
  for (const auto& [bytes, kernel] : kernels_with(file, "all_reduce_perf", {"--protocol", "push"}))
    CHECK(kernel.starts_with(bytes <= 4 << 10 ? "push " : "window "));
}

TEST_CASE("rondo-tune refuses what it would not do, by name") {
  const auto [flags, variable, code,
              sentence] = GENERATE(table<std::vector<std::string>, std::string, int, std::string>({
      {{"--device", "tpu"}, "A=", 2, "rondo-tune: --device: tpu not in"},
      {{"--device", "sim", "--only", "chunk_bytes"}, "A=", 2, "rondo-tune: --only: chunk_bytes is not of devices;"},
      {{"--only", "device_ll_bytes"}, "A=", 2, "rondo-tune: --only: device_ll_bytes is of devices, so --device cuda"},
      {{"--only", "cold_bytes"}, "A=", 2, "rondo-tune: --only: cold_bytes not in"},
      {{"--threads", "2", "--ranks", "2"}, "A=", 2, "rondo-tune: --ranks excludes --threads"},
      {{"--device", "sim", "--threads", "1"}, "A=", 2, "rondo-tune: --threads: Value 1 not in range"},
      {{"--device", "sim"}, "RONDO_PROTOCOL=ll", 1, "rondo-tune: unset RONDO_ALGORITHM and RONDO_PROTOCOL: "},
      {{"--device", "sim", "--threads", "2"}, "RANK=0", 1, "rondo-tune: --threads is for starting ranks here"},
      {{"--device", "cuda", "--threads", "2"}, "CUDA_VISIBLE_DEVICES=", 1, "rondo-tune: "},
      {{"--device", "cuda", "--ranks", "2"}, "CUDA_VISIBLE_DEVICES=", 1, "rondo"},
  }));
  std::vector<std::string> command{tool("rondo-tune")};
  command.insert(command.end(), flags.begin(), flags.end());
  const Ended ended = run(command, {.environment = {variable}});
  INFO(ended.out << ended.err);
  CHECK(ended.code == code);
  CHECK(ended.err.find(sentence) == 0);
  CHECK(lines_of(ended.err).size() == 1);
  CHECK(ended.out.empty());
}

TEST_CASE("rondo-tune refuses what makes no sense, before it measures") {
  const auto [flags, code, sentence] = GENERATE(table<std::vector<std::string>, int, std::string>({
      {{"--ranks", "1"}, 2, "rondo-tune: --ranks: Value 1 not in range"},
      {{"--only", "nothing"}, 2, "rondo-tune: --only: nothing not in"},
      {{"--output", "/does/not/exist"}, 1, "rondo-tune: cannot write /does/not/exist\n"},
  }));
  std::vector<std::string> command{tool("rondo-tune")};
  command.insert(command.end(), flags.begin(), flags.end());
  const Ended ended = run(command);
  CHECK(ended.code == code);
  CHECK(ended.err.find(sentence) == 0);
}

TEST_CASE("a wrong tuning file is one sentence") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("wrong")) << "# mine\nchunk_bytes 1\n";
  const Ended ended = reduce_with(folder.file("wrong"));
  CHECK(ended.code != 0);
  CHECK(ended.err.find("wrong, line 2: chunk_bytes takes 4K to 1G, not 1") != std::string::npos);
}
