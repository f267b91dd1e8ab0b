# SPDX-License-Identifier: Apache-2.0
"""Ranks of a test: rondorun starts the test's own file again, with a case's name behind the launcher's."""

import os
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist


class ByRanks(unittest.TestCase):
    launcher = None

    def run_ranks(self, name, world, expected=0, timeout=120, env=None):
        """What they printed; all of it, where they end otherwise than expected."""
        ended = subprocess.run(
            [self.launcher, "--nproc-per-node", str(world), sys.executable, sys.argv[0], self.launcher, name],
            capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, **(env or {})},
        )  # fmt: skip
        self.assertEqual(ended.returncode, expected, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr


def main(cases, backend="rondo"):
    """The tests, or, with a case's name, that function of (rank, world) in a group of the backend. A function may have a
    backend of its own, and a device that the group is bound to."""
    ByRanks.launcher = os.path.abspath(sys.argv[1])
    if len(sys.argv) == 2:
        del sys.argv[1:]
        unittest.main(module="__main__", verbosity=2)
    torch.set_num_threads(1)
    case = cases[sys.argv[2]]
    dist.init_process_group(getattr(case, "backend", backend), device_id=getattr(case, "device", None))
    case(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
