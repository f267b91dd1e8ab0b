// SPDX-License-Identifier: Apache-2.0
// What a job that fails leaves behind: a folder with the last operations of every rank.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/base/process_state.hpp"
#include "tests/process/running.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/expect.hpp"
#include "tools/rondorun/records.hpp"

namespace {

namespace fs = std::filesystem;
using namespace rondo::test;
using nlohmann::json;

// Where folders of failures go; all of it goes with the test.
class Place {
 public:
  Place() : path_(fs::temp_directory_path() / fmt::format("rondo-recorder-{}", ::getpid())) {
    fs::create_directory(path_);
  }
  ~Place() {
    fs::remove_all(path_);
    fs::remove(go());
  }
  Place(const Place&) = delete;
  const fs::path& path() const { return path_; }
  std::string go() const { return path_.string() + ".go"; }
  std::vector<fs::path> folders() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(path_)) all.push_back(entry.path());
    return all;
  }

 private:
  fs::path path_;
};

Running::How leaving(const std::string& where) {
  return {.environment = {"CUDA_VISIBLE_DEVICES=", "RONDO_FAILURE_DIR=" + where}};
}

std::vector<std::string> job(const std::string& scenario, std::vector<std::string> flags = {},
                             const std::string& go = "") {
  flags.insert(flags.end(), {"--nproc-per-node", "4", "--", tool("recorded"), scenario});
  if (!go.empty()) flags.push_back(go);
  return rondorun(flags);
}

json read(const fs::path& file) {
  INFO(file);
  std::ifstream in(file);
  REQUIRE(in);
  return json::parse(in);
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n'), begin = text.find_last_of('\n', end);
  return text.substr(begin + 1, end - begin);
}

std::string explained(const fs::path& folder) {
  const auto ended = run({tool("rondo"), "explain", folder});
  CHECK(ended.err == "");
  CHECK(ended.code == 0);
  return ended.out;
}

// The job fails, and leaves one folder.
fs::path folder_of(const Place& place, const std::string& scenario, int code) {
  const auto ended = run(job(scenario), leaving(place.path()));
  INFO(ended.out << ended.err);
  CHECK(ended.code == code);
  REQUIRE(place.folders().size() == 1);
  const fs::path folder = place.folders().front();
  CHECK(folder.filename().string().starts_with("rondo-failure-rondorun-"));
  CHECK((fs::status(folder).permissions() & fs::perms::mask) == fs::perms::owner_all);
  CHECK(last_line(ended.err) == "rondorun: what each rank did last: rondo explain " + folder.string());
  return folder;
}

// Of the world.
json world_of(const fs::path& folder, int rank) {
  const json document = read(folder / fmt::format("rank{}.json", rank));
  REQUIRE(document["communicators"].size() == 1);
  const json& world = document["communicators"][0];
  CHECK(world["name"] == "world");
  CHECK(world["rank"] == rank);
  CHECK(world["world_size"] == 4);
  REQUIRE(world["calls"].size() >= 3);
  return world;
}

const json& peer_of(const json& world, int rank) {
  for (const json& peer : world["peers"])
    if (peer["rank"] == rank) return peer;
  FAIL("rank " << rank << " is not among the peers");
  return world;
}

// A job that goes on, asked for its folder by SIGUSR2.
class Asked {
 public:
  Asked(const Place& place, const std::string& scenario, const std::string& go = "")
      : running_(job(scenario, {}, go), {.environment = leaving(place.path()).environment, .one_stream = true}) {
    running_.lines("rank ", 4);
  }
  // All folders so far, the latest last.
  std::vector<std::string> folders() {
    return running_.lines("rondorun: what each rank does now: rondo explain ", times_);
  }
  std::vector<std::string> ask() {
    running_.signal(SIGUSR2);
    ++times_;
    return folders();
  }
  // Asks until the page says so, or for 20 s: that a rank has begun does not say that it is in a call.
  std::string ask_until(const std::string& part) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::string page;
    do page = explained(ask().back());
    while (!contains(page, part) && std::chrono::steady_clock::now() < deadline);
    return page;
  }
  std::size_t times() const { return times_; }
  Running& running() { return running_; }

 private:
  Running running_;
  std::size_t times_ = 0;
};

// The job fails when the `waiting` ranks are in their fourth call, and leaves a folder more.
fs::path told_folder_of(const Place& place, const std::string& scenario, const std::string& waiting, int code) {
  Asked asked(place, scenario, place.go());
  asked.ask_until("- ranks " + waiting + " waited in #4 of world");
  std::ofstream{place.go()};
  const auto ended = asked.running().wait();
  INFO(ended.out);
  CHECK(ended.code == code);
  CHECK(place.folders().size() == asked.times() + 1);
  const std::string sentence = last_line(ended.out), begin = "rondorun: what each rank did last: rondo explain ";
  REQUIRE(sentence.starts_with(begin));
  return sentence.substr(begin.size());
}

}  // namespace

TEST_CASE("a rank that is killed leaves what its peers know of it, in one folder with their own last calls") {
  const Place place;
  const fs::path folder = told_folder_of(place, "killed", "0,1,3", 128 + SIGKILL);
  CHECK_FALSE(fs::exists(folder / "rank2.json"));
  for (const int rank : {0, 1, 3}) {
    const json world = world_of(folder, rank);
    CHECK(world["calls"].size() == 4);
    CHECK(world["calls"][3]["ended_us"].is_null());
    CHECK(world["failure"].get<std::string>().find("rank 2 (host ") == 0);
    const json& killed = peer_of(world, 2);
    CHECK(killed["state"] == "lost");
    CHECK(killed["entered"] == 3);
    REQUIRE(killed["history"].size() == 3);
    CHECK(killed["history"][2]["collective"] == "all_reduce");
    CHECK(killed["history"][2]["count"] == 1000);
  }
  const json launcher = read(folder / "job.json");
  CHECK(launcher["failed_rank"] == 2);
  CHECK(launcher["sentence"].get<std::string>().find("was killed by signal 9 (Killed)") != std::string::npos);
  CHECK(launcher["world_size"] == 4);
  CHECK(launcher["command"] == json({tool("recorded"), "killed", place.go()}));
  CHECK(launcher["ranks"][2]["signal"] == 9);
  CHECK(launcher["ranks"][2]["last_lines"] == json({"rank 2 has begun"}));
  CHECK(launcher["ranks"][0]["exit_code"] == 3);
  const std::string page = explained(folder);
  INFO(page);
  CHECK(contains(page, ", 4 ranks: " + tool("recorded") + " killed " + place.go() + "\n"));
  CHECK(contains(page, ") was killed by signal 9 (Killed).\n"));
  CHECK(contains(page, "- world failed: rank 2 (host "));
  CHECK(contains(page, "- ranks 0,1,3 waited in #4 of world, all_reduce of 1000 f32, sum, since "));
  CHECK(contains(page, ", for rank 2.\n  rank 2 had entered #3 by then, and was lost.\n"));
  CHECK(contains(page,
                 "; its last call was all_reduce of 1000 f32, sum, #3 of world, as its neighbours know; it was "
                 "killed before it could write.\n"));
  CHECK(contains(page, "\nLast lines of the rank that failed\n  rank 2 has begun\n"));
  CHECK_FALSE(contains(page, "The first call in which ranks differ"));
}

TEST_CASE("ranks that call different things leave what each has called") {
  const Place place;
  const fs::path folder = told_folder_of(place, "mismatch", "0,2,3", 3);
  for (const int rank : {0, 1, 2, 3}) {
    const json world = world_of(folder, rank);
    REQUIRE(world["calls"].size() == 4);
    CHECK(world["calls"][3]["collective"] == (rank == 1 ? "broadcast" : "all_reduce"));
    CHECK(world["failure"].get<std::string>().find("rank 1") != std::string::npos);
  }
  CHECK(
      contains(explained(folder),
               "What happened\n- The first call in which ranks differ is #4 of world:\n"
               "  ranks 0,2,3 called all_reduce of 1000 f32, sum.\n  rank 1 called broadcast of 1000 f32, root 0.\n"));
}

TEST_CASE("a rank that never comes says where it is when the launcher asks") {
  const Place place;
  const fs::path folder = folder_of(place, "deadline", 3);
  const json late = world_of(folder, 2);
  CHECK(late["calls"].size() == 3);
  CHECK(late["calls"][2]["ended_us"].is_number());
  CHECK(peer_of(world_of(folder, 0), 2)["entered"] == 3);
  CHECK(read(folder / "job.json")["ranks"][2]["state"] == "S");
  const std::string page = explained(folder);
  INFO(page);
  CHECK(contains(page, "- ranks 0,1,3 waited in #4 of world, all_reduce of 1000 f32, sum, since "));
  CHECK(contains(page, " ms, for rank 2.\n  rank 2 had entered #3 by then.\n"));
  CHECK(contains(page, ") was asleep then, killed by signal 15 (Terminated); its last call was"));
  CHECK(contains(page, "\nWho came last\n"));
}

TEST_CASE("a rank that leaves by an exception has left its own last calls before") {
  const Place place;
  const fs::path folder = folder_of(place, "throws", 3);
  CHECK(world_of(folder, 2)["calls"].size() == 3);
  CHECK(peer_of(world_of(folder, 0), 2)["state"] == "left");
}

namespace {

// All its threads, which takes the kernel a moment.
bool stop(pid_t pid) {
  if (::kill(pid, SIGSTOP) != 0) return false;
  const auto stops = [](const fs::directory_entry& thread) {
    const auto state = rondo::read_process(std::stoi(thread.path().filename()));
    return state && state->state == 'T';
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const fs::path threads = fmt::format("/proc/{}/task", pid);
  while (std::chrono::steady_clock::now() < deadline)
    if (std::all_of(fs::directory_iterator(threads), fs::directory_iterator(), stops)) return true;
  return false;
}

}  // namespace

TEST_CASE("SIGUSR2 writes what ranks do that wait, compute or are stopped, each time anew, and the job goes on") {
  const Place place;
  Asked asked(place, "computes");
  const std::string waits = "- ranks 0,1,3 waited in #4 of world, all_reduce of 1000 f32, sum, since ";
  std::string page = asked.ask_until(waits);
  CAPTURE(page);
  const fs::path first = asked.folders().back();
  CHECK(contains(page, ": somebody asked what the ranks are in.\n"));
  CHECK(contains(page, waits));
  CHECK(contains(page, ", for rank 2.\n  rank 2 had entered #3 by then.\n"));
  CHECK(contains(
      page, ") was running then, has not ended; its last call was all_reduce of 1000 f32, sum, #3 of world, over"));
  const json before = read(first / "job.json");
  CHECK(before["failed_rank"] == -1);
  for (const json& rank : before["ranks"]) CHECK_FALSE(rank.contains("exit_code"));

  const pid_t stopped = before["ranks"][2]["pid"];
  REQUIRE(stop(stopped));
  const fs::path second = asked.ask().back();
  CHECK(second != first);
  page = explained(second);
  CHECK_FALSE(fs::exists(second / "rank2.json"));
  CHECK(fs::exists(second / "rank3.json"));
  CHECK(contains(page, "  rank 2 had entered #3 by then, and was stopped.\n"));
  CHECK(contains(page, ") was stopped then, has not ended; nothing is known of its calls; it wrote nothing: it had "));
  REQUIRE(::kill(stopped, SIGCONT) == 0);

  const fs::path third = asked.ask().back();
  CHECK(fs::exists(third / "rank2.json"));
  CHECK(place.folders().size() == asked.times());
  asked.running().signal(SIGTERM);
  CHECK(asked.running().wait().code == 128 + SIGTERM);
  CHECK(place.folders().size() == asked.times());
}

TEST_CASE("SIGUSR2 twice at once is answered, in the midst of calls; a failure has its own folder afterwards") {
  const Place place;
  Asked asked(place, "loops");
  asked.running().signal(SIGUSR2);
  const fs::path asked_for = asked.ask().back();
  for (const int rank : {0, 1, 2, 3}) CHECK(world_of(asked_for, rank)["calls"].size() <= 64);
  const pid_t pid = read(asked_for / "job.json")["ranks"][1]["pid"];
  REQUIRE(::kill(pid, SIGKILL) == 0);
  const auto ended = asked.running().wait();
  CHECK(ended.code == 128 + SIGKILL);
  const std::string sentence = last_line(ended.out), begin = "rondorun: what each rank did last: rondo explain ";
  REQUIRE(sentence.starts_with(begin));
  const fs::path of_failure = sentence.substr(begin.size());
  CHECK(read(of_failure / "job.json")["failed_rank"] == 1);
  CHECK_FALSE(fs::exists(of_failure / "rank1.json"));  // what it said before is no last word
}

TEST_CASE("SIGUSR2 ends no program that does not know it, and says so where nothing may be written") {
  const Place place;
  Running alone(rondorun({"-n", "2", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done"}),
                {.environment = leaving(place.path()).environment, .one_stream = true});
  alone.lines("ready", 2);
  alone.signal(SIGUSR2);
  const fs::path folder = alone.lines("rondorun: what each rank does now: rondo explain ", 1).front();
  CHECK(contains(explained(folder), "; it wrote nothing: it had no communicator, or did not answer.\n"));
  Running silent(job("loops"), {.environment = leaving("none").environment, .one_stream = true});
  silent.lines("rank ", 4);
  silent.signal(SIGUSR2);
  silent.lines("rondorun: what each rank does is not written, as the failure directory is none", 1);
  CHECK(place.folders().size() == 1);
}

TEST_CASE("a job that ends well makes no folder, nor does one that is told to leave none or to end") {
  const Place place;
  CHECK(run(job("well"), leaving(place.path())).code == 0);
  CHECK(run(job("killed", {"--failure-dir", "none"}), leaving(place.path())).code == 128 + SIGKILL);
  CHECK(run(job("killed"), leaving("none")).code == 128 + SIGKILL);
  Running told(job("loops", {"--failure-dir", place.path()}), leaving("none"));
  told.lines("rank 2 has begun", 1);
  told.signal(SIGTERM);
  CHECK(told.wait().code == 128 + SIGTERM);
  CHECK(place.folders().empty());
}

TEST_CASE("where no folder can be made or filled the job says so once, and ends as without it") {
  Place place;
  std::vector<std::string> command = job("killed");
  std::string where = "/dev/null/nowhere", reason = "Not a directory";
  SECTION("the place is none") {}
  SECTION("there are too many already") {
    for (int i = 0; i < 100; ++i) fs::create_directory(place.path() / fmt::format("rondo-failure-{}", i));
    where = place.path();
    reason = "holds 100 folders of failures already: remove some";
  }
  SECTION("the disk is full") {
    const std::string mount = fmt::format("mount -t tmpfs -o size=4k none '{}'", place.path().string());
    if (run({"unshare", "-m", "sh", "-c", mount}).code != 0) {
      WARN("skipped: this user may not mount a small disk");
      return;
    }
    where = place.path();
    reason = "No space left on device";
    command.insert(command.begin(), {"unshare", "-m", "sh", "-c", mount + " && exec \"$@\"", "sh"});
  }
  const auto ended = run(command, leaving(where));
  INFO(ended.err);
  CHECK(ended.code == 128 + SIGKILL);
  CHECK(last_line(ended.err).starts_with("rondorun: what each rank did last is lost: "));
  CHECK(last_line(ended.err).find(reason) != std::string::npos);
  const std::string warning = "what each rank did last";
  CHECK(ended.err.find(warning) == ended.err.rfind(warning));
}

TEST_CASE("each failure has a folder of its own") {
  const Place place;
  const auto ended =
      run(job("killed", {"--max-restarts", "2", "--rdzv-id", "a job/../of mine"}), leaving(place.path()));
  CHECK(ended.code == 128 + SIGKILL);
  CHECK(place.folders().size() == 3);
  for (const auto& folder : place.folders()) {
    INFO(folder);
    CHECK(folder.filename().string().starts_with("rondo-failure-a_job_.._of_mine-"));
    CHECK(fs::exists(folder / "job.json"));
  }
}

TEST_CASE("the guide shows a page that is printed") {
  std::ifstream file(RONDO_SOURCE_DIR "/docs/troubleshooting.md");
  const std::string guide{std::istreambuf_iterator<char>(file), {}};
  const auto begin = guide.find("```\nWhat happened\n");
  REQUIRE(begin != std::string::npos);
  const std::string shown = guide.substr(begin + 4, guide.find("```", begin + 4) - begin - 4);
  const Place place;
  CHECK(contains(explained(told_folder_of(place, "mismatch", "0,2,3", 3)), shown));
}

TEST_CASE("the trace is JSON that has every rank's calls on one axis of time") {
  const Place place;
  const fs::path folder = folder_of(place, "deadline", 3);
  const auto ended = run({tool("rondo"), "explain", "--trace", folder});
  CHECK(ended.code == 0);
  const json trace = json::parse(ended.out);
  std::map<int, std::vector<json>> calls;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X") calls[event["pid"]].push_back(event);
  REQUIRE(calls.size() == 4);
  CHECK(calls[2].size() == 3);
  for (const int rank : {0, 1, 3}) {
    REQUIRE(calls[rank].size() == 4);
    CHECK(calls[rank][3]["args"]["over"] == false);
    CHECK(calls[rank][3]["dur"] > 390'000);  // the deadline of 0.4 s
    for (std::size_t i = 0; i < 3; ++i) {    // nobody is done with a call before all have begun it
      const double begun = calls[2][i]["ts"], ended_at = double(calls[rank][i]["ts"]) + double(calls[rank][i]["dur"]);
      CHECK(begun >= 0);
      CHECK(ended_at + 1000 > begun);  // ranks read the clocks one after the other
    }
  }
}

TEST_CASE("files that are no records are refused in one sentence") {
  const Place place;
  const std::string head = R"({"format": 1, "host": "a", "pid": 1, "steady_us": 0, "wall_us": 0, )";
  const std::string call = R"("collective": "barrier", "sequence": 1, "count": 0, "dtype": "u8", "reduce_op": "sum", )";
  const auto [text, why] = GENERATE_COPY(table<std::string, std::string>({
      {"", "it is not JSON"},
      {"{", "it is not JSON"},
      {std::string(100'000, '['), "it is not JSON"},
      {"[]", "it has no 'format'"},
      {R"({"format": 2})", "its format is 2, and this program knows 1 alone"},
      {R"({"format": 1})", "it has no 'host'"},
      {R"({"format": 1, "host": 7})", "'host' is no text"},
      {head + R"("communicators": 3})", "'communicators' is no list"},
      {head + R"("communicators": [3]})", "it has no 'name'"},
      {R"({"format": 1, "host": "a", "pid": -1})", "'pid' is not a whole number from 0 to 9007199254740992"},
      {R"({"format": 1, "host": "a", "pid": 1e300})", "'pid' is not a whole number from 0 to 9007199254740992"},
      {R"({"format": 1, "host": "a", "pid": 1, "wall_us": 1e300})", "'wall_us' is no time"},
      {head + R"("communicators": [{"name": "w", "failure": "", "generation": 0, "rank": 0, "world_size": 1,
         "job_rank": 0, "calls": [{)" +
           call + R"("root": 5000000000}]}]})",
       "'root' is not a whole number from -2147483648 to 2147483647"},
  }));
  std::ofstream(place.path() / "rank3.json") << text;
  const auto ended = run({tool("rondo"), "explain", place.path()});
  CHECK(ended.code == 2);
  CHECK(ended.out == "");
  CHECK(ended.err == fmt::format("rondo: {}/rank3.json is no record of a failure: {}\n", place.path().string(), why));
}

TEST_CASE("what a record says does not steer the terminal") {
  const Place place;
  std::ofstream(place.path() / "rank0.json")
      << R"({"format": 1, "host": "a", "pid": 1, "steady_us": 0, "wall_us": 0, "communicators": [{"name": "w",
            "failure": "\u001b[2Jgone \u009b2J \u00fc", "generation": 0, "rank": 0, "world_size": 1, "job_rank": 0,
            "calls": [], "peers": []}]})";
  const std::string page = explained(place.path());
  INFO(page);
  CHECK(contains(page, "- w failed: \\x1b[2Jgone \\xc2\\x9b2J \u00fc.\n"));
}

TEST_CASE("rondo says what it is asked wrongly") {
  const auto nothing = run({tool("rondo"), "explain", "/nonexistent"});
  CHECK(nothing.code == 2);
  CHECK(nothing.err == "rondo: cannot read the folder /nonexistent: No such file or directory\n");
  CHECK(run({tool("rondo"), "explain"}).code == 2);
  CHECK(run({tool("rondo")}).code == 2);
  CHECK(run({tool("rondo"), "--help"}).code == 0);
}

TEST_CASE("what a rank has said is there when it has ended with a question unread") {
  rondo::process::EventLoop loop;
  rondo::launcher::Records records(loop);
  rondo::Fd rank = records.open(0);
  const std::string packet = "fwhat it did";
  REQUIRE(::send(rank.get(), packet.data(), packet.size(), 0) == static_cast<ssize_t>(packet.size()));
  records.ask();
  rank.reset();
  records.take_all();
  CHECK(records.latest(0, {}) == "what it did");
}
