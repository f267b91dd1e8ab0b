# SPDX-License-Identifier: Apache-2.0
"""From rows to ratios. A ratio is taken between two launches that ran close to each other in time, were not disturbed,
and saw the machine's cores equally far apart; a cell's ratio is the median of those, told with its quartiles."""
import collections
import dataclasses
import statistics

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
class Ratio:
    """How much faster ours is than `theirs`: the ratio of their time to ours."""
    theirs: str
    ours_us: float
    theirs_us: float
    q1: float
    median: float
    q3: float
    pairs: int
    ours_p99_us: float
    theirs_p99_us: float


def ratio_of(pairs):
    """The Ratio of [(row of ours, row of theirs)]; None without a pair."""
    if not pairs:
        return None
    q1, median, q3 = quartiles([b.median_us / a.median_us for a, b in pairs])
    mine, others = [a for a, _ in pairs], [b for _, b in pairs]
    return Ratio(others[0].configuration, statistics.median(a.median_us for a in mine),
                 statistics.median(b.median_us for b in others), q1, median, q3, len(pairs),
                 pooled_p99_us(mine), pooled_p99_us(others))


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
