// SPDX-License-Identifier: Apache-2.0
// Several launchers, one for each node, on this machine's loopback.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "tests/process/host.hpp"
#include "tests/process/nodes_job.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace rondo::test;
using namespace std::chrono_literals;

using Job = NodesJob;

const std::vector<std::string> kWhoAmI{
    "sh", "-c", "echo I am $RANK/$WORLD_SIZE, $LOCAL_RANK/$LOCAL_WORLD_SIZE of $GROUP_RANK/$GROUP_WORLD_SIZE"};

bool has(const Ended& ended, const std::string& text) { return ended.out.find(text) != std::string::npos; }

}  // namespace

TEST_CASE("three nodes with different numbers of ranks, whichever starts first") {
  const Job job("3");
  const auto third = job.start({"--node-rank", "2", "--nproc-per-node", "1"}, kWhoAmI);
  const auto first = job.start({"--node-rank", "0", "--nproc-per-node", "2"}, kWhoAmI);
  const auto second = job.start({"--node-rank", "1", "--nproc-per-node", "3"}, kWhoAmI);
  const Ended ended[] = {first->wait(), second->wait(), third->wait()};
  for (const auto& node : ended) {
    INFO(node.err);
    CHECK(node.code == 0);
    CHECK(node.err.empty());
  }
  CHECK(has(ended[0], "[1] I am 1/6, 1/2 of 0/3\n"));
  CHECK(has(ended[1], "[2] I am 2/6, 0/3 of 1/3\n"));
  CHECK(has(ended[1], "[4] I am 4/6, 2/3 of 1/3\n"));
  CHECK(has(ended[2], "[5] I am 5/6, 0/1 of 2/3\n"));
}

TEST_CASE("without a secret, on request, ranks meet and say that whoever reaches them may join") {
  const std::string port = free_port();
  std::vector<std::unique_ptr<Running>> launchers;
  for (int i = 0; i < 2; ++i)
    launchers.push_back(
        std::make_unique<Running>(rondorun({"--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port,
                                            "--no-secret", "--", tool("recorded"), "well"})));
  for (const auto& launcher : launchers) {
    const auto ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(has(ended, " is done\n"));
    CHECK(ended.err.find("RONDO_INSECURE=1: whoever reaches this job's ports may join it") != std::string::npos);
  }
}

TEST_CASE("node ranks are assigned where none are given") {
  const Job job("3", GENERATE("127.0.0.1", "::1", "localhost"));
  std::vector<std::unique_ptr<Running>> launchers;
  for (int i = 0; i < 3; ++i) launchers.push_back(job.start({}, kWhoAmI));
  std::string all;
  for (const auto& launcher : launchers) {
    const auto ended = launcher->wait();
    CHECK(ended.code == 0);
    all += ended.out;
  }
  for (const char* rank : {"0/3, 0/1 of 0/3", "1/3, 0/1 of 1/3", "2/3, 0/1 of 2/3"})
    CHECK(all.find(rank) != std::string::npos);
}

// Some other program's, which is about to end.
TEST_CASE("launchers that were not told their nodes meet as soon as whoever has their port is gone") {
  const Job job("2");
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<std::uint16_t>(std::stoi(job.port())));
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  rondo::Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(other.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0);
  REQUIRE(::listen(other.get(), 16) == 0);
  std::vector<std::string> command{"sh", "-c", "exec 2>&1; exec \"$@\"", "sh"};  // to hear what they wait for
  const auto words = job.words({"--join-timeout", "60", "--", "true"});
  command.insert(command.end(), words.begin(), words.end());
  std::vector<std::unique_ptr<Running>> launchers;
  for (int i = 0; i < 2; ++i)
    launchers.push_back(std::make_unique<Running>(command, Running::How{.limit = std::chrono::seconds(60)}));
  for (const auto& launcher : launchers) launcher->lines("rondorun: waiting for the launcher of node 0", 1);
  other.reset();
  for (const auto& launcher : launchers) {
    const auto ended = launcher->wait();
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
  }
}

// Nobody listens there, and the kernel has no other port to give out: a connection to oneself would be taken for a
// server that says odd things.
TEST_CASE("a launcher that waits for node 0 does not reach itself") {
  if (!namespaces_possible()) return;
  const Host host;
  host.set_sysctl("net/ipv4/ip_local_port_range", "29500 29500");
  const auto ended = run(host.inside(rondorun({"--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1",
                                               "--no-secret", "--join-timeout", "1", "--", "true"})));
  INFO(ended.err);
  CHECK(ended.code == 1);
  CHECK(ended.err.find("cannot reach the rendezvous server at 127.0.0.1:29500 by the deadline") != std::string::npos);
}

TEST_CASE("a scheduler that starts a launcher on each node makes one world, with nothing said on the command line") {
  struct Scheduler {
    const char* name;
    std::vector<std::string> common, first, second;  // variables of both nodes, and of each
  };
  const std::string at = "127.0.0.1", port = free_port();
  const std::vector<std::string> master{"MASTER_ADDR=" + at, "MASTER_PORT=" + port};
  const auto with_master = [&](std::vector<std::string> variables) {
    variables.insert(variables.end(), master.begin(), master.end());
    return variables;
  };
  const Scheduler schedulers[] = {
      {"Slurm",
       with_master({"SLURM_JOB_ID=3", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_TASKS=2"}),
       {"SLURM_PROCID=0"},
       {"SLURM_PROCID=1"}},
      {"Open MPI",
       with_master({"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=1"}),
       {"OMPI_COMM_WORLD_RANK=0"},
       {"OMPI_COMM_WORLD_RANK=1"}},
      {"TrainJob",
       {"PET_NNODES=2", "PET_MASTER_ADDR=" + at, "PET_MASTER_PORT=" + port, "PET_NPROC_PER_NODE=2"},
       {"PET_NODE_RANK=0"},
       {"PET_NODE_RANK=1"}},
      {"TrainJob that grows",
       {"PET_NNODES=1:2", "PET_RDZV_BACKEND=c10d", "PET_RDZV_ENDPOINT=" + at + ":" + port, "PET_MAX_RESTARTS=3"},
       {"PET_NODE_RANK=0"},
       {"PET_NODE_RANK=1"}},
      {"PyTorchJob", with_master({"WORLD_SIZE=2"}), {"RANK=0"}, {"RANK=1"}},
      {"OpenPAI",
       {"PAI_CURRENT_TASK_ROLE_NAME=worker", "PAI_TASK_ROLE_TASK_COUNT_worker=2", "PAI_HOST_IP_worker_0=" + at,
        "PAI_worker_0_SynPort_PORT=" + port},
       {"PAI_TASK_INDEX=0"},
       {"PAI_TASK_INDEX=1"}},
      {"SageMaker", with_master({R"(SM_HOSTS=["a","b"])"}), {"SM_CURRENT_HOST=a"}, {"SM_CURRENT_HOST=b"}},
  };
  for (const Scheduler& scheduler : schedulers) {
    CAPTURE(scheduler.name);
    const SecretFile secret;
    const auto start = [&](const std::vector<std::string>& own) {
      auto environment = scheduler.common;
      environment.insert(environment.end(), own.begin(), own.end());
      std::vector<std::string> command{"--secret-file", secret.path};
      if (std::string_view(scheduler.name) != "TrainJob") command.insert(command.end(), {"--nproc-per-node", "2"});
      command.insert(command.end(), kWhoAmI.begin(), kWhoAmI.end());
      return std::make_unique<Running>(rondorun(command), Running::How{.environment = environment});
    };
    const auto second = start(scheduler.second), first = start(scheduler.first);
    const Ended ended[] = {first->wait(), second->wait()};
    CAPTURE(ended[0].err, ended[1].err);
    for (const Ended& node : ended) CHECK(node.code == 0);
    CHECK(has(ended[0], "[1] I am 1/4, 1/2 of 0/2\n"));
    CHECK(has(ended[1], "[3] I am 3/4, 1/2 of 1/2\n"));
  }
}

TEST_CASE("never a smaller world: what a scheduler says and the command line cannot have is refused by name") {
  struct Case {
    std::vector<std::string> environment, flags;
    const char *variable, *remedy;
  };
  const Case cases[] = {
      {{"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2"},
       {},
       "SLURM_STEP_NUM_TASKS=4",
       "--ntasks-per-node=1"},
      {{"SLURM_PROCID=0", "SLURM_JOB_NUM_NODES=2"}, {}, "SLURM_JOB_NUM_NODES=2", "srun"},
      {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"}, {}, "OMPI_COMM_WORLD_RANK=0", "--master-addr"},
      {{"PET_NNODES=2"}, {"--nnodes", "3"}, "PET_NNODES=2", "--nnodes 3"},
      {{"PET_NNODES=2", "PET_MASTER_ADDR=127.0.0.1"}, {}, "PET_NNODES=2", "--secret-file"},
      {{"JOB_COMPLETION_INDEX=1"}, {}, "JOB_COMPLETION_INDEX=1", "--nnodes"},
      {{"FLUX_TASK_RANK=0"}, {}, "FLUX_TASK_RANK=0", "--nnodes"},
  };
  for (const Case& each : cases) {
    auto flags = each.flags;
    flags.emplace_back("true");
    const auto refused = Running(rondorun(flags), {.environment = each.environment}).wait();
    CAPTURE(refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.err.find(each.variable) != std::string::npos);
    CHECK(refused.err.find(each.remedy) != std::string::npos);
    CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
    const auto alone = Running(rondorun({"--nnodes", "1", "true"}), {.environment = each.environment}).wait();
    CAPTURE(alone.err);
    CHECK(alone.code == 0);
  }
}

TEST_CASE("the first failure on any node ends all of them with its name and code") {
  const int failing = GENERATE(0, 1, 2);
  const Job job("3");
  std::vector<std::unique_ptr<Running>> launchers;
  for (int node = 0; node < 3; ++node)
    launchers.push_back(
        job.start({"--node-rank", std::to_string(node)},
                  {"sh", "-c", "test $RANK = " + std::to_string(failing) + " && exit 9; exec sleep 60"}));
  for (const auto& launcher : launchers) {
    const auto ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.code == 9);
    CHECK(ended.err.starts_with("rondorun: rank " + std::to_string(failing) + " (pid "));
    CHECK(ended.err.find("exited with code 9 on host ") != std::string::npos);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    CHECK(ended.seconds < 5);
  }
}

TEST_CASE("survivors on several nodes go on, and every launcher says without whom") {
  const Job job("3");
  std::vector<std::unique_ptr<Running>> nodes;
  for (const char* node : {"0", "1", "2"})
    nodes.push_back(job.start({"--node-rank", node, "--nproc-per-node", "2"}, {tool("shrinker")}));
  pid_t victim = 0;
  for (auto& node : nodes) {
    for (const std::string& line : node->lines("joined ", 2))
      if (line.starts_with("3 ")) victim = std::stoi(line.substr(2));
  }
  REQUIRE(victim > 0);
  ::kill(victim, SIGKILL);
  std::string all;
  for (auto& node : nodes) {
    const Ended ended = node->wait();
    INFO(ended.out << ended.err);
    all += ended.out;
    CHECK(ended.code == 0);
    CHECK(ended.err.find("rank 3 (pid " + std::to_string(victim) + ") was killed by signal 9 (Killed) on host ") !=
          std::string::npos);
    CHECK(ended.err.find("; the other ranks went on without it and finished\n") != std::string::npos);
  }
  for (int now = 0; now < 5; ++now)
    CHECK(all.find("shrunk rank " + std::to_string(now) + " of 5, sum 5") != std::string::npos);
}

TEST_CASE("a stopped rank that those of all nodes went on without is named and ended") {
  const Job job("2");
  std::vector<std::unique_ptr<Running>> nodes;
  for (const char* node : {"0", "1"})
    nodes.push_back(job.start({"--node-rank", node, "--nproc-per-node", "2"}, {tool("shrinker"), "deadline"}));
  for (auto& node : nodes) {
    for (const std::string& line : node->lines("joined ", 2))
      if (line.starts_with("3 ")) ::kill(std::stoi(line.substr(2)), SIGSTOP);
  }
  const Ended first = nodes[0]->wait(), second = nodes[1]->wait();
  INFO(first.out << first.err << second.out << second.err);
  CHECK(first.code == 0);
  CHECK(second.code == 0);
  CHECK(second.err.find("the other ranks went on without rank 3, which is stopped: it is told to end\n") !=
        std::string::npos);
  CHECK(second.err.find("; the other ranks went on without it and finished\n") != std::string::npos);
  CHECK(first.out.find("shrunk rank 0 of 3, sum 3") != std::string::npos);
}

TEST_CASE("a rank that ended well on another node while one here needed it is named on both") {
  const Job job("2");
  const std::vector<std::string> command{"sh", "-c", "[ $RANK = 0 ] || exit 0; sleep 0.3; echo rank 1 is lost; exit 4"};
  const auto first = job.start({"--node-rank", "0"}, command);
  const auto second = job.start({"--node-rank", "1"}, command);
  for (const auto& launcher : {&first, &second}) {
    const auto ended = (*launcher)->wait();
    INFO(ended.err);
    CHECK(ended.code == 4);
    CHECK(ended.err.find("rondorun: rank 1 (pid ") != std::string::npos);
    CHECK(ended.err.find(" ended with exit code 0 while other ranks needed it: rank 0 (pid ") != std::string::npos);
  }
}

TEST_CASE("SIGKILL of one node's launcher ends the others, and leaves no rank") {
  const std::size_t killed = GENERATE(0u, 1u);
  const Job job("2");
  std::unique_ptr<Running> launchers[2];
  for (std::size_t node = 0; node < 2; ++node)
    launchers[node] = job.start({"--node-rank", std::to_string(node)}, {"sh", "-c", "echo pid $$; exec sleep 60"});
  const Watched first(launchers[0]->lines("pid ", 1)), second(launchers[1]->lines("pid ", 1));
  launchers[killed]->signal(SIGKILL);
  CHECK(first.all_gone_within(1s));
  CHECK(second.all_gone_within(1s));
  const auto ended = launchers[1 - killed]->wait();
  CHECK(ended.code != 0);
  INFO(ended.err);
  char host[256] = "";
  REQUIRE(::gethostname(host, sizeof host - 1) == 0);
  CHECK(ended.err.find("rondorun: the launcher of node " + std::to_string(killed) + " on host " + host + " (pid ") !=
        std::string::npos);
  CHECK(ended.err.find(") is gone: ") != std::string::npos);
}

TEST_CASE("whom a launcher waits for is said every few seconds") {
  const Job job("3");
  const auto first = job.start({"--node-rank", "0", "--join-timeout", "6"}, {"true"});
  const auto third = job.start({"--node-rank", "2", "--join-timeout", "6"}, {"true"});
  for (const auto& launcher : {&first, &third}) {
    const auto ended = (*launcher)->wait();
    INFO(ended.err);
    CHECK(ended.code == 1);
    CHECK(ended.err.find("rondorun: waiting for 1 of 3 nodes: 1\n") != std::string::npos);
  }
  const auto alone = job.start({"--node-rank", "1", "--join-timeout", "6"}, {"true"})->wait();
  CHECK(alone.err.find("rondorun: waiting for the launcher of node 0 at 127.0.0.1:" + job.port() + "\n") !=
        std::string::npos);
}

TEST_CASE("a signal to one launcher ends all nodes") {
  const Job job("2");
  const auto first = job.start({"--node-rank", "0"}, {"sh", "-c", "echo ready; exec sleep 60"});
  const auto second = job.start({"--node-rank", "1"}, {"sh", "-c", "echo ready; exec sleep 60"});
  first->lines("ready", 1);
  second->lines("ready", 1);
  second->signal(SIGTERM);
  for (const auto* launcher : {&first, &second}) {
    const auto ended = (*launcher)->wait();
    CHECK(ended.code == 128 + SIGTERM);
    CHECK(ended.err.find("stopped by signal 15 (Terminated)") != std::string::npos);
  }
}

TEST_CASE("a node that does not come is an error at the deadline") {
  const Job job("2");
  const auto ended = job.start({"--node-rank", "0", "--join-timeout", "0.5"}, {"true"})->wait();
  CHECK(ended.code == 1);
  CHECK(ended.err.find("not all 2 nodes came") != std::string::npos);
  CHECK(ended.seconds < 5);
  const auto client = job.start({"--node-rank", "1", "--join-timeout", "0.5"}, {"true"})->wait();
  CHECK(client.code == 1);
  CHECK(client.err.find("cannot reach the rendezvous server") != std::string::npos);
}

TEST_CASE("a launcher that waits for other nodes can be interrupted") {
  const Job job("2");
  const auto launcher = job.start({"--node-rank", GENERATE("0", "1")}, {"true"});
  // Its supervisor exists once it has a child; from then on signals are passed on.
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  const auto number = std::to_string(launcher->pid());
  for (std::string child; child.empty() && std::chrono::steady_clock::now() < deadline;) {
    std::ifstream children("/proc/" + number + "/task/" + number + "/children");
    children >> child;
  }
  launcher->signal(SIGINT);
  const auto ended = launcher->wait();
  CHECK(ended.code == 128 + SIGINT);
  CHECK(ended.seconds < 5);
}

TEST_CASE("another secret, a node rank used twice and one node too many are refused") {
  const Job job("2");
  const std::vector<std::string> command{"sh", "-c", "echo ready; exec sleep 60"};
  const auto first = job.start({"--node-rank", "0", "--join-timeout", "20"}, command);
  SECTION("secret") {
    const SecretFile other("other");
    const auto stranger = run(rondorun({"--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1",
                                        "--master-port", job.port(), "--secret-file", other.path, "true"}));
    CHECK(stranger.code == 1);
    CHECK(stranger.err.find("secret") != std::string::npos);
    CHECK(stranger.seconds < 5);
  }
  SECTION("node rank") {
    const auto second = job.start({"--node-rank", "1"}, command);
    first->lines("ready", 1);
    const auto again = job.start({"--node-rank", "1"}, command)->wait();
    CHECK(again.code == 1);
    CHECK(again.err.find("--node-rank 1 is taken by the launcher on ") != std::string::npos);
    const auto third = job.start({}, command)->wait();
    CHECK(third.code == 1);
    CHECK(third.err.find("too many") != std::string::npos);
  }
}

TEST_CASE("two jobs of one master and secret do not mix: the stranger is told at once, and the job goes on") {
  const Job job("2"), of_three("3");
  const auto first = job.start({"--node-rank", "0"}, kWhoAmI);
  const auto other_command = job.start({"--node-rank", "1"}, {"true"})->wait();
  const auto other_world = of_three.start_at(job, {"--node-rank", "1"}, kWhoAmI)->wait();
  for (const auto* stranger : {&other_command, &other_world}) {
    CAPTURE(stranger->err);
    CHECK(stranger->code == 1);
    CHECK(stranger->err.find("another job meets at 127.0.0.1:" + job.port()) != std::string::npos);
    CHECK(stranger->seconds < 5);
  }
  CHECK(other_command.err.find("run 'true'") != std::string::npos);
  CHECK(other_world.err.find("3 nodes") != std::string::npos);
  const auto second = job.start({"--node-rank", "1"}, kWhoAmI)->wait();
  const auto served = first->wait();
  CAPTURE(served.err, second.err);
  CHECK(second.code == 0);
  CHECK(served.code == 0);
}

TEST_CASE("a job that has a name is one, whatever its nodes run") {
  const Job job("2");
  const auto first = job.start({"--node-rank", "0", "--rdzv-id", "mine"}, {"sh", "-c", "exit 0"});
  const auto second = job.start({"--node-rank", "1", "--rdzv-id", "mine"}, {"true"})->wait();
  CAPTURE(second.err);
  CHECK(second.code == 0);
  CHECK(first->wait().code == 0);
}
