// SPDX-License-Identifier: Apache-2.0
#include "tools/rondo/read.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include <rondo/error.hpp>

#include "comm/base/plain_text.hpp"
#include "tools/rondo/snapshot.hpp"

namespace rondo::records {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;
constexpr int kMostRanks = 1 << 20;
constexpr std::int64_t kMostNumber = std::int64_t{1} << 53;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::corrupt_message, why); }

const Json& member(const Json& json, const char* name) {
  if (!json.is_object()) refuse(fmt::format("it has no '{}'", name));
  const auto found = json.find(name);
  if (found == json.end()) refuse(fmt::format("it has no '{}'", name));
  return *found;
}

std::int64_t number(const Json& json, const char* name, std::int64_t low, std::int64_t high) {
  const Json& value = member(json, name);
  if (!value.is_number_integer() || value.get<double>() < static_cast<double>(low) ||
      value.get<double>() > static_cast<double>(high))
    refuse(fmt::format("'{}' is not a whole number from {} to {}", name, low, high));
  return value.get<std::int64_t>();
}

int rank_number(const Json& json, const char* name, int low = 0) {
  return static_cast<int>(number(json, name, low, kMostRanks));
}

double time(const Json& json, const char* name) {
  const Json& value = member(json, name);
  const double us = value.is_number() ? value.get<double>() : std::nan("");
  if (!(std::abs(us) < static_cast<double>(kMostNumber))) refuse(fmt::format("'{}' is no time", name));
  return us;
}

// For a terminal, where a tab is no order.
std::string harmless(std::string text) {
  std::replace(text.begin(), text.end(), '\t', ' ');
  return plain_text(text);
}

std::string text(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_string()) refuse(fmt::format("'{}' is no text", name));
  return harmless(value.get<std::string>());
}

const Json& list(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_array()) refuse(fmt::format("'{}' is no list", name));
  return value;
}

std::vector<std::string> texts(const Json& json, const char* name) {
  std::vector<std::string> all;
  for (const Json& one : list(json, name)) {
    if (!one.is_string()) refuse(fmt::format("'{}' is no list of texts", name));
    all.push_back(harmless(one.get<std::string>()));
  }
  return all;
}

bool truth(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_boolean()) refuse(fmt::format("'{}' is neither true nor false", name));
  return value.get<bool>();
}

void check_format(const Json& json) {
  if (const auto format = number(json, "format", 0, kMostNumber); format != 1)
    refuse(fmt::format("its format is {}, and this program knows 1 alone", format));
}

Call read_what(const Json& json) {
  Call call;
  call.collective = text(json, "collective");
  call.dtype = text(json, "dtype");
  call.reduce_op = text(json, "reduce_op");
  call.sequence = number(json, "sequence", 0, kMostNumber);
  call.count = number(json, "count", 0, kMostNumber);
  call.root = static_cast<int>(number(json, "root", INT32_MIN, INT32_MAX));
  call.on_device = truth(json, "on_device");
  return call;
}

Call read_call(const Json& json, double to_wall_us) {
  Call call = read_what(json);
  call.algorithm = text(json, "algorithm");
  call.begun_us = time(json, "begun_us") + to_wall_us;
  if (!member(json, "ended_us").is_null()) call.ended_us = time(json, "ended_us") + to_wall_us;
  return call;
}

Peer read_peer(const Json& json) {
  Peer peer{.rank = rank_number(json, "rank"),
            .job_rank = rank_number(json, "job_rank"),
            .state = text(json, "state"),
            .entered = number(json, "entered", 0, kMostNumber),
            .history = {}};
  for (const Json& call : list(json, "history")) peer.history.push_back(read_what(call));
  return peer;
}

Communicator read_communicator(const Json& json, double to_wall_us) {
  Communicator found;
  found.name = text(json, "name");
  found.failure = text(json, "failure");
  found.generation = number(json, "generation", 0, kMostNumber);
  found.rank = rank_number(json, "rank");
  found.world_size = rank_number(json, "world_size", 1);
  found.job_rank = rank_number(json, "job_rank");
  for (const Json& call : list(json, "calls")) found.calls.push_back(read_call(call, to_wall_us));
  for (const Json& peer : list(json, "peers")) found.peers.push_back(read_peer(peer));
  return found;
}

Record read_record(const Json& json) {
  check_format(json);
  Record record{.host = text(json, "host"),
                .pid = number(json, "pid", 0, kMostNumber),
                .written_us = time(json, "wall_us"),
                .communicators = {}};
  const double to_wall_us = record.written_us - time(json, "steady_us");
  for (const Json& communicator : list(json, "communicators"))
    record.communicators.push_back(read_communicator(communicator, to_wall_us));
  return record;
}

RankEnd read_end(const Json& json) {
  RankEnd end{.rank = rank_number(json, "rank"),
              .replaces = json.contains("replaces") && truth(json, "replaces"),
              .pid = number(json, "pid", 0, kMostNumber),
              .state = text(json, "state"),
              .last_lines = texts(json, "last_lines")};
  if (!json.contains("exit_code")) return end;
  end.exit_code = number(json, "exit_code", 0, 255);
  end.signal = number(json, "signal", 0, 128);
  end.ended_us = time(json, "ended_us");
  return end;
}

Job read_job(const Json& json) {
  check_format(json);
  Job job;
  job.job = text(json, "job");
  job.host = text(json, "host");
  job.sentence = text(json, "sentence");
  job.command = texts(json, "command");
  job.node = number(json, "node", 0, kMostRanks);
  job.nodes = number(json, "nodes", 1, kMostRanks);
  job.restarts = number(json, "restarts", 0, kMostNumber);
  job.world_size = rank_number(json, "world_size", 1);
  job.failed_rank = rank_number(json, "failed_rank", -1);
  job.happened_us = time(json, "happened_us");
  for (const Json& rank : list(json, "ranks")) job.ranks.push_back(read_end(rank));
  return job;
}

Json parse(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) refuse("it is not JSON");
  return json;
}

std::string contents_of(const fs::path& path) {
  std::error_code error;
  if (const auto bytes = fs::file_size(path, error); !error && bytes > kMostBytes)
    refuse(fmt::format("it has {} bytes, more than any record", bytes));
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || (in.peek() != std::ifstream::traits_type::eof() && !(text << in.rdbuf()))) refuse("it cannot be read");
  return std::move(text).str();
}

// The number in "rank12.json".
std::optional<int> rank_in(const std::string& name) {
  constexpr std::string_view kBegin = "rank", kEnd = ".json";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return {};
  int rank = 0;
  const char *const begin = name.data() + kBegin.size(), *const end = name.data() + name.size() - kEnd.size();
  const auto [at, error] = std::from_chars(begin, end, rank);
  return error == std::errc{} && at == end && rank >= 0 && rank < kMostRanks ? std::optional(rank) : std::nullopt;
}

void read_file(const fs::path& path, Folder& into) {
  const auto rank = rank_in(path.filename());
  if (!rank && path.filename() != "job.json") return;
  try {
    if (rank)
      into.records.insert_or_assign(*rank, record_of(contents_of(path)));
    else
      into.jobs.push_back(job_of(contents_of(path)));
  } catch (const Error& error) {
    refuse(fmt::format("{} is no record of a failure: {}", path.string(), error.what()));
  }
}

}  // namespace

Record record_of(std::string_view json) { return read_record(parse(json)); }
Job job_of(std::string_view json) { return read_job(parse(json)); }

Folder read_folders(const std::vector<fs::path>& folders) {
  Folder found;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error))
      if (at->is_regular_file()) read_file(at->path(), found);
    if (error)
      throw Error(ErrorCode::system, fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
  }
  if (found.jobs.empty() && found.records.empty())
    refuse(fmt::format("{} holds no job.json and no rank<r>.json: it is no folder of a failure",
                       folders.front().string()));
  return found;
}

Folder read_snapshot(const Snapshot& snapshot) {
  const auto parsed = [](const std::string& text) {
    Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) refuse("it is not JSON");
    return json;
  };
  Folder found;
  found.jobs.push_back(read_job(parsed(snapshot.job)));
  for (const auto& [rank, record] : snapshot.records) {
    try {
      found.records.insert_or_assign(rank, read_record(parsed(record)));
    } catch (const std::exception&) {
      continue;  // its row says that it is silent
    }
  }
  return found;
}

}  // namespace rondo::records
