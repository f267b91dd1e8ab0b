# SPDX-License-Identifier: Apache-2.0
"""Ours against itself: odd worlds, odd counts and shifted buffers against their even neighbours, reproducible mode
against the default. Each comparison is between launches next to each other, or cells of one launch."""
import dataclasses
import typing

from comparison import configurations, gates, launching, pairing, planning, programs, results, tables

WORLDS = {3: 4, 5: 6, 6: 8, 7: 8}  # its even neighbour
COUNTS = {1: 2, 3: 4, 1000: 1024, 12345: 12288}
HUGE = {100_000_001: 100_000_000}  # 0.4 GB a buffer: two ranks
WORLD_BYTES = (64, 64 << 10, 1 << 20, 16 << 20)
SHIFTED_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
PER_BYTE_FROM = 1 << 10  # below, a call's time hardly depends on its bytes: then times are compared, not times per byte
CLIFF = 1.5
GROUPS = ("worlds", "counts", "shifted", "huge")


@dataclasses.dataclass(frozen=True)
class Comparison:
    what: str
    limit: float
    ratio: typing.Optional[pairing.Ratio]  # time of the neighbour / time of the odd one, per byte
    by_quartile: bool = False  # passes when the measured spread reaches the limit

    @property
    def slowdown(self):
        """(q1, median, q3) of how many times longer the odd one takes."""
        return (1 / self.ratio.q3, 1 / self.ratio.median, 1 / self.ratio.q1)

    @property
    def verdict(self):
        if self.ratio is None:
            return "no pair"
        return "pass" if self.slowdown[0 if self.by_quartile else 1] <= self.limit else "FAIL"


def count_bytes(counts):
    return tuple(sorted(results.FLOAT * count for pair in counts.items() for count in pair))


def ours(options, into):
    program = programs.build_ours(options.ours, into)
    shifted = configurations.direct(program, "--offset", "1")
    return [configurations.Configuration("rondo", configurations.direct(program)),
            configurations.Configuration("rondo-shifted", shifted),
            configurations.Configuration("rondo-reproducible",
                                         configurations.direct(program, "--determinism", "reproducible"))]


def plan(options, chosen, rows):
    return planning.fixed(launches(options, chosen), rows)


def launches(options, chosen):
    """Launches of --cases odd."""
    plain, shifted, reproducible = chosen
    worlds = sorted({*WORLDS, *WORLDS.values()})
    for round_ in range(1, options.pairs + 1):
        def work(np, group, configuration, collectives, sizes, number=round_):
            return launching.Work(number, np, group, configuration, launching.cells(collectives, sizes))

        for np in worlds:
            yield work(np, "worlds", plain, ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
                       WORLD_BYTES)
        for np in options.np:
            yield work(np, "counts", plain, ("all_reduce", "broadcast"), count_bytes(COUNTS))
            for configuration in (plain, shifted, reproducible):
                yield work(np, "shifted", configuration, ("all_reduce",), SHIFTED_BYTES)
        yield work(2, "huge", plain, ("all_reduce",), count_bytes(HUGE))


def per_byte(row):
    """The row with its time per byte, for sizes at which bytes decide."""
    if row.bytes < PER_BYTE_FROM:
        return row
    return dataclasses.replace(row, median_us=row.median_us / row.bytes * 1e6)


class Cells:
    """Usable rows by what they measured."""

    def __init__(self, rows):
        self.rows = {}
        for row in rows:
            if row.usable:
                key = (row.group, row.configuration, row.collective, row.np, row.bytes, row.distance)
                self.rows.setdefault(key, []).append(per_byte(row))

    def compare(self, odd, even):
        """The Ratio with the most pairs among the distances."""
        found = [pairing.compare(self.rows[odd + (d,)], self.rows[even + (d,)]) for d in gates.ORDER
                 if odd + (d,) in self.rows and even + (d,) in self.rows]
        return max(found, key=lambda ratio: ratio.pairs, default=None)


def judge(rows):
    cells, found = Cells(rows), []

    def add(what, odd, even, limit=CLIFF):
        if any(odd == key[:5] for key in cells.rows):
            found.append(Comparison(what, limit, cells.compare(odd, even)))

    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        for np, even in WORLDS.items():
            for bytes_ in WORLD_BYTES:
                odd_bytes, even_bytes = results.whole_blocks(collective, np, bytes_), results.whole_blocks(collective, even, bytes_)
                add("%s of %s, %d ranks against %d" % (collective, tables.size_text(bytes_), np, even),
                    ("worlds", "rondo", collective, np, odd_bytes), ("worlds", "rondo", collective, even, even_bytes))
    nps = sorted({row.np for row in rows})
    for np in nps:
        for group, counts in (("counts", COUNTS), ("huge", HUGE)):
            for collective in ("all_reduce", "broadcast"):
                for count, even in counts.items():
                    add("%s of %d floats against %d, %d ranks" % (collective, count, even, np),
                        (group, "rondo", collective, np, results.FLOAT * count), (group, "rondo", collective, np, results.FLOAT * even))
        for name in ("shifted", "reproducible"):
            for bytes_ in SHIFTED_BYTES:
                add("all_reduce of %s, %s, %d ranks" % (tables.size_text(bytes_), name, np),
                    ("shifted", "rondo-" + name, "all_reduce", np, bytes_), ("shifted", "rondo", "all_reduce", np, bytes_),
                    CLIFF if name == "shifted" else float("inf"))
    return found


def table(comparisons):
    lines = ["| | times slower per byte [quartiles] | limit | | pairs |", "|---|---|---|---|---|"]
    for one in comparisons:
        slowdown = "%.2f [%.2f, %.2f]" % (one.slowdown[1], one.slowdown[0], one.slowdown[2]) if one.ratio else ""
        limit = "" if one.limit == float("inf") else "%g" % one.limit
        lines.append("| %s | %s | %s | %s | %d |" % (one.what, slowdown, limit, one.verdict if limit else "",
                                                     one.ratio.pairs if one.ratio else 0))
    return "\n".join(lines)
