// SPDX-License-Identifier: Apache-2.0
// The training of docs/training.md, as its reader starts it.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"

using namespace rondo::test;

namespace {

class Folder {
 public:
  Folder() { std::filesystem::create_directory(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("rondo-spirals-" + std::to_string(::getpid()));
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string output_of(int ranks, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"--nproc-per-node", std::to_string(ranks), "--prefix", "none", tool("spirals")};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Ended ended = run(rondorun(arguments));
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  return ended.out;
}

double accuracy(const std::string& out) {
  const std::string before = "accuracy ";
  const auto at = out.find(before, out.find("result: "));
  REQUIRE(at != std::string::npos);
  return std::stod(out.substr(at + before.size()));
}

}  // namespace

TEST_CASE("the spirals are told apart by one process without a launcher, and by two and four") {
  const Ended alone = run({tool("spirals")});
  INFO(alone.out << alone.err);
  REQUIRE(alone.code == 0);
  CHECK(accuracy(alone.out) > 97);
  for (const int ranks : {2, 4}) {
    const std::string out = output_of(ranks, {});
    CHECK(contains(out, "result: ranks " + std::to_string(ranks)));
    CHECK(accuracy(out) > 97);
  }
}

TEST_CASE("the spirals are told apart with matrices in bf16, and with uneven data") {
  CHECK(accuracy(output_of(2, {"--half"})) > 95);
  CHECK(accuracy(output_of(2, {"--uneven"})) > 95);
  CHECK(accuracy(output_of(4, {"--uneven", "--half"})) > 90);
}

TEST_CASE("a training that goes on from its checkpoint writes the same file as one that was never stopped") {
  const Folder folder;
  output_of(2, {"--epochs", "6", "--checkpoint", folder.file("whole")});
  output_of(2, {"--epochs", "3", "--checkpoint", folder.file("parts")});
  CHECK(slurp(folder.file("parts")) != slurp(folder.file("whole")));
  const std::string out = output_of(2, {"--epochs", "6", "--checkpoint", folder.file("parts")});
  CHECK_FALSE(contains(out, "epoch 3 of 6"));
  CHECK(contains(out, "epoch 4 of 6"));
  CHECK(slurp(folder.file("parts")) == slurp(folder.file("whole")));
}

TEST_CASE("the progress bar redraws its line, and rank 0 alone draws it") {
  const std::string out = output_of(2, {"--epochs", "4"});
  CHECK(std::count(out.begin(), out.end(), '\r') == 4);
  CHECK(std::count(out.begin(), out.end(), '\n') == 2);  // behind the bar and behind the result
}

TEST_CASE("the timeline of the spirals is a Chrome trace with both ranks' steps") {
  const Folder folder;
  output_of(2, {"--epochs", "1", "--timeline", folder.file("steps.json")});
  const auto trace = nlohmann::json::parse(slurp(folder.file("steps.json")));
  std::vector<int> steps(2);
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X" && event.at("name") == "backward") ++steps[event.at("pid").get<std::size_t>()];
  }
  CHECK(steps == std::vector<int>{16, 16});
}
