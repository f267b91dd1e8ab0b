# SPDX-License-Identifier: Apache-2.0
"""A rank is killed while the others wait: they get an error that names it, go on without it, and a spare takes its place.
processes_test.py starts the ranks: a launcher would end the others."""

import os
import signal
import sys

from needs import numpy as np

import rondo


def lose_rank_1(comm):
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
    return smaller


place, who = sys.argv[1:]
if who == "spare":
    larger = rondo.join(place, join_timeout=60)
else:
    larger = lose_rank_1(rondo.init(place, rank=int(who), world_size=3, timeout=60)).grow(3, timeout=60)
state = larger.broadcast_object({"step": 7} if larger.rank == 0 else None)
data = np.ones(3)
larger.all_reduce(data)
assert data.tolist() == [3] * 3, data
print(f"together as {larger.rank} of {larger.world_size} at {state}")
assert larger.grow() is None
