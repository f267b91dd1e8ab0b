# SPDX-License-Identifier: Apache-2.0
"""--cases types: all_reduce of every element type and operator against sums of floats, per byte, at a size at which
memory decides. all_reduce_perf measures them, which knows all types and checks every result."""
import csv
import pathlib
import time

from comparison import configurations, launching, machine, odd, pairing, planning, programs, results, tables

BYTES = 16 << 20
BASE = ("float", "sum")
FLAGS = {"types": ("-d", "all", "-o", "sum"), "operators": ("-d", "float", "-o", "all")}
GROUPS = tuple(FLAGS)
SAMPLES = ("-c", "1", "-n", "1", "-w", "2", "--batches", "31", "--csv")


def commands(folder):
    """(rondorun, all_reduce_perf) of a build or an installation."""
    found = [pathlib.Path(folder, "bin", name) for name in ("rondorun", "all_reduce_perf")]
    for program in found:
        if not program.exists():
            raise programs.Missing("%s is missing: build the targets rondorun and all_reduce_perf" % program)
    return found


def ours(options, _into):
    rondorun, perf = map(str, commands(options.ours))

    def command(np, arguments):
        return [rondorun, "--nproc-per-node", str(np), "--prefix", "none", "--", perf, *arguments]
    return [configurations.Configuration("rondo", command)]


def plan(options, chosen, rows):
    return planning.fixed(launches(options, chosen), rows)


def launches(options, chosen):
    for round_ in range(1, options.pairs + 1):
        for np in options.np:
            for group in GROUPS:
                yield launching.Work(round_, np, group, chosen[0], (("all_reduce", BYTES),))


def rows_of(output, known):
    """What all_reduce_perf printed, out of place; `known` is what the launch knows. The collective names type and
    operator."""
    found = []
    for line in csv.DictReader(output.splitlines()):
        if line["in_place"] == "0":
            found.append(results.make_row({
                **known, "collective": "all_reduce %s %s" % (line["dtype"], line["op"]), "bytes": line["bytes"],
                "iterations": line["samples"], "median_us": line["median_us"], "p99_us": line["max_us"],
                "min_us": line["min_us"], "mean_us": line["median_us"],
                "check": "ok" if line["wrong"] == "0" else "WRONG", "histogram": ""}))
    return found


def launch(work, options, order, limit_s):
    """As launching.launch."""
    arguments = ["-b", str(BYTES), "-e", str(BYTES), *FLAGS[work.group], *SAMPLES]
    begin, cpu = time.monotonic(), machine.cpu_of_others()
    out, error = launching.run(work.configuration.command(work.np, arguments), {}, limit_s)
    seconds = time.monotonic() - begin
    foreign = max(0.0, machine.cpu_of_others() - cpu) / (seconds * machine.CORES)
    known = {**dict.fromkeys(results.FIELDS, 0), "order": order, "round": work.round, "group": work.group,
             "configuration": work.configuration.name, "transport": options.transport, "foreign": "%.3f" % foreign,
             "np": work.np}
    rows = rows_of(out, known) if not error else []
    if not rows:
        rows = [results.make_row({**known, "collective": "-", "check": error or "printed nothing", "histogram": ""})]
    return rows, seconds


def judge(rows):
    """Comparisons with the sums of floats of the same launch."""
    found, base = [], "all_reduce %s %s" % BASE
    same_launch = {(row.order, row.np): row for row in rows if row.collective == base and row.usable}
    kinds = sorted({(row.np, row.collective) for row in rows if row.usable and row.group in GROUPS} -
                   {(row.np, base) for row in rows})
    for np, kind in kinds:
        mine = [row for row in rows if (row.np, row.collective) == (np, kind) and row.usable]
        pairs = [(row, same_launch[row.order, np]) for row in mine if (row.order, np) in same_launch]
        ratio = pairing.ratio_of(pairs)
        found.append(odd.Comparison("%s of %s against sums of floats, %d ranks" % (kind, tables.size_text(BYTES), np),
                                    1.0, ratio, by_quartile=True))
    return found
