// SPDX-License-Identifier: Apache-2.0
// The three forms of a result: nccl-tests' table, commas, and JSON. Rank 0 alone has one. A simulated run says so in
// every line of the table, every row of the others.
#pragma once
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/sweep.hpp"

namespace rondo::bench {

// Totals of a run, and the lines that all tables end with.
struct Footer {
  std::uint64_t wrong = 0;
  double busbw_sum = 0;
  int columns = 0;
  void add(const Row& row);
  double average_busbw() const { return columns == 0 ? 0 : busbw_sum / columns; }
};

std::unique_ptr<Report> make_table(std::FILE* out, const Flags& flags);
std::unique_ptr<Report> make_csv(std::FILE* out, const Flags& flags);
// Opens `path` when it begins, and writes it in one go at the end. `command`: the program and its arguments.
std::unique_ptr<Report> make_json(std::string path, std::vector<std::string> command, const Flags& flags);
// Tells each of them.
std::unique_ptr<Report> make_all(std::vector<std::unique_ptr<Report>> reports);

// Lines of the table, for the tests. On devices every row ends with the kernel and the algorithm that ran, out of place
// and, where it is another, in place.
std::string table_header(bool shares = false, bool kernels = false);
std::string table_row(const Row& row, bool shares = false);
std::string labelled(const std::string& lines);  // each with "simulated" at its end
nlohmann::json to_json(const Row& row);

}  // namespace rondo::bench
