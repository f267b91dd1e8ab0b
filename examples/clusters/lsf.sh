#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Eight ranks, four on a host; LSF starts this script on the first, and rondorun the rest by ssh:
#   bsub < lsf.sh
#BSUB -J rondo
#BSUB -n 8
#BSUB -R "span[ptile=4]"
#BSUB -W 01:00
set -euo pipefail

# The file names each host as often as it has slots. The secret is made for the run and goes over ssh.
rondorun --hostfile "$LSB_DJOB_HOSTFILE" ./my_program
