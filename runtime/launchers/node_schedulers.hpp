// SPDX-License-Identifier: Apache-2.0
// What schedulers say of a launcher that they start once on each node: the readers of their rows in the environment
// table. several_…(): whether there are several nodes, by which a program without a launcher knows that it is not
// alone.
#pragma once
#include "runtime/launchers/environment.hpp"

namespace rondo::runtime {

// A launcher within a rank of another job, or beside half of the variables that a person sets, is on its own.
NodeLaunch read_no_nodes(const Variables& variables, std::string_view sign);
NodeLaunch read_torchrun_node(const Variables& variables, std::string_view sign);
NodeLaunch read_plain_node(const Variables& variables, std::string_view sign);  // as PyTorchJob sets them
NodeLaunch read_open_mpi_node(const Variables& variables, std::string_view sign);
NodeLaunch read_hydra_node(const Variables& variables, std::string_view sign);
NodeLaunch read_slurm_node(const Variables& variables, std::string_view sign);
NodeLaunch read_openpai_node(const Variables& variables, std::string_view sign);
NodeLaunch read_indexed_node(const Variables& variables, std::string_view sign);

bool several_pet_nodes(const Variables& variables);
NodeLaunch read_pet_node(const Variables& variables, std::string_view sign);
bool several_sagemaker_hosts(const Variables& variables);
NodeLaunch read_sagemaker_node(const Variables& variables, std::string_view sign);
bool several_batch_nodes(const Variables& variables);
NodeLaunch read_batch_node(const Variables& variables, std::string_view sign);
bool several_pbs_hosts(const Variables& variables);
NodeLaunch read_pbs_node(const Variables& variables, std::string_view sign);
bool several_lsf_hosts(const Variables& variables);
NodeLaunch read_lsf_node(const Variables& variables, std::string_view sign);
bool several_grid_engine_hosts(const Variables& variables);
NodeLaunch read_grid_engine_node(const Variables& variables, std::string_view sign);

}  // namespace rondo::runtime
