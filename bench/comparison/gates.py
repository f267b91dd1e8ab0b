# SPDX-License-Identifier: Apache-2.0
"""Judges the cells of a comparison: each must be a tenth faster than the best peer, over TCP with four ranks or more as
fast."""
import dataclasses
import math
import statistics

from comparison import pairing

OURS = "rondo"
LEAST_PAIRS = 5
LEAST_P99_PAIRS = 20
LEADER = 1.5  # within so much of the fastest, a peer may be the best one in other launches
JUDGED = (OURS, OURS + "-windows")
FAR_TIMES = 4.0  # so much slower a call may be when the cores are far apart
ORDER = ("near", "unknown", "far", "one core")  # the first one with enough pairs is judged


def gate_of(cell):
    """How many times faster than the best peer it must be."""
    transport, _, np, _ = cell
    return 1.0 if transport == "tcp" and np >= 4 else 1.1


@dataclasses.dataclass(frozen=True)
class Judgement:
    """One cell. `ratio` at `distance` was judged; `beside` is the same at the other distance, if measured."""
    configuration: str
    cell: tuple
    distance: str
    ratio: pairing.Ratio
    beside: pairing.Ratio
    gate: float

    @property
    def verdict(self):
        if self.ratio is None:
            return "no pair"
        if self.ratio.pairs < LEAST_PAIRS:
            return "few pairs"
        return "pass" if self.ratio.median >= self.gate else "FAIL"

    @property
    def p99(self):
        """Not worse than the best peer's, where there are enough launches to say so."""
        if self.ratio is None or self.ratio.pairs < LEAST_P99_PAIRS:
            return "few pairs"
        return "pass" if self.ratio.ours_p99_us <= self.ratio.theirs_p99_us else "FAIL"


def is_ours(configuration):
    return configuration.split("-")[0] == OURS


def is_peer(configuration):
    return not is_ours(configuration)


def behind(distances):
    """{peer: how many times slower than the fastest peer it is in a cell}: at the distance where it is least, and where no
    peer was measured at the same distance, with the benefit of the doubt."""
    times = {distance: {name: statistics.median(row.median_us for row in rows) for name, rows in configurations.items()
                        if is_peer(name)} for distance, configurations in distances.items()}
    found = {}
    for medians in times.values():
        for name, us in medians.items():
            if len(medians) > 1:
                found[name] = min(found.get(name, math.inf), us / min(medians.values()))
    everybody = [(name, us) for medians in times.values() for name, us in medians.items()]
    for name, us in everybody:
        found.setdefault(name, max(1.0, us / FAR_TIMES / min(other for _, other in everybody)))
    return found


def leaders(distances):
    """Peers that may be the best one in a cell, at some distance."""
    return {name for name, ratio in behind(distances).items() if ratio <= LEADER}


def against_peers(configurations, mine, needed):
    """The Ratio of `mine` to the best peer; None where one that may be it was not measured beside it."""
    ratios = {name: pairing.compare(configurations[mine], rows) for name, rows in configurations.items()
              if is_peer(name)}
    return pairing.best(ratios.values()) if all(ratios.get(name) for name in needed) else None


def judge_cell(mine, cell, distances):
    """The Judgement of one cell's usable rows, {distance: {configuration: rows}}."""
    needed = leaders(distances)
    ratios = {d: against_peers(c, mine, needed) for d, c in distances.items() if mine in c}
    known = [d for d in ORDER if ratios.get(d)]
    enough = [d for d in known if ratios[d].pairs >= LEAST_PAIRS]
    first = ((enough or known) + [""])[0]
    beside = next((ratios[d] for d in known if d != first), None)
    return Judgement(mine, cell, first, ratios.get(first), beside, gate_of(cell))


def judge(rows):
    """A Judgement for each cell that a judged configuration was measured in."""
    cells = pairing.by_cell(rows)
    measured = sorted({(row.configuration, row.cell) for row in rows if row.configuration in JUDGED})
    return [judge_cell(mine, cell, cells.get(cell, {})) for mine, cell in measured]


def holds(judgements):
    return bool(judgements) and all(judgement.verdict == "pass" for judgement in judgements)
