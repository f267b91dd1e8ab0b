// SPDX-License-Identifier: Apache-2.0
// The ways of host collectives, for every call that makes a difference, as text files that lie beside this test: see
// the page there.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "comm/call/blocks.hpp"
#include "comm/setup/tuning.hpp"
#include "tests/comm/ways/cell.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using comm::bytes_text;
using test::Answer;
using test::answer_of;
using test::Cell;
using test::Machine;
using test::Memory;

namespace {

constexpr std::size_t K = 1 << 10, M = 1 << 20;

constexpr Machine kMachines[] = {
    {.name = "xeon", .streaming_bytes = 2 * M, .copied_page_us = 0.1, .copies_as_strings = true},
    {.name = "epyc", .streaming_bytes = 16 * M, .copied_page_us = 0.3, .copies_as_strings = false},
};

// Of a rank's larger buffer: powers of two, and what lies between them beside thresholds that are none.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all{0};
  for (std::size_t bytes = 4; bytes <= 256 * M; bytes *= 2) {
    all.push_back(bytes);
    if (bytes == 32) all.push_back(48);
    if (bytes == 32 || bytes == 2 * K || bytes == 16 * K || bytes == 64 * K || bytes == M || bytes == 8 * M)
      all.push_back(bytes / 2 * 3);
    if (bytes == M) all.push_back(bytes / 4 * 7);
    if (bytes == 16 * M) all.push_back(20 * M);
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Sizes in a row with the same answer, and what the chunks of all of them have in common.
struct Run {
  std::size_t first = 0, last = 0;
  Answer answer;
  bool same_number = true, same_length = true;

  bool takes(const Answer& next) const {
    const bool number = same_number && next.chunks == answer.chunks;
    const bool length = same_length && next.chunk_bytes == answer.chunk_bytes;
    return next.before == answer.before && next.after == answer.after && (number || length) &&
           (next.chunks == 1) == (answer.chunks == 1);
  }
  void add(std::size_t bytes, const Answer& next) {
    last = bytes;
    same_number = same_number && next.chunks == answer.chunks;
    same_length = same_length && next.chunk_bytes == answer.chunk_bytes;
  }
  std::string text() const {
    const std::string length = bytes_text(answer.chunk_bytes);
    const std::string chunks = answer.chunks == 0           ? ""
                               : answer.chunks == 1         ? ", whole"
                               : same_number && same_length ? fmt::format(", {} of {}", answer.chunks, length)
                               : same_number                ? fmt::format(", {} chunks", answer.chunks)
                                                            : fmt::format(", chunks of {}", length);
    const std::string range =
        first == last ? bytes_text(first) : fmt::format("{} .. {}", bytes_text(first), bytes_text(last));
    return fmt::format("    {:<15} {}{}{}\n", range, answer.before, chunks, answer.after);
  }
};

// expected(bytes, answer): it need not be said.
template <class Expected>
std::string lines_of(const Cell& cell, Expected expected) {
  std::vector<Run> runs;
  bool goes_on = false;
  for (const std::size_t bytes : sizes()) {
    if (!test::has_size(cell, bytes)) continue;
    const Answer answer = answer_of(cell, bytes);
    const bool told = !expected(bytes, answer);
    if (told && goes_on && runs.back().takes(answer)) {
      runs.back().add(bytes, answer);
    } else if (told) {
      runs.push_back({bytes, bytes, answer});
    }
    goes_on = told;
  }
  std::string text;
  for (const Run& run : runs) text += run.text();
  return text;
}

// Beside ordinary memory and two buffers, only what that differs in; and of other memory in place, only what neither
// alone tells.
std::string collective_text(const Cell& plain) {
  std::string text = fmt::format("{}\n{}", name_of(plain.collective), lines_of(plain, [](auto...) { return false; }));
  const auto tell = [&](std::string_view what, const Cell& cell, auto expected) {
    const std::string lines = lines_of(cell, expected);
    if (!lines.empty()) text += fmt::format("  {}\n{}", what, lines);
  };
  const bool works_in_place =
      plain.collective != Collective::all_to_all && plain.collective != Collective::all_to_all_v;
  Cell in_place = plain;
  in_place.in_place = true;
  const auto is_plain = [&](std::size_t bytes, const Answer& answer) { return answer == answer_of(plain, bytes); };
  if (works_in_place) tell("in place", in_place, is_plain);
  for (const auto& [memory, name] :
       {std::pair{Memory::copied, "where the kernel copies"}, {Memory::window, "windows"}}) {
    Cell apart = plain, both = in_place;
    apart.memory = both.memory = memory;
    tell(name, apart, is_plain);
    const auto follows = [&](std::size_t bytes, const Answer& answer) {
      const Answer of_memory = answer_of(apart, bytes);
      return answer == (is_plain(bytes, of_memory) ? answer_of(in_place, bytes) : of_memory);
    };
    if (works_in_place) tell(fmt::format("{}, in place", name), both, follows);
  }
  return text;
}

// Which way a call goes when only some of the buffers are within reach.
std::string reach_text(const Machine& machine) {
  std::string text = "\n== 4 ranks on 4 cores, of which only these buffers are within reach\n";
  for (const CollectiveRow& row : collective_table()) {
    const std::string ways = test::ways_by_reach({machine, 4, 4, row.collective, false, Memory::window});
    if (!ways.empty()) text += fmt::format("{:<15} {}\n", row.name, ways);
  }
  return text;
}

std::string machine_text(const Machine& machine) {
  std::string text = fmt::format(
      "# Ways of host collectives, written by ways_test: README.md beside this file tells how to read it.\n"
      "# {}: streaming_bytes {}, the kernel copies a page in {} us, {} are copied as strings.\n",
      machine.name, bytes_text(machine.streaming_bytes), machine.copied_page_us,
      machine.copies_as_strings ? "long stretches" : "none");
  for (const auto& [ranks, cores] : {std::pair{1, 1}, {2, 2}, {2, 1}, {3, 3}, {3, 2}, {4, 4}, {4, 2}, {8, 8}, {8, 2}}) {
    text += fmt::format("\n== {} rank{} on {} core{}\n", ranks, ranks == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    std::vector<std::pair<std::string, std::string>> told;  // the lines, and who has them
    for (const CollectiveRow& row : collective_table()) {
      if (row.collective == Collective::send || row.collective == Collective::recv) continue;
      const std::string whole = collective_text({machine, ranks, cores, row.collective});
      const std::size_t end = whole.find('\n');
      const std::string lines = whole.substr(end);
      const auto same = std::ranges::find(told, lines, &std::pair<std::string, std::string>::first);
      if (same == told.end()) {
        told.emplace_back(lines, whole.substr(0, end));
      } else {
        same->second += ", " + whole.substr(0, end);
      }
    }
    for (const auto& [lines, names] : told) text += names + lines;
  }
  return text + reach_text(machine);
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

// The first line that differs, beneath the heads that it stands under.
std::string difference(const std::string& written, const std::string& chosen) {
  const auto was = split(written), is = split(chosen);
  std::string section, collective;
  for (std::size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
    const std::string a = i < was.size() ? was[i] : "(the end)", b = i < is.size() ? is[i] : "(the end)";
    if (a != b) return fmt::format("line {}, {}, {}:\n  written {}\n  chosen  {}", i + 1, section, collective, a, b);
    if (a.starts_with("==")) section = a.substr(3);
    if (!a.empty() && a.front() != ' ') collective = a;
  }
  return {};
}

}  // namespace

TEST_CASE("the ways of host collectives are those that are written down") {
  for (const Machine& machine : kMachines) {
    const std::string path = fmt::format("{}/{}.txt", RONDO_WAYS, machine.name);
    const std::string chosen = machine_text(machine);
    if (std::getenv("RONDO_WRITE_WAYS") != nullptr) {
      std::ofstream out(path);
      out << chosen;
      REQUIRE(out.flush());
    }
    std::ifstream in(path);
    const std::string written{std::istreambuf_iterator<char>(in), {}};
    INFO(path << ": if it is meant, RONDO_WRITE_WAYS=1 writes it anew");
    CHECK(difference(written, chosen) == "");
  }
}
