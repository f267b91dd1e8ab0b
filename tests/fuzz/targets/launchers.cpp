// SPDX-License-Identifier: Apache-2.0
// What schedulers, launchers and people write into variables.
#include <algorithm>
#include <optional>

#include "rendezvous/socket.hpp"
#include "runtime/launchers/environment.hpp"
#include "runtime/launchers/host_list.hpp"
#include "tests/fuzz/targets.hpp"

namespace rondo::fuzz {
namespace {

using namespace runtime;

// NAME=value, one a line. None that names a file of this machine.
Variables variables_in(std::string_view text) {
  Variables variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto sign = line.find('=');
    if (sign == std::string_view::npos || sign + 1 == line.size()) continue;
    const std::string name(line.substr(0, sign)), value(line.substr(sign + 1));
    if (name != "PBS_NODEFILE" && name != "PE_HOSTFILE" && value.find('\0') == std::string::npos)
      variables.emplace(name, value);
  }
  return variables;
}

void check(const Launch& launch) {
  expect(launch.world_size >= 1 && launch.rank >= 0 && launch.rank < launch.world_size, "a rank outside its world");
  expect(launch.local_rank < launch.world_size && launch.local_rank >= -1, "a local rank outside its world");
  expect(!launch.launcher.empty(), "a launcher without a name");
}

}  // namespace

void run_environment(Bytes input) {
  const Variables variables = variables_in(as_text(input));
  accepts([&] {
    if (const auto launch = read_launch(variables)) check(*launch);
  });
  accepts([&] {
    const auto node = read_node_launch(variables);
    if (!node) return;
    const int nodes = node->nodes.value;
    expect(nodes >= 0 && (nodes == 0 || node->node.value < nodes), "a node outside its job");
  });
}

std::vector<std::string> environment_seeds() {
  return {"RANK=2\nWORLD_SIZE=3\nMASTER_ADDR=10.0.0.7\nMASTER_PORT=29500\nLOCAL_RANK=1\nGROUP_WORLD_SIZE=1",
          "RANK=0\nWORLD_SIZE=2\nRONDO_RENDEZVOUS=[::1]:4000\nRONDO_JOB=j\nRONDO_SECRET_FD=4\nRONDO_GENERATION=1",
          "RANK=1\nWORLD_SIZE=4\nMASTER_ADDR=h\nMASTER_PORT=1\nTORCHELASTIC_RUN_ID=none\nGROUP_RANK=0\n"
          "TORCHELASTIC_RESTART_COUNT=2\nTORCHELASTIC_USE_AGENT_STORE=True",
          "OMPI_COMM_WORLD_RANK=3\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_RANK=1\nOMPI_COMM_WORLD_LOCAL_SIZE=2\n"
          "PMIX_NAMESPACE=n",
          "PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2\nPMI_JOBID=j",
          "SLURM_PROCID=3\nSLURM_STEP_NUM_TASKS=4\nSLURM_STEP_NUM_NODES=2\nSLURM_JOB_ID=1\nSLURM_STEP_ID=0\n"
          "SLURM_STEP_NODELIST=n[0-1]\nSLURM_LOCALID=1\nSLURM_DISTRIBUTION=block",
          "SLURM_PROCID=0\nSLURM_TASKS_PER_NODE=2(x3),1\nSLURM_JOB_NUM_NODES=2\nSLURM_NODEID=1",
          "PET_NNODES=2\nPET_NODE_RANK=1\nMASTER_ADDR=h\nMASTER_PORT=4\nPET_NPROC_PER_NODE=8",
          "SM_HOSTS=[\"algo-1\",\"algo-2\"]\nSM_CURRENT_HOST=algo-2\nSM_NUM_GPUS=8",
          "AWS_BATCH_JOB_NUM_NODES=3\nAWS_BATCH_JOB_NODE_INDEX=2\nAWS_BATCH_JOB_MAIN_NODE_INDEX=0\n"
          "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.1\nAWS_BATCH_JOB_ID=a#1",
          "LSB_MCPU_HOSTS=a 4 b 4\nLSB_JOBID=7",
          "JOB_COMPLETION_INDEX=1",
          "PAI_TASK_INDEX=1\nPAI_CURRENT_TASK_ROLE_NAME=w\nPAI_JOB_NAME=j",
          "VC_TASK_INDEX=1\nRONDO_WORLD=one"};
}

void run_host_list(Bytes input) {
  std::optional<HostList> hosts;
  if (!accepts([&] { hosts.emplace(as_text(input), "LIST"); })) return;
  expect(hosts->size() > 0 && hosts->size() <= kMostHosts, "no hosts, or too many");
  const std::size_t step = 1 + hosts->size() / 64;  // no one asks for all of many
  for (std::size_t i = 0; i < hosts->size(); i += std::min(step, std::max<std::size_t>(1, hosts->size() - 1 - i))) {
    const std::string host = hosts->at(i);
    expect(!host.empty() && host.size() <= 255, "a host without a name, or with a long one");
  }
}

std::vector<std::string> host_list_seeds() {
  return {"n[07-9,12]-ib0,r[1-2]n[3-4],m3", "n1", "a.b_c-[001-003]", "n[1-65536]"};
}

void run_endpoint(Bytes input) {
  std::string host;
  std::uint16_t port = 0;
  if (accepts([&] { parse_endpoint(text_of(input), "tcp://", host, port); })) {
    expect(!host.empty() && port != 0, "an endpoint without host or port");
    std::string again;
    parse_endpoint(rendezvous::endpoint_text(host, port), "tcp://", again, port);
    expect(again == host, "another host than was written: " + host);
  }
}

std::vector<std::string> endpoint_seeds() { return {"host:4000", "[::1]:29500", "10.0.0.7:1", "host"}; }

}  // namespace rondo::fuzz
