// SPDX-License-Identifier: Apache-2.0
#include "bench/report.hpp"

#include <fmt/format.h>

#include <fstream>

#include "bench/machine.hpp"

namespace rondo::bench {
namespace {

std::string op_name(const Cell& cell) { return cell.row().reduces ? std::string(table_name(cell.op)) : "none"; }
std::string wrong_text(const Measurement& m) { return m.wrong_by_rank.empty() ? "N/A" : fmt::format("{}", m.wrong()); }
// Short times with decimals, long ones without: nccl-tests' column stays 8 wide.
std::string time_text(double us) { return us < 1e5 ? fmt::format("{:.2f}", us) : fmt::format("{:.0f}", us); }

std::string half_row(const Measurement* m) {
  if (m == nullptr) return fmt::format("  {:>7} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {:>7} {:>7.2f} {:>7.2f} {:>6}", time_text(m->time_us.median), m->algbw_gbps, m->busbw_gbps,
                     wrong_text(*m));
}
std::string spread_text(const Measurement* m) {
  return m == nullptr ? "N/A" : fmt::format("{:.0f}%", 100 * m->time_us.spread());
}

class Table : public Report {
 public:
  Table(std::FILE* out, const Flags& flags) : out_(out), flags_(flags) {}
  void begin(const std::vector<std::string>& placement) override {
    for (const std::string& remark : flags_.remarks) fmt::print(out_, "# {}\n", remark);
    fmt::print(out_, "# {} ranks on {}, warm-ups {}, batches of {} x {}, checked {} times\n", placement.size(),
               flags_.device, flags_.warmups, flags_.iterations, flags_.aggregate, flags_.checks);
    for (const std::string& rank : placement) {
      const auto where = nlohmann::json::parse(rank);
      fmt::print(out_, "#  Rank {:2} Pid {:6} on {} node {} local rank {}\n", where["rank"].get<int>(),
                 where["pid"].get<int>(), where["host"].get<std::string>(), where["node"].get<int>(),
                 where["local_rank"].get<int>());
    }
    fmt::print(out_, "#\n{}", table_header());
    std::fflush(out_);
  }
  void row(const Row& row) override {
    footer_.add(row);
    fmt::print(out_, "{}", table_row(row));
    std::fflush(out_);
  }
  void end() override {
    fmt::print(out_, "# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}\n#\n", footer_.wrong,
               footer_.wrong == 0 ? "OK" : "FAILED", footer_.average_busbw());
    std::fflush(out_);
  }

 private:
  std::FILE* out_;
  Flags flags_;
  Footer footer_;
};

class Csv : public Report {
 public:
  explicit Csv(std::FILE* out) : out_(out) {}
  void begin(const std::vector<std::string>&) override {
    fmt::print(out_,
               "program,world_size,bytes,count,dtype,op,root,in_place,samples,median_us,p10_us,p90_us,min_us,max_us,"
               "algbw_gbps,busbw_gbps,wrong\n");
  }
  void row(const Row& row) override {
    line(row.cell, row.out_of_place, 0);
    if (row.in_place) line(row.cell, *row.in_place, 1);
    std::fflush(out_);
  }
  void end() override {}

 private:
  void line(const Cell& c, const Measurement& m, int in_place) {
    fmt::print(out_, "{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{}\n",
               c.what->program, c.world_size, c.bytes(), c.count, table_name(c.dtype), op_name(c), c.root, in_place,
               m.samples_us.size(), m.time_us.median, m.time_us.p10, m.time_us.p90, m.time_us.min, m.time_us.max,
               m.algbw_gbps, m.busbw_gbps, wrong_text(m));
  }
  std::FILE* out_;
};

nlohmann::json to_json(const Measurement& m) {
  nlohmann::json j = {{"samples_us", m.samples_us},     {"median_us", m.time_us.median}, {"p10_us", m.time_us.p10},
                      {"p90_us", m.time_us.p90},        {"min_us", m.time_us.min},       {"max_us", m.time_us.max},
                      {"algbw_gbps_p50", m.algbw_gbps}, {"busbw_gbps_p50", m.busbw_gbps}};
  if (!m.wrong_by_rank.empty()) j["wrong_by_rank"] = m.wrong_by_rank;
  return j;
}

class Json : public Report {
 public:
  Json(std::string path, std::vector<std::string> command) : path_(std::move(path)) {
    result_ = describe_run();
    result_["format"] = 1;
    result_["command"] = std::move(command);
    result_["device"] = "cpu";
    result_["rows"] = nlohmann::json::array();
  }
  void begin(const std::vector<std::string>& placement) override {
    result_["world_size"] = placement.size();
    for (const std::string& rank : placement) result_["ranks"].push_back(nlohmann::json::parse(rank));
  }
  void row(const Row& row) override {
    footer_.add(row);
    result_["rows"].push_back(bench::to_json(row));
  }
  void end() override {
    result_["wrong"] = footer_.wrong;
    result_["average_busbw_gbps"] = footer_.average_busbw();
    std::ofstream out(path_);
    out << result_.dump(1) << "\n";
    out.close();
    if (!out) throw std::runtime_error(fmt::format("cannot write {}; choose another file by --json", path_));
  }

 private:
  std::string path_;
  nlohmann::json result_;
  Footer footer_;
};

class All : public Report {
 public:
  explicit All(std::vector<std::unique_ptr<Report>> reports) : reports_(std::move(reports)) {}
  void begin(const std::vector<std::string>& placement) override {
    for (auto& r : reports_) r->begin(placement);
  }
  void row(const Row& row) override {
    for (auto& r : reports_) r->row(row);
  }
  void end() override {
    for (auto& r : reports_) r->end();
  }

 private:
  std::vector<std::unique_ptr<Report>> reports_;
};

}  // namespace

void Footer::add(const Row& row) {
  wrong += row.out_of_place.wrong() + (row.in_place ? row.in_place->wrong() : 0);
  busbw_sum += row.out_of_place.busbw_gbps + (row.in_place ? row.in_place->busbw_gbps : 0);
  columns += row.in_place ? 2 : 1;
}

std::string table_header() {
  return fmt::format(
      "# {:<54}  {:^30}  {:^30}\n"
      "# {:>10} {:>12} {:>9} {:>7} {:>7}     {:>7} {:>7} {:>7} {:>6}  {:>7} {:>7} {:>7} {:>6}  {}\n"
      "# {:>10} {:>12} {:>9} {:>7} {:>7}     {:>7} {:>7} {:>7} {:>6}  {:>7} {:>7} {:>7} {:>6}  {}\n",
      "", "out-of-place", "in-place", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
      "time", "algbw", "busbw", "#wrong", "p10-p90 spread", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)",
      "", "(us)", "(GB/s)", "(GB/s)", "", "out-of  in");
}

std::string table_row(const Row& row) {
  const Cell& c = row.cell;
  const Measurement* in_place = row.in_place ? &*row.in_place : nullptr;
  std::string text = fmt::format("{:>12} {:>12} {:>9} {:>7} {:>7}   {}{}  {:>6} {:>4}\n", c.bytes(), c.count,
                                 table_name(c.dtype), op_name(c), c.root, half_row(&row.out_of_place),
                                 half_row(in_place), spread_text(&row.out_of_place), spread_text(in_place));
  for (const Measurement* m : {&row.out_of_place, in_place}) {
    if (m == nullptr) continue;
    for (std::size_t rank = 0; rank < m->wrong_by_rank.size(); ++rank) {
      if (m->wrong_by_rank[rank] == 0) continue;
      text += fmt::format("#   rank {}: {} wrong values {}\n", rank, m->wrong_by_rank[rank],
                          m == in_place ? "in place" : "out of place");
    }
  }
  return text;
}

nlohmann::json to_json(const Row& row) {
  const Cell& c = row.cell;
  nlohmann::json j = {
      {"collective", c.what->program}, {"bytes", c.bytes()}, {"count", c.count},
      {"dtype", name_of(c.dtype)},     {"root", c.root},     {"out_of_place", to_json(row.out_of_place)}};
  if (c.row().reduces) j["op"] = name_of(c.op);
  if (row.in_place) j["in_place"] = to_json(*row.in_place);
  return j;
}

std::unique_ptr<Report> make_table(std::FILE* out, const Flags& flags) { return std::make_unique<Table>(out, flags); }
std::unique_ptr<Report> make_csv(std::FILE* out) { return std::make_unique<Csv>(out); }
std::unique_ptr<Report> make_json(std::string path, std::vector<std::string> command) {
  return std::make_unique<Json>(std::move(path), std::move(command));
}
std::unique_ptr<Report> make_all(std::vector<std::unique_ptr<Report>> reports) {
  return std::make_unique<All>(std::move(reports));
}

}  // namespace rondo::bench
