// SPDX-License-Identifier: Apache-2.0
// What Open MPI, MPICH and Slurm say of a process that they started: the readers of their rows in the environment
// table.
#pragma once
#include "runtime/launchers/environment.hpp"

namespace rondo::runtime {

Launch read_open_mpi(const Variables& variables, std::string_view sign);
Launch read_hydra(const Variables& variables, std::string_view sign);  // MPICH's mpiexec
Launch read_slurm(const Variables& variables, std::string_view sign);

// The node that task 0 runs on, as Slurm distributes tasks; throws where its list does not say it.
std::string first_slurm_host(const Variables& variables);

// False: one task is all there is. What no variable says counts as several.
bool several_slurm_tasks(const Variables& variables);

}  // namespace rondo::runtime
