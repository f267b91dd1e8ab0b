// SPDX-License-Identifier: Apache-2.0
// Files that ranks, launchers and dead jobs leave, for those who look at them later.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/meeting_file.hpp"
#include "tests/fuzz/targets.hpp"
#include "tools/rondo/page.hpp"
#include "tools/rondorun/error_file.hpp"

namespace rondo::fuzz {
namespace {

constexpr char kNextFile = '\x1e';  // a byte that JSON has nowhere

}  // namespace

// Files of one folder: job.json, and then those of ranks 0, 1 and so on.
void run_failure_folder(Bytes input) {
  records::Folder folder;
  std::string_view rest = as_text(input);
  for (int rank = -1; !rest.empty(); ++rank) {
    const std::string_view file = rest.substr(0, rest.find(kNextFile));
    rest.remove_prefix(std::min(rest.size(), file.size() + 1));
    accepts([&] {
      if (rank < 0)
        folder.jobs.push_back(records::job_of(file));
      else
        folder.records[rank] = records::record_of(file);
    });
  }
  const std::string page = records::page_of(folder);
  expect(is_harmless(page), "a page that steers terminals");
  expect(page.size() < 65536 + 64 * input.size(), "a page of " + std::to_string(page.size()) + " bytes");
  expect(nlohmann::json::accept(records::trace_of(folder)), "a trace that is no JSON");
}

std::vector<std::string> failure_folder_seeds() {
  const std::string job = R"({"format":1,"job":"j","node":0,"nodes":1,"host":"h","world_size":2,"restarts":0,
"command":["a","b c"],"happened_us":1700000000000000,"sentence":"rank 1 was killed","failed_rank":1,"ranks":[
{"rank":0,"pid":7,"state":"S","last_lines":[]},
{"rank":1,"pid":8,"state":"","exit_code":0,"signal":9,"ended_us":1700000000000100,"last_lines":["one","two"]}]})";
  const std::string call = R"("collective":"all_reduce","dtype":"f32","reduce_op":"sum","root":-1,"on_device":false)";
  const auto record = [&](const std::string& rank, const std::string& peer, const std::string& ended) {
    return R"({"format":1,"host":"h","pid":7,"wall_us":1700000000000050,"steady_us":5000,"communicators":[
{"name":"world","generation":0,"rank":)" +
           rank + R"(,"world_size":2,"job_rank":)" + rank + R"(,"failure":"rank 1 is lost","calls":[{)" + call +
           R"(,"sequence":1,"count":1000,"algorithm":"ring","begun_us":100,"ended_us":)" + ended +
           R"(}],"peers":[{"rank":)" + peer + R"(,"job_rank":)" + peer + R"(,"state":"lost","entered":1,"history":[{)" +
           call + R"(,"sequence":1,"count":1001}]}]}]})";
  };
  const std::string next(1, kNextFile);
  return {job, next + record("0", "1", "null"), job + next + record("0", "1", "null"),
          job + next + record("0", "1", "200") + next + record("1", "0", "null")};
}

// What a rank wrote where torchrun's ranks do.
void run_error_file(Bytes input) {
  const std::string message = launcher::message_in(as_text(input));
  expect(is_harmless(message) && message.find('\n') == std::string::npos, "a message that steers terminals");
  expect(message.size() < 1024, "a message of " + std::to_string(message.size()) + " bytes");
  const nlohmann::json shown = message;
  static_cast<void>(shown.dump());  // throws where a character is cut in half
}

std::vector<std::string> error_file_seeds() {
  return {R"({"message": "no memory"})",
          R"({"message": {"message": "ValueError: größer", "extraInfo": {"py_callstack": "a\nb", "timestamp": "1"}}})",
          R"({"message": ")" + std::string(600, 'x') + R"("})"};
}

void run_meeting_file(Bytes input) {
  std::string reason;
  std::optional<rendezvous::Endpoint> read;
  const bool well = accepts([&] { read = runtime::read_meeting_file(text_of(input), reason); });
  if (!read) return expect(!well || !reason.empty(), "a file is refused without a reason");
  const auto again = runtime::read_meeting_file(runtime::meeting_file_text(*read), reason);
  const bool same = again && again->host == read->host && again->port == read->port && again->job == read->job &&
                    again->secret->to_hex() == read->secret->to_hex();
  expect(same, "another place than was written");
}

std::vector<std::string> meeting_file_seeds() {
  std::vector<std::string> seeds;
  for (const char* host : {"10.0.0.7", "fd00::1"})
    seeds.push_back(runtime::meeting_file_text(
        {.host = host, .port = 4000, .secret = rendezvous::Secret::generate(), .job = "a \"job\""}));
  return seeds;
}

}  // namespace rondo::fuzz
