// SPDX-License-Identifier: Apache-2.0
#include "bench/report.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.hpp"

namespace {

using rondo::bench::Measurement;
using rondo::bench::Row;

Measurement measurement(double us, std::vector<std::uint64_t> wrong) {
  Measurement m;
  m.samples_us = {us};
  m.time_us = rondo::bench::statistics_of(m.samples_us);
  m.algbw_gbps = 1.5;
  m.busbw_gbps = 2.25;
  m.wrong_by_rank = std::move(wrong);
  return m;
}

Row row() {
  Row r;
  r.cell = {.what = &rondo::bench::find_case("all_reduce_perf"), .world_size = 4, .count = 256};
  r.out_of_place = measurement(12.5, {0, 0, 0, 0});
  r.in_place = measurement(13, {0, 2, 0, 1});
  return r;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

}  // namespace

TEST_CASE("statistics are the middle of the samples and their spread") {
  const auto s = rondo::bench::statistics_of({50, 10, 20, 40, 30});
  CHECK(s.median == 30);
  CHECK(s.min == 10);
  CHECK(s.max == 50);
  CHECK(s.p10 == Approx(14));
  CHECK(s.p90 == Approx(46));
  CHECK(s.spread() == Approx(32.0 / 30));
  CHECK(rondo::bench::statistics_of({7, 9}).median == 8);
  CHECK(rondo::bench::statistics_of({7}).p90 == 7);
}

TEST_CASE("on a device a row ends with the kernel and the algorithm that ran") {
  Row r = row();
  r.out_of_place.kernel = r.in_place->kernel = "window";
  r.out_of_place.algorithm = r.in_place->algorithm = "one_shot";
  const auto first_line = [&] {
    const std::string text = rondo::bench::table_row(r);
    return text.substr(0, text.find('\n'));
  };
  CHECK(first_line().ends_with("  window one_shot"));
  CHECK(words(first_line())[5] == "12.50");
  r.in_place->kernel = "ll";
  CHECK(first_line().ends_with("  window one_shot / ll one_shot"));
  CHECK(rondo::bench::table_header(false, true).find("kernel\n") != std::string::npos);
  CHECK(rondo::bench::table_header(true, false).find("kernel") == std::string::npos);
}

TEST_CASE("a row has nccl-tests' columns in nccl-tests' order, then the spread") {
  std::istringstream text(rondo::bench::table_row(row()));
  std::string line;
  std::getline(text, line);
  CHECK(words(line) == std::vector<std::string>{"1024", "256", "float", "sum", "-1", "12.50", "1.50", "2.25", "0",
                                                "13.00", "1.50", "2.25", "3", "0%", "0%"});
  std::getline(text, line);
  CHECK(line == "#   rank 1: 2 wrong values in place");
  std::getline(text, line);
  CHECK(line == "#   rank 3: 1 wrong values in place");
}

TEST_CASE("the columns line up with their heads") {
  std::istringstream header(rondo::bench::table_header());
  std::string first, heads, line;
  std::getline(header, first);
  std::getline(header, heads);
  line = rondo::bench::table_row(row());
  for (const auto& [head, value] : std::vector<std::pair<std::string, std::string>>{{"size", "1024"},
                                                                                    {"count", "256"},
                                                                                    {"type", "float"},
                                                                                    {"redop", "sum"},
                                                                                    {"time", "12.50"},
                                                                                    {"algbw", "1.50"}}) {
    INFO(head);
    CHECK(heads.find(head) + head.size() == line.find(value) + value.size());
  }
}

TEST_CASE("what was not measured or checked is N/A, not zero") {
  Row r = row();
  r.in_place.reset();
  r.out_of_place.wrong_by_rank.clear();
  const auto all = words(rondo::bench::table_row(r));
  CHECK(all.at(8) == "N/A");
  CHECK(std::count(all.begin(), all.end(), "N/A") == 6);
}

TEST_CASE("the footer averages over both columns and sums wrong values over all ranks") {
  rondo::bench::Footer footer;
  footer.add(row());
  CHECK(footer.wrong == 3);
  CHECK(footer.average_busbw() == Approx(2.25));
}

TEST_CASE("JSON holds every sample and the library's own names") {
  const nlohmann::json j = rondo::bench::to_json(row());
  CHECK(j["dtype"] == "f32");
  CHECK(j["op"] == "sum");
  CHECK(j["out_of_place"]["samples_us"].size() == 1);
  CHECK(j["out_of_place"]["median_us"] == 12.5);
  CHECK(j["in_place"]["wrong_by_rank"] == nlohmann::json({0, 2, 0, 1}));
}

TEST_CASE("every line of a simulated table says so") {
  std::istringstream text(rondo::bench::labelled(rondo::bench::table_header() + rondo::bench::table_row(row())));
  int lines = 0;
  for (std::string line; std::getline(text, line); ++lines) CHECK(line.ends_with("  simulated"));
  CHECK(lines == 6);
}

TEST_CASE("the share of the bound has columns of its own, and none where it is not known") {
  Row r = row();
  r.out_of_place.share_of_bound = 0.875;
  std::istringstream text(rondo::bench::table_row(r, true));
  std::string line;
  std::getline(text, line);
  const auto all = words(line);
  REQUIRE(all.size() == 17);
  CHECK(all[15] == "87.5%");
  CHECK(all[16] == "N/A");
  CHECK(rondo::bench::table_header(true).find("of bound") != std::string::npos);
  CHECK(rondo::bench::table_header().find("of bound") == std::string::npos);
}

TEST_CASE("a bandwidth of copies counts for ranks that share one device alone") {
  const nlohmann::json gpu = {{"copy_gbps", 4000.0}};
  rondo::bench::Surroundings s{.ranks = {{}, {}}, .devices = {{gpu, {0, 1}}}};
  CHECK(s.shared_memory().copy == 4000);
  s.devices = {{gpu, {0}}, {gpu, {1}}};
  CHECK(s.shared_memory().copy == 0);
  s.devices = {{nlohmann::json::object(), {0, 1}}};
  CHECK(s.shared_memory().copy == 0);
  s.devices.clear();
  CHECK(s.shared_memory().copy == 0);
}
