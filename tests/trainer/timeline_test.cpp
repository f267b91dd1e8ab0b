// SPDX-License-Identifier: Apache-2.0
// A timeline is a file in the Trace Event Format that Perfetto's importer takes without dropping an event. Its rules
// that the format does not have: no time before zero, threads known by their number alone, no slices that cross.
#include <unistd.h>
#include <rondo/trainer/timeline.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include <rondo/device.hpp>
#include <rondo/trainer/gradient_synchronizer.hpp>

#include "tests/support/catch.hpp"
#include "tests/trainer/worlds.hpp"

namespace {

using nlohmann::json;
using rondo::Communicator;
using rondo::test::each_rank;
using rondo::test::no_errors;
using rondo::trainer::StepRecord;
using rondo::trainer::Timeline;

using Complaints = std::vector<std::string>;

bool is_count(const json& event, const char* key) { return event.contains(key) && event[key].is_number_unsigned(); }
bool is_name(const json& object) {
  return object.contains("name") && object["name"].is_string() && object["name"] != "";
}

class Importer {
 public:
  Complaints read(const json& trace) {
    if (!trace.is_object() || trace.size() != 1 || !trace.contains("traceEvents")) return {"not traceEvents alone"};
    for (const json& event : trace["traceEvents"]) read_event(event);
    for (const auto& [thread, slices] : slices_) check_nesting(slices);
    return complaints_;
  }

 private:
  struct Slice {
    std::int64_t begin_ns, end_ns;
    std::string text;
  };

  void complain(const std::string& what, const json& event) { complaints_.push_back(what + ": " + event.dump()); }

  void read_event(const json& event) {
    if (!is_count(event, "pid") || !is_count(event, "tid") || !is_name(event)) return complain("no identity", event);
    const int process = event["pid"], thread = event["tid"];
    if (processes_.emplace(thread, process).first->second != process) complain("thread of two processes", event);
    if (event["ph"] == "M") return read_metadata(event);
    if (event["ph"] != "X") return complain("not a phase of ours", event);
    if (named_processes_.count(process) == 0 || named_threads_.count(thread) == 0) complain("not named yet", event);
    if (!event["ts"].is_number() || !event["dur"].is_number()) return complain("no times", event);
    const double ts = event["ts"], dur = event["dur"];
    if (ts < 0 || dur < 0) complain("before zero", event);
    slices_[thread].push_back({std::llround(ts * 1e3), std::llround(ts * 1e3) + std::llround(dur * 1e3), event.dump()});
  }
  void read_metadata(const json& event) {
    if (!event.contains("args") || !is_name(event["args"])) return complain("no name", event);
    if (event["name"] == "process_name") {
      named_processes_[event["pid"]] = event["args"]["name"];
    } else if (event["name"] == "thread_name") {
      named_threads_[event["tid"]] = event["args"]["name"];
    } else {
      complain("metadata that nobody reads", event);
    }
  }
  void check_nesting(const std::vector<Slice>& slices) {
    for (const Slice& a : slices) {
      for (const Slice& b : slices) {
        if (a.begin_ns < b.begin_ns && b.begin_ns < a.end_ns && a.end_ns < b.end_ns)
          complaints_.push_back("cross one another: " + a.text + " and " + b.text);
      }
    }
  }

  std::map<int, int> processes_;  // by thread
  std::map<int, std::string> named_processes_, named_threads_;
  std::map<int, std::vector<Slice>> slices_;
  Complaints complaints_;
};

// What rank 0 has written, read and gone.
class File {
 public:
  File() : path_(std::filesystem::temp_directory_path() / ("rondo-timeline-" + std::to_string(::getpid()))) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }
  json read() const {
    std::ifstream in(path_);
    return json::parse(in);
  }

 private:
  std::filesystem::path path_;
};

json named(const json& trace, int process, const std::string& name) {
  for (const json& event : trace["traceEvents"])
    if (event["pid"] == process && event["name"] == name) return event;
  return {};
}

// Rank r's step begins r milliseconds before rank 0's.
StepRecord record_of(int rank) {
  using std::chrono::microseconds;
  const StepRecord::Clock::time_point begin(std::chrono::seconds(100) - microseconds(rank == 0 ? 0 : 1000 * rank));
  const auto at = [&](int us) { return begin + microseconds(us) + std::chrono::nanoseconds(7); };
  return {.step = 4,
          .forward = begin,
          .backward = at(500),
          .finish = at(900),
          .end = at(1000),
          .buckets = {{.index = 1, .bytes = 64, .submitted = at(600), .started = at(610), .finished = at(700)},
                      {.index = 0, .bytes = 32, .submitted = at(620), .started = at(700), .finished = at(950)}}};
}

}  // namespace

TEST_CASE("a timeline's times are microseconds since the first rank of the node began") {
  const File file;
  CHECK(each_rank(4, [&](Communicator& comm) {
          Timeline timeline;
          if (comm.rank() != 3) timeline.add(record_of(comm.rank()));  // who made no step does not count
          timeline.write(comm, file.path());
        }) == no_errors(4));
  const json trace = file.read();
  CHECK(Importer().read(trace) == Complaints());
  CHECK(trace["traceEvents"].size() == 4 * 3 + 3 * (3 + 2));
  CHECK(named(trace, 2, "process_name")["args"]["name"] == "rank 2");
  CHECK(named(trace, 2, "forward")["ts"] == 0.0);
  CHECK(named(trace, 2, "forward")["dur"] == 500.007);
  CHECK(named(trace, 1, "forward")["ts"] == 1000.0);
  const json exposed = named(trace, 0, "exposed communication");
  CHECK(exposed["ts"] == 2900.007);
  CHECK(exposed["dur"] == 100.0);
  const json bucket = named(trace, 0, "bucket 1");
  CHECK(bucket["ts"] == 2610.007);
  CHECK(bucket["dur"] == 90.0);
  CHECK(bucket["args"] == json{{"step", 4}, {"bytes", 64}, {"submitted", 2600.007}});
  CHECK(bucket["tid"] != exposed["tid"]);
}

TEST_CASE("a bucket whose times are not known is left out of the timeline") {
  StepRecord record = record_of(0);
  record.buckets[0].finished = record.buckets[0].started;
  Timeline timeline;
  timeline.add(record);
  const json trace = json::parse(timeline.json(0));
  CHECK(Importer().read(trace) == Complaints());
  CHECK(named(trace, 0, "bucket 1").is_null());
  CHECK(named(trace, 0, "bucket 0")["ts"] == 700.007);
}

TEST_CASE("what a training leaves behind is a timeline that Perfetto takes, on the CPU and on devices") {
  const std::string transport = GENERATE("shm", "tcp", "sim");
  constexpr int kRanks = 3, kSteps = 5;
  const File file;
  const auto errors = rondo::test::run_over(transport, kRanks, [&](Communicator& comm) {
    const rondo::DeviceStream stream = transport == "sim" ? rondo::DeviceStream(comm.device()) : rondo::DeviceStream();
    rondo::trainer::GradientSynchronizer synchronizer(
        comm, {{"a", nullptr, nullptr, 3000}, {"b", nullptr, nullptr, 2000}},
        {.first_bucket_bytes = 4000, .bucket_bytes = 8000, .stream = stream.get(), .gradients_in_buckets = true});
    Timeline timeline;
    for (int step = 0; step < kSteps; ++step) {
      synchronizer.ready(1);
      if (step != 2 || comm.rank() == 0) synchronizer.ready(0);
      synchronizer.finish();
      timeline.add(synchronizer.last_step());
    }
    timeline.write(comm, file.path());
  });
  INFO(transport);
  REQUIRE(rondo::test::sentences(errors) == no_errors(kRanks));
  const json trace = file.read();
  CHECK(Importer().read(trace) == Complaints());
  CHECK(trace["traceEvents"].size() == kRanks * (3 + kSteps * (3 + 4)));
}

TEST_CASE("a timeline that cannot be written is everybody's error") {
  for (const std::string& error :
       each_rank(2, [](Communicator& comm) { Timeline().write(comm, "/nowhere/at/all.json"); }))
    CHECK(error.find("cannot make a file beside /nowhere/at/all.json") != std::string::npos);
}
