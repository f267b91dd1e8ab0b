// SPDX-License-Identifier: Apache-2.0
// The *_perf programs as they are used: by themselves, through the launcher, and used wrongly.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "bench/cases.hpp"
#include "bench/host_memory.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"

namespace {

using namespace rondo::test;

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("every program finds no wrong value among threads, at every type and operator, root and odd size") {
  for (const auto& what : rondo::bench::kCases) {
    for (const char* ranks : {"1", "2", "3"}) {
      const Ended ended = run({tool(std::string(what.program)),
                               "-g",
                               ranks,
                               "-b",
                               "0",
                               "-e",
                               "3000",
                               "-i",
                               "997",
                               "-n",
                               "1",
                               "-w",
                               "0",
                               "--batches",
                               "1",
                               "-o",
                               "all",
                               "-d",
                               "all",
                               "-r",
                               "all"});
      INFO(what.program << " -g " << ranks << "\n" << ended.err);
      CHECK(ended.code == 0);
      CHECK(contains(ended.out, "# Out of bounds values : 0 OK"));
    }
  }
}

TEST_CASE("every program runs under the launcher, and rank 0 alone prints") {
  for (const auto& what : rondo::bench::kCases) {
    const Ended ended = run(rondorun({"--nproc-per-node", "3", tool(std::string(what.program)), "-b", "8", "-e", "256K",
                                      "-f", "32", "-n", "2", "--batches", "2"}));
    INFO(what.program << "\n" << ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(times(ended.out, "# Out of bounds values : 0 OK") == 1);
    CHECK(contains(ended.out, "# 3 ranks on cpu"));
    CHECK_FALSE(contains(ended.out, "[1]"));
  }
}

TEST_CASE("groups, windows and the first rank's time are served") {
  const Ended ended = run({tool("all_reduce_perf"), "-g", "2", "-b", "4K", "-e", "4K", "-m", "3", "-R", "1", "-a", "0",
                           "-c", "2", "-T", "20", "-n", "2"});
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "# Out of bounds values : 0 OK"));
}

TEST_CASE("sizes that no cache holds are set against the host's memory, others are not") {
  const auto factor = std::to_string(2 * rondo::bench::largest_cache_bytes() / 4096);
  const auto perf = [&](const char* least, const char* most) {
    return run({tool("all_reduce_perf"), "-g", "2", "-b", least, "-e", most, "-f", factor, "-R", "1", "-n", "1", "-w",
                "0", "--batches", "1", "-c", "1"});
  };
  const auto most = std::to_string(2 * rondo::bench::largest_cache_bytes());  // 4 of them move, 8 caches
  const Ended large = perf("4096", most.c_str());
  INFO(large.out << large.err);
  CHECK(large.code == 0);
  CHECK(contains(large.out, "#  Memory: "));
  CHECK(times(large.out, "N/A     N/A") == 1);  // 4 KiB
  const Ended small = perf("4096", "4096");
  CHECK(small.code == 0);
  CHECK_FALSE(contains(small.out, "#  Memory: "));
}

TEST_CASE("what is not checked is not called right") {
  const Ended ended = run({tool("all_reduce_perf"), "-g", "2", "-b", "8", "-e", "8", "-c", "0", "-n", "1"});
  CHECK(ended.code == 0);
  CHECK(times(ended.out, "N/A") == 2);
}

TEST_CASE("wrong flags get one sentence and exit status 2") {
  const std::vector<std::vector<std::string>> wrong = {
      {"--nonsense"}, {"-b", "7X"}, {"-g", "0"}, {"-g", "2", "-r", "2"}, {"-d", "float", "-o", "band"}};
  for (const auto& flags : wrong) {
    std::vector<std::string> command = {tool("reduce_perf")};
    command.insert(command.end(), flags.begin(), flags.end());
    const Ended ended = run(command);
    INFO(flags[0] << ": " << ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.out.empty());
    CHECK(times(ended.err, "\n") == 1);
    CHECK(contains(ended.err, "reduce_perf: "));
  }
  const Ended launched = run({tool("reduce_perf"), "-g", "2"}, {.environment = {"RANK=0", "WORLD_SIZE=2"}});
  CHECK(launched.code == 2);
  CHECK(contains(launched.err, "leave them out under a launcher"));
}

TEST_CASE("a GPU that is not there is one sentence, not a replacement") {
  const Ended ended =
      run({tool("all_reduce_perf"), "-g", "2", "--device", "cuda"}, {.environment = {"CUDA_VISIBLE_DEVICES="}});
  INFO(ended.err);
  CHECK(ended.code == 1);
  CHECK(times(ended.err, "\n") == 1);
  CHECK(ended.out.empty());
}

TEST_CASE("the JSON file holds what comparing two runs needs, and no secret") {
  std::string path = (std::filesystem::temp_directory_path() / "rondo-json-\xff-XXXXXX").string();  // no UTF-8
  const int file = mkstemp(path.data());
  REQUIRE(file >= 0);
  close(file);
  const Ended ended =
      run({tool("all_reduce_perf"), "-g", "2", "-b", "1K", "-e", "2K", "-f", "2", "-n", "3", "--json", path},
          {.environment = {"RONDO_SECRET_FILE=/hidden", "RONDO_LOG=warn"}});
  INFO(ended.err);
  CHECK(ended.code == 0);
  std::ifstream in(path);
  const auto j = nlohmann::json::parse(in);
  std::filesystem::remove(path);
  for (const char* field : {"host", "kernel", "cpu", "cores", "compiler", "compiler_flags", "version", "started"}) {
    INFO(field);
    CHECK(j.contains(field));
  }
  CHECK(j["world_size"] == 2);
  CHECK(j["ranks"].size() == 2);
  CHECK(j["environment"]["RONDO_LOG"] == "warn");
  CHECK_FALSE(contains(j.dump(), "/hidden"));
  REQUIRE(j["rows"].size() == 2);
  CHECK(j["rows"][1]["bytes"] == 2048);
  CHECK(j["rows"][1]["in_place"]["samples_us"].size() >= 3);
  CHECK(j["wrong"] == 0);
  CHECK(j["command"].size() == 13);
}

TEST_CASE("a JSON file that cannot be written is a failure") {
  const Ended ended = run({tool("barrier_perf"), "-g", "2", "-n", "1", "--json", "/nonexistent/x.json"});
  CHECK(ended.code == 1);
  CHECK(contains(ended.err, "cannot write /nonexistent/x.json"));
  CHECK(ended.out.empty());  // and nothing has been measured before
}

TEST_CASE("names that are not UTF-8 do not cost the results") {
  const auto folder = std::filesystem::temp_directory_path() / ("rondo-json-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "gen\xe8ve.json").string();
  const Ended ended =
      run({tool("barrier_perf"), "-g", "2", "-n", "1", "--json", path}, {.environment = {"RONDO_NOTE=z\xfcrich"}});
  INFO(ended.err);
  CHECK(ended.code == 0);
  std::ifstream in(path);
  const auto j = nlohmann::json::parse(in, nullptr, false);
  std::filesystem::remove_all(folder);
  REQUIRE_FALSE(j.is_discarded());
  CHECK(j["environment"]["RONDO_NOTE"] == "z\ufffdrich");
  CHECK(j["rows"].size() == 1);
}

TEST_CASE("a size beyond memory is one sentence that names it and the flag") {
  const Ended ended = run({tool("all_reduce_perf"), "-b", "1048576G", "-e", "1048576G", "-f", "65536", "-n", "1"});
  INFO(ended.err);
  CHECK(ended.code == 1);
  CHECK(contains(ended.err, "no memory for the buffers of 1125899906842624 bytes; choose a smaller -e"));
  CHECK(times(ended.err, "\n") == 1);
}

TEST_CASE("all sizes again and again, and the time of the host's calls to a device") {
  const Ended again =
      run({tool("all_reduce_perf"), "-g", "2", "-b", "64", "-e", "128", "-f", "2", "-n", "1", "-N", "3"});
  INFO(again.out << again.err);
  CHECK(again.code == 0);
  CHECK(times(again.out, "\n          64 ") == 3);
  CHECK(times(again.out, "\n         128 ") == 3);
  CHECK(times(again.out, "# Out of bounds values : 0 OK") == 1);
  const auto on_device = [](const char* of_host) {
    return run(
        {tool("all_reduce_perf"), "-g", "2", "-b", "64", "-e", "64", "-n", "2", "--device", "sim", "-C", of_host});
  };
  const Ended host = on_device("1"), device = on_device("0");
  INFO(host.out << host.err);
  CHECK(host.code == 0);
  CHECK(device.code == 0);
  CHECK(contains(host.out, "#  Times: the host's"));
  CHECK_FALSE(contains(device.out, "#  Times: the host's"));
}

TEST_CASE("what else measures names the flag that is wrong, and the word that is") {
  for (const char* const program : {"anatomy", "floors", "nccl_perf", "rendezvous_load", "rondo-tune", "wire_perf"}) {
    const Ended ended = run({tool(program), "--no-such\033-flag"});
    INFO(ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.err.starts_with(std::string(program) + ": "));
    CHECK(contains(ended.err, "--no-such\\x1b-flag"));
    CHECK(times(ended.err, "\n") == 1);
    CHECK(run({tool(program), "--help"}).code == 0);
  }
}

// Without bounds the parser takes -1 for the largest of unsigned numbers, and says nothing.
TEST_CASE("a number that a program takes has bounds, which its help tells") {
  const std::regex number("\\b(U?INT|FLOAT):?[^\n]*"), bounds(" in \\[-?[0-9.e+]+ - [0-9.e+]+\\]");
  const auto check = [&](std::vector<std::string> command) {
    const std::string program = command.front();
    command.front() = tool(program);
    command.emplace_back("--help");
    const Ended ended = run(command);
    REQUIRE(ended.code == 0);
    for (std::sregex_iterator found(ended.out.begin(), ended.out.end(), number), end; found != end; ++found) {
      INFO(program << ": " << found->str());
      CHECK(std::regex_search(found->str(), bounds));
    }
  };
  for (const char* const program :
       {"all_reduce_perf", "anatomy", "elastic", "fashion_mnist", "floors", "heat", "nccl_perf", "rendezvous_load",
        "rondo-plan", "rondo-rendezvous", "rondo-tune", "wire_perf"}) {
    check({program});
  }
  check({"rondo", "top"});
}
