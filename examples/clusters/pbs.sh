#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts with four ranks each; PBS starts this script on the first, and rondorun the rest by ssh:
#   qsub pbs.sh
#PBS -N rondo
#PBS -l select=2:ncpus=4:mpiprocs=4
#PBS -l walltime=01:00:00
set -euo pipefail

cd "$PBS_O_WORKDIR"
# The file names each host as often as it has slots. The secret is made for the run and goes over ssh.
rondorun --hostfile "$PBS_NODEFILE" ./my_program
