# SPDX-License-Identifier: Apache-2.0
"""--cases guard: 24 cells of this build beside those of another one (--against), launched in turns: what a change costs."""
from comparison import configurations, launching, odd, planning, tables

COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "reduce_scatter")
BYTES = (64, 16 << 10, 1 << 20)
RANKS = (2, 4)
LIMIT = 1.1
GROUPS = ("guard",)
BEFORE = "rondo-against"


def ours(options, into):
    if not options.against:
        raise ValueError("--cases guard needs --against BUILD: what to compare with")
    return list(configurations.ours(options, into))


def plan(options, chosen, rows):
    return planning.fixed(launches(options, chosen), rows)


def launches(options, chosen):
    for round_ in range(1, options.pairs + 1):
        for np in RANKS:
            for configuration in chosen[::1 if round_ % 2 else -1]:
                yield launching.Work(round_, np, "guard", configuration, launching.cells(COLLECTIVES, BYTES))


def judge(rows):
    """A cell fails when three quarters of its pairs say that it costs more than the limit."""
    cells = odd.Cells(rows)
    return [odd.Comparison("%s of %s, %d ranks" % (collective, tables.size_text(bytes_), np), LIMIT,
                           cells.compare(("guard", "rondo", collective, np, bytes_), ("guard", BEFORE, collective, np, bytes_)),
                           by_quartile=True)
            for np in RANKS for collective, bytes_ in launching.cells(COLLECTIVES, BYTES)]
