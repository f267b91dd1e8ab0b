# SPDX-License-Identifier: Apache-2.0
"""Rows of measurements: what a program of bench/peers prints, and the file in which a comparison keeps them."""
import csv
import dataclasses
import io

# What a flag takes between two cores: below the first they are two threads of one core, which share all caches; from
# the second on they share none.
NEAR_NS, FAR_NS = 36, 190
FLOAT = 4  # bytes of an element
QUIET_SHARE = 0.04  # more CPU than this taken by others disturbs a launch


def name_of_distance(ns):
    if ns <= 0:
        return "unknown"
    return "one core" if ns < NEAR_NS else "near" if ns < FAR_NS else "far"


@dataclasses.dataclass(frozen=True)
class Row:
    """One cell in one launch. `order` numbers the launches as they ran; a failed launch has check = its error."""
    order: int
    round: int
    group: str
    configuration: str
    transport: str
    foreign: float
    collective: str
    np: int
    bytes: int
    iterations: int
    median_us: float
    p99_us: float
    min_us: float
    mean_us: float
    in_a_row_us: float  # of a call among calls in a row; 0: not known
    xcore_ns: float
    check: str
    histogram: str

    @property
    def library(self):
        return self.configuration.split("-")[0]

    @property
    def distance(self):
        return "changed" if self.xcore_ns < 0 else name_of_distance(self.xcore_ns)

    @property
    def usable(self):
        return self.check == "ok" and self.foreign <= QUIET_SHARE and self.distance != "changed"

    @property
    def cell(self):
        return (self.transport, self.collective, self.np, self.bytes)


FIELDS = [field.name for field in dataclasses.fields(Row)]
TYPES = {field.name: field.type for field in dataclasses.fields(Row)}
FROM_PROGRAM = FIELDS[FIELDS.index("collective"):]
LATER = {"in_a_row_us": 0}  # fields that older files lack
FORMER = "bound"  # a program without checks, which older files have rows of


def make_row(texts):
    return Row(**{name: TYPES[name](texts[name]) for name in FIELDS})


def plain(collective):
    """Its name, out of place and with blocks that are all as long."""
    return collective.removesuffix("_in_place").removesuffix("_v")


def whole_blocks(collective, np, bytes_):
    """What the programs make of a size where there are blocks: a multiple of np floats."""
    blocks = plain(collective) not in ("all_reduce", "broadcast", "reduce")
    return bytes_ // FLOAT // np * np * FLOAT if blocks else bytes_


def distance_of(before_ns, after_ns):
    """How far apart the cores were throughout; 0: not known, -1: it changed."""
    if before_ns <= 0 or after_ns <= 0:
        return 0
    return max(before_ns, after_ns) if name_of_distance(before_ns) == name_of_distance(after_ns) else -1


def parse_output(text):
    """The cells that a program printed, as dictionaries; other lines are somebody else's."""
    cells = []
    for line in text.splitlines():
        words = line.split(",")
        if words[0] == "cell" and len(words) == 1 + len(FROM_PROGRAM):
            cell = dict(zip(FROM_PROGRAM, words[1:]))
            cell["xcore_ns"] = distance_of(*map(float, cell["xcore_ns"].split(":")))
            cells.append(cell)
    return cells


def histogram_of(text):
    """{bucket: count}; bucket b holds times of about 2^(b/16) ns."""
    return {int(bucket): int(count) for bucket, count in (pair.split(":") for pair in text.split())}


def write_head(file, lines):
    for line in lines:
        file.write("# %s\n" % line)
    file.write(",".join(FIELDS) + "\n")


def write_rows(file, rows):
    writer = csv.writer(file, lineterminator="\n")
    for row in rows:
        writer.writerow([getattr(row, name) for name in FIELDS])
    file.flush()


def read(path, to_append=False):
    """(head lines, rows, but for those of FORMER). ValueError for a file that is something else, or to which today's rows cannot be appended."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    lines = text.splitlines(keepends=True)
    head = [line[2:].rstrip("\n") for line in lines if line.startswith("# ")]
    table = csv.DictReader(io.StringIO("".join(line for line in lines if not line.startswith("#"))))
    if table.fieldnames not in (FIELDS, [name for name in FIELDS if name not in LATER]):
        raise ValueError("%s is no file of bench/compare: its columns are %s" % (path, table.fieldnames))
    if to_append and table.fieldnames != FIELDS:
        raise ValueError("%s has no column %s, so it can be judged (--report-only) but not appended to: begin a new file"
                         % (path, ", ".join(LATER)))
    rows = [make_row({**LATER, **texts}) for texts in table]
    return head, [row for row in rows if row.library != FORMER]
