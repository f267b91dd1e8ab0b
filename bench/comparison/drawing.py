# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG, drawn here: a picture per collective, a panel per number of ranks, time over size on two logarithmic
axes, a line per library. Readable on light and on dark pages."""
import math
import statistics
from xml.sax.saxutils import escape

from comparison import gates, results, tables

PANEL = (300, 240)  # width and height of the axes
MARGIN = (64, 72, 40, 72)  # left, top, between panels, bottom
NAMES = {"rondo": "Rondo", "rondo-windows": "Rondo, windows", "openmpi": "Open MPI", "mpich": "MPICH",
         "impi": "Intel MPI", "oneccl": "oneCCL", "gloo": "Gloo"}
DRAWN = list(NAMES)
LIGHT = {"rondo": "#cf222e", "openmpi": "#0969da", "mpich": "#1a7f37", "impi": "#8250df", "oneccl": "#bf3989",
         "gloo": "#9a6700"}
DARK = {"rondo": "#ff7b72", "openmpi": "#58a6ff", "mpich": "#3fb950", "impi": "#d2a8ff", "oneccl": "#ff9bce",
        "gloo": "#d29922"}
MOST_MARKS = 7  # on the horizontal axis
LEAST_WIDTH = 600  # the legend's


def colours(palette):
    return "".join("polyline.%s{stroke:%s}circle.%s{fill:%s}" % (name, palette[name.split("-")[0]], name,
                                                                palette[name.split("-")[0]]) for name in DRAWN)


STYLE = ("text{font:12px system-ui,sans-serif;fill:#24292f}text.title{font-size:14px;font-weight:600}"
         ".frame{fill:none;stroke:#8c959f}.grid{stroke:#8c959f;stroke-opacity:.25}"
         "polyline{fill:none;stroke-width:1.5}polyline.rondo,polyline.rondo-windows{stroke-width:3}"
         "polyline.rondo-windows{stroke-dasharray:6 4}" + colours(LIGHT) +
         "@media (prefers-color-scheme:dark){text{fill:#e6edf3}" + colours(DARK) + "}")


def series(rows, collective, transport):
    """{np: {library: [(bytes, median us)]}}; a library's variants count as one, the best of them in each cell."""
    cells = {}
    for row in rows:
        if row.usable and row.collective == collective and row.transport == transport and named(row) in DRAWN:
            key = (row.np, named(row), row.bytes)
            cells.setdefault(key, {}).setdefault(row.configuration, []).append(row.median_us)
    lines = {}
    for (np, name, bytes_), variants in sorted(cells.items()):
        us = min(statistics.median(values) for values in variants.values())
        lines.setdefault(np, {}).setdefault(name, []).append((bytes_, us))
    return lines


def named(row):
    return row.library if gates.is_peer(row.configuration) else row.configuration


class Axis:
    """A logarithmic scale from values to positions."""

    def __init__(self, low, high, begin, end, base):
        self.low, self.high = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
        self.high = max(self.high, self.low + 1)
        self.begin, self.end, self.base = begin, end, base

    def at(self, value):
        share = (math.log(value, self.base) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def marks(self):
        return [self.base ** power for power in range(self.low, self.high + 1)]


def tick_text(us):
    if us >= 1e6:
        return "%g s" % (us / 1e6)
    return "%g ms" % (us / 1e3) if us >= 1e3 else "%g us" % us


def size_mark(bytes_):
    return tables.size_text(round(bytes_)).replace("iB", "").replace(" ", "")


def panel(left, title, lines, x_range, y_range, with_y):
    """One number of ranks: frame, grid, lines."""
    width, height = PANEL
    top = MARGIN[1]
    x = Axis(*x_range, left, left + width, 4)
    y = Axis(*y_range, top + height, top, 10)
    parts = ['<rect class="frame" x="%d" y="%d" width="%d" height="%d"/>' % (left, top, width, height),
             '<text x="%d" y="%d" text-anchor="middle">%s</text>' % (left + width / 2, top - 8, escape(title))]
    for mark in y.marks():
        parts.append('<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>' % (left, left + width, y.at(mark), y.at(mark)))
        if with_y:
            parts.append('<text x="%d" y="%.1f" text-anchor="end">%s</text>' % (left - 6, y.at(mark) + 4, tick_text(mark)))
    for mark in x.marks()[::-(-len(x.marks()) // MOST_MARKS)]:
        parts.append('<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>' % (x.at(mark), x.at(mark), top, top + height))
        parts.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (x.at(mark), top + height + 16, size_mark(mark)))
    parts.append('<text x="%d" y="%d" text-anchor="middle">bytes of a rank\'s larger buffer</text>' %
                 (left + width / 2, top + height + 34))
    for name in reversed(DRAWN):  # ours on top
        points = [(x.at(max(bytes_, 1)), y.at(us)) for bytes_, us in lines.get(name, [])]
        if len(points) > 1:
            parts.append('<polyline class="%s" points="%s"/>' % (name, " ".join("%.1f,%.1f" % point for point in points)))
        parts += ['<circle class="%s" cx="%.1f" cy="%.1f" r="2.5"/>' % (name, *point) for point in points]
    return parts


def legend(names):
    parts, left = [], MARGIN[0]
    for name in names:
        y = MARGIN[1] + PANEL[1] + 58
        parts.append('<polyline class="%s" points="%d,%d %d,%d"/>' % (name, left, y - 4, left + 24, y - 4))
        parts.append('<text x="%d" y="%d">%s</text>' % (left + 30, y, escape(NAMES[name])))
        left += 48 + 7 * len(NAMES[name])
    return parts


def picture(rows, collective, transport, caption):
    """The SVG, or None where nothing was measured."""
    lines = series(rows, collective, transport)
    points = [point for np in lines.values() for line in np.values() for point in line]
    if not points:
        return None
    x_range = (max(1, min(b for b, _ in points)), max(1, max(b for b, _ in points)))
    y_range = (min(us for _, us in points), max(us for _, us in points))
    width = max(LEAST_WIDTH, MARGIN[0] + len(lines) * (PANEL[0] + MARGIN[2]))
    height = MARGIN[1] + PANEL[1] + MARGIN[3]
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">' % (width, height, width, height),
             "<style>%s</style>" % STYLE,
             '<text class="title" x="%d" y="22">%s</text>' % (MARGIN[0], escape("%s: time of a call, medians%s" % (
                 collective, " over TCP" if transport == "tcp" else ""))),
             '<text x="%d" y="42">%s</text>' % (MARGIN[0], escape(caption))]
    for index, (np, panel_lines) in enumerate(sorted(lines.items())):
        left = MARGIN[0] + index * (PANEL[0] + MARGIN[2])
        parts += panel(left, "%d ranks" % np, panel_lines, x_range, y_range, index == 0)
    parts += legend([name for name in DRAWN if any(name in np for np in lines.values())])
    return "\n".join(parts + ["</svg>", ""])


def caption_of(head):
    """What the head of a file says of the machine, in a line."""
    fields = dict(line.split(": ", 1) for line in head if ": " in line)
    return ", ".join(text for text in (fields.get("cpu", ""), fields.get("date", "").split(" ")[0]) if text)


def pictures(path):
    """{file name: SVG} of a file of results."""
    head, rows = results.read(path)
    drawn = {}
    for transport, collective in sorted({(row.transport, row.collective) for row in rows}):
        if collective not in ("barrier", "waiting", "-"):
            svg = picture(rows, collective, transport, caption_of(head))
            if svg:
                drawn["%s-%s.svg" % (transport, collective)] = svg
    return drawn
