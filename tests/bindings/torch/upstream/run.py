#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed, as they lie in its wheel, with whatever serves as gloo.

The ranks are forked from one process that has torch already: importing it for each would take longer than the tests.
With RONDO_TORCH_AS=gloo that is Rondo; without, Gloo itself, the control. A test that passes on Gloo must pass on Rondo.
"""
import argparse
import os
import re
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--world", type=int, required=True, help="ranks: 2, 3 or 4")
    parser.add_argument("--list", default=os.path.join(HERE, "tests.txt"), help="names of tests, each with its worlds")
    parser.add_argument("--every", type=int, default=1, help="only one of so many tests of the list")
    parser.add_argument("--all", action="store_true", help="all tests that torch has, whatever the list says")
    parser.add_argument("--seconds", type=int, default=60, help="after which a test is hung")
    parser.add_argument("--write", help="write the names of those that passed to this file")
    parser.add_argument("tests", nargs="*", help="names: only these")
    return parser.parse_args()


options = arguments()
os.environ["BACKEND"] = "gloo"
os.environ["WORLD_SIZE"] = str(options.world)
os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(options.seconds)
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

WANTED = "RondoBackend" if os.environ.get("RONDO_TORCH_AS") == "gloo" else "ProcessGroupGloo"


class Upstream(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def run_test(self, test_name, parent_pipe):
        found = type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__
        if found != WANTED:
            raise RuntimeError(f"this run is about {WANTED}, but {found} serves the tests")
        super().run_test(test_name, parent_pipe)


def listed(path, world):
    with open(path) as lines:
        rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return [row[0] for row in rows if str(world) in row[1:]]


def chosen():
    if options.tests:
        return options.tests
    if options.all:
        return unittest.defaultTestLoader.getTestCaseNames(Upstream)
    return listed(options.list, options.world)[:: options.every]


def last_line(text):
    """Of the first traceback that a rank left: its error."""
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return lines[0] if lines else text.strip().splitlines()[-1]


def main():
    counts = {"passed": 0, "skipped": 0, "failed": 0}
    passed = []
    for name in chosen():
        result = unittest.TestResult()
        started = time.monotonic()
        Upstream(name).run(result)
        seconds = time.monotonic() - started
        wrong = result.failures + result.errors
        word = "failed" if wrong else "skipped" if result.skipped else "passed"
        counts[word] += 1
        if word != "skipped" or not options.all:
            print(f"{word} {name} {seconds:.1f} s", flush=True)
        for _, text in wrong:
            print("    " + last_line(text), flush=True)
            if options.tests:
                print(text, flush=True)
        if word == "passed":
            passed.append(name)
    print(f"{WANTED}, world {options.world}: " + ", ".join(f"{n} {word}" for word, n in counts.items()))
    if options.write:
        with open(options.write, "w") as file:
            file.write("\n".join(passed) + "\n")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
