// SPDX-License-Identifier: Apache-2.0
// rondo-tune as a user starts it, and what becomes of the file it writes.
#include <cstdlib>
#include <filesystem>
#include <fstream>

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
