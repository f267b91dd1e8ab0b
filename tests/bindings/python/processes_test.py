# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes: spawn(), its failures, and objects."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from needs import numpy as np

import rondo


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__("an exception that pickle cannot make again")


def sum_of(comm, add, *, scale=1):
    data = np.array([float(comm.rank)])
    comm.all_reduce(data)
    return comm.rank, (data[0] + add) * scale, os.environ["RANK"]


def raising(comm):
    comm.barrier()
    if comm.rank == 1:
        raise KeyError("not there")
    comm.barrier()


def raising_odd(comm):
    if comm.rank == 0:
        raise Odd(1, 2)
    comm.barrier()


def killed(comm):
    comm.barrier()
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def surviving(comm, ends_by):
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), ends_by)
    try:
        while True:
            comm.barrier()
    except rondo.Error:
        smaller = comm.shrink()
    smaller.barrier()
    return smaller.rank, smaller.world_size


def exiting(comm):
    if comm.rank == 0:
        sys.exit(7)
    comm.barrier()


def vanishing(comm):
    if comm.rank == 1:
        os._exit(0)
    comm.barrier()


def objects(comm):
    value = {"rank": comm.rank, "array": np.arange(comm.rank + 1)}
    try:
        import torch  # here alone: every spawned rank would import it
    except ImportError:
        torch = None
    else:
        value["tensor"] = torch.full((2,), float(comm.rank))
    everybody = comm.all_gather_object(value)
    for rank, one in enumerate(everybody):
        assert one["rank"] == rank and one["array"].tolist() == list(range(rank + 1)), one
        assert torch is None or one["tensor"].tolist() == [rank, rank], one
    gathered = comm.gather_object(value, root=1)
    assert (gathered is None) == (comm.rank != 1)
    if gathered is not None:
        assert [one["rank"] for one in gathered] == list(range(comm.world_size))
    told = comm.broadcast_object({"from": comm.rank} if comm.rank == 2 else None, root=2)
    assert told == {"from": 2}, told
    parts = [{"to": rank, "text": "x" * rank} for rank in range(comm.world_size)] if comm.rank == 0 else None
    assert comm.scatter_object(parts) == {"to": comm.rank, "text": "x" * comm.rank}
    if comm.rank == 0:
        comm.send_object({"second"}, 1, tag=2)
        comm.send_object(["a", None], 1)
    elif comm.rank == 1:
        assert comm.recv_object(0) == ["a", None]
        assert comm.recv_object(tag=2) == {"second"}
    try:
        comm.broadcast_object(1, root=9)
    except ValueError as error:
        assert "root 9" in str(error)
    else:
        raise AssertionError("root 9 was taken")
    return sorted(told)


class Spawn(unittest.TestCase):
    def failure(self, body, world_size=3, args=()):
        with self.assertRaises(rondo.RankFailed) as caught:
            rondo.spawn(body, world_size, args, timeout=60)
        return caught.exception

    def test_results_come_back_in_rank_order(self):
        self.assertEqual(rondo.spawn(sum_of, 3, (10,), {"scale": 2}), [(r, 26.0, str(r)) for r in range(3)])
        self.assertEqual(rondo.spawn(sum_of, 1, (1,)), [(0, 1.0, "0")])
        with self.assertRaises(ValueError):
            rondo.spawn(sum_of, 0)

    def test_an_exception_comes_back_with_its_traceback(self):
        failure = self.failure(raising)
        self.assertEqual((failure.rank, failure.exit_code), (1, 1))
        self.assertEqual(repr(failure.__cause__), "KeyError('not there')")
        self.assertIn("in raising", failure.traceback)
        self.assertIn("rank 1 failed: KeyError: 'not there'", str(failure))

    def test_an_exception_that_cannot_travel_does_by_its_text(self):
        failure = self.failure(raising_odd, 2)
        self.assertEqual(failure.rank, 0)
        self.assertIn("Odd: an exception that pickle cannot make again", str(failure))

    def test_a_killed_rank_is_named(self):
        failure = self.failure(killed)
        self.assertEqual((failure.rank, failure.exit_code), (2, 128 + signal.SIGKILL))
        self.assertEqual(str(failure), "rank 2 was killed by SIGKILL")

    def test_survivors_go_on_without_a_killed_or_stopped_rank(self):
        self.assertEqual(rondo.spawn(surviving, 3, (signal.SIGKILL,), timeout=60), [(0, 2), None, (1, 2)])
        self.assertEqual(rondo.spawn(surviving, 3, (signal.SIGSTOP,), timeout=1), [(0, 2), None, (1, 2)])

    def test_survivors_are_told_who_was_killed_and_a_spare_joins(self):
        script = pathlib.Path(__file__).with_name("killed_by_ranks.py")
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, script, f"file://{folder}/meeting", str(rank)],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for rank in (0, 1, 2, "spare")]
            said = [rank.communicate(timeout=60)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, -signal.SIGKILL, 0, 0], said)
        self.assertIn("went on as 1 of 2", said[2])
        self.assertIn("together as 1 of 3 at {'step': 7}", said[2])
        self.assertIn("together as 2 of 3 at {'step': 7}", said[3])

    def test_exits_are_failures(self):
        self.assertEqual((self.failure(exiting).rank, self.failure(exiting).exit_code), (0, 7))
        failure = self.failure(vanishing, 2)
        self.assertEqual(str(failure), "rank 1 ended without a result, with status 0")

    def test_nobody_is_left(self):
        import multiprocessing

        self.failure(raising)
        self.assertEqual(multiprocessing.active_children(), [])

    def test_objects(self):
        self.assertEqual(rondo.spawn(objects, 3, timeout=60), [["from"]] * 3)


if __name__ == "__main__":
    unittest.main()
