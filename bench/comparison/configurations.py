# SPDX-License-Identifier: Apache-2.0
"""What is compared: each library as it is installed, in the variants that can be its best, and how it is launched."""
import dataclasses
import typing

from comparison import machine, programs, results, venvs


@dataclasses.dataclass(frozen=True)
class Configuration:
    """`command(np, arguments)` is a list of words; `arguments` are those of bench/peers/arguments.hpp."""
    name: str
    command: typing.Callable
    environment: dict = dataclasses.field(default_factory=dict)
    collectives: tuple = ()  # a variant that concerns these alone, in place or not; empty: all
    lacks: tuple = ()  # what it cannot do
    blocks: bool = False  # its ranks sleep while they wait, so nothing of the harness may spin or yield beside them
    needs_cores: bool = False  # its ranks spin while they wait: with more of them than cores a call may not end

    def runs(self, cell):
        if self.needs_cores and cell[2] > machine.CORES:
            return False
        return cell[1] not in self.lacks and (not self.collectives or results.plain(cell[1]) in self.collectives)


TO_CORES = ("-bind-to", "core")
WITH_RANK = ("sh", "-c", 'exec "$0" --rank "$PMI_RANK" "$@"')  # for a program that reads no environment


def open_mpi(mpirun, program, flags):
    def command(np, arguments):
        has_cores = np <= machine.CORES
        return [str(mpirun), "--allow-run-as-root", "--oversubscribe", "-np", str(np),
                "--bind-to", "core" if has_cores else "none",
                # with more ranks than cores: its own advice, and what it does by itself
                "--mca", "mpi_yield_when_idle", "0" if has_cores else "1", "--mca", "pml", "ob1",
                "--mca", "btl_tcp_if_include", "lo", *flags, str(program), *arguments]
    return command


def hydra(mpiexec, *program, bind=()):
    """The launcher of MPICH and of what comes from it. bind: flags where every rank has a core."""
    def command(np, arguments):
        return [str(mpiexec), "-launcher", "fork", "-np", str(np), *(bind if np <= machine.CORES else ()),
                *map(str, program), *arguments]
    return command


def direct(program, *more):
    return lambda np, arguments: [str(program), *arguments, *more]


def variants_of_open_mpi(name, launcher, program, tcp, flags, shared, without_copy):
    """flags: always. shared: its name for shared memory. without_copy: no copies by the kernel."""
    if tcp:
        yield Configuration(name, open_mpi(launcher, program, [*flags, "--mca", "btl", "tcp,self"]))
        return
    for suffix, more in (("", []), ("-nocma", without_copy), ("-collsm", ["--mca", "coll_sm_priority", "90"])):
        yield Configuration(name + suffix, open_mpi(launcher, program, [*flags, "--mca", "btl", shared, *more]),
                            collectives=("all_reduce",) if suffix else ())


def of_open_mpi(into, tcp):
    return variants_of_open_mpi("openmpi", "mpirun.openmpi", programs.build_mpi("openmpi", into), tcp,
                                ["--mca", "oob_tcp_if_include", "lo"], "vader,self",
                                ["--mca", "btl_vader_single_copy_mechanism", "none"])


def of_open_mpi_5(into, tcp):
    home = venvs.find(into, "openmpi-5")
    return variants_of_open_mpi("openmpi-5", home / "bin" / "mpirun", programs.build_mpi_at(home, into), tcp, [], "sm,self",
                                ["--mca", "smsc", "^cma"])


def of_mpich(into, tcp):
    environment = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"} if tcp else {}
    yield Configuration("mpich", hydra("mpirun.mpich", programs.build_mpi("mpich", into), bind=TO_CORES), environment)


def of_mpich_5(into, tcp):
    home = venvs.find(into, "mpich-5")
    environment = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"} if tcp else {}
    yield Configuration("mpich-5", hydra(home / "bin" / "mpiexec.hydra", programs.build_mpi_at(home, into), bind=TO_CORES),
                        environment, needs_cores=True)


def of_intel_mpi(into, tcp):
    if tcp:
        raise programs.Missing("it keeps to shared memory, whatever fabric is asked for")
    home = venvs.find(into, "impi")
    yield Configuration("impi", hydra(home / "bin" / "mpiexec.hydra", programs.build_mpi_at(home, into)))


def of_oneccl(into, tcp):
    if tcp:
        raise programs.Missing("Intel MPI, which carries it, keeps to shared memory")
    home = venvs.find(into, "oneccl")
    environment = {"CCL_ATL_TRANSPORT": "mpi", "CCL_MPI_LIBRARY_PATH": "%s/lib/libmpi.so.12" % home, "CCL_LOG_LEVEL": "error"}
    yield Configuration("oneccl", hydra(home / "bin" / "mpiexec.hydra", *WITH_RANK, programs.build_oneccl(home, into)), environment,
                        lacks=("gather", "scatter", "gather_v", "scatter_v", "gather_in_place", "scatter_in_place"),
                        needs_cores=True)


def of_gloo(into, _tcp):
    program = programs.build_gloo(into)
    yield Configuration("gloo", direct(program, "--algorithm", "ring"), lacks=("gather_v", "scatter_v"), blocks=True)
    yield Configuration("gloo-bcube", direct(program, "--algorithm", "bcube"), collectives=("all_reduce",), blocks=True)


# What bench/peers/install fetched, and what Debian has.
PEERS = {"Open MPI 5": of_open_mpi_5, "MPICH 5": of_mpich_5, "Intel MPI": of_intel_mpi, "oneCCL": of_oneccl,
         "Open MPI": of_open_mpi, "MPICH": of_mpich, "Gloo": of_gloo}


def ours(wanted, into):
    """Configurations of ours, the one that is judged first."""
    program = programs.build_ours(wanted.ours, into)
    environment = {"RONDO_TRANSPORT": "tcp"} if wanted.transport == "tcp" else {}
    yield Configuration("rondo", direct(program), environment)
    if wanted.windows:
        yield Configuration("rondo-windows", direct(program, "--windows", "1"), environment)
    if wanted.against:
        yield Configuration("rondo-against", direct(programs.build_ours(wanted.against, into)), environment)


def peers(wanted, into, say):
    """Configurations of the peers that are here; `say` names what is not, with the reason."""
    found = []
    for name, of in PEERS.items():
        try:
            found += of(into, wanted.transport == "tcp")
        except programs.Missing as why:
            say("%s is left out: %s" % (name, why))
    crowds = [np for np in wanted.np if np > machine.CORES]
    spinning = [configuration.name for configuration in found if configuration.needs_cores]
    if crowds and spinning:
        say("%s: not by %s ranks, which are more than cores: theirs spin, and a call may not end" % (
            ", ".join(spinning), ", ".join(map(str, crowds))))
    return found


def ours_and_peers(wanted, into, say):
    mine = list(ours(wanted, into))
    if wanted.no_peers:
        return mine
    found = peers(wanted, into, say)
    for part in wanted.only:
        if not any(part in peer.name for peer in found):
            raise ValueError("--only %s: none of the peers that are here has such a name" % part)
    return mine + [peer for peer in found if not wanted.only or any(part in peer.name for part in wanted.only)]
