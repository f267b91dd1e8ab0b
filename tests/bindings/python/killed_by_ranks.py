# SPDX-License-Identifier: Apache-2.0
"""A rank is killed while the others wait: they get an error that names it, and go on without it. processes_test.py starts
the ranks: a launcher would end the others."""

import os
import signal
import sys

from needs import numpy as np

import rondo

comm = rondo.init(sys.argv[1], rank=int(sys.argv[2]), world_size=3, timeout=60)
comm.barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    comm.barrier()
except rondo.Error as error:
    assert error.code == rondo.ErrorCode.peer_lost, error
    assert error.culprit == 1, error
    assert "rank 1" in str(error), error
else:
    raise AssertionError("the barrier went through without rank 1")
smaller = comm.shrink()
data = np.ones(3)
smaller.all_reduce(data)
assert data.tolist() == [comm.world_size - 1] * 3, data
print(f"rank {comm.rank}: went on as {smaller.rank} of {smaller.world_size}")
