# SPDX-License-Identifier: Apache-2.0
"""Markdown of judgements and of comparisons among configurations of ours."""
import statistics

from comparison import gates, pairing, results


def size_text(bytes_):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if bytes_ >= 1 << shift and bytes_ % (1 << shift) == 0:
            return "%d %s" % (bytes_ >> shift, unit)
    return "%d B" % bytes_ if bytes_ else "-"


def time_text(us):
    if us >= 9999.5:
        return "%.1f ms" % (us / 1e3)
    return "%.2f us" % us if us < 9.995 else "%.1f us" % us if us < 99.95 else "%.0f us" % us


def ratio_text(ratio):
    return "%.2f [%.2f, %.2f]" % (ratio.median, ratio.q1, ratio.q3) if ratio else ""


def heading(configuration, cell):
    transport, collective, np, _ = cell
    name = {"rondo": "ordinary memory", "rondo-windows": "windows"}.get(configuration, configuration)
    return "%s, %d ranks, %s, %s" % (collective, np, transport, name)


HEAD = ("| size | ours | best peer | its time | ratio [quartiles] | gate %s | pairs | cores | elsewhere | p99 ours / peer |"
        " in a row ours / peer |\n|---|---|---|---|---|---|---|---|---|---|---|")


def both_text(ours_us, theirs_us):
    return "%s / %s" % (time_text(ours_us), time_text(theirs_us))


def judgement_row(judgement):
    ratio = judgement.ratio
    times = [time_text(ratio.ours_us), ratio.theirs, time_text(ratio.theirs_us)] if ratio else ["", "", ""]
    beside = "%s (%d)" % (ratio_text(judgement.beside), judgement.beside.pairs) if judgement.beside else ""
    p99 = both_text(ratio.ours_p99_us, ratio.theirs_p99_us) if ratio else ""
    in_a_row = both_text(ratio.in_a_row.ours_us, ratio.in_a_row.theirs_us) if ratio and ratio.in_a_row else ""
    if judgement.p99 == "FAIL":
        p99 += " FAIL"
    cells = [size_text(judgement.cell[3]), *times, ratio_text(ratio), judgement.verdict,
             str(ratio.pairs if ratio else 0), judgement.distance, beside, p99, in_a_row]
    return "| %s |" % " | ".join(cells)


def judgement_tables(judgements):
    lines, title = [], None
    order = {collective: i for i, collective in enumerate(dict.fromkeys(j.cell[1] for j in judgements))}
    for judgement in sorted(judgements, key=lambda j: (j.configuration, order[j.cell[1]], j.cell)):
        now = heading(judgement.configuration, judgement.cell)
        if now != title:
            lines += ["", "**%s**" % now, "", HEAD % ("%gx" % judgement.gate)]
            title = now
        lines.append(judgement_row(judgement))
    return "\n".join(lines)


def failures(rows):
    """Launches that failed or gave wrong results, a line each."""
    return ["- %s, %d ranks, %s: %s%s" % (row.configuration, row.np, row.group, row.check,
                                          "" if row.collective == "-" else " in %s of %d bytes" % (row.collective, row.bytes))
            for row in rows if row.check != "ok"]


def disturbed(rows):
    """A sentence about the launches that do not count; "" where all do."""
    shares = {row.order: row.foreign for row in rows}
    count = sum(share > results.QUIET_SHARE for share in shares.values())
    return "%d of %d launches do not count: others used over %g %% of the CPU" % (
        count, len(shares), 100 * results.QUIET_SHARE) if count else ""


def among_ours(rows):
    """Ours against each of its variants: how many times longer the variant takes."""
    lines = []
    for cell, distances in sorted(pairing.by_cell(rows).items()):
        for distance, configurations in distances.items():
            for name in sorted(n for n in configurations if gates.is_ours(n) and n != gates.OURS):
                ratio = pairing.compare(configurations.get(gates.OURS, []), configurations[name])
                if ratio:
                    lines.append("| %s | %d | %s | %s | %s | %s | %s | %s | %s |" %
                                 (cell[1], cell[2], size_text(cell[3]), name, time_text(ratio.ours_us),
                                  time_text(ratio.theirs_us), ratio_text(ratio), ratio_text(ratio.in_a_row), distance))
    head = ["", "**variants of ours: time of the variant / time of rondo**", "",
            "| collective | ranks | size | variant | rondo | variant's | ratio [quartiles] | in a row | cores |",
            "|---|---|---|---|---|---|---|---|---|"]
    return "\n".join(head + lines) if lines else ""


def waiting(rows):
    """CPU that a rank uses which waits one second in a barrier."""
    used = {}
    for row in rows:
        if row.collective == "waiting" and row.check == "ok":
            used.setdefault((row.configuration, row.np), []).append(row.median_us / 1e4)
    lines = ["| %s | %d | %.2f %% |" % (*key, statistics.median(values)) for key, values in sorted(used.items())]
    return "\n".join(["", "**CPU of a rank that waits for a second in a barrier**", "", "| | ranks | of a core |",
                      "|---|---|---|"] + lines) if lines else ""


def summary(judgements):
    verdicts = [j.verdict for j in judgements]
    counted = [verdicts.count(verdict) for verdict in ("pass", "FAIL")]
    line = "%d cells: %d pass the gate, %d fail, %d have too few pairs" % (len(judgements), *counted, len(verdicts) - sum(counted))
    p99 = [j.p99 for j in judgements]
    if p99.count("few pairs") < len(p99):
        line += "; p99 not worse in %d of %d" % (p99.count("pass"), len(p99) - p99.count("few pairs"))
    return line
