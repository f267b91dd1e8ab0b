// SPDX-License-Identifier: Apache-2.0
#include "bench/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

std::string share_text(const Measurement* m) {
  if (m == nullptr || m->share_of_bound <= 0) return "N/A";
  return fmt::format("{:.1f}%", 100 * m->share_of_bound);
}

// What ran: "window one_shot"; "ll one_shot / window one_shot" where it was another in place. Empty on a CPU.
std::string kernel_text(const Measurement& out_of_place, const Measurement* in_place) {
  const auto text = [](const Measurement& m) { return fmt::format("{} {}", m.kernel, m.algorithm); };
  if (out_of_place.kernel.empty()) return {};
  const bool alike = in_place == nullptr || text(*in_place) == text(out_of_place);
  return "  " + text(out_of_place) + (alike ? std::string() : " / " + text(*in_place));
}

std::string rank_line(const nlohmann::json& rank) {
  std::string line =
      fmt::format("#  Rank {:2} Pid {:6} on {} node {} local rank {}", rank["rank"].get<int>(), rank["pid"].get<int>(),
                  rank["host"].get<std::string>(), rank["node"].get<int>(), rank["local_rank"].get<int>());
  if (rank.contains("device")) line += fmt::format(" device {}", rank["device"]["index"].get<int>());
  return line + "\n";
}

std::string device_line(const SharedDevice& device) {
  const auto text = [&](const char* field) { return device.what[field].get<std::string>(); };
  std::string line =
      fmt::format("#  Device {} {} on {}, CUDA driver {}, runtime {}: {} rank{} ({})", text("name"), text("uuid"),
                  text("host"), text("driver_cuda"), text("runtime_cuda"), device.ranks.size(),
                  device.ranks.size() == 1 ? "" : "s", fmt::join(device.ranks, " "));
  if (device.what.contains("copy_gbps")) {
    line += fmt::format(", copies in its memory {:.1f} GB/s read + written", device.what["copy_gbps"].get<double>());
  }
  return line + "\n";
}

// What a device adds to the head: which ones, how many buffers, whether the calls are in a graph.
std::string device_head(const Surroundings& surroundings, const Flags& flags) {
  std::string head;
  if (flags.simulated()) head += "# GPU code run by the CPU: these times say nothing about a GPU\n";
  for (const SharedDevice& device : surroundings.devices) head += device_line(device);
  if (flags.sets > 0) {
    head += fmt::format("#  Buffers: {} sets in turn\n", flags.sets);
  } else if (flags.simulated()) {
    head += "#  Buffers: 2 sets in turn\n";
  } else {
    head += fmt::format("#  Buffers: as many sets in turn as hold 4 times the cache of {} MiB, at most 64 a rank\n",
                        surroundings.devices.at(0).what["l2_bytes"].get<std::size_t>() >> 20);
  }
  if (flags.cpu_time) head += "#  Times: the host's, until its calls have returned; rates are of these times\n";
  head += flags.replays > 0 ? fmt::format("#  Graphs: a batch is captured once and launched {} times\n", flags.replays)
                            : "#  Graphs: none, calls are launched one by one\n";
  return head;
}

std::string bound_head(const Surroundings& surroundings) {
  std::string head;
  if (const MemoryRates& host = surroundings.host_memory; host.copy > 0) {
    head = fmt::format(
        "#  Memory: the ranks' cores together copy {:.1f} GB/s read + written, read {:.1f} alone, write {:.1f} alone\n",
        host.copy, host.load, host.store);
  }
  return head +
         "#  of bound: the time that the bytes that must move would take at these rates, as a part of the time taken\n";
}

class Table : public Report {
 public:
  Table(std::FILE* out, const Flags& flags) : out_(out), flags_(flags) {}
  void begin(const Surroundings& surroundings) override {
    std::string head;
    for (const std::string& remark : flags_.remarks) head += fmt::format("# {}\n", remark);
    head += fmt::format("# {} ranks on {}, warm-ups {}, batches of {} x {}, checked {} times\n",
                        surroundings.ranks.size(), flags_.simulated() ? "simulated devices" : flags_.device_label(),
                        flags_.warmups, flags_.iterations, flags_.aggregate, flags_.checks);
    for (const nlohmann::json& rank : surroundings.ranks) head += rank_line(rank);
    if (!surroundings.devices.empty()) head += device_head(surroundings, flags_);
    shares_ = surroundings.shared_memory().copy > 0;
    if (shares_) head += bound_head(surroundings);
    print(head + "#\n" + table_header(shares_, !surroundings.devices.empty()));
  }
  void row(const Row& row) override {
    footer_.add(row);
    print(table_row(row, shares_));
  }
  void end() override {
    print(fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}\n#\n", footer_.wrong,
                      footer_.wrong == 0 ? "OK" : "FAILED", footer_.average_busbw()));
  }

 private:
  void print(const std::string& lines) {
    fmt::print(out_, "{}", flags_.simulated() ? labelled(lines) : lines);
    std::fflush(out_);
  }
  std::FILE* out_;
  Flags flags_;
  bool shares_ = false;
  Footer footer_;
};

class Csv : public Report {
 public:
  Csv(std::FILE* out, const Flags& flags) : out_(out), flags_(flags) {}
  void begin(const Surroundings&) override {
    fmt::print(
        out_,
        "device,program,world_size,bytes,count,dtype,op,root,in_place,samples,median_us,p10_us,p90_us,min_us,max_us,"
        "algbw_gbps,busbw_gbps,wrong,algorithm,buffer_sets,graph_replays,share_of_bound,kernel\n");
  }
  void row(const Row& row) override {
    line(row.cell, row.out_of_place, 0);
    if (row.in_place) line(row.cell, *row.in_place, 1);
    std::fflush(out_);
  }
  void end() override {}

 private:
  void line(const Cell& c, const Measurement& m, int in_place) {
    fmt::print(out_,
               "{},{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{},{},{},{},{},{}\n",
               flags_.device_label(), c.what->program, c.world_size, c.bytes(), c.count, table_name(c.dtype),
               op_name(c), c.root, in_place, m.samples_us.size(), m.time_us.median, m.time_us.p10, m.time_us.p90,
               m.time_us.min, m.time_us.max, m.algbw_gbps, m.busbw_gbps, wrong_text(m), m.algorithm, m.sets,
               flags_.replays, m.share_of_bound > 0 ? fmt::format("{:.4f}", m.share_of_bound) : "", m.kernel);
  }
  std::FILE* out_;
  Flags flags_;
};

nlohmann::json to_json(const Measurement& m) {
  nlohmann::json j = {{"samples_us", m.samples_us},     {"median_us", m.time_us.median}, {"p10_us", m.time_us.p10},
                      {"p90_us", m.time_us.p90},        {"min_us", m.time_us.min},       {"max_us", m.time_us.max},
                      {"algbw_gbps_p50", m.algbw_gbps}, {"busbw_gbps_p50", m.busbw_gbps}};
  j["algorithm"] = m.algorithm;
  if (!m.kernel.empty()) j["kernel"] = m.kernel;
  j["buffer_sets"] = m.sets;
  if (m.share_of_bound > 0) j["share_of_bound"] = m.share_of_bound;
  if (!m.wrong_by_rank.empty()) j["wrong_by_rank"] = m.wrong_by_rank;
  return j;
}

class Json : public Report {
 public:
  Json(std::string path, std::vector<std::string> command, const Flags& flags)
      : path_(std::move(path)), device_(flags.device_label()) {
    result_ = describe_run();
    result_["format"] = 2;
    result_["command"] = std::move(command);
    result_["device"] = device_;
    result_["graph_replays"] = flags.replays;
    result_["cpu_time"] = flags.cpu_time;
    result_["rows"] = nlohmann::json::array();
  }
  void begin(const Surroundings& surroundings) override {
    open();
    result_["world_size"] = surroundings.ranks.size();
    result_["ranks"] = surroundings.ranks;
    if (const MemoryRates& host = surroundings.host_memory; host.copy > 0) {
      result_["host_copy_gbps"] = host.copy;
      result_["host_load_gbps"] = host.load;
      result_["host_store_gbps"] = host.store;
    }
    for (const SharedDevice& device : surroundings.devices) {
      result_["devices"].push_back(device.what);
      result_["devices"].back()["ranks"] = device.ranks;
    }
  }
  void row(const Row& row) override {
    footer_.add(row);
    result_["rows"].push_back(bench::to_json(row));
    result_["rows"].back()["device"] = device_;
  }
  void end() override {
    result_["wrong"] = footer_.wrong;
    result_["average_busbw_gbps"] = footer_.average_busbw();
    out_ << text_of(result_, 1) << "\n";
    out_.close();
    if (!out_) refuse();
  }

 private:
  // Before anything is measured.
  void open() {
    out_.open(path_);
    if (!out_) refuse();
  }
  [[noreturn]] void refuse() const {
    throw std::runtime_error(fmt::format("cannot write {}; choose another file by --json", path_));
  }

  std::string path_, device_;
  std::ofstream out_;
  nlohmann::json result_;
  Footer footer_;
};

class All : public Report {
 public:
  explicit All(std::vector<std::unique_ptr<Report>> reports) : reports_(std::move(reports)) {}
  void begin(const Surroundings& surroundings) override {
    for (auto& r : reports_) r->begin(surroundings);
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

std::string labelled(const std::string& lines) {
  std::string text;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    text += fmt::format("{}  simulated\n", std::string_view(lines).substr(begin, end - begin));
    begin = end + 1;
  }
  return text;
}

std::string table_header(bool shares, bool kernels) {
  return fmt::format(
      "# {:<54}  {:^30}  {:^30}\n"
      "# {:>10} {:>12} {:>9} {:>7} {:>7}     {:>7} {:>7} {:>7} {:>6}  {:>7} {:>7} {:>7} {:>6}  {}{}{}\n"
      "# {:>10} {:>12} {:>9} {:>7} {:>7}     {:>7} {:>7} {:>7} {:>6}  {:>7} {:>7} {:>7} {:>6}  {}{}\n",
      "", "out-of-place", "in-place", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
      "time", "algbw", "busbw", "#wrong", "p10-p90 spread", shares ? "  of bound" : "",
      kernels ? shares ? "        kernel" : "  kernel" : "", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
      "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "", "out-of  in", shares ? "      out-of      in" : "");
}

std::string table_row(const Row& row, bool shares) {
  const Cell& c = row.cell;
  const Measurement* in_place = row.in_place ? &*row.in_place : nullptr;
  std::string text = fmt::format("{:>12} {:>12} {:>9} {:>7} {:>7}   {}{}  {:>6} {:>4}", c.bytes(), c.count,
                                 table_name(c.dtype), op_name(c), c.root, half_row(&row.out_of_place),
                                 half_row(in_place), spread_text(&row.out_of_place), spread_text(in_place));
  if (shares) text += fmt::format("      {:>6}  {:>6}", share_text(&row.out_of_place), share_text(in_place));
  text += kernel_text(row.out_of_place, in_place) + '\n';
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
std::unique_ptr<Report> make_csv(std::FILE* out, const Flags& flags) { return std::make_unique<Csv>(out, flags); }
std::unique_ptr<Report> make_json(std::string path, std::vector<std::string> command, const Flags& flags) {
  return std::make_unique<Json>(std::move(path), std::move(command), flags);
}
std::unique_ptr<Report> make_all(std::vector<std::unique_ptr<Report>> reports) {
  return std::make_unique<All>(std::move(reports));
}

}  // namespace rondo::bench
