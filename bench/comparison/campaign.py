# SPDX-License-Identifier: Apache-2.0
"""All launches of a comparison: in which order, which are repeated, which are left out; and the file that holds them,
so that a campaign can be run in slices."""
import os
import statistics
import sys
import time

from comparison import gates, launching, machine, results

SMALL_BYTES = 64 << 10  # up to here in one launch, above in another: launches stay short
HOPELESS = 3.0  # a peer so many times slower than the best one in every cell of a launch is not asked again


def groups(collectives, sizes, all_reduce_sizes):
    """(name, collectives, sizes) of the launches that one configuration needs for one np."""
    found = []
    for name, chosen, bytes_ in (("all_reduce", ["all_reduce"] if "all_reduce" in collectives else [], all_reduce_sizes),
                                 ("others", [c for c in collectives if c != "all_reduce"], sizes)):
        unsized = [c for c in chosen if c in ("barrier", "waiting")]
        sized = [c for c in chosen if c not in unsized]
        small = [b for b in bytes_ if b <= SMALL_BYTES] if sized else []
        big = [b for b in bytes_ if b > SMALL_BYTES] if sized else []
        if small or unsized:
            found.append((name + "-small", tuple((sized if small else []) + unsized), tuple(small)))
        if big:
            found.append((name + "-big", tuple(sized), tuple(big)))
    return found


def plan(options, configurations):
    """Every launch in order; each round begins with another configuration."""
    for round_ in range(1, options.pairs + 1):
        for np in options.np:
            for name, collectives, sizes in groups(options.collectives, options.sizes, options.all_reduce_sizes):
                turn = round_ % len(configurations)
                for configuration in configurations[turn:] + configurations[:turn]:
                    wanted = tuple(c for c in collectives
                                   if not configuration.collectives or c in configuration.collectives)
                    if wanted:
                        yield launching.Work(round_, np, name, configuration, wanted, sizes)


def is_hopeless(rows, work):
    """Every cell of this launch was far behind the best peer's in the rounds so far."""
    if gates.is_ours(work.configuration.name):
        return False
    times = {}
    for row in rows:
        if (row.np, row.group) == (work.np, work.group) and row.usable and not gates.is_ours(row.configuration):
            times.setdefault((row.collective, row.bytes), {}).setdefault(row.configuration, []).append(row.median_us)
    behind = []
    for cell in times.values():
        medians = {name: statistics.median(us) for name, us in cell.items()}
        if work.configuration.name in medians:
            behind.append(medians[work.configuration.name] > HOPELESS * min(medians.values()))
    return bool(behind) and all(behind)


class Campaign:
    """Owns the file. `distance()` tells how far apart the cores are; `launch` is launching.launch or like it."""

    def __init__(self, options, distance, head, launch=launching.launch):
        self.options, self.distance, self.launch = options, distance, launch
        self.end = time.monotonic() + options.total
        self.waited_s = 0.0
        self.head, self.rows = head, []
        if options.append and os.path.exists(options.out):
            self.head, self.rows = results.read(options.out)
        else:
            os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
            with open(options.out, "w", encoding="utf-8") as file:
                results.write_head(file, head)

    def run(self, plan):
        """True when every launch of `plan` is in the file."""
        done = {(row.round, row.np, row.group, row.configuration) for row in self.rows}
        for work in plan:
            if work.key in done or is_hopeless(self.rows, work):
                continue
            rows = self.measure(work)
            if rows is None:
                return False
            self.rows += rows
            with open(self.options.out, "a", encoding="utf-8") as file:
                results.write_rows(file, rows)
        return True

    def measure(self, work):
        """The least disturbed of a few launches; None when there is no time for one."""
        best = None
        for attempt in range(1 + self.options.retries):
            self.waited_s += machine.wait_until_idle(min(2.0, max(0.0, self.options.quiet_wait - self.waited_s)))
            left = self.end - time.monotonic()
            if left < self.options.least_s:
                return best
            order = 1 + max((row.order for row in self.rows), default=0) + attempt
            rows, seconds = self.launch(work, self.options, order, self.distance, min(left, self.options.limit))
            self.say(work, rows, seconds)
            if rows[-1].check != "ok" and left < self.options.limit:
                return best  # perhaps for want of time: the next slice tries again
            if best is None or rows[0].foreign < best[0].foreign:
                best = rows
            if rows[0].foreign <= results.QUIET_SHARE:
                break
        return best

    def say(self, work, rows, seconds):
        wrong = [row.check for row in rows if row.check != "ok"]
        print("round %d np %d %-18s %-16s %5.1f s, %3d cells, others used %4.1f %% of the CPU%s" %
              (work.round, work.np, work.configuration.name, work.group, seconds, len(rows) - len(wrong),
               100 * rows[0].foreign, "; " + wrong[0] if wrong else ""), file=sys.stderr, flush=True)
