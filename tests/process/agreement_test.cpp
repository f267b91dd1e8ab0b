// SPDX-License-Identifier: Apache-2.0
// Flags that the launchers of a job's nodes have differently, one by one: refused by name, told where they meet, or
// each node's own, as the table of flags says.
#include "tools/rondorun/agreement.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <rondo/error.hpp>

#include "tests/process/nodes_job.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tools/rondorun/flags.hpp"

namespace {

using namespace rondo::test;
using rondo::launcher::OnNodes;
using Words = std::vector<std::string>;

// A flag, as node 0 has it and as another node has it; what is refused, in these words.
struct Row {
  std::string flag;
  Words first, second;
  std::string sentence{};
  std::string nodes = "2";
};

Words operator+(Words all, const Words& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

bool says(const Ended& ended, const std::string& words) { return ended.err.find(words) != std::string::npos; }

// Flags of the table that are so have a row, and no others.
void check_rows(const std::vector<Row>& rows, OnNodes kind) {
  std::set<std::string> tested, known;
  for (const Row& row : rows) tested.insert(row.flag);
  for (const auto& flag : rondo::launcher::flags())
    if (flag.on_nodes == kind) known.insert(std::string(flag.name));
  CHECK(tested == known);
}

// Where one waits for a node that is never to come.
Ended come_second(const NodesJob& job, const Row& row, const Words& program) {
  const auto first = job.start(Words{"--node-rank", "0"} + row.first, program);
  return job.start(Words{"--node-rank", "1"} + row.second, program)->wait();
}

void check_refused(const Row& row, const Words& program) {
  const NodesJob job(row.nodes);
  const Ended ended = come_second(job, row, program);
  INFO(row.flag << ": " << ended.err);
  CHECK(ended.code == 1);
  CHECK(says(ended, row.sentence));
}

const std::vector<Row> kCompared{
    {"nnodes", {}, {"--nnodes", "3"}, " makes a world of 2 nodes that run 'true', this one of 3 nodes that"},
    {"max-restarts", {"--max-restarts", "2"}, {}, "--max-restarts differs: 2 at node 0, on "},
    {"rdzv-conf",
     {"--rdzv-conf", "last_call_timeout=7"},
     {},
     "--rdzv-conf differs: last_call_timeout of 7 s at node 0, on ",
     "2:3"},
    {"join-timeout",
     {"--join-timeout", "40"},
     {"--rdzv-conf", "join_timeout=30"},
     "--join-timeout differs: 40 s at node 0, on ",
     "2:3"},
    {"link-patience", {}, {"--link-patience", "3"}, ", and 3 s here; give it alike on every node"},
    {"continue-on-failure", {}, {"--continue-on-failure"}, "--continue-on-failure differs: not given at node 0, on "}};

const std::vector<Row> kOfCommand{
    {"module", {"-m"}, {}, "nodes that run 'python3 -u -m x.py', this one of 2 nodes that run 'python3 -u x.py'"},
    {"run-path", {"--run-path"}, {"--no-python"}, "run 'python3 -u x.py', this one of 2 nodes that run 'x.py'"},
    {"no-python", {"--no-python"}, {}, "run 'x.py', this one of 2 nodes that run 'python3 -u x.py'"},
    {"pass-local-rank", {}, {"--pass-local-rank", "local-rank"}, "run 'python3 -u x.py --local-rank=LOCAL_RANK'"}};

}  // namespace

TEST_CASE("a flag that all nodes must have alike is refused by its name at whoever has another value than node 0") {
  check_rows(kCompared, OnNodes::compared);
  for (const auto& row : rondo::launcher::compared())
    CHECK(std::any_of(kCompared.begin(), kCompared.end(), [&](const Row& one) { return one.flag == row.flag; }));
  for (const Row& row : kCompared) check_refused(row, {"true"});
}

TEST_CASE("a flag that says what the ranks run is refused as another command, unless the job has a name") {
  check_rows(kOfCommand, OnNodes::command);
  for (const Row& row : kOfCommand) check_refused(row, {"x.py"});
  const NodesJob job("2");
  const auto first = job.start({"--node-rank", "0", "--rdzv-id", "mine"}, {"true"});
  const Ended second =
      job.start({"--node-rank", "1", "--rdzv-id", "mine", "--pass-local-rank", "local-rank"}, {"true"})->wait();
  INFO(second.err);
  CHECK(second.code == 0);
  CHECK(first->wait().code == 0);
}

TEST_CASE("a launcher that was told of another place, secret or job than node 0 does not meet it, or is told so") {
  const SecretFile other("other");
  const std::string elsewhere = free_port(), unreached = "cannot reach the rendezvous server";
  const std::vector<Row> rows{
      {"master-addr", {}, {"--master-addr", "127.0.0.2"}, unreached},
      {"master-port", {}, {"--master-port", elsewhere}, unreached},
      {"rdzv-endpoint", {}, {"--rdzv-endpoint", "127.0.0.1:" + elsewhere}, unreached},
      {"rdzv-id", {"--rdzv-id", "mine"}, {"--rdzv-id", "yours"}, "wrong job"},
      {"secret-file", {}, {"--secret-file", other.path}, "wrong secret"},
      {"no-secret", {}, {"--secret-file", "", "--no-secret"}, "secret"},
      {"encrypt", {}, {"--encrypt"}, "the client encrypts its connections and the server does not"}};
  check_rows(rows, OnNodes::meeting);
  for (Row row : rows) {
    row.second = row.second + Words{"--join-timeout", "2"};
    check_refused(row, {"true"});
  }
}

TEST_CASE("a flag that is each node's own may differ, and the job runs") {
  const TemporaryFolder folder;
  const std::string logs = folder.file("logs");
  const std::vector<Row> rows{{"nproc-per-node", {"-n", "1"}, {"-n", "2"}},
                              {"node-rank", {}, {}},
                              {"log-dir", {"--log-dir", logs}, {}},
                              {"redirects", {"--log-dir", logs, "--redirects", "1"}, {}},
                              {"tee", {}, {"--log-dir", logs, "--tee", "2"}},
                              {"local-ranks-filter", {"--local-ranks-filter", "0"}, {}},
                              {"ranks-filter", {}, {"--ranks-filter", "1"}},
                              {"role", {"--role", "reader"}, {"--role", "trainer"}},
                              {"numa-binding", {}, {"--numa-binding", "exclusive"}},
                              {"bind", {"--bind", "core"}, {"--bind", "none"}},
                              {"shutdown-timeout", {"--shutdown-timeout", "1"}, {}},
                              {"grace-period", {}, {"--grace-period", "2"}},
                              {"interface", {}, {"--interface", "lo"}},
                              {"port-range", {"--port-range", "20000-30000"}, {}},
                              {"gpus-per-rank", {}, {}},  // what a node has not, it refuses alone
                              {"mps", {}, {}},
                              {"failure-dir", {"--failure-dir", logs}, {"--failure-dir", "none"}},
                              {"watch", {"--watch"}, {}},
                              {"prefix", {"--prefix", "none"}, {}},
                              {"pty", {"--pty", "never"}, {"--pty", "auto"}},
                              {"color", {"--color", "always"}, {"--color", "never"}}};
  check_rows(rows, OnNodes::own);
  for (const Row& row : rows) {
    const NodesJob job(row.nodes);
    const auto first = job.start(Words{"--node-rank", "0"} + row.first, {"true"});
    const Ended second = job.start(Words{"--node-rank", "1"} + row.second, {"true"})->wait(), served = first->wait();
    INFO(row.flag << ": " << served.err << second.err);
    CHECK(served.code == 0);
    CHECK(second.code == 0);
  }
}

TEST_CASE("how long a launcher waits for the others is its own where there is one number of nodes") {
  const NodesJob job("2");
  const auto first = job.start({"--node-rank", "0", "--join-timeout", "40"}, {"true"});
  const Ended second =
      job.start({"--node-rank", "1", "--rdzv-conf", "join_timeout=30,last_call_timeout=7"}, {"true"})->wait();
  INFO(second.err);
  CHECK(second.code == 0);
  CHECK(first->wait().code == 0);
}

TEST_CASE("ranks are counted within their role, over all nodes that have it") {
  const NodesJob job("3");
  const Words program{"sh", "-c", "echo $RANK: $ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE"};
  std::vector<std::unique_ptr<Running>> launchers;
  for (const Words& own : {Words{"0", "--role", "trainer", "-n", "2"}, Words{"1", "--role", "data reader"},
                           Words{"2", "--role", "trainer"}})
    launchers.push_back(job.start(Words{"--node-rank"} + own, program));
  const std::vector<std::string> expected{"[1] 1: trainer 1 of 3\n", "[2] 2: data reader 0 of 1\n",
                                          "[3] 3: trainer 2 of 3\n"};
  for (std::size_t node = 0; node < launchers.size(); ++node) {
    const Ended ended = launchers[node]->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out.find(expected[node]) != std::string::npos);
  }
}

TEST_CASE("node 0 serves the others until they have ended, however long their grace is") {
  const NodesJob job("2");
  const TemporaryFolder folder;
  const auto until = [&](const std::string& name) {
    return "until [ -e " + folder.file(name) + " ]; do sleep 0.05; done; ";
  };
  const Words program{"sh", "-c",
                      "[ $RANK = 0 ] && { " + until("fail") + "exit 3; }; trap 'sleep 7; echo tidied; " + until("end") +
                          "exit 0' TERM; echo ready; while :; do sleep 0.1; done"};
  const auto first = job.start({"--node-rank", "0", "--grace-period", "0.3"}, program);
  const auto second = job.start({"--node-rank", "1", "--grace-period", "60"}, program);
  const Watched server({std::to_string(first->pid())});
  second->lines("ready", 1);
  std::ofstream(folder.file("fail")) << "now";
  second->lines("tidied", 1);  // its own grace and the 5 s of an answer are over
  CHECK_FALSE(server.all_gone_within(std::chrono::milliseconds(0)));
  std::ofstream(folder.file("end")) << "now";
  CHECK(first->wait().code == 3);
  CHECK(second->wait().code == 3);
}

TEST_CASE("launchers of two releases do not start a job together") {
  rondo::launcher::Options options;
  options.nodes = 2;
  std::string terms = rondo::launcher::terms_of(options, "b (pid 7)");
  CHECK_NOTHROW(rondo::launcher::compare_terms(terms, options, "a:1"));
  terms.replace(terms.find(RONDO_VERSION), std::string(RONDO_VERSION).size(), "0.0.9");
  CHECK_THROWS_WITH(rondo::launcher::compare_terms(terms, options, "a:1"),
                    "the launcher of node 0 on b (pid 7) is rondorun 0.0.9, and this one is " RONDO_VERSION
                    ": install the same on every host");
}
