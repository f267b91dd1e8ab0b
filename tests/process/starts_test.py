#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""starts_test.py BUILD SOURCE [--print]: one program of four ranks under every way of starting it, unchanged.

The table of docs/clusters.md is what --print prints. Ranks say themselves which they are, and rondorun --explain in
each of them where they meet. Where an MPI is not installed, its variables take its place.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

BUILD, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
RONDORUN, WHO = BUILD / "bin/rondorun", BUILD / "bin/who"
PROGRAM = ["sh", "-c", '"$0" --explain 2>/dev/null | tail -n 1; exec "$1"', RONDORUN, WHO]
CLEAN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
ONE_NODE, TWO_NODES = {0: 0, 1: 1, 2: 2, 3: 3}, {0: 0, 1: 1, 2: 0, 3: 1}  # rank: local rank
LIMIT_S = 60

sys.path.insert(0, str(SOURCE / "bench"))
from comparison import programs, venvs  # noqa: E402


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def end(process):
    """What it did, and what it wrote in the end."""
    process.kill()
    out, err = process.communicate()
    return f"{process.args} ({process.returncode}):\n{out}{err}"


def run_all(commands):
    """Each with its variables, at once; the lines of all that they write, without [rank]."""
    running = [
        subprocess.Popen(
            [str(word) for word in words],
            env=CLEAN | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words, variables in commands
    ]
    lines, errors = [], ""
    for process in running:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("\n".join([f"not over within {LIMIT_S} s", *map(end, running)])) from None
        finally:
            process.kill()
        errors += err if process.returncode != 0 else ""
        lines += [re.sub(r"^\[\d+\] ", "", line) for line in out.splitlines()]
    if errors:
        raise AssertionError(errors)
    return lines


class Way:
    def __init__(self, command, launcher, local_ranks, commands, master="127.0.0.1", port=None):
        self.command, self.launcher, self.local_ranks, self.commands = command, launcher, local_ranks, commands
        self.master, self.port = master, port

    def check(self):
        lines = run_all(self.commands)
        text = f"{self.command}:\n" + "\n".join(lines)
        explained = [re.match(r"without rondorun rank (\d) of 4 \((.*)\), meets at (.*):(\d+), job", line) for line in lines]
        ranks = [re.match(r"rank (\d) of 4, local (\d): the sum is 10$", line) for line in lines]
        explained, ranks = [match for match in explained if match], [match for match in ranks if match]
        assert len(explained) == 4 and len(ranks) == 4, text
        assert sorted(int(match[1]) for match in explained) == [0, 1, 2, 3], text
        assert {match[2] for match in explained} == {self.launcher}, text
        assert {match[3] for match in explained} == {self.master}, text
        assert len({match[4] for match in explained}) == 1, text
        assert self.port is None or explained[0][4] == self.port, text
        assert {int(match[1]): int(match[2]) for match in ranks} == self.local_ranks, text

    def row(self):
        local = " ".join(str(self.local_ranks[rank]) for rank in range(4))
        return f"| `{self.command}` | {self.launcher} | 0 1 2 3 | {local} | {local.count('0')} |"


def each(names, values_of, common):
    """Variables of processes started alike: those of all, and each one's number in those of `names`."""
    return [common | {name: str(value) for name, value in zip(names, values_of(index))} for index in range(4)]


def mpi(name, launcher, command, flags, variables, recorded):
    """By a real mpiexec where there is one."""
    try:
        home = venvs.find(BUILD.parent / "peers", name)
        mine = {"PATH": f"{home}/bin:{CLEAN['PATH']}", "LD_LIBRARY_PATH": f"{home}/lib"} | variables
        commands = [([f"{home}/bin/mpiexec", "-n", "4", *flags, *PROGRAM], mine)]
    except programs.Missing as missing:
        print(f"{name}: its variables alone, as {missing}")
        commands = [(PROGRAM, rank) for rank in recorded]
    return Way(command, launcher, ONE_NODE, commands)


def by_nodes(command, variables_of, port=None, flags=("--nproc-per-node", "2")):
    """A rondorun on each of two nodes, which is told the rest by variables."""

    def way(secret):
        commands = [
            ([RONDORUN, *flags, "--secret-file", secret, *PROGRAM], variables_of(node)) for node in range(2)
        ]
        return Way(command, "rondorun", TWO_NODES, commands, port=port)

    return way


def ways(secret):
    job, ports = str(os.getpid()), [free_port() for _ in range(9)]
    root = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
    at = lambda port: {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # noqa: E731
    hydra = each(["PMI_RANK", "MPI_LOCALRANKID"], lambda i: (i, i), {"PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"})
    yield Way("rondorun -n 4 prog", "rondorun", ONE_NODE, [([RONDORUN, "-n", "4", *PROGRAM], {})])
    yield by_nodes(
        "rondorun --nnodes 2 -n 2 prog",
        lambda node: {},
        ports[0],
        ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", ports[0], "-n", "2"],
    )(secret)
    yield Way(
        "rondorun --hosts a:2,b:2 prog",
        "rondorun",
        TWO_NODES,
        [([RONDORUN, "--ssh", SOURCE / "tests/process/ssh_stand_in", "--hosts", "127.0.0.1:2,127.0.0.2:2", *PROGRAM], {})],
    )
    torchrun = {"WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": job} | at(ports[1])
    yield Way(
        "torchrun --nproc-per-node 4 prog",
        "torchrun",
        ONE_NODE,
        [(PROGRAM, rank) for rank in each(["RANK", "LOCAL_RANK"], lambda i: (i, i), torchrun)],
        port=ports[1],
    )
    yield Way(
        "RANK=0 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500 prog",
        "set by hand",
        ONE_NODE,
        [(PROGRAM, rank) for rank in each(["RANK"], lambda i: (i,), {"WORLD_SIZE": "4"} | at(ports[2]))],
        port=ports[2],
    )
    yield mpi(
        "openmpi-5",
        "Open MPI",
        "mpirun -n 4 prog",
        ["--map-by", ":OVERSUBSCRIBE"],
        root,
        each(
            ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"],
            lambda i: (i, i),
            {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": job},
        ),
    )
    yield mpi("mpich-5", "MPICH", "mpiexec -n 4 prog", [], {}, [rank | {"PMI_JOBID": job} for rank in hydra])
    yield mpi("impi", "MPICH", "mpiexec.hydra -n 4 prog", [], {}, [rank | {"PMI_JOBID": job + "i"} for rank in hydra])
    step = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"}
    yield Way(
        "srun -n 4 prog",
        "Slurm",
        ONE_NODE,
        [(PROGRAM, rank) for rank in each(["SLURM_PROCID", "SLURM_LOCALID"], lambda i: (i, i), step)],
    )
    step = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"}
    yield by_nodes(
        "srun -N 2 --ntasks-per-node=1 rondorun -n 2 prog",
        lambda node: step | {"SLURM_PROCID": str(node), "SLURM_STEP_NODELIST": "127.0.0.1", "MASTER_PORT": ports[3]},
        ports[3],
    )(secret)
    yield by_nodes(
        "mpirun --map-by ppr:1:node rondorun -n 2 prog",
        lambda node: {
            "OMPI_COMM_WORLD_RANK": str(node),
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
            "PMIX_NAMESPACE": job,
        }
        | at(ports[4]),
        ports[4],
    )(secret)
    yield by_nodes(
        "kubectl apply -f job.yaml",
        lambda node: {"JOB_COMPLETION_INDEX": str(node)},
        ports[5],
        ["--nnodes", "2", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", ports[5]],
    )(secret)
    yield by_nodes(
        "kubectl apply -f trainjob.yaml",
        lambda node: {
            "PET_NNODES": "2",
            "PET_NODE_RANK": str(node),
            "PET_NPROC_PER_NODE": "2",
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": ports[6],
        },
        ports[6],
        [],
    )(secret)
    yield by_nodes(
        "kubectl apply -f pytorchjob.yaml", lambda node: {"RANK": str(node), "WORLD_SIZE": "2"} | at(ports[7]), ports[7]
    )(secret)
    yield by_nodes(
        "rondorun -n 2 prog, as a task of OpenPAI",
        lambda node: {
            "PAI_CURRENT_TASK_ROLE_NAME": "worker",
            "PAI_TASK_INDEX": str(node),
            "PAI_TASK_ROLE_TASK_COUNT_worker": "2",
            "PAI_HOST_IP_worker_0": "127.0.0.1",
            "PAI_worker_0_SynPort_PORT": ports[8],
        },
        ports[8],
    )(secret)


def main():
    table = ["| started as | its ranks know it by the variables of | ranks | local ranks | nodes |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder) / "secret"
        subprocess.run([RONDORUN, "--new-secret", secret], check=True)
        for way in ways(secret):
            way.check()
            table.append(way.row())
    text = "\n".join(table) + "\n"
    if "--print" in sys.argv:
        print(text, end="")
    elif text not in (SOURCE / "docs/clusters.md").read_text(encoding="utf-8"):
        sys.exit("docs/clusters.md has another table: write what starts_test.py --print prints")
    else:
        print(f"{len(table) - 2} ways")


if __name__ == "__main__":
    main()
