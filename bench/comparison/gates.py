# SPDX-License-Identifier: Apache-2.0
"""Judges the cells of a comparison by bench/peers/targets.csv."""
import csv
import dataclasses
import math
import pathlib
import statistics
import typing

from comparison import pairing, results

TARGETS = pathlib.Path(__file__).resolve().parent.parent / "peers" / "targets.csv"
OURS = "rondo"
BOUND = "bound"
BOUND_WINDOWS, BOUND_AHEAD = BOUND + "-windows", BOUND + "-ahead"
BEATEN = 1.05  # ours so many times faster than the bound: it is none
BEATEN_IN_A_ROW = 1.25  # or so in calls in a row: what it wins in one call it pays for in the next
LEAST_PAIRS = 5
LEAST_P99_PAIRS = 20
LEADER = 1.5  # within so much of the fastest, a peer may be the best one in other launches
JUDGED = (OURS, OURS + "-windows")
FAR_TIMES = 4.0  # so much slower a call may be when the cores are far apart
ORDER = ("near", "unknown", "far", "one core")  # the first one with enough pairs is judged


@dataclasses.dataclass(frozen=True)
class Target:
    """The first row of the table that fits a cell holds. gate: must be reached; goal: is aimed at, None: no more."""
    transport: str
    configuration: str
    collective: str
    np: str
    from_bytes: int
    to_bytes: int
    gate: float
    goal: float

    def fits(self, configuration, cell):
        transport, collective, np, bytes_ = cell
        return (self.transport in ("*", transport) and self.configuration in ("*", configuration) and
                self.collective in ("*", results.plain(collective)) and self.np in ("*", str(np)) and
                self.from_bytes <= bytes_ <= self.to_bytes)


def read_targets(path=TARGETS):
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [Target(r["transport"], r["configuration"], r["collective"], r["np"], int(r["from_bytes"]),
                       int(r["to_bytes"]), float(r["gate"]), float(r["goal"] or 0) or None) for r in rows]


def target_of(targets, configuration, cell):
    return next(target for target in targets if target.fits(configuration, cell))


@dataclasses.dataclass(frozen=True)
class Judgement:
    """One cell. `ratio` at `distance` was judged; `beside` is the same at the other distance, if measured."""
    configuration: str
    cell: tuple
    distance: str
    ratio: pairing.Ratio
    beside: pairing.Ratio
    gate: float
    goal: float
    least_pairs: int
    bound: str = ""  # which one
    reach: typing.Optional[pairing.Ratio] = None  # of the bound to the best peer, at the same distance
    of_bound: typing.Optional[pairing.Ratio] = None  # the bound's time to ours

    @property
    def verdict(self):
        if self.ratio is None:
            return "no pair"
        if self.ratio.pairs < self.least_pairs:
            return "few pairs"
        if self.ratio.median >= self.gate:
            return "pass"
        return "out of reach" if self.is_out_of_reach(self.gate) else "FAIL"

    @property
    def goal_verdict(self):
        if self.goal is None:
            return ""
        if self.ratio is not None and self.ratio.median >= self.goal:
            return "met"
        return "out of reach" if self.is_out_of_reach(self.goal) else "missed"

    @property
    def is_beaten(self):
        return is_beaten(self.of_bound)

    def is_out_of_reach(self, wanted):
        """The bound itself does not reach `wanted`, and it has its pairs with both sides and is not beaten by ours."""
        if self.reach is None or self.of_bound is None or self.is_beaten:
            return False
        return min(self.reach.pairs, self.of_bound.pairs) >= self.least_pairs and self.reach.median < wanted

    @property
    def p99(self):
        """Not worse than the best peer's, where there are enough launches to say so."""
        if self.ratio is None or self.ratio.pairs < LEAST_P99_PAIRS:
            return "few pairs"
        return "pass" if self.ratio.ours_p99_us <= self.ratio.theirs_p99_us else "FAIL"


def is_ours(configuration):
    return configuration.split("-")[0] == OURS


def is_peer(configuration):
    return not is_ours(configuration) and not is_bound(configuration)


def is_bound(configuration):
    return configuration.split("-")[0] == BOUND


def is_beaten(of_bound):
    if of_bound is None:
        return False
    return of_bound.median > BEATEN or (of_bound.in_a_row is not None and of_bound.in_a_row.median > BEATEN_IN_A_ROW)


def bounds_of(mine):
    """Names of the bounds for a configuration of ours: rondo-windows has bound-windows, which does nothing that ordinary
    memory could do without, and so stands in there where ours beats the bound. Where ours beats both, that which runs
    ahead does."""
    own = mine.replace(OURS, BOUND, 1)
    return {OURS: [BOUND, BOUND_WINDOWS, BOUND_AHEAD], OURS + "-windows": [own, BOUND_AHEAD]}.get(mine, [own])


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


def judge_cell(mine, cell, distances, targets, least_pairs=LEAST_PAIRS):
    """The Judgement of one cell's usable rows, {distance: {configuration: rows}}."""
    needed = leaders(distances)
    ratios = {d: against_peers(c, mine, needed) for d, c in distances.items() if mine in c}
    known = [d for d in ORDER if ratios.get(d)]
    enough = [d for d in known if ratios[d].pairs >= least_pairs]
    first = ((enough or known) + [""])[0]
    beside = next((ratios[d] for d in known if d != first), None)
    target = target_of(targets, mine, cell)
    bound = bounding(distances.get(first, {}), mine, needed)
    return Judgement(mine, cell, first, ratios.get(first), beside, target.gate, target.goal, least_pairs, *bound)


def bounding(configurations, mine, needed):
    """The first measured bound that ours does not beat, else the last of them: its name, its Ratio to the best peer, that
    of its time to ours."""
    found = ("", None, None)
    for name in filter(configurations.__contains__, bounds_of(mine)):
        of_bound = pairing.compare(configurations[mine], configurations[name])
        found = (name, against_peers(configurations, name, needed), of_bound)
        if not is_beaten(of_bound):
            break
    return found


def judge(rows, targets, judged=JUDGED, least_pairs=LEAST_PAIRS):
    """A Judgement for each cell that a judged configuration was measured in."""
    cells = pairing.by_cell(rows)
    measured = sorted({(row.configuration, row.cell) for row in rows if row.configuration in judged})
    return [judge_cell(mine, cell, cells.get(cell, {}), targets, least_pairs) for mine, cell in measured]


def holds(judgements):
    return bool(judgements) and all(judgement.verdict in ("pass", "out of reach") for judgement in judgements)
