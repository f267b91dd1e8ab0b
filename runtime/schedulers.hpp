// SPDX-License-Identifier: Apache-2.0
// What Open MPI, MPICH and Slurm say of a process that they started: the readers of their rows in the environment
// table.
#pragma once
#include "runtime/environment.hpp"

namespace rondo::runtime {

Launch read_open_mpi(const Variables& variables, std::string_view sign);
Launch read_hydra(const Variables& variables, std::string_view sign);  // MPICH's mpiexec
Launch read_slurm(const Variables& variables, std::string_view sign);

// False: one task is all there is. What no variable says counts as several.
bool several_slurm_tasks(const Variables& variables);

}  // namespace rondo::runtime
