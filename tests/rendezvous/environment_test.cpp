// SPDX-License-Identifier: Apache-2.0
// The environment table against what launchers really set (the few variables that matter, as recorded from each).
#include "runtime/launchers/environment.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/rendezvous/jobs.hpp"
#include "tests/support/catch.hpp"

using namespace rondo;
using namespace rondo::runtime;
using rondo::rendezvous::test::contains;
using rondo::rendezvous::test::error_of;

namespace {

const Variables kTorchrun = {{"GROUP_RANK", "0"},
                             {"GROUP_WORLD_SIZE", "1"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "localhost"},
                             {"MASTER_PORT", "36905"},
                             {"RANK", "1"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"WORLD_SIZE", "4"}};
const Variables kPlain = {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}};

Variables without(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}
Variables with(Variables variables, const Variables& more) {
  variables.insert(more.begin(), more.end());
  return variables;
}

}  // namespace

TEST_CASE("no launcher's variable is a world of one") {
  CHECK_FALSE(read_launch({}).has_value());
  CHECK_FALSE(read_launch({{"PATH", "/bin"}, {"OMPI_MCA_btl", "self"}, {"SLURM_JOB_ID", "8"}}).has_value());
  CHECK_FALSE(read_launch({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).has_value());
}

TEST_CASE("rondorun's variables name its server") {
  const auto launch = read_launch({{"RANK", "3"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "1"},
                                   {"RONDO_RENDEZVOUS", "[fd00::1]:4444"},
                                   {"RONDO_JOB", "j"},
                                   {"RONDO_SECRET_FD", "7"},
                                   {"RONDO_GENERATION", "5"},
                                   {"SLURM_PROCID", "0"},
                                   {"SLURM_STEP_ID", "0"},
                                   {"SLURM_STEP_NUM_TASKS", "2"}});
  REQUIRE(launch.has_value());
  CHECK(launch->launcher == "rondorun");
  CHECK(launch->rank == 3);
  CHECK(launch->world_size == 4);
  CHECK(launch->local_rank == 1);
  CHECK(launch->server_host == "fd00::1");
  CHECK(launch->server_port == 4444);
  CHECK(launch->job == "j");
  CHECK(launch->secret_fd == 7);
  CHECK(launch->generation == 5);
  CHECK_FALSE(launch->joins_later);
}

TEST_CASE("a process that rondorun starts in the place of a lost rank joins later, by the name that it was given") {
  const auto launch = read_launch({{"RANK", "3"},
                                   {"WORLD_SIZE", "4"},
                                   {"RONDO_RENDEZVOUS", "a:4444"},
                                   {"RONDO_JOB", "j"},
                                   {"RONDO_JOINS_AS", "3.1"}});
  REQUIRE(launch.has_value());
  CHECK(launch->joins_later);
  CHECK(launch->calls_itself == "3.1");
}

TEST_CASE("torchrun's variables") {
  const auto launch = read_launch(kTorchrun);
  REQUIRE(launch.has_value());
  CHECK(launch->launcher == "torchrun");
  CHECK(launch->rank == 1);
  CHECK(launch->world_size == 4);
  CHECK(launch->nodes == 1);
  CHECK(launch->master_address == "localhost");
  CHECK(launch->master_port == 36905);
  CHECK(launch->master_port_taken);
  CHECK(launch->generation == 2);
  CHECK(launch->server_host.empty());
}

TEST_CASE("four variables set by hand, also inside another launcher's job") {
  const auto launch = read_launch(with(kPlain, {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}));
  REQUIRE(launch.has_value());
  CHECK(launch->launcher == "set by hand");
  CHECK(launch->rank == 2);
  CHECK(launch->world_size == 3);
  CHECK(launch->local_rank == -1);
  CHECK(launch->master_address == "10.0.0.7");
}

TEST_CASE("half of the variables name what is missing") {
  const char* missing = GENERATE("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT");
  const std::string error = error_of([&] { read_launch(without(kPlain, missing)); });
  CHECK(contains(error, std::string("not ") + missing));
  CHECK(contains(error, "rondorun"));
}

TEST_CASE("numbers that are none are named") {
  Variables variables = kPlain;
  variables["WORLD_SIZE"] = "four";
  CHECK(contains(error_of([&] { read_launch(variables); }), "WORLD_SIZE=four"));
  variables["WORLD_SIZE"] = std::string("2");
  CHECK(contains(error_of([&] { read_launch(variables); }), "RANK=2"));
}

namespace {

// Recorded from Slurm 22.05, Open MPI 4.1.4, MPICH 4.0.2.
const Variables kSlurm = {{"SLURM_JOB_ID", "3"},         {"SLURM_PROCID", "1"},
                          {"SLURM_STEP_ID", "0"},        {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_STEP_NODELIST", "n0"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}};
const Variables kSlurmOfTwoNodes = {{"SLURM_JOB_ID", "1"},
                                    {"SLURM_PROCID", "3"},
                                    {"SLURM_STEP_ID", "0"},
                                    {"SLURM_LOCALID", "0"},
                                    {"SLURM_STEP_NUM_NODES", "2"},
                                    {"SLURM_STEP_NUM_TASKS", "4"},
                                    {"PMI_RANK", "3"},
                                    {"PMI_SIZE", "4"},
                                    {"SLURM_STEP_NODELIST", "n[0-1]"},
                                    {"PMI_FD", "11"},
                                    {"SLURM_RESTART_COUNT", "2"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "956039169"},     {"PMIX_RANK", "3"}};
const Variables kMpich = {
    {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "3"}, {"PMI_FD", "18"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}};

struct Expected {
  const char* launcher;
  int rank, local_rank, nodes;
  const char *address, *job;
};
void check_launch(const Variables& variables, const Expected& expected) {
  const auto launch = read_launch(variables);
  REQUIRE(launch.has_value());
  CHECK(launch->launcher == expected.launcher);
  CHECK(launch->rank == expected.rank);
  CHECK(launch->world_size == 4);
  CHECK(launch->local_rank == expected.local_rank);
  CHECK(launch->nodes == expected.nodes);
  CHECK(launch->master_address == expected.address);
  CHECK(launch->job == expected.job);
}

}  // namespace

TEST_CASE("variables of Slurm, Open MPI and MPICH") {
  check_launch(kSlurm, {"Slurm", 1, 1, 1, "127.0.0.1", "slurm.3.0"});
  check_launch(kSlurmOfTwoNodes, {"Slurm", 3, 0, 2, "n0", "slurm.1.0"});
  CHECK(read_launch(kSlurmOfTwoNodes)->generation == 2);
  check_launch(kOpenMpi, {"Open MPI", 3, 3, 1, "127.0.0.1", "956039169"});
  check_launch(kMpich, {"MPICH", 3, 3, 1, "127.0.0.1", "job"});
  check_launch(with(kMpich, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
               {"MPICH", 3, 3, 1, "127.0.0.1", "job"});
}

TEST_CASE("on several nodes a scheduler's ranks meet where MASTER_ADDR says, or at Slurm's first node") {
  auto several = kOpenMpi;
  several["OMPI_COMM_WORLD_LOCAL_SIZE"] = std::string("2");
  CHECK(contains(error_of([&] { read_launch(several); }), "set MASTER_ADDR"));
  several["MASTER_ADDR"] = std::string("10.0.0.7");
  several["MASTER_PORT"] = std::string("4000");
  check_launch(several, {"Open MPI", 3, 3, 2, "10.0.0.7", "956039169"});
  CHECK(read_launch(several)->master_port == 4000);
  for (const auto& [list, first] : std::map<std::string, std::string>{{"n[07-9,12],m3", "n07"},
                                                                      {"m3,n[0-1]", "m3"},
                                                                      {"a-b", "a-b"},
                                                                      {"n[4]", "n4"},
                                                                      {"r1n[2,4-5]x", "r1n2x"},
                                                                      {"n[1-4]-ib0", "n1-ib0"},
                                                                      {"r[1-2]n[3-4]", "r1n3"}}) {
    auto slurm = kSlurmOfTwoNodes;
    slurm["SLURM_STEP_NODELIST"] = list;
    CHECK(read_launch(slurm)->master_address == first);
  }
  CHECK(contains(error_of([] {
                   read_launch(with(kSlurmOfTwoNodes, {{"SLURM_DISTRIBUTION", "arbitrary"}}));
                 }),
                 "set MASTER_ADDR"));
}

TEST_CASE("launchers without support are named, with a remedy") {
  struct Row {
    Variables variables;
    const char *launcher, *variable;
  };
  const Row row =
      GENERATE(Row{{{"SLURM_JOB_ID", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, "Slurm", "SLURM_PROCID=0"},
               Row{{{"PMI_FD", "18"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}, "PMI", "PMI_RANK=3"},
               Row{{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "956039169"}}, "PMIx", "PMIX_RANK=3"},
               Row{{{"PALS_RANKID", "1"}, {"PMI_RANK", "1"}}, "PALS", "PALS_RANKID=1"},
               Row{{{"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "1"}},
                   "OpenPAI",
                   "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX=1"});
  const std::string error = error_of([&] { read_launch(row.variables); });
  CAPTURE(error);
  CHECK(contains(error, row.launcher));
  CHECK(contains(error, row.variable));
  CHECK(contains(error, "rondorun"));
}

namespace {

// All that a launcher set, in a file of its own.
struct Recorded {
  const char* file;
  int rank, world_size;
  const char* address;
};
const Recorded kRecorded[] = {{"torchrun-1.13.1-nproc4-rank1.env", 1, 4, "localhost"},
                              {"openmpi-4.1.4-n4-rank3.env", 3, 4, "127.0.0.1"},
                              {"mpich-4.0.2-n4-rank3.env", 3, 4, "127.0.0.1"},
                              {"srun-n4-one-node-rank1.env", 1, 4, "127.0.0.1"},
                              {"srun-N2-n4-cyclic-rank2.env", 2, 4, "n0"},
                              {"srun-N2-n4-rank3.env", 3, 4, "n0"},
                              {"srun-het-rank2.env", 2, 3, "n0"},
                              {"srun-pmi2-N2-n4-rank3.env", 3, 4, "n0"},
                              {"srun-pmix-N2-n4-rank3.env", 3, 4, "n0"}};

Variables recorded(const char* name) {
  std::ifstream file(std::filesystem::path(RONDO_TEST_ENVIRONMENTS) / name);
  Variables variables;
  for (std::string line; std::getline(file, line);) {
    const auto equals = line.find('=');
    if (equals + 1 < line.size()) variables.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  REQUIRE(variables.size() > 5);
  return variables;
}

// A launch, or the sentence.
std::pair<std::optional<Launch>, std::string> read(const Variables& variables) {
  std::optional<Launch> launch;
  std::string error = error_of([&] { launch = read_launch(variables); });
  return {launch, error};
}

}  // namespace

TEST_CASE(
    "recorded environments, whole and without each of their variables: the right world or an error that names it") {
  for (const Recorded& each : kRecorded) {
    const Variables whole = recorded(each.file);
    const auto launch = read_launch(whole);
    CAPTURE(each.file);
    REQUIRE(launch.has_value());
    CHECK(launch->rank == each.rank);
    CHECK(launch->world_size == each.world_size);
    CHECK(launch->master_address == each.address);
    for (const auto& [name, value] : whole) {
      CAPTURE(name);
      const auto [part, error] = read(without(whole, name.c_str()));
      if (part) {
        CHECK(part->rank == each.rank);
        CHECK(part->world_size == each.world_size);
        CHECK(part->master_address == each.address);
        CHECK(part->nodes == (name == "GROUP_WORLD_SIZE" ? -1 : launch->nodes));
      } else {
        CHECK(contains(error, name));
      }
    }
  }
}

TEST_CASE("each variable by which a rank could know itself, alone, is an error that names it") {
  const char* name = GENERATE("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                              "TORCHELASTIC_RUN_ID", "RONDO_RENDEZVOUS", "RONDO_SECRET_FD", "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                              "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                              "SLURM_PROCID", "SLURM_STEP_ID", "PMIX_RANK", "PMIX_NAMESPACE", "MV2_COMM_WORLD_RANK",
                              "MV2_COMM_WORLD_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "JSM_NAMESPACE_RANK",
                              "JSM_NAMESPACE_SIZE", "PALS_RANKID", "PALS_NODEID", "PALS_LOCAL_RANKID");
  CAPTURE(name);
  for (const char* value : {"0", "1", "2"}) {
    const auto [launch, error] = read({{name, value}});
    CHECK_FALSE(launch.has_value());
    CHECK(contains(error, name));
    CHECK(contains(error, "RONDO_WORLD=one"));
  }
  CHECK_FALSE(read_launch({{name, "1"}, {"RONDO_WORLD", "one"}}).has_value());
}

TEST_CASE("a number of tasks alone says that there is one, or is half of what is needed") {
  CHECK_FALSE(read_launch({{"SLURM_STEP_NUM_TASKS", "1"}}).has_value());
  CHECK(contains(error_of([] { read_launch({{"SLURM_STEP_NUM_TASKS", "2"}}); }), "not SLURM_PROCID"));
}

TEST_CASE("RONDO_WORLD says one or nothing") {
  CHECK(contains(error_of([] { read_launch({{"RONDO_WORLD", "two"}}); }), "RONDO_WORLD=two"));
  auto variables = recorded(kRecorded[0].file);
  variables["RONDO_WORLD"] = "one";
  CHECK_FALSE(read_launch(variables).has_value());
}

TEST_CASE("a batch script's own process is a world of one where its job has one task") {
  const Variables script = recorded("sbatch-shell-N2-ntpn2.env");
  CHECK(contains(error_of([&] { read_launch(script); }), "SLURM_PROCID=0"));
  Variables single{{"SLURM_JOB_ID", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "0"}};
  CHECK(contains(error_of([&] { read_launch(single); }), "SLURM_NTASKS"));
  for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"}) {
    CAPTURE(name);
    CHECK_FALSE(read_launch(with(single, {{name, "1"}})).has_value());
    CHECK(contains(error_of([&] { read_launch(with(single, {{name, "2"}})); }), "of 2 tasks"));
  }
  CHECK(contains(error_of([&] { read_launch(with(single, {{"SLURM_TASKS_PER_NODE", "2(x3),1"}})); }), "of 7 tasks"));
  CHECK(contains(error_of([&] { read_launch(with(single, {{"SLURM_TASKS_PER_NODE", "1(x2"}})); }), "SLURM_NTASKS"));
}

TEST_CASE("an odd list of nodes is refused where it is needed") {
  auto variables = kSlurmOfTwoNodes;
  variables["SLURM_STEP_NODELIST"] = "n[1-";
  CHECK(contains(error_of([&] { read_launch(variables); }), "SLURM_STEP_NODELIST=n[1-"));
  variables["MASTER_ADDR"] = "10.0.0.7";
  CHECK(read_launch(variables)->master_address == "10.0.0.7");
}

namespace {

std::string error_of_node(const Variables& variables) {
  return error_of([&] { read_node_launch(variables); });
}

void check_node(const Variables& variables, int nodes, int node, const char* address, int port, const char* job) {
  const auto launch = read_node_launch(variables);
  REQUIRE(launch.has_value());
  CAPTURE(launch->launcher, launch->sign);
  CHECK(launch->nodes.value == nodes);
  CHECK(launch->node.value == node);
  CHECK(launch->master_address.value == address);
  CHECK(launch->master_port.value == port);
  CHECK(launch->job.value == job);
}

const Variables kSlurmNode = {{"SLURM_JOB_ID", "3"},         {"SLURM_STEP_ID", "0"},
                              {"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_NODES", "2"},
                              {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NODELIST", "n[7-8]"}};
const Variables kOpenPai = {{"PAI_CURRENT_TASK_ROLE_NAME", "worker"}, {"PAI_TASK_INDEX", "1"},
                            {"PAI_TASK_ROLE_TASK_COUNT_worker", "2"}, {"PAI_HOST_IP_worker_0", "10.1.0.4"},
                            {"PAI_worker_0_SynPort_PORT", "34567"},   {"PAI_JOB_NAME", "cifar"}};
const Variables kPet = {{"PET_NNODES", "2"},
                        {"PET_NODE_RANK", "1"},
                        {"PET_MASTER_ADDR", "job-node-0"},
                        {"PET_MASTER_PORT", "29400"},
                        {"PET_NPROC_PER_NODE", "4"}};

}  // namespace

TEST_CASE("a launcher that a scheduler has started once on each node learns which node it is") {
  check_node(kSlurmNode, 2, 1, "n7", 0, "slurm.3.0");
  check_node(with(kSlurmNode, {{"MASTER_ADDR", "ib0"}, {"MASTER_PORT", "5"}}), 2, 1, "ib0", 5, "slurm.3.0");
  check_node({{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "2"},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
              {"PMIX_NAMESPACE", "17"},
              {"MASTER_ADDR", "a"}},
             2, 1, "a", 0, "17");
  check_node({{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}, 3, 2, "", 0,
             "");
  check_node(kOpenPai, 2, 1, "10.1.0.4", 34567, "cifar");
  check_node(kPet, 2, 1, "job-node-0", 29400, "");
  CHECK(read_node_launch(kPet)->local_size.value == "4");
  check_node({{"PET_NNODES", "2:2"}, {"PET_RDZV_ENDPOINT", "h:7"}}, 2, -1, "h", 7, "");
  CHECK(read_node_launch(kPet)->least_nodes == 0);
  const Variables grows{{"PET_NNODES", "1:4"}, {"PET_NODE_RANK", "5"}, {"PET_RDZV_ENDPOINT", "h:7"}};
  check_node(grows, 4, 5, "h", 7, "");
  CHECK(read_node_launch(grows)->least_nodes == 1);
  // PyTorchJob, whose world size is of ranks where it says the nodes, too.
  check_node(kPlain, 3, 2, "10.0.0.7", 29500, "");
  check_node(with(kPet, {{"RANK", "1"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "1"}}), 2, 1,
             "job-node-0", 29400, "");
  check_node({{"SM_HOSTS", R"(["algo-1","algo-2"])"}, {"SM_CURRENT_HOST", "algo-2"}}, 2, 1, "algo-1", 0, "");
  check_node({{"AWS_BATCH_JOB_NUM_NODES", "3"},
              {"AWS_BATCH_JOB_NODE_INDEX", "0"},
              {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "2"},
              {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.1"},
              {"AWS_BATCH_JOB_ID", "j#0"}},
             3, 1, "10.0.0.1", 0, "j");
  check_node({{"JOB_COMPLETION_INDEX", "3"}}, 0, 3, "", 0, "");
}

TEST_CASE("one process of a scheduler's, or none, is a launcher on its own") {
  CHECK_FALSE(read_node_launch({}).has_value());
  CHECK_FALSE(read_node_launch({{"PATH", "/bin"}, {"SLURM_JOB_ID", "8"}}).has_value());
  const Variables alone =
      GENERATE(Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
               Variables{{"SLURM_PROCID", "0"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_NTASKS", "8"}},
               Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, Variables{{"PET_NNODES", "1"}},
               Variables{{"SM_HOSTS", R"(["algo-1"])"}},
               Variables{{"RONDO_RENDEZVOUS", "h:1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "1"}});
  const auto launch = read_node_launch(alone);
  REQUIRE(launch.has_value());
  CHECK(launch->nodes.value == 1);
}

TEST_CASE("where a launcher on each node would make several worlds, it is told by which variable, and what to do") {
  struct Row {
    Variables variables;
    const char *variable, *remedy;
  };
  auto two_on_a_node = kSlurmNode;
  two_on_a_node["SLURM_STEP_NUM_TASKS"] = std::string("4");
  auto mpi = kOpenMpi;
  const Row row =
      GENERATE_COPY(Row{two_on_a_node, "SLURM_STEP_NUM_TASKS=4", "--ntasks-per-node=1"},
                    Row{mpi, "OMPI_COMM_WORLD_LOCAL_SIZE=4", "--nproc-per-node"},
                    Row{{{"SLURM_PROCID", "0"}, {"SLURM_JOB_NUM_NODES", "2"}}, "SLURM_JOB_NUM_NODES=2", "srun"},
                    Row{kTorchrun, "WORLD_SIZE=4", "one of the two launchers"},
                    Row{{{"FLUX_TASK_RANK", "1"}}, "FLUX_TASK_RANK=1", "--nnodes"},
                    Row{{{"PET_NNODES", "4:1"}}, "PET_NNODES=4:1", "--nnodes MIN:MAX"},
                    Row{{{"PET_NODE_RANK", "1"}}, "PET_NODE_RANK=1", "--nnodes"},
                    Row{{{"PAI_TASK_INDEX", "1"}}, "PAI_TASK_ROLE_TASK_COUNT_worker", "--nnodes"},
                    Row{{{"SM_HOSTS", R"(["a","b"])"}}, "SM_HOSTS=", "--node-rank"},
                    Row{{{"LSB_MCPU_HOSTS", "a 4 b 4"}}, "LSB_MCPU_HOSTS=a 4 b 4", "--node-rank"},
                    Row{{{"VC_TASK_INDEX", "1"}}, "VC_TASK_INDEX=1", "--nnodes"});
  const std::string error = error_of_node(row.variables);
  CAPTURE(error);
  CHECK(contains(error, row.variable));
  CHECK(contains(error, row.remedy));
  CHECK(contains(error, "--nnodes 1"));
}

TEST_CASE("a scheduler's file of hosts is read: several are several") {
  const auto file = std::filesystem::temp_directory_path() / ("rondo-hosts-" + std::to_string(::getpid()));
  const auto write = [&](const char* text) { std::ofstream(file) << text; };
  for (const char* name : {"PBS_NODEFILE", "PE_HOSTFILE"}) {
    const Variables variables{{name, file.string()}};
    write("a 4 all.q\na 2 all.q\n");
    CHECK(read_node_launch(variables)->nodes.value == 1);
    CHECK_FALSE(read_launch(variables).has_value());
    write("a 4 all.q\nb 4 all.q\n");
    CHECK(contains(error_of_node(variables), name));
    CHECK(contains(error_of([&] { read_launch(variables); }), name));
  }
  std::filesystem::remove(file);
}

TEST_CASE("a program that a scheduler has started alone on each of several nodes is no world of one") {
  const auto [variables, name] = GENERATE(table<Variables, const char*>({
      {{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}}, "PET_NNODES=2"},
      {{{"JOB_COMPLETION_INDEX", "0"}}, "JOB_COMPLETION_INDEX=0"},
      {{{"VC_TASK_INDEX", "1"}}, "VC_TASK_INDEX=1"},
      {{{"AWS_BATCH_JOB_NUM_NODES", "2"}, {"AWS_BATCH_JOB_NODE_INDEX", "0"}}, "AWS_BATCH_JOB_NUM_NODES=2"},
      {{{"SM_HOSTS", R"(["a","b"])"}, {"SM_CURRENT_HOST", "a"}}, "SM_HOSTS="},
      {{{"LSB_MCPU_HOSTS", "a 1 b 1"}}, "LSB_MCPU_HOSTS=a 1 b 1"},
  }));
  const std::string error = error_of([&, &variables = variables] { read_launch(variables); });
  CHECK(contains(error, name));
  CHECK(contains(error, "rondorun"));
  CHECK_FALSE(read_launch(with(variables, {{"RONDO_WORLD", "one"}})).has_value());
  for (const Variables& single :
       {Variables{{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}, Variables{{"SM_HOSTS", R"(["a"])"}},
        Variables{{"AWS_BATCH_JOB_NUM_NODES", "1"}}, Variables{{"LSB_MCPU_HOSTS", "a 8"}}}) {
    CHECK_FALSE(read_launch(single).has_value());
  }
}

TEST_CASE("endpoints") {
  std::string host;
  std::uint16_t port = 0;
  parse_endpoint("[::1]:80", "x", host, port);
  CHECK(host == "::1");
  CHECK(port == 80);
  for (const char* wrong : {"", "host", "host:", ":80", "host:0", "host:65536", "host:80x", "::1:80", "[::1:80"}) {
    CAPTURE(wrong);
    CHECK(contains(error_of([&] { parse_endpoint(wrong, "the place=", host, port); }),
                   std::string("the place=") + wrong + " is not host:port"));
  }
}
