// SPDX-License-Identifier: Apache-2.0
// All targets in one program of libFuzzer's: rondo_fuzz TARGET [libFuzzer's flags and folders], where the target's
// seeds and corpus are put into the first folder. rondo_fuzz --list says which targets there are, one a line;
// rondo_fuzz --lines FOLDER writes the inputs of a folder as lines for a corpus.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "tests/fuzz/corpus.hpp"
#include "tests/fuzz/target.hpp"

namespace rondo::fuzz {
namespace {

const Target* chosen = nullptr;

[[noreturn]] void stop(const std::string& sentence) {
  std::cerr << "rondo_fuzz: " << sentence << '\n';
  std::exit(2);
}

[[noreturn]] void list() {
  for (const Target& target : targets()) std::cout << target.name << '\n';
  std::exit(0);
}

[[noreturn]] void print_lines(const std::filesystem::path& folder) {
  std::set<std::string> lines;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    lines.insert(to_line(std::string(std::istreambuf_iterator<char>(in), {})));
  }
  for (const std::string& line : lines) std::cout << line << '\n';
  std::exit(0);
}

void fill(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  auto inputs = read_corpus(std::filesystem::path(RONDO_FUZZ_CORPUS) / (std::string(chosen->name) + ".txt"));
  const auto seeds = chosen->seeds();
  inputs.insert(inputs.end(), seeds.begin(), seeds.end());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::ofstream(folder / ("given-" + std::to_string(i)), std::ios::binary) << inputs[i];
  }
}

// Takes the target's name out of the command line, and gives libFuzzer what belongs to the target.
void choose(int& argc, char**& argv) {
  if (argc < 2) stop("which target? --list says which there are");
  const std::string name = argv[1];
  if (name == "--list") list();
  if (name == "--lines" && argc == 3) print_lines(argv[2]);
  chosen = find_target(name);
  if (chosen == nullptr) stop("there is no target " + name + "; --list says which there are");
  static std::vector<char*> arguments(argv, argv + argc);
  static std::string most = "-max_len=" + std::to_string(chosen->most_bytes);
  arguments[1] = most.data();
  arguments.push_back(nullptr);
  argv = arguments.data();
  const auto folder = std::find_if(arguments.begin() + 1, arguments.end() - 1, [](char* a) { return *a != '-'; });
  if (folder != arguments.end() - 1 && !std::filesystem::is_regular_file(*folder)) fill(*folder);
}

}  // namespace
}  // namespace rondo::fuzz

// The readers are here twice, see CMakeLists.txt. An input spends more time on what ASan keeps of freed memory, and of
// where each piece came from, than on being read: ASAN_OPTIONS=malloc_context_size=30 tells all of a finding again. By
// strcmp() OpenSSL alone compares, names of its parameters, of which libFuzzer would make words for its inputs.
extern "C" const char* __asan_default_options() {
  return "detect_odr_violation=0:malloc_context_size=2:quarantine_size_mb=1:intercept_strcmp=0";
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  ::setenv("RONDO_LOG", "off", 1);
  try {
    rondo::fuzz::choose(*argc, *argv);
  } catch (const std::exception& error) {
    rondo::fuzz::stop(error.what());
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rondo::fuzz::chosen->run(std::as_bytes(std::span(data, size)));
  return 0;
}
