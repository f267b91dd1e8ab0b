// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/live.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/rondo/words.hpp"
#include "tools/rondo/world.hpp"

namespace rondo::records {
namespace {

using Document = nlohmann::ordered_json;

// The number in a type's name is its bits: f32, bf16, f8e4m3.
double bytes_of(const Call& call) {
  const auto digit = call.dtype.find_first_of("0123456789");
  int bits = 8;
  if (digit != std::string::npos)
    std::from_chars(call.dtype.data() + digit, call.dtype.data() + call.dtype.size(), bits);
  return static_cast<double>(call.count) * bits / 8;
}

double rate_of(const Communicator& communicator, double now_us) {
  constexpr double kLongest_us = 10e6;
  if (communicator.calls.empty()) return 0;
  const double since_us = std::max(communicator.calls.front().begun_us, now_us - kLongest_us);
  double bytes = 0;
  for (const Call& call : communicator.calls)
    if (call.ended_us && call.begun_us >= since_us) bytes += bytes_of(call);
  return now_us > since_us ? bytes * 1e6 / (now_us - since_us) : 0;
}

// What is open comes before what is over, a collective before a message, which may wait behind a rank that computes.
std::array<double, 3> weight(const Call& call) {
  return {call.ended_us ? 0.0 : 1.0, call.ended_us || call.is_message() ? 0.0 : 1.0,
          call.ended_us.value_or(call.begun_us)};
}

void tell_calls(Row& row, const Record& record) {
  double bytes_per_s = 0;
  for (const Communicator& communicator : record.communicators) {
    bytes_per_s += rate_of(communicator, record.written_us);
    for (const Call& call : communicator.calls) {
      if (row.call && weight(call) <= weight(*row.call)) continue;
      row.call = call;
      row.communicator = communicator.name;
      row.generation = communicator.generation;
    }
  }
  row.now_us = record.written_us;
  row.bytes_per_s = bytes_per_s;
  if (row.call) row.since_us = row.call->ended_us.value_or(row.call->begun_us);
  if (row.state.empty()) row.state = row.call && !row.call->ended_us ? "in call" : "computing";
}

Row row_of(const Job& job, const RankEnd& end) {
  Row row{.rank = end.rank, .replaces = end.replaces, .pid = end.pid, .host = job.host, .now_us = job.happened_us};
  if (end.exit_code) {
    row.state = "ended";
    row.how_it_ended = how_it_ended(end);
    row.since_us = end.ended_us;
  } else if (end.state == "T" || end.state == "t") {
    row.state = "stopped";
  }
  return row;
}

// "all_reduce of 1000 f32, sum, #4 of world"
std::string call_in_words(const Row& row) {
  if (!row.call) return "";
  return describe(*row.call) + (row.call->is_message() ? "" : fmt::format(", #{}", row.call->sequence)) + " of " +
         row.communicator;
}

std::string how_long(const Row& row) { return row.since_us ? duration(row.now_us - *row.since_us) : ""; }

std::string bytes_in_words(double per_s) {
  constexpr std::array kUnits{"B/s", "kB/s", "MB/s", "GB/s"};
  std::size_t unit = 0;
  for (; per_s >= 1000 && unit + 1 < kUnits.size(); ++unit) per_s /= 1000;
  return fmt::format("{:.{}f} {}", per_s, unit == 0 || per_s >= 100 ? 0 : 1, kUnits[unit]);
}

std::string what_it_does(const Row& row) {
  if (row.state == "in call") return "in " + call_in_words(row);
  if (row.state == "computing" && row.call) return "computing since " + call_in_words(row);
  return row.state == "ended" ? row.how_it_ended : row.state;
}

Document or_null(const std::optional<double>& number) { return number ? Document(std::llround(*number)) : Document(); }

Document json_of(const Row& row) {
  Document json{{"rank", row.rank}, {"host", row.host}, {"pid", row.pid}, {"state", row.state}};
  if (row.replaces) json["replaces"] = true;
  if (!row.how_it_ended.empty()) json["how_it_ended"] = row.how_it_ended;
  json["since_us"] = or_null(row.since_us);
  json["bytes_per_s"] = or_null(row.bytes_per_s);
  json["communicator"] = row.call ? Document(row.communicator) : Document();
  json["generation"] = row.call ? Document(row.generation) : Document();
  json["call"] = nullptr;
  if (row.call)
    json["call"] = {{"collective", row.call->collective},
                    {"sequence", row.call->sequence},
                    {"count", row.call->count},
                    {"dtype", row.call->dtype},
                    {"reduce_op", row.call->reduce_op},
                    {"root", row.call->root},
                    {"over", row.call->ended_us.has_value()}};
  return json;
}

}  // namespace

std::vector<Row> rows_of(const Folder& snapshot) {
  std::vector<Row> rows;
  for (const Job& job : snapshot.jobs) {
    for (const RankEnd& end : job.ranks) {
      Row row = row_of(job, end);
      const auto record = snapshot.records.find(end.rank);
      if (record != snapshot.records.end() && row.state != "ended") tell_calls(row, record->second);
      if (row.state.empty()) row.state = "silent";
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string heading_of(const Folder& snapshot) {
  if (snapshot.jobs.empty()) return "";
  const Job& job = snapshot.jobs.front();
  if (job.ranks.empty()) return fmt::format("job {}: no ranks yet, it waits for the other nodes", job.job);
  return fmt::format("job {}, {} rank{}{}{}, host {}, {}: {}", job.job, job.world_size, job.world_size == 1 ? "" : "s",
                     job.nodes > 1 ? fmt::format(", node {} of {} alone", job.node, job.nodes) : "",
                     job.restarts > 0 ? fmt::format(", restart {}", job.restarts) : "", job.host,
                     clock_time(job.happened_us).substr(0, 8), fmt::join(job.command, " "));
}

std::vector<std::string> table_of(const Folder& snapshot) {
  std::vector<std::string> lines{fmt::format("{:>5} {:>8} {:<9} {:>9} {:>10} {:>3}  {}", "rank", "pid", "state", "for",
                                             "data", "gen", "call, or the last one")};
  for (const Row& row : rows_of(snapshot))
    lines.push_back(fmt::format(
        "{:>5} {:>8} {:<9} {:>9} {:>10} {:>3}  {}", fmt::format("{}{}", row.replaces ? "+" : "", row.rank), row.pid,
        row.state, how_long(row), row.bytes_per_s ? bytes_in_words(*row.bytes_per_s) : "",
        row.call ? std::to_string(row.generation) : "", row.state == "ended" ? row.how_it_ended : call_in_words(row)));
  return lines;
}

std::vector<std::string> groups_of(const Folder& snapshot) {
  struct Group {
    std::vector<int> ranks;
    double longest_us = 0, bytes_per_s = 0;
  };
  std::vector<std::pair<std::string, Group>> groups;
  for (const Row& row : rows_of(snapshot)) {
    const std::string what = what_it_does(row);
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == what; });
    if (found == groups.end()) found = groups.insert(found, {what, {}});
    found->second.ranks.push_back(row.rank);
    if (row.since_us) found->second.longest_us = std::max(found->second.longest_us, row.now_us - *row.since_us);
    found->second.bytes_per_s += row.bytes_per_s.value_or(0);
  }
  std::vector<std::string> lines;
  for (const auto& [what, group] : groups)
    lines.push_back(fmt::format("{} {}{}{}", named(group.ranks), what,
                                group.longest_us > 0 ? ", for " + duration(group.longest_us) : "",
                                group.bytes_per_s > 0 ? ", " + bytes_in_words(group.bytes_per_s) : ""));
  return lines;
}

std::string live_json(const Folder& snapshot) {
  Document json{{"format", 1}};
  if (!snapshot.jobs.empty()) {
    const Job& job = snapshot.jobs.front();
    json.update({{"job", job.job},
                 {"host", job.host},
                 {"node", job.node},
                 {"nodes", job.nodes},
                 {"world_size", job.world_size},
                 {"restarts", job.restarts},
                 {"command", job.command},
                 {"at_us", std::llround(job.happened_us)}});
  }
  json["ranks"] = Document::array();
  for (const Row& row : rows_of(snapshot)) json["ranks"].push_back(json_of(row));
  return json.dump(-1, ' ', false, Document::error_handler_t::replace) + "\n";
}

}  // namespace rondo::records
