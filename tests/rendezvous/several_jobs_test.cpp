// SPDX-License-Identifier: Apache-2.0
// Several jobs that meet at one place, at once or one after another, by every way to meet: never a mixed world. The
// ranks of a job have one label, and a world of two labels ends with exit code 3.
#include <filesystem>
#include <fstream>

#include "rendezvous/listen.hpp"
#include "rendezvous/secret.hpp"
#include "tests/rendezvous/jobs.hpp"
#include "tests/rendezvous/programs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::rendezvous;
using namespace rondo::rendezvous::test;

namespace {

using Words = std::vector<std::string>;

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

constexpr int kHydra = 6;  // not one of the ways to mix, as its jobs have names

// A place of this test's own, where ranks come in one of the ways.
class Meeting {
 public:
  explicit Meeting(int way) : way_(way), port_(std::to_string(listen_on({"127.0.0.1"}, 0).port)) {
    std::string name = (std::filesystem::temp_directory_path() / "rondo-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    Secret::generate().to_file(folder_ / "secret");
    std::ofstream(folder_ / "hydra_pmi_proxy") << "#!/bin/sh\n\"$@\" &\nwait $!\n";
    std::filesystem::permissions(folder_ / "hydra_pmi_proxy", std::filesystem::perms::owner_all);
  }
  ~Meeting() { std::filesystem::remove_all(folder_); }
  Meeting(const Meeting&) = delete;

  static constexpr int kWays = 6;

  enum Parent { child_of_this, child_of_another };
  Program rank(const char* rank, const char* label, const Words& more = {}, const char* world_size = "2",
               Parent parent = child_of_this) const {
    const std::string r = rank, n = world_size;
    const Words common = Words{std::string("LABEL=") + label, "RONDO_LOG=debug"} + more;
    const auto start = [&](const Words& arguments, const Words& environment) {
      Words command = parent == child_of_another ? Words{"/bin/sh", "-c", "\"$@\" & wait $!", "sh"} : Words{};
      if (way_ == kHydra) command = {(folder_ / "hydra_pmi_proxy").string()};
      return Program(command + Words{RONDO_WORLD_PROGRAM} + arguments, environment);
    };
    const std::string secret = "RONDO_SECRET_FILE=" + (folder_ / "secret").string();
    const Words by_hand{"RANK=" + r, "WORLD_SIZE=" + n, "MASTER_ADDR=localhost", "MASTER_PORT=" + port_};
    switch (way_) {
      case 0:
        return start({"file://" + (folder_ / "meeting").string(), r, n}, common);
      case 1:
        return start({"tcp://localhost:" + port_, r, n}, Words{secret} + common);
      case 2:
        return start({"tcp://127.0.0.1:" + port_, r, n}, common);
      case 3:
        return start({"env://", r, n}, by_hand + common);
      case 4:
        return start({"env://", r, n}, by_hand + Words{"TORCHELASTIC_RUN_ID=none", "LOCAL_RANK=" + r} + common);
      case kHydra:
        return start({"env://", r, n},
                     Words{"PMI_RANK=" + r, "PMI_SIZE=" + n, "MPI_LOCALRANKID=" + r, "MPI_LOCALNRANKS=" + n} + common);
      default:
        return start({"env://", r, n},
                     Words{"OMPI_COMM_WORLD_RANK=" + r, "OMPI_COMM_WORLD_SIZE=" + n, "OMPI_COMM_WORLD_LOCAL_RANK=" + r,
                           "OMPI_COMM_WORLD_LOCAL_SIZE=" + n, "MASTER_PORT=" + port_} +
                         common);
    }
  }

 private:
  int way_;
  std::string port_;
  std::filesystem::path folder_;
};

constexpr const char* kServes = "rank 0 serves by";
const Words kSoon{"JOIN_MS=2000"}, kHold{"HOLD=1"};

void check_world(Program& zero, Program& one) {
  const int codes[] = {zero.wait(), one.wait()};
  CAPTURE(zero.err, one.err);
  CHECK(codes[0] == 0);
  CHECK(codes[1] == 0);
  CHECK(contains(zero.out, "0 of 2: 1\n"));
}

}  // namespace

TEST_CASE("two jobs at one place whose ranks come in turns: both rank 0 are told at once, and nobody is mixed") {
  const int way = GENERATE(range(0, Meeting::kWays));
  const bool job_a_goes_on = GENERATE(true, false);
  CAPTURE(way);
  const Meeting place(way);
  Program a0 = place.rank("0", "1");
  REQUIRE(a0.says(kServes));
  const auto begun = std::chrono::steady_clock::now();
  Program b0 = place.rank("0", "2");
  const int codes[] = {b0.wait(), a0.wait()};
  CAPTURE(a0.err, b0.err);
  CHECK(codes[0] == 1);
  CHECK(codes[1] == 1);
  CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
  for (const Program* each : {&a0, &b0}) CHECK(contains(each->err, "two processes claim rank 0"));
  Program next = place.rank("1", job_a_goes_on ? "1" : "2", kSoon),
          last = place.rank("1", job_a_goes_on ? "2" : "1", kSoon);
  CHECK(next.wait() == 1);
  CHECK(last.wait() == 1);
  CHECK(contains(next.err, "rank"));
}

TEST_CASE("two jobs at one place claim its rank 1: all who wait are told at once") {
  const int way = GENERATE(range(0, Meeting::kWays));
  CAPTURE(way);
  const Meeting place(way);
  const auto begun = std::chrono::steady_clock::now();
  Program a1 = place.rank("1", "1", {}, "3"), b1 = place.rank("1", "2", {}, "3"), a0 = place.rank("0", "1", {}, "3");
  const int codes[] = {a0.wait(), a1.wait(), b1.wait()};
  CAPTURE(a0.err, a1.err, b1.err);
  for (const int code : codes) CHECK(code == 1);
  for (const Program* each : {&a0, &a1, &b1}) CHECK(contains(each->err, "two processes claim rank 1"));
  CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
}

TEST_CASE("jobs that have names do not meet, whatever the order of their ranks") {
  const int way = GENERATE(2, 3, 4, 5);  // the places that only name a meeting
  CAPTURE(way);
  const Meeting place(way);
  const Words a{"RONDO_JOB=a"}, b{"RONDO_JOB=b"};
  Program a0 = place.rank("0", "1", a), b1 = place.rank("1", "2", b), b0 = place.rank("0", "2", b),
          a1 = place.rank("1", "1", a);
  check_world(a0, a1);
  check_world(b0, b1);
}

TEST_CASE("of jobs without names the ranks that one process has started belong together, whoever comes first") {
  const int way = GENERATE(0, 1, 2, 3);
  CAPTURE(way);
  const Meeting place(way);
  Program a0 = place.rank("0", "1");
  REQUIRE(a0.says(kServes));
  Program b1 = place.rank("1", "2", {}, "2", Meeting::child_of_another);
  REQUIRE(b1.says("two jobs may meet"));
  Program a1 = place.rank("1", "1");
  check_world(a0, a1);
  Program b0 = place.rank("0", "2", {}, "2", Meeting::child_of_another);
  const int codes[] = {b0.wait(), b1.wait()};  // a world of its own, or refused where it came too late
  CAPTURE(b0.err, b1.err);
  for (const int code : codes) CHECK(code != 3);
}

TEST_CASE("ranks that are started one by one meet as before") {
  const int way = GENERATE(0, 1, 2, 3);
  CAPTURE(way);
  const Meeting place(way);
  Program a0 = place.rank("0", "1"), a1 = place.rank("1", "1", {}, "2", Meeting::child_of_another);
  check_world(a0, a1);
}

TEST_CASE("two jobs of MPICH's on one host have names") {
  const Meeting place(kHydra);
  Program a0 = place.rank("0", "1", kSoon), b0 = place.rank("0", "2", kSoon);
  REQUIRE(a0.says(kServes));
  REQUIRE(b0.says(kServes));
}

TEST_CASE("a file is one job's: a rank 0 of another name is told so at once, and its rank 1 does not join") {
  const Meeting place(0);
  const Words a{"RONDO_JOB=a job"}, b{"RONDO_JOB=b"};
  Program b1 = place.rank("1", "2", b + kSoon), a0 = place.rank("0", "1", a);
  REQUIRE(a0.says(kServes));
  const auto begun = std::chrono::steady_clock::now();
  Program b0 = place.rank("0", "2", b);
  CHECK(b0.wait() == 1);
  CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
  CHECK(contains(b0.err, "job 'a job' meets there and this rank is of job 'b'"));
  CHECK(b1.wait() == 1);
  Program a1 = place.rank("1", "1", a);
  check_world(a0, a1);
}

TEST_CASE("while a job runs, its place is taken: the ranks of another are told so at once") {
  const int way = GENERATE(range(0, Meeting::kWays));
  CAPTURE(way);
  const Meeting place(way);
  Program a0 = place.rank("0", "1", kHold), a1 = place.rank("1", "1", kHold);
  REQUIRE(a0.line() == "0 of 2: 1");
  REQUIRE(a1.line() == "1 of 2: 1");
  const auto begun = std::chrono::steady_clock::now();
  Program b1 = place.rank("1", "2"), b0 = place.rank("0", "2");
  const int codes[] = {b0.wait(), b1.wait()};
  CAPTURE(b0.err, b1.err);
  CHECK(codes[0] == 1);
  CHECK(codes[1] == 1);
  CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
  for (const Program* each : {&b0, &b1}) CHECK(contains(each->err, "duplicate rank"));
  CHECK(a0.says("two jobs may share its place"));
}

TEST_CASE("a place is free again once its job was killed, at any moment, and whoever was early waits") {
  const int way = GENERATE(range(0, Meeting::kWays));
  const bool was_complete = GENERATE(true, false);
  CAPTURE(way, was_complete);
  const Meeting place(way);
  {
    Program a0 = place.rank("0", "1", kHold);
    if (was_complete) {
      Program a1 = place.rank("1", "1", kHold);
      REQUIRE(a0.line() == "0 of 2: 1");
    } else {
      REQUIRE(a0.says(kServes));
    }
  }  // killed here
  Program b1 = place.rank("1", "2"), b0 = place.rank("0", "2");
  check_world(b0, b1);
}

TEST_CASE("a child that a killed rank 0 left behind does not hold its place") {
  const int way = GENERATE(0, 2, 3, 4, 5);  // a port stays bound: the next job is told that, and never meets the child
  CAPTURE(way);
  const Meeting place(way);
  pid_t child = -1;
  {
    Program a0 = place.rank("0", "1", Words{"FORK=1"} + kHold), a1 = place.rank("1", "1", kHold);
    REQUIRE(a0.line() == "0 of 2: 1");
    child = std::stoi(a0.line().substr(6));
  }
  Program b0 = place.rank("0", "2"), b1 = place.rank("1", "2");
  check_world(b0, b1);
  ::kill(child, SIGKILL);
}
