// SPDX-License-Identifier: Apache-2.0
// Communicators that grow while their ranks run: processes started by hand, one after the other.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <iostream>
#include <memory>

#include "rendezvous/server.hpp"
#include "tests/process/running.hpp"
#include "tests/process/secret_file.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using Words = std::vector<std::string>;

// Where the ranks of one job meet, and what starts them.
class Job {
 public:
  Job() : directory_(::mkdtemp(name_)), place_("file://" + directory_ + "/meeting") {}
  explicit Job(const std::string& place) : directory_(::mkdtemp(name_)), place_(place) {}
  ~Job() { std::filesystem::remove_all(directory_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Running& start(const std::string& role, const Words& steps, Words environment = {}) {
    Words command{tool("grower"), role, place_};
    command.insert(command.end(), steps.begin(), steps.end());
    environment.insert(environment.end(), environment_.begin(), environment_.end());
    return processes_.emplace_back(command, Running::How{.environment = environment});
  }
  std::vector<Running*> start_ranks(int world_size, const Words& steps) {
    std::vector<Running*> ranks;
    for (int r = 0; r < world_size; ++r) ranks.push_back(&start(fmt::format("{}/{}", r, world_size), steps));
    return ranks;
  }
  void set(const std::string& variable) { environment_.push_back(variable); }

 private:
  char name_[32] = "/tmp/rondo-grow-XXXXXX";
  std::string directory_, place_;
  Words environment_;
  std::deque<Running> processes_;
};

bool says(const Ended& ended, const std::string& line) {
  return ("\n" + ended.out).find("\n" + line) != std::string::npos;
}

// It has taken everybody's part and rank 0's state, as that rank of so many.
void check_all(const Ended& ended, int rank, int world_size) {
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(says(ended, fmt::format("rank {} of {} on ", rank, world_size)));
  CHECK(says(ended, "done"));
  CHECK(ended.out.find(fmt::format("node(s): sum {0} {0}, state 77", world_size)) != std::string::npos);
}

void kill_now(Running& process) {
  process.signal(SIGKILL);
  process.wait();
}

}  // namespace

TEST_CASE("a spare joins in place of a killed rank, and the others go on") {
  const std::string way = GENERATE("shm", "tcp", "two nodes");
  Job job;
  if (GENERATE(false, true)) job.set("RONDO_ENCRYPT=1");
  if (way != "two nodes") job.set("RONDO_TRANSPORT=" + way);
  Running& spare = job.start("spare", {"all"}, way == "two nodes" ? Words{"GROWER_NODE=other"} : Words{});
  const auto ranks = job.start_ranks(4, {"lose", "grow=4", "all", "before"});
  for (Running* rank : ranks) rank->lines("joined ", 1);
  kill_now(*ranks[1]);
  for (const int r : {0, 2, 3}) {
    const Ended ended = ranks[static_cast<std::size_t>(r)]->wait();
    check_all(ended, r == 0 ? 0 : r - 1, 4);
    CHECK(says(ended, "lost 1"));
    CHECK(says(ended, fmt::format("before: rank {} of 3, sum 3", r == 0 ? 0 : r - 1)));
    CHECK(says(ended, fmt::format("rank {} of 4 on {} node", r == 0 ? 0 : r - 1, way == "two nodes" ? 2 : 1)));
    if (r != 0) continue;
    const double regrown_ms = std::atof(ended.out.c_str() + ended.out.find("regrown_ms ") + 11);
    std::cout << way << ": from the loss of a rank to the first all_reduce of 4 again: " << regrown_ms << " ms\n";
    CHECK(regrown_ms > 0);
    CHECK(regrown_ms < 5000);  // on a busy machine
  }
  check_all(spare.wait(), 3, 4);
}

TEST_CASE("ranks that wait for spares take the first of them, and the others wait on") {
  Job job;
  Running& rank = job.start("0/1", {"poll", "grow=2", "all", "grow=4", "all", "before"});
  rank.lines("nobody", 1);
  // The first of them may be any: whoever joins first has all the other steps before it.
  std::vector<Running*> spares;
  spares.push_back(&job.start("spare", {"all", "grow=4", "all", "before"}));
  rank.lines("rank 0 of 2", 1);
  for (int i = 0; i < 2; ++i) spares.push_back(&job.start("spare", {"all"}));
  const Ended first = rank.wait();
  check_all(first, 0, 2);
  check_all(first, 0, 4);
  CHECK(says(first, "before: rank 0 of 2, sum 2"));
  const Ended second = spares[0]->wait();
  check_all(second, 1, 2);
  check_all(second, 1, 4);
  const Ended third = spares[1]->wait(), fourth = spares[2]->wait();
  const bool in_order = says(third, "joined rank 2 of 4");
  check_all(third, in_order ? 2 : 3, 4);
  check_all(fourth, in_order ? 3 : 2, 4);
}

TEST_CASE("those who wait now join without a number, and one who joined lets others join") {
  Job job;
  const auto ranks = job.start_ranks(2, {"await", "all", "grow=4", "all"});
  Running& first = job.start("spare", {"all", "grow=4", "all"});
  for (Running* rank : ranks) rank->lines("rank ", 1);
  Running& second = job.start("spare", {"all"});
  for (int r = 0; r < 2; ++r) check_all(ranks[static_cast<std::size_t>(r)]->wait(), r, 4);
  check_all(first.wait(), 2, 4);
  check_all(second.wait(), 3, 4);
}

TEST_CASE("too few to join is a timeout on every rank, and the communicator goes on") {
  Job job;
  const auto ranks = job.start_ranks(2, {"try=4", "all", "grow=3", "all"});
  for (Running* rank : ranks) {
    const auto said = rank->lines("refused ", 1);
    CHECK(said.front().find("0 of 2 processes had come to join") != std::string::npos);
    rank->lines("rank ", 1);
  }
  Running& spare = job.start("spare", {"all"});
  for (int r = 0; r < 2; ++r) {
    const Ended ended = ranks[static_cast<std::size_t>(r)]->wait();
    check_all(ended, r, 2);
    check_all(ended, r, 3);
  }
  check_all(spare.wait(), 2, 3);
}

TEST_CASE("sizes that differ, or are no larger, are refused on every rank alike") {
  Job job;
  Running& first = job.start("0/2", {"try=3", "try=2", "all"});
  Running& second = job.start("1/2", {"try=4", "try=2", "all"});
  for (Running* rank : {&first, &second}) {
    const Ended ended = rank->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.out.find("grow: rank 1 asked for a world of 4 where rank 0 asked for 3") != std::string::npos);
    CHECK(ended.out.find("grow: 2 ranks cannot become a world of 2") != std::string::npos);
    check_all(ended, rank == &first ? 0 : 1, 2);
  }
}

TEST_CASE("a grown communicator shrinks and grows again") {
  Job job;
  if (GENERATE(false, true)) job.set("RONDO_ENCRYPT=1");
  const Words again{"lose", "grow=4", "all"};
  Words steps = again;
  steps.insert(steps.end(), again.begin(), again.end());
  const auto ranks = job.start_ranks(4, steps);
  for (Running* rank : ranks) rank->lines("joined ", 1);
  kill_now(*ranks[3]);
  Running& first = job.start("spare", {"all", "lose"});
  for (int r = 0; r < 3; ++r) ranks[static_cast<std::size_t>(r)]->lines("rank ", 1);
  first.lines("rank 3 of 4", 1);
  kill_now(first);
  Running& second = job.start("spare", {"all"});
  for (int r = 0; r < 3; ++r) {
    const Ended ended = ranks[static_cast<std::size_t>(r)]->wait();
    check_all(ended, r, 4);
    const auto first_loss = ended.out.find("lost 3");
    CHECK(first_loss != std::string::npos);
    CHECK(ended.out.find("lost 3", first_loss + 1) != std::string::npos);
  }
  check_all(second.wait(), 3, 4);
}

TEST_CASE("whoever dies while the others grow is left out, and a spare takes its place") {
  const std::string transport = GENERATE("shm", "tcp");
  const bool encrypts = GENERATE(false, true);
  const bool joins = GENERATE(true, false);  // the victim
  const unsigned delay_us = GENERATE(0U, 2000U, 8000U);
  INFO((joins ? "a joiner, " : "a member, ")
       << transport << (encrypts ? ", encrypted, " : ", ") << delay_us << " us after the ranks began to grow");
  Job job;
  job.set("RONDO_TRANSPORT=" + transport);
  if (encrypts) job.set("RONDO_ENCRYPT=1");
  Running& early = job.start("spare", {joins ? "part=4" : "stand=4", "all"});
  std::vector<Running*> ranks;
  for (int r = 0; r < 3; ++r)
    ranks.push_back(&job.start(fmt::format("{}/3", r), {r == 2 && !joins ? "part=4" : "stand=4", "all"}));
  for (Running* rank : ranks) rank->lines("joined ", 1);
  Running& victim = joins ? early : *ranks[2];
  (joins ? *ranks[0] : victim).lines("growing", 1);
  ::usleep(delay_us);  // the moment of the kill, not a wait for anything
  kill_now(victim);
  Running& late = job.start("spare", {"stand=4", "all"});
  std::vector<Ended> ended;
  for (Running* rank : ranks) {
    if (rank != &victim) ended.push_back(rank->wait());
  }
  if (!joins) ended.push_back(early.wait());
  ended.push_back(late.wait());
  const std::size_t members = joins ? 3 : 2;
  for (std::size_t i = 0; i < members; ++i) check_all(ended[i], static_cast<int>(i), 4);
  if (joins) return check_all(ended[3], 3, 4);
  const bool early_first = says(ended[2], "rank 2 of 4");
  check_all(ended[2], early_first ? 2 : 3, 4);
  check_all(ended[3], early_first ? 3 : 2, 4);
}

TEST_CASE("who has another secret, job name or kind of device cannot join, and the job goes on without it") {
  using rondo::rendezvous::Secret;
  const SecretFile secret("grow"), other("other");
  const rondo::rendezvous::Server server({.secret = Secret::from_file(secret.path), .job = "ours"});
  Job job(fmt::format("tcp://127.0.0.1:{}", server.port()));
  const std::string right = "RONDO_SECRET_FILE=" + secret.path.string();
  const auto fails = [&](const Words& environment, const std::string& why, const std::string& role = "spare") {
    const Ended ended = job.start(role, {"all"}, environment).wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 1);
    CHECK(ended.out.find(why) != std::string::npos);
  };
  fails({"RONDO_SECRET_FILE=" + other.path.string(), "RONDO_JOB=ours"}, "wrong secret");
  fails({right, "RONDO_JOB=theirs"}, "wrong job");
  fails({right, "RONDO_JOB=ours"}, "no communicator of job 'ours' has let this process join by the deadline", "brief");
  const Words ours{right, "RONDO_JOB=ours"};
  Running& rank = job.start("0/1", {"take=2", "grow=2", "all"}, ours);
  rank.lines("growing", 1);
  Running& odd = job.start("spare on sim", {"all"}, ours);
  const std::string why = "rank 0 asked for a cpu device and rank 1 for a sim device";
  CHECK(odd.wait().out.find(why) != std::string::npos);
  CHECK(rank.lines("refused mismatch", 1).front().find("device") != std::string::npos);
  Running& spare = job.start("spare", {"all"}, ours);
  check_all(rank.wait(), 0, 2);
  check_all(spare.wait(), 1, 2);
}

TEST_CASE("who joined later comes back to a server that died, as all others do") {
  const SecretFile secret("return");
  const bool encrypts = GENERATE(false, true);
  const auto serve = [&](const std::string& port) {
    Words command{tool("rondo-rendezvous"), "--port", port, "--secret-file", secret.path.string()};
    if (encrypts) command.push_back("--encrypt");
    return std::make_unique<Running>(command);
  };
  auto server = serve("0");
  const std::string port = server->lines("127.0.0.1:", 1).front();
  Job job("tcp://127.0.0.1:" + port);
  job.set("RONDO_SECRET_FILE=" + secret.path.string());
  if (encrypts) job.set("RONDO_ENCRYPT=1");
  const auto ranks = job.start_ranks(2, {"grow=3", "all", "lose", "grow=3", "all"});
  Running& first = job.start("spare", {"all", "lose", "grow=3", "all"});
  for (Running* rank : {ranks[0], ranks[1], &first}) rank->lines("rank ", 1);
  kill_now(*server);
  server = serve(port);
  server->lines("127.0.0.1:", 1);
  kill_now(*ranks[1]);
  Running& second = job.start("spare", {"all"});
  check_all(ranks[0]->wait(), 0, 3);
  check_all(first.wait(), 1, 3);
  check_all(second.wait(), 2, 3);
}

TEST_CASE("when the rank that served is lost, who joined later goes on with the others, and lets others join") {
  Job job;
  const auto ranks = job.start_ranks(2, {"grow=3", "all", "lose", "grow=3", "all"});
  Running& first = job.start("spare", {"all", "lose", "grow=3", "all"});
  for (Running* rank : {ranks[0], ranks[1], &first}) rank->lines("rank ", 1);
  kill_now(*ranks[0]);
  Running& second = job.start("spare", {"all"});
  check_all(ranks[1]->wait(), 0, 3);
  check_all(first.wait(), 1, 3);
  check_all(second.wait(), 2, 3);
}

TEST_CASE("a spare joins the ranks of a rondorun by their variables") {
  const SecretFile secret("spare");
  const Words how = rondorun({"--nproc-per-node", "2", "--prefix", "none", "--secret-file", secret.path});
  Words command = how;
  for (const std::string& word : {tool("grower"), std::string("env"), std::string("-"), std::string("where"),
                                  std::string("await"), std::string("all")})
    command.push_back(word);
  Running ranks(command);
  const std::string variables = ranks.lines("variables ", 2).front();
  const auto space = variables.find(' ');
  Running spare({tool("grower"), "spare", "env://", "all"},
                Running::How{.environment = {"RONDO_RENDEZVOUS=" + variables.substr(0, space),
                                             "RONDO_JOB=" + variables.substr(space + 1),
                                             "RONDO_SECRET_FILE=" + secret.path.string()}});
  check_all(spare.wait(), 2, 3);
  const Ended ended = ranks.wait();
  for (int r = 0; r < 2; ++r) check_all(ended, r, 3);
}

TEST_CASE("where nobody can join, grow and join say so") {
  const auto says_so = [](const Words& command, const Words& environment, const std::string& why) {
    const Ended ended = run(command, {.environment = environment});
    INFO(ended.out << ended.err);
    CHECK(ended.out.find(why) != std::string::npos);
  };
  const std::string grower = tool("grower");
  says_so({grower, "env", "-", "try=2"}, {"RONDO_WORLD=one"}, "grow: this communicator was made where no other");
  says_so({grower, "threads", "-", "try=2"}, {}, "grow: ranks that are threads");
  says_so({grower, "spare", "env://"}, {}, "the environment does not say where to join");
  says_so({grower, "spare", "env://"}, {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=x"}, "MASTER_PORT=x is not");
  says_so({grower, "spare", "http://a"}, {}, "'http://a' is no url to meet at");
  says_so({grower, "rank 1 spare", "file:///tmp/x"}, {}, "join: rank 1 and world size -1 were given");
}
