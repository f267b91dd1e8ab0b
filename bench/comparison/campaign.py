# SPDX-License-Identifier: Apache-2.0
"""All launches of a comparison: which is next, which are repeated; and the file that holds their rows, so that a
campaign can be run in slices."""
import os
import sys
import time

from comparison import launching, machine, results

LEAST_S = 5  # left to begin a launch


class Campaign:
    """Owns the file and its rows. `launch` is launching.launch or like it."""

    def __init__(self, options, head, launch=launching.launch):
        self.options, self.launch = options, launch
        self.end = time.monotonic() + options.total
        self.waited_s, self.disturbed = 0.0, True
        self.head, self.rows = head, []
        if options.append and os.path.exists(options.out):
            self.head, self.rows = results.read(options.out, to_append=True)
        else:
            os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
            with open(options.out, "w", encoding="utf-8") as file:
                results.write_head(file, head)

    def run(self, plan):
        """Launches what `plan` yields, which may look at the rows so far. False when the time did not suffice."""
        for work in plan:
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
            if self.disturbed:
                self.waited_s += machine.wait_until_idle(min(2.0, max(0.0, self.options.quiet_wait - self.waited_s)))
            left = self.end - time.monotonic()
            if left < LEAST_S:
                return best
            order = 1 + max((row.order for row in self.rows), default=0) + attempt
            rows, seconds = self.launch(work, self.options, order, min(left, self.options.limit))
            self.say(work, rows, seconds)
            if rows[-1].check != "ok" and left < self.options.limit:
                return best  # perhaps for want of time: the next slice tries again
            if best is None or rows[0].foreign < best[0].foreign:
                best = rows
            self.disturbed = rows[0].foreign > results.QUIET_SHARE
            if not self.disturbed:
                break
        return best

    def say(self, work, rows, seconds):
        wrong = [row.check for row in rows if row.check != "ok"]
        near = sum(row.distance == "near" for row in rows)
        print("round %d np %d %-18s %-16s %5.1f s, %3d cells, %3d of them near, others used %4.1f %% of the CPU%s" %
              (work.round, work.np, work.configuration.name, work.group, seconds, len(rows) - len(wrong), near,
               100 * rows[0].foreign, "; " + wrong[0] if wrong else ""), file=sys.stderr, flush=True)
