# SPDX-License-Identifier: Apache-2.0
"""What to launch next. A turn measures a few cells that still lack pairs, those with the fewest first, with ours and every
peer that may be the best one there, one after the other: so both sides of a pair are a second or two apart."""
import collections
import itertools

from comparison import gates, launching, pairing, results

HOPELESS = 3.0  # a peer so many times slower than the best one in a cell is not asked for that cell again
LOOKS = 3  # nor is one that so many launches found slower than a leader
FRUITLESS = 2  # nor one that was asked so often and never answered
TURN_S = 1.0  # estimated time of a launch's cells
CELL_S = 0.02  # estimated time of a cell, and of each byte of it on each rank: filled, checked
BYTE_S = 2.5e-9


def cells_of(options, np):
    """The cells asked for at one number of ranks, as rows will name them."""
    sized = [cell for collective in options.collectives for cell in launching.cells(
        [collective], options.all_reduce_sizes if results.plain(collective) == "all_reduce" else options.sizes)]
    whole = [(collective, bytes_, results.whole_blocks(collective, np, bytes_)) for collective, bytes_ in sized]
    return [(options.transport, collective, np, rows_bytes) for collective, bytes_, rows_bytes in whole if rows_bytes or not bytes_]


def in_turn(configurations):
    """Ours between the peers."""
    peers = [c for c in configurations if gates.is_peer(c.name)]
    return peers[1::2] + [c for c in configurations if not gates.is_peer(c.name)] + peers[::2]


class Progress:
    """What the rows say about the cells, and what was asked for since."""

    def __init__(self, configurations, rows, pairs):
        self.configurations, self.rows, self.pairs = in_turn(configurations), rows, pairs
        self.asked = collections.Counter((row.cell, row.configuration) for row in rows)

    def tries(self, cell):
        return max(self.asked[cell, configuration.name] for configuration in self.configurations)

    def unanswered(self, cell, name):
        return self.asked[cell, name] - sum(row.check == "ok" for row in self.rows if (row.cell, row.configuration) == (cell, name))

    def lacking(self, cell, distances):
        """Names of the configurations that the cell must be measured with; {} for one that is done."""
        names = [c.name for c in self.configurations if c.runs(cell)]
        behind = {n: times for n, times in gates.behind(distances).items() if n in names}
        unknown = {n for n in names if gates.is_peer(n) and n not in behind and self.unanswered(cell, n) < FRUITLESS}
        leaders = unknown | {n for n in behind if behind[n] <= gates.LEADER}
        looks = collections.Counter(n for of in distances.values() for n in of for _ in of[n])
        peers = leaders | {n for n in behind if behind[n] <= HOPELESS and looks[n] < LOOKS}
        wanted = set()
        for mine in filter(gates.is_ours, names):
            beside_peers = peers if mine in gates.JUDGED else set()
            if any(self.pairs_of(distances, mine, other) < self.pairs
                   for other in (leaders & beside_peers or {gates.OURS})):
                wanted |= {mine} | (beside_peers or {gates.OURS})
        return wanted

    @staticmethod
    def pairs_of(distances, mine, other):
        """Near ones; far ones do not end a cell."""
        return max((min(len(distances[d].get(name, ())) for name in (mine, other))
                    for d in ("near", "unknown") if d in distances), default=0)

    def fewest(self, names, distances):
        """Near launches of the configuration that has the fewest of them."""
        return min(self.pairs_of(distances, name, name) for name in names)

    def turn(self, cells, rounds):
        """{cell: names}: the next cells, all of one np; {} when nothing is left to do. First come those with the fewest
        launches, and the fewest of these that count: so one whose launches come to nothing is tried twice as often."""
        measured = pairing.by_cell(self.rows)
        open_ = []
        for cell in cells:
            names = self.lacking(cell, measured.get(cell, {}))
            if names and self.tries(cell) < rounds:
                open_.append((self.tries(cell) + self.fewest(names, measured.get(cell, {})), cell, names))
        open_.sort(key=lambda one: one[0])
        chosen, seconds = {}, 0.0
        for _, cell, names in open_:
            if seconds < TURN_S and cell[2] == open_[0][1][2]:
                chosen[cell] = names
                seconds += CELL_S + BYTE_S * cell[3] * cell[2]
        return chosen

    def launches(self, cells, backwards):
        """Those of one turn."""
        for configuration in self.configurations[::-1 if backwards else 1]:
            its = [cell for cell, names in cells.items() if configuration.name in names]
            if its:
                self.asked.update((cell, configuration.name) for cell in its)
                yield launching.Work(max(self.asked[cell, configuration.name] for cell in its), its[0][2],
                                     "%s:%d+%d" % (*its[0][1::2], len(its) - 1), configuration,
                                     tuple((cell[1], cell[3]) for cell in its))


def plan(options, configurations, rows):
    """Launches until every cell has its pairs or was measured in --rounds turns. Looks at `rows` before each turn."""
    cells = [cell for np in options.np for cell in cells_of(options, np)]
    progress = Progress(configurations, rows, options.pairs)
    for backwards in itertools.cycle((False, True)):
        turn = progress.turn(cells, options.rounds)
        if not turn:
            return
        yield from progress.launches(turn, backwards)


def fixed(works, rows):
    """Those of a list of launches that are not in the file yet."""
    done = {(row.round, row.np, row.group, row.configuration) for row in rows}
    return (work for work in works if work.key not in done)
