# SPDX-License-Identifier: Apache-2.0
"""One launch of one configuration: all its cells in one set of processes, bounded in time, nothing left behind."""
import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
import time

from comparison import machine, results


@dataclasses.dataclass(frozen=True)
class Work:
    """What one launch measures."""
    round: int
    np: int
    group: str
    configuration: object
    cells: tuple  # (collective, bytes)

    @property
    def key(self):
        return (self.round, self.np, self.group, self.configuration.name)


PATIENCE = 200  # turns of 5 ms that a launch may wait for near cores, in all
LEAST_ITERATIONS = 3
UNSIZED = ("barrier", "waiting")


def cells(collectives, sizes):
    """(collective, bytes) of each cell."""
    return tuple((collective, bytes_) for collective in collectives for bytes_ in ((0,) if collective in UNSIZED else sizes))


def cells_text(cells_):
    return ",".join("%s:%d" % cell for cell in cells_)


def shared_folder():
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def waits(work):
    """How ranks wait in the harness (bench/peers/meeting.hpp)."""
    return "sleep" if work.configuration.blocks else "spin" if work.np <= machine.CORES else "yield"


def arguments(work, options, folder, limit_s):
    named = {"np": work.np, "meeting": os.path.join(folder, "meeting"), "waits": waits(work),
             "cells": cells_text(work.cells), "near-ns": results.NEAR_NS, "far-ns": results.FAR_NS, "patience": PATIENCE,
             "budget-ms": options.budget_ms, "min-iterations": LEAST_ITERATIONS,
             "max-iterations": options.max_iterations, "limit-s": int(limit_s) + 1}
    return [word for name, value in named.items() for word in ("--" + name, str(value))]


def run(command, environment, limit_s):
    """(output, error text or "")"""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit_s)
        error = "" if process.returncode == 0 else "exit %d: %s" % (process.returncode, " ".join(err.split())[:200])
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the session that this launch started
        out, error = process.communicate()[0], "not done after %.0f s" % limit_s
    finally:
        if process.poll() is None:  # interrupted
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return out, error.replace(",", ";")


def launch(work, options, order, limit_s):
    """Rows of the cells; of a failed launch, one with the error instead of those that are missing."""
    folder = tempfile.mkdtemp(prefix="rondo-compare-", dir=shared_folder())
    try:
        begin, cpu = time.monotonic(), machine.cpu_of_others()
        command = work.configuration.command(work.np, arguments(work, options, folder, limit_s))
        out, error = run(command, work.configuration.environment, limit_s)
        seconds = time.monotonic() - begin
        foreign = max(0.0, machine.cpu_of_others() - cpu) / (seconds * machine.CORES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    same = {"order": order, "round": work.round, "group": work.group, "configuration": work.configuration.name,
            "transport": options.transport, "foreign": "%.3f" % foreign}
    found = results.parse_output(out)
    if error or not found:
        found.append({**dict.fromkeys(results.FROM_PROGRAM, 0), "collective": "-", "np": work.np, "histogram": "",
                      "check": error or "printed nothing"})
    return [results.make_row({**same, **cell}) for cell in found], seconds
