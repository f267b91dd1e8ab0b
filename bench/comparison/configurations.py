# SPDX-License-Identifier: Apache-2.0
"""What is compared: each library as it is installed, in the variants that can be its best, and how it is launched."""
import dataclasses
import typing

from comparison import gates, machine, options, programs, results


@dataclasses.dataclass(frozen=True)
class Configuration:
    """`command(np, arguments)` is a list of words; `arguments` are those of bench/peers/arguments.hpp."""
    name: str
    command: typing.Callable
    environment: dict = dataclasses.field(default_factory=dict)
    collectives: tuple = ()  # a variant that concerns these alone, in place or not; empty: all
    lacks: tuple = ()  # what it cannot do
    blocks: bool = False  # its ranks sleep while they wait, so nothing of the harness may spin or yield beside them

    def runs(self, cell):
        return cell[1] not in self.lacks and (not self.collectives or results.plain(cell[1]) in self.collectives)


def open_mpi(program, flags):
    def command(np, arguments):
        has_cores = np <= machine.CORES
        return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(np),
                "--bind-to", "core" if has_cores else "none",
                # with more ranks than cores: its own advice, and what it does by itself
                "--mca", "mpi_yield_when_idle", "0" if has_cores else "1", "--mca", "pml", "ob1",
                "--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo", *flags,
                str(program), *arguments]
    return command


def mpich(program):
    def command(np, arguments):
        bind = ["-bind-to", "core"] if np <= machine.CORES else []
        return ["mpirun.mpich", "-launcher", "fork", "-np", str(np), *bind, str(program), *arguments]
    return command


def direct(program, *more):
    return lambda np, arguments: [str(program), *arguments, *more]


def peers_over_shm(into):
    def of_open_mpi():
        program = programs.build_mpi("openmpi", into)
        vader = ["--mca", "btl", "vader,self"]
        copies = vader + ["--mca", "btl_vader_single_copy_mechanism", "none"]
        yield Configuration("openmpi", open_mpi(program, vader))
        yield Configuration("openmpi-nocma", open_mpi(program, copies), collectives=("all_reduce",))
        yield Configuration("openmpi-collsm", open_mpi(program, vader + ["--mca", "coll_sm_priority", "90"]),
                            collectives=("all_reduce",))

    def of_mpich():
        yield Configuration("mpich", mpich(programs.build_mpi("mpich", into)))

    return {"Open MPI": of_open_mpi, "MPICH": of_mpich, "Gloo": lambda: of_gloo(into)}


def of_gloo(into):
    program = programs.build_gloo(into)
    yield Configuration("gloo", direct(program, "--algorithm", "ring"), lacks=("gather_v", "scatter_v"), blocks=True)
    yield Configuration("gloo-bcube", direct(program, "--algorithm", "bcube"), collectives=("all_reduce",), blocks=True)


def peers_over_tcp(into):
    def of_open_mpi():
        yield Configuration("openmpi", open_mpi(programs.build_mpi("openmpi", into), ["--mca", "btl", "tcp,self"]))

    def of_mpich():
        yield Configuration("mpich", mpich(programs.build_mpi("mpich", into)),
                            {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"})

    return {"Open MPI": of_open_mpi, "MPICH": of_mpich, "Gloo": lambda: of_gloo(into)}


def ours(wanted, into):
    """Configurations of ours, the one that is judged first."""
    program = programs.build_ours(wanted.ours, into)
    environment = {"RONDO_TRANSPORT": "tcp"} if wanted.transport == "tcp" else {}
    yield Configuration("rondo", direct(program), environment)
    if wanted.windows:
        yield Configuration("rondo-windows", direct(program, "--windows", "1"), environment)
    if wanted.reproducible:
        yield Configuration("rondo-reproducible", direct(program, "--determinism", "reproducible"), environment)
    for algorithm in wanted.algorithm:
        yield Configuration("rondo-" + algorithm, direct(program), {**environment, "RONDO_ALGORITHM": algorithm})
    if wanted.against:
        yield Configuration("rondo-against", direct(programs.build_ours(wanted.against, into)), environment)


def bounds(wanted, into, say):
    """The bounds, where they can be built: bench/peers/bound_peer.cpp."""
    try:
        program = programs.build_bound(into)
    except programs.Missing as why:
        say("the bound is left out: %s" % why)
        return []
    # Of blocks that differ it knows what goes from or to a root in shared memory, where calls are signals for the most part.
    lacks = options.IN_PLACE + (options.VARIABLE if wanted.transport == "tcp" else ("all_gather_v", "all_to_all_v"))
    flags = {gates.BOUND: []}
    if wanted.windows:
        flags[gates.BOUND_WINDOWS] = ["--windows", "1"]
    if wanted.transport == "shm":
        flags[gates.BOUND_AHEAD] = ["--ahead", "1"]
    without_rseq = {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}  # switches of its ranks are cheaper, and ours do without too
    return [Configuration(name, direct(program, "--transport", wanted.transport, *more), without_rseq, lacks=lacks)
            for name, more in flags.items()]


def peers(wanted, into, say):
    """Configurations of the peers that are here; each that is not is named by `say` with the reason."""
    found = []
    families = peers_over_tcp(into) if wanted.transport == "tcp" else peers_over_shm(into)
    for name, family in families.items():
        try:
            found += family()
        except programs.Missing as why:
            say("%s is left out: %s" % (name, why))
    return found
