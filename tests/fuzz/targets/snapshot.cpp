// SPDX-License-Identifier: Apache-2.0
// What answers rondo top, and what it shows of that.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/fuzz/targets.hpp"
#include "tools/rondo/live.hpp"
#include "tools/rondo/snapshot.hpp"

namespace rondo::fuzz {
namespace {

struct Heard {
  std::vector<records::Snapshot> snapshots{};
  bool refused = false;
};

// It comes in pieces of that size, and is refused for good.
Heard hear(std::string_view bytes, std::size_t piece) {
  Heard heard;
  records::SnapshotReader reader;
  try {
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.take(bytes.substr(at, piece));
      while (auto snapshot = reader.next()) heard.snapshots.push_back(std::move(*snapshot));
    }
  } catch (const std::runtime_error& refusal) {
    heard.refused = true;
    expect(is_harmless(refusal.what()), "a refusal that steers terminals");
  }
  return heard;
}

bool same(const records::Snapshot& a, const records::Snapshot& b) { return a.job == b.job && a.records == b.records; }

void show(const records::Snapshot& snapshot) {
  records::Folder folder;
  if (!accepts([&] { folder = records::read_snapshot(snapshot); })) return;
  std::string page = records::heading_of(folder);
  for (const std::string& line : records::table_of(folder)) page += line;
  for (const std::string& line : records::groups_of(folder)) page += line;
  expect(is_harmless(page) && page.find('\n') == page.npos, "rows that steer terminals, or are more than one");
  const std::string json = records::live_json(folder);
  expect(nlohmann::json::accept(json) && std::ranges::count(json, '\n') == 1, "a document that is no line of JSON");
  expect(page.size() + json.size() < 65536 + 64 * records::encode(snapshot).size(),
         "rows of " + std::to_string(page.size() + json.size()) + " bytes");
}

}  // namespace

void run_snapshot(Bytes input) {
  Script script(input);
  const std::size_t piece = 1U + script.byte();
  const std::string bytes = text_of(script.rest());
  const Heard whole = hear(bytes, std::max<std::size_t>(bytes.size(), 1)), pieces = hear(bytes, piece);
  expect(whole.refused == pieces.refused && std::ranges::equal(whole.snapshots, pieces.snapshots, same),
         "pieces change what is read");
  for (const records::Snapshot& snapshot : whole.snapshots) {
    const Heard again = hear(records::encode(snapshot), 7);
    expect(!again.refused && again.snapshots.size() == 1 && same(again.snapshots.front(), snapshot),
           "a snapshot is written otherwise than it was read");
    show(snapshot);
  }
}

std::vector<std::string> snapshot_seeds() {
  const std::string job = R"({"format":1,"job":"j","node":0,"nodes":1,"host":"h","world_size":2,"restarts":0,
"command":["a","b c"],"happened_us":1700000000000000,"sentence":"","failed_rank":-1,"ranks":[
{"rank":0,"pid":7,"state":"S","last_lines":[]},
{"rank":1,"pid":8,"state":"","exit_code":3,"signal":0,"ended_us":1700000000000100,"last_lines":["one"]}]})";
  const std::string record = R"({"format":1,"host":"h","pid":7,"wall_us":1700000000000050,"steady_us":5000,
"communicators":[{"name":"world","generation":0,"rank":0,"world_size":2,"job_rank":0,"failure":"","calls":[
{"collective":"all_reduce","dtype":"f32","reduce_op":"sum","root":-1,"on_device":false,"sequence":1,"count":1000,
"algorithm":"ring","begun_us":100,"ended_us":200},{"collective":"recv","dtype":"u8","reduce_op":"","root":1,
"on_device":false,"sequence":2,"count":8,"algorithm":"","begun_us":300,"ended_us":null}],"peers":[]}]})";
  const std::string full = records::encode({.job = job, .records = {{0, record}}});
  return {std::string("\x06") + full, "\xff" + full + records::encode({.job = job, .records = {}}),
          std::string(1, '\0') + records::encode({.job = "", .records = {{1, ""}}})};
}

}  // namespace rondo::fuzz
