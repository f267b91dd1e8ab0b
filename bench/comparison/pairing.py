# SPDX-License-Identifier: Apache-2.0
"""From rows to ratios. A ratio is taken between two launches that ran close to each other in time, were not disturbed,
and saw the machine's cores equally far apart; a cell's ratio is the median of those, told with its quartiles."""
import collections
import dataclasses
import statistics
import typing

from comparison import results

BUCKETS_PER_OCTAVE = 16


def pair(ours, theirs):
    """Launches of the two lists that ran next to each other, each used once, closest first."""
    distances = sorted((abs(a.order - b.order), a.order, b.order, a, b) for a in ours for b in theirs)
    pairs, used = [], set()
    for _, first, second, a, b in distances:
        if first not in used and second not in used:
            used.update((first, second))
            pairs.append((a, b))
    return sorted(pairs, key=lambda both: both[0].order)


def quartiles(values):
    """(q1, median, q3), by linear interpolation between the nearest values."""
    if len(values) == 1:
        return (values[0],) * 3
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def pooled_p99_us(rows):
    """Over all iterations of all launches, within the width of a bucket (4 %)."""
    counts = collections.Counter()
    for row in rows:
        counts.update(results.histogram_of(row.histogram))
    left = -(-99 * sum(counts.values()) // 100)  # ceil
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return 2 ** ((bucket + 0.5) / BUCKETS_PER_OCTAVE) / 1e3
    return 0.0


@dataclasses.dataclass(frozen=True)
class Times:
    """Medians of both sides, and of the ratio of their time to ours, which is told with its quartiles."""
    ours_us: float
    theirs_us: float
    q1: float
    median: float
    q3: float


@dataclasses.dataclass(frozen=True)
class Ratio(Times):
    """How much faster ours is than `theirs`."""
    theirs: str
    pairs: int
    ours_p99_us: float
    theirs_p99_us: float
    in_a_row: typing.Optional[Times]


def times_of(pairs):
    """The Times of [(ours_us, theirs_us)]; None without a pair."""
    if not pairs:
        return None
    return Times(*map(statistics.median, zip(*pairs)), *quartiles([theirs / ours for ours, theirs in pairs]))


def ratio_of(pairs):
    """The Ratio of [(row of ours, row of theirs)]; None without a pair."""
    if not pairs:
        return None
    mine, others = zip(*pairs)
    in_a_row = times_of([(a.in_a_row_us, b.in_a_row_us) for a, b in pairs if a.in_a_row_us and b.in_a_row_us])
    return Ratio(**vars(times_of([(a.median_us, b.median_us) for a, b in pairs])), theirs=others[0].configuration,
                 pairs=len(pairs), ours_p99_us=pooled_p99_us(mine), theirs_p99_us=pooled_p99_us(others), in_a_row=in_a_row)


def compare(ours, theirs):
    """The Ratio of two lists of usable rows of one cell and distance, each of one configuration."""
    return ratio_of(pair(ours, theirs))


def best(ratios):
    """Against the fastest of several: the one that leaves ours the smallest lead."""
    ratios = [ratio for ratio in ratios if ratio]
    return min(ratios, key=lambda ratio: ratio.median) if ratios else None


def by_cell(rows):
    """{cell: {distance: {configuration: usable rows}}}"""
    cells = {}
    for row in rows:
        if row.usable:
            cells.setdefault(row.cell, {}).setdefault(row.distance, {}).setdefault(row.configuration, []).append(row)
    return cells
