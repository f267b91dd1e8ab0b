#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/compare and bench/plot without a measurement: known rows in, known judgements and pictures out."""
import dataclasses
import importlib.util
import io
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from comparison import campaign, configurations, drawing, element_types, gates, launching  # noqa: E402
from comparison import guard, machine, odd, options, pairing, planning, programs, results, tables, venvs  # noqa: E402

NEAR, FAR = 50, 250


def row(order, configuration, us, **more):
    fields = dict(order=order, round=1, group="all_reduce-small", configuration=configuration, transport="shm",
                  foreign=0.0, collective="all_reduce", np=2, bytes=1024, iterations=10, median_us=us, p99_us=us,
                  min_us=us, mean_us=us, in_a_row_us=0.0, xcore_ns=NEAR, check="ok", histogram="160:10")
    return results.Row(**{**fields, **more})


def launches(ours_us, theirs_us, theirs="openmpi", **more):
    """Ours and theirs in turns."""
    rows = []
    for i, (mine, other) in enumerate(zip(ours_us, theirs_us)):
        rows += [row(2 * i, "rondo", mine, **more), row(2 * i + 1, theirs, other, **more)]
    return rows


def judge(rows):
    return gates.judge(rows)


class Parsing(unittest.TestCase):
    def test_cells_are_found_among_other_output(self):
        text = "[host] mpirun warns, of this\ncell,all_gather,2,64,7,1.5,2.5,1.0,1.6,0.8,48:50,ok,151:6 160:1\ncell,too,short\n"
        cell, = results.parse_output(text)
        self.assertEqual(cell["xcore_ns"], 50)
        self.assertEqual((cell["collective"], cell["np"], cell["check"]), ("all_gather", "2", "ok"))
        self.assertEqual((cell["mean_us"], cell["in_a_row_us"]), ("1.6", "0.8"))
        self.assertEqual(results.histogram_of(cell["histogram"]), {151: 6, 160: 1})

    def test_a_file_gives_back_its_head_and_rows(self):
        rows = [row(1, "rondo", 0.25, in_a_row_us=0.125), row(2, "mpich", 7.5, xcore_ns=0.0, check="exit 1: no, not now; sorry")]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "rows.csv")
            with open(path, "w", encoding="utf-8") as file:
                results.write_head(file, ["cpu: some, 2 cores"])
                results.write_rows(file, rows)
            self.assertEqual(results.read(path), (["cpu: some, 2 cores"], rows))
            path.write_text("a,b\n1,2\n", encoding="utf-8")
            self.assertRaises(ValueError, results.read, path)

    def test_an_older_file_is_judged_but_not_appended_to(self):
        rows = launches([1] * 5, [9] * 5)
        former = [row(10 + i, name, 0.5) for i, name in enumerate(("bound", "bound-windows"))]  # no peers
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "rows.csv")
            names = [name for name in results.FIELDS if name != "in_a_row_us"]
            path.write_text("# cpu: some\n%s\n" % ",".join(names), encoding="utf-8")
            with open(path, "a", encoding="utf-8") as file:
                file.writelines(",".join(str(getattr(r, name)) for name in names) + "\n" for r in rows + former)
            before = path.read_text(encoding="utf-8")
            self.assertEqual(results.read(path), (["cpu: some"], rows))
            words = [sys.executable, ROOT / "bench/compare", "--out", path]
            judged = subprocess.run([*words, "--report-only"], capture_output=True, text=True, check=False)
            self.assertEqual(judged.returncode, 0, judged.stderr)
            self.assertIn("| pass | 5 | near |  | 1.05 us / 1.05 us |  |", judged.stdout)
            with self.assertRaisesRegex(ValueError, "has no column in_a_row_us"), unittest.mock.patch("sys.stderr", io.StringIO()):
                campaign.Campaign(options.make_parser().parse_args(["--append", "--out", str(path)]), [])
            self.assertEqual(path.read_text(encoding="utf-8"), before)

    def test_sizes_ranks_and_names(self):
        self.assertEqual(options.sizes("8,1K 64M"), [8, 1024, 64 << 20])
        parser = options.make_parser()
        self.assertEqual(parser.parse_args([]).np, [2, 4, 8])
        for wrong in (["--np", "1"], ["--sizes", "7X"], ["--collectives", "all"], ["--nonsense"],
                      ["--pairs", "0"], ["--pairs", "many"], ["--total", "nan"], ["--retries", "-1"], ["--limit", "inf"]):
            with self.subTest(wrong), unittest.mock.patch("sys.stderr", io.StringIO()), self.assertRaises(SystemExit) as end:
                parser.parse_args(wrong)
            self.assertEqual(end.exception.code, 2)

    def test_a_cell_during_which_the_cores_moved_does_not_count(self):
        told = [results.distance_of(*both) for both in ((50, 60), (250, 200), (50, 250), (250, 50), (25, 50), (0, 50), (50, 0))]
        self.assertEqual(told, [60, 250, -1, -1, -1, 0, 0])
        self.assertFalse(row(1, "rondo", 1, xcore_ns=-1).usable)

    def test_distance_and_disturbance_of_a_row(self):
        self.assertEqual([row(1, "rondo", 1, xcore_ns=ns).distance for ns in (0, 35, 36, 189, 190)],
                         ["unknown", "one core", "near", "near", "far"])
        self.assertFalse(row(1, "rondo", 1, foreign=0.05).usable)
        self.assertFalse(row(1, "rondo", 1, check="WRONG").usable)


class Statistics(unittest.TestCase):
    def test_each_launch_is_paired_once_with_the_nearest(self):
        ours = [row(order, "rondo", 1) for order in (1, 10, 20)]
        theirs = [row(order, "mpich", 1) for order in (2, 9, 11, 90)]
        pairs = [(a.order, b.order) for a, b in pairing.pair(ours, theirs)]
        self.assertEqual(pairs, [(1, 2), (10, 9), (20, 11)])

    def test_quartiles_by_interpolation(self):
        self.assertEqual(pairing.quartiles([5, 1, 3, 2, 4]), (2, 3, 4))
        self.assertEqual(pairing.quartiles([1, 2, 3, 4]), (1.75, 2.5, 3.25))
        self.assertEqual(pairing.quartiles([7]), (7, 7, 7))

    def test_the_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians_or_bests(self):
        ratio = pairing.compare(*[[r for r in launches([1, 2, 4], [3, 4, 4]) if r.configuration == name]
                                  for name in ("rondo", "openmpi")])
        self.assertEqual((ratio.q1, ratio.median, ratio.q3), (1.5, 2, 2.5))
        self.assertEqual((ratio.ours_us, ratio.theirs_us, ratio.pairs), (2, 4, 3))

    def test_in_a_row_is_the_median_of_pairs_that_know_it(self):
        def ratio(ours_us, theirs_us):
            return pairing.ratio_of([(row(i, "rondo", 1, in_a_row_us=a), row(i, "mpich", 9, in_a_row_us=b))
                                     for i, (a, b) in enumerate(zip(ours_us, theirs_us))])
        known = ratio([2, 4, 8, 0, 3], [3, 4, 4, 5, 0])
        self.assertEqual(known.in_a_row, pairing.Times(ours_us=4, theirs_us=4, q1=0.75, median=1, q3=1.25))
        self.assertEqual((known.median, known.pairs), (9, 5))
        self.assertIsNone(ratio([0, 2], [2, 0]).in_a_row)

    def test_p99_is_pooled_over_the_iterations_of_all_launches(self):
        quick = row(1, "rondo", 1, histogram="160:990")  # 2^10 ns
        slow = row(2, "rondo", 1, histogram="320:10")  # 2^20 ns
        self.assertAlmostEqual(pairing.pooled_p99_us([quick, slow]), 1.024 * 2 ** (0.5 / 16))
        slower = dataclasses.replace(slow, histogram="320:11")
        self.assertAlmostEqual(pairing.pooled_p99_us([quick, slower]), 1048.576 * 2 ** (0.5 / 16))


class Judging(unittest.TestCase):
    def test_gates(self):
        self.assertEqual([gates.gate_of(("shm", "gather", np, 64)) for np in (2, 4, 8)], [1.1] * 3)
        self.assertEqual([gates.gate_of(("tcp", "all_reduce", np, 8)) for np in (2, 4, 8)], [1.1, 1, 1])

    def test_collectives_in_place_and_with_blocks_that_differ(self):
        self.assertEqual([results.whole_blocks(name, 3, 64) for name in ("all_reduce_in_place", "reduce_in_place", "gather_v")],
                         [64, 64, 60])
        self.assertEqual(options.collectives("variable,barrier"), [*options.VARIABLE, "barrier"])
        alone = configurations.Configuration("some", None, collectives=("all_reduce",))
        self.assertEqual([alone.runs(("shm", name, 2, 8)) for name in ("all_reduce_in_place", "reduce_in_place")], [True, False])
        lacking = configurations.Configuration("some", None, lacks=("gather_v",))
        self.assertEqual([lacking.runs(("shm", name, 2, 8)) for name in ("gather_v", "gather")], [False, True])

    def test_a_tenth_faster_passes(self):
        for theirs, verdict in ((1.2, "pass"), (1.05, "FAIL")):
            judgement, = judge(launches([1] * 5, [theirs] * 5))
            self.assertEqual(judgement.verdict, verdict, theirs)
            self.assertEqual(gates.holds([judgement]), verdict == "pass")

    def test_four_pairs_are_too_few(self):
        judgement, = judge(launches([1] * 4, [9] * 4))
        self.assertEqual(judgement.verdict, "few pairs")
        self.assertFalse(gates.holds([judgement]))
        self.assertFalse(gates.holds([]))

    def test_the_best_peer_counts(self):
        rows = launches([1] * 5, [9] * 5) + [row(100 + i, "mpich", 1.2) for i in range(5)]
        judgement, = judge(rows)
        self.assertEqual((judgement.ratio.theirs, judgement.ratio.median), ("mpich", 1.2))

    def test_a_best_peer_without_a_pair_leaves_the_cell_open(self):
        rows = launches([1] * 5, [9] * 5) + [row(100 + i, "mpich", 1.2, xcore_ns=FAR) for i in range(5)]
        judgement, = judge(rows)
        self.assertEqual(judgement.verdict, "no pair")

    def test_near_is_judged_and_far_is_told_beside_it(self):
        rows = launches([1] * 5, [3] * 5) + launches([10] * 6, [10] * 6, xcore_ns=FAR)
        judgement, = judge(rows)
        self.assertEqual((judgement.distance, judgement.ratio.median, judgement.beside.median), ("near", 3, 1))
        judgement, = judge(launches([1] * 4, [3] * 4) + launches([10] * 5, [10] * 5, xcore_ns=FAR))
        self.assertEqual((judgement.distance, judgement.verdict), ("far", "FAIL"))

    def test_disturbed_and_wrong_launches_are_no_pairs(self):
        for more in ({"foreign": 0.5}, {"check": "WRONG"}):
            judgement, = judge(launches([1] * 5, [9] * 5, **more))
            self.assertEqual(judgement.verdict, "no pair")
            self.assertEqual(tables.time_text(0.25), "0.25 us")
        rows = [row(1, "rondo", 1, foreign=0.5), row(1, "rondo", 1, foreign=0.5, bytes=8), row(2, "openmpi", 1)]
        self.assertEqual(tables.disturbed(rows), "1 of 2 launches do not count: others used over 4 % of the CPU")
        self.assertEqual(tables.disturbed(rows[2:]), "")

    def test_p99_needs_twenty_pairs(self):
        slow = [dataclasses.replace(r, histogram="400:1" if r.library == "rondo" else "160:1") for r in launches([1] * 20, [9] * 20)]
        self.assertEqual(judge(slow[:38])[0].p99, "few pairs")
        self.assertEqual(judge(slow)[0].p99, "FAIL")
        self.assertEqual(judge(launches([1] * 20, [9] * 20))[0].p99, "pass")

    def test_tables_hold_every_cell_once(self):
        rows = launches([1] * 5, [3] * 5) + launches([2] * 5, [3] * 5, bytes=4096) + launches([1] * 5, [2] * 5, np=4)
        text = tables.judgement_tables(judge(rows))
        self.assertEqual(text.count("| pass |"), 3)
        self.assertIn("| 1 KiB | 1.00 us | openmpi | 3.00 us | 3.00 [3.00, 3.00] | pass | 5 | near |", text)
        self.assertIn("**all_reduce, 4 ranks, shm, ordinary memory**", text)
        self.assertTrue(tables.summary(judge(rows)).startswith("3 cells: 3 pass the gate, 0 fail, 0 have too few pairs"))

    def test_tables_tell_calls_in_a_row_beside_the_best_peer(self):
        def rows(ours, peer, theirs, us):
            return [dataclasses.replace(r, in_a_row_us=ours if r.library == "rondo" else theirs) for r in launches([1] * 5, [us] * 5, peer)]
        judgement, = judge(rows(0.5, "mpich", 5, 4) + rows(0.5, "openmpi", 0.25, 3))
        self.assertIn("| 1.05 us / 1.05 us | 0.50 us / 0.25 us |", tables.judgement_tables([judgement]))
        self.assertEqual(judgement.verdict, "pass", "told, not judged")

    def test_variants_are_told_in_a_row_too(self):
        rows = [dataclasses.replace(r, in_a_row_us=us) for r, us in zip(launches([1] * 2, [3] * 2, "rondo-against"), (1, 2) * 2)]
        self.assertIn("| 3.00 us | 3.00 [3.00, 3.00] | 2.00 [2.00, 2.00] | near |", tables.among_ours(rows))
        self.assertIn("| 3.00 us | 3.00 [3.00, 3.00] |  | near |", tables.among_ours(launches([1] * 2, [3] * 2, "rondo-against")))


def configuration(name, *collectives):
    return configurations.Configuration(name, None, collectives=collectives)


OURS, PEERS = [configuration("rondo")], [configuration("openmpi"), configuration("mpich")]
US = {"rondo": 1, "openmpi": 2, "mpich": 2.5}


class Plan(unittest.TestCase):
    """The plan, and a machine that answers every launch at once."""

    def wanted(self, *words):
        return options.make_parser().parse_args(["--np", "2", "--pairs", "2", *words])

    def answer(self, work, rows, **more):
        """Appends the rows of a launch; **more: fields, or functions of work, collective and bytes."""
        order = 1 + max((r.order for r in rows), default=0)
        for collective, bytes_ in work.cells:
            given = {name: value(work, collective, bytes_) if callable(value) else value for name, value in more.items()}
            rows.append(row(order, work.configuration.name, given.pop("us", US.get(work.configuration.name, 3)), np=work.np,
                            round=work.round, collective=collective, bytes=bytes_, **given))

    def run_plan(self, wanted, chosen, rows=None, **more):
        """[(np, configuration, cells)] of the launches."""
        rows, launched = [] if rows is None else rows, []
        for work in planning.plan(wanted, chosen, rows):
            self.assertLess(len(launched), 1000)
            launched.append((work.np, work.configuration.name, work.cells))
            self.answer(work, rows, **more)
        return launched

    def test_ours_runs_between_the_peers_and_variants_run_their_collectives(self):
        chosen = OURS + PEERS + [configuration("openmpi-nocma", "all_reduce")]
        launched = self.run_plan(self.wanted("--all-reduce-sizes", "8", "--collectives", "all_reduce,barrier"), chosen)
        self.assertEqual([name for _, name, _ in launched], ["mpich", "rondo", "openmpi", "openmpi-nocma",
                                                             "openmpi-nocma", "openmpi", "rondo", "mpich"])
        self.assertEqual({cells for _, name, cells in launched if name == "openmpi-nocma"}, {(("all_reduce", 8),)})
        self.assertEqual({cells for _, name, cells in launched if name == "rondo"}, {(("all_reduce", 8), ("barrier", 0))})

    def test_only_cells_that_lack_near_pairs_are_measured_again(self):
        wanted = self.wanted("--all-reduce-sizes", "8,64,1K", "--collectives", "all_reduce", "--rounds", "5")
        launched = self.run_plan(wanted, OURS + PEERS[:1], xcore_ns=lambda work, _, bytes_: {8: NEAR, 64: FAR, 1024: NEAR if (
            work.round > 3) else FAR}[bytes_])
        for name in ("rondo", "openmpi"):
            sizes = [[bytes_ for _, bytes_ in cells] for _, by, cells in launched if by == name]
            self.assertEqual(sizes, [[8, 64, 1024], [64, 1024, 8]] + [[64, 1024]] * 3)

    def test_cells_with_the_fewest_pairs_come_first(self):
        wanted = self.wanted("--all-reduce-sizes", "8,64,1K", "--collectives", "all_reduce", "--pairs", "3")
        earlier = [row(i, name, 1, bytes=bytes_, xcore_ns=ns) for i, name in enumerate(("rondo", "openmpi"))
                   for bytes_, ns in ((8, NEAR), (8, NEAR), (64, NEAR), (1024, FAR))]
        with unittest.mock.patch.object(planning, "CELL_S", planning.TURN_S):  # a launch of its own for each
            launched = self.run_plan(wanted, OURS + PEERS[:1], rows=earlier)
        self.assertEqual([cells[0][1] for _, name, cells in launched if name == "rondo"], [1024, 64, 1024, 8, 64, 1024])

    def test_every_peer_that_may_be_the_best_needs_its_pairs(self):
        wanted = self.wanted("--all-reduce-sizes", "8", "--collectives", "all_reduce", "--rounds", "9")
        often = self.run_plan(wanted, OURS + PEERS, xcore_ns=lambda work, *_: FAR if work.configuration.name == "mpich" and work.round < 7 else NEAR)
        self.assertEqual([name for _, name, _ in often].count("rondo"), 8)
        slower = {**US, "mpich": 4}  # twice the best: asked, but nobody waits for it
        often = self.run_plan(wanted, OURS + PEERS, us=lambda work, *_: slower[work.configuration.name], xcore_ns=lambda work, *_: (
            FAR if work.configuration.name == "mpich" and work.round > 1 else NEAR))
        self.assertEqual([name for _, name, _ in often].count("rondo"), 2)
        self.assertEqual([name for _, name, _ in often].count("mpich"), 2)
        often = self.run_plan(wanted, OURS + PEERS, us=lambda work, *_: slower[work.configuration.name], xcore_ns=FAR)
        self.assertEqual([[name for _, name, _ in often].count(n) for n in ("rondo", "openmpi", "mpich")], [9, 9, 3])

    def test_a_hopeless_peer_is_not_asked_for_the_cell_again(self):
        wanted = self.wanted("--all-reduce-sizes", "8,1M", "--collectives", "all_reduce")
        launched = self.run_plan(wanted, OURS + PEERS, us=lambda work, _, bytes_: (
            7 if bytes_ == 8 and work.configuration.name == "mpich" else US[work.configuration.name]))
        self.assertEqual([[b for _, b in cells] for _, name, cells in launched if name == "mpich"], [[8, 1 << 20], [1 << 20]])
        self.assertEqual([[b for _, b in cells] for _, name, cells in launched if name == "openmpi"], [[8, 1 << 20]] * 2)

    def test_far_times_make_nobody_slow_beside_near_ones(self):
        def behind(*more):
            rows = [row(1, "openmpi", 2), *more]
            return gates.behind(pairing.by_cell(rows)[rows[0].cell])
        self.assertEqual(behind(row(2, "mpich", 8, xcore_ns=FAR)), {"openmpi": 1, "mpich": 1})
        self.assertEqual(behind(row(2, "mpich", 80, xcore_ns=FAR))["mpich"], 10)
        self.assertEqual(behind(row(2, "mpich", 9))["mpich"], 4.5)
        self.assertEqual(behind(row(2, "mpich", 9), row(3, "mpich", 16, xcore_ns=FAR))["mpich"], 4.5)
        both_far = (row(3, "mpich", 16, xcore_ns=FAR), row(4, "openmpi", 8, xcore_ns=FAR))
        self.assertEqual(behind(row(2, "mpich", 9), *both_far)["mpich"], 2)

    def test_a_peer_that_never_answers_is_asked_twice(self):
        wanted = self.wanted("--all-reduce-sizes", "8", "--collectives", "all_reduce", "--pairs", "5")
        launched = self.run_plan(wanted, OURS + PEERS, check=lambda work, *_: "exit 1" if work.configuration.name == "mpich" else "ok")
        self.assertEqual([name for _, name, _ in launched].count("mpich"), 2)
        self.assertEqual([name for _, name, _ in launched].count("rondo"), 5)

    def test_a_disturbed_peer_is_asked_until_the_rounds_are_out(self):
        wanted = self.wanted("--all-reduce-sizes", "8", "--collectives", "all_reduce", "--rounds", "6")
        launched = self.run_plan(wanted, OURS + PEERS, foreign=lambda work, *_: 0.5 if work.configuration.name == "mpich" else 0.0)
        self.assertEqual([name for _, name, _ in launched].count("mpich"), 6)

    def test_a_peer_of_an_earlier_slice_that_is_left_out_now_is_not_waited_for(self):
        wanted = self.wanted("--all-reduce-sizes", "8", "--collectives", "all_reduce")
        launched = self.run_plan(wanted, OURS + PEERS[:1], rows=[row(1, "mpich", 1, bytes=8)])
        self.assertEqual([name for _, name, _ in launched], ["rondo", "openmpi", "openmpi", "rondo"])

    def test_a_configuration_that_has_its_pairs_rests(self):
        chosen = OURS + [configuration("rondo-windows")] + PEERS[:1]
        wanted = self.wanted("--all-reduce-sizes", "8", "--collectives", "all_reduce")
        launched = self.run_plan(wanted, chosen, xcore_ns=lambda work, *_: FAR if work.configuration.name == "rondo-windows" and work.round < 3 else NEAR)
        self.assertEqual([name for _, name, _ in launched].count("rondo"), 2)
        self.assertEqual([name for _, name, _ in launched].count("rondo-windows"), 4)

    def test_without_peers_variants_are_measured_beside_ours(self):
        wanted = self.wanted("--all-reduce-sizes", "8", "--collectives", "all_reduce,waiting", "--pairs", "3")
        alone = self.run_plan(wanted, OURS)
        self.assertEqual([name for _, name, _ in alone], ["rondo"] * 3)
        both = self.run_plan(wanted, OURS + [configuration("rondo-against")])
        self.assertEqual([name for _, name, _ in both].count("rondo-against"), 3)

    def test_launches_are_short_and_cells_of_one_world(self):
        wanted = self.wanted("--np", "2,8", "--all-reduce-sizes", "8,64M", "--sizes", "64M", "--collectives", "all_reduce,all_gather")
        works = list(itertools.islice(planning.plan(wanted, OURS, []), 3))
        self.assertEqual([(w.np, len(w.cells)) for w in works], [(2, 3), (8, 2), (8, 1)])
        self.assertEqual(works[1].cells, (("all_reduce", 8), ("all_reduce", 64 << 20)))

    def test_cells_are_named_as_programs_name_them(self):
        cells = planning.cells_of(self.wanted("--collectives", "all_reduce,all_gather,barrier", "--all-reduce-sizes", "8", "--sizes", "8,64"), 3)
        self.assertEqual([cell[1::2] for cell in cells], [("all_reduce", 8), ("all_gather", 60), ("barrier", 0)])
        self.assertEqual(launching.cells_text([cell[1::2] for cell in cells]), "all_reduce:8,all_gather:60,barrier:0")

    def test_a_slice_goes_on_where_the_last_one_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            wanted = self.wanted("--append", "--out", folder + "/rows.csv", "--collectives", "all_reduce",
                                 "--all-reduce-sizes", "8,64M,64", "--quiet-wait", "0")
            launched = []

            def launch(work, _options, order, _limit):
                launched.append((work.configuration.name, work.cells))
                rows = [row(order - 1, "", 1)]
                self.answer(work, rows)
                return rows[1:], 0.1

            def run(launches):
                one = campaign.Campaign(wanted, ["x: %d" % launches], launch)
                self.assertTrue(one.run(itertools.islice(planning.plan(wanted, OURS + PEERS[:1], one.rows), launches)))
                return one
            with unittest.mock.patch("sys.stderr", io.StringIO()):
                run(2)
                again = run(100)
            cells = [tuple(b for _, b in of) for _, of in launched]
            self.assertEqual(cells, [(8, 64 << 20, 64)] * 4)
            self.assertEqual(again.head, ["x: 2"])
            self.assertEqual([r.order for r in results.read(wanted.out)[1]][::3], [1, 2, 3, 4])

    def test_disturbed_launches_are_repeated_and_the_least_disturbed_kept(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch("sys.stderr", io.StringIO()):
            wanted = self.wanted("--out", folder + "/rows.csv", "--quiet-wait", "0")
            shares = iter([0.3, 0.2, 0.25])
            work = launching.Work(1, 2, "g", OURS[0], (("barrier", 0),))
            one = campaign.Campaign(wanted, [], lambda w, o, order, l: ([row(order, "rondo", 1, foreign=next(shares))], 0.1))
            self.assertEqual(one.measure(work)[0].foreign, 0.2)
            self.assertIsNone(next(shares, None))


WITHOUT_PIP_S_SETTINGS = {**{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
                          "PIP_CONFIG_FILE": os.devnull}


class Peers(unittest.TestCase):
    def test_a_missing_peer_is_named_with_the_reason(self):
        said = []
        with unittest.mock.patch("shutil.which", lambda name: None):
            found = configurations.peers(options.make_parser().parse_args([]), "/nonexistent", said.append)
        self.assertEqual(found, [])
        self.assertEqual(said, ["%s is left out: /nonexistent has no %s; bench/peers/install fetches it" % both for both in (
            ("Open MPI 5", "openmpi-5"), ("MPICH 5", "mpich-5"), ("Intel MPI", "impi"), ("oneCCL", "oneccl"))] +
                         ["Open MPI is left out: there is no mpicxx.openmpi", "MPICH is left out: there is no mpicxx.mpich",
                          "Gloo is left out: there is no C++ compiler"])

    def test_fetched_peers_are_rows_of_their_own_and_those_that_spin_have_a_core_for_each_rank(self):
        said = []
        wanted = options.make_parser().parse_args(["--np", "2,5"])
        with tempfile.TemporaryDirectory() as into, unittest.mock.patch.object(machine, "CORES", 2), \
                unittest.mock.patch.object(programs, "build", lambda name, *_: pathlib.Path(into, name)):
            for name in venvs.PACKAGES:
                venvs.folder(into, name).mkdir(parents=True)
                pathlib.Path(venvs.folder(into, name), venvs.MARK).write_text(venvs.mark(name), encoding="utf-8")
            with unittest.mock.patch("shutil.which", lambda name: "c++" if name == "c++" else None):
                found = {peer.name: peer for peer in configurations.peers(wanted, into, said.append)}
            words = {name: peer.command(2, ["--np", "2"]) for name, peer in found.items()}
            homes = {name: str(venvs.folder(into, name)) for name in venvs.PACKAGES}
            pathlib.Path(homes["impi"], venvs.MARK).write_text("impi-rt==1\n", encoding="utf-8")
            self.assertRaisesRegex(programs.Missing, "install fetches it", venvs.find, into, "impi")
        self.assertEqual(list(found)[:6], ["openmpi-5", "openmpi-5-nocma", "openmpi-5-collsm", "mpich-5", "impi", "oneccl"])
        cell = ("shm", "all_reduce", 5, 1024)
        self.assertEqual([n for n, peer in found.items() if not peer.runs(cell)], ["mpich-5", "oneccl"])
        self.assertTrue(all(peer.runs(("shm", "all_reduce", 2, 1024)) for peer in found.values()))
        self.assertEqual([line for line in said if "spin" in line], [
            "mpich-5, oneccl: not by 5 ranks, which are more than cores: theirs spin, and a call may not end"])
        self.assertEqual([words[n][0] for n in homes], [homes["openmpi-5"] + "/bin/mpirun"] + [
            homes[n] + "/bin/mpiexec.hydra" for n in ("mpich-5", "impi", "oneccl")])
        self.assertNotIn("oob_tcp_if_include", words["openmpi-5"])  # Open MPI 5 would not start
        self.assertIn("sm,self", words["openmpi-5"])
        self.assertEqual(words["openmpi-5-nocma"][-6:-3], ["--mca", "smsc", "^cma"])

    def test_what_no_index_has_is_told_in_a_sentence_and_nothing_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [ROOT / "bench/peers/install", "--build", folder]
            done = subprocess.run([*words, "mpich-5"], capture_output=True, text=True, check=False,
                                  env={**WITHOUT_PIP_S_SETTINGS, "PIP_NO_INDEX": "1"})
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (1, "", 1), done.stderr)
            self.assertRegex(done.stderr, "^install: (pip could not install mpich==|python3 makes no virtual environment)")
            self.assertFalse(venvs.folder(folder, "mpich-5").exists())
            done = subprocess.run([*words, "lam"], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.splitlines()[-1]),
                             (2, "install: error: 'lam' is none of openmpi-5, mpich-5, impi, oneccl"))

    def test_a_folder_without_our_library_is_wrong_use(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([ROOT / "bench/compare", "--ours", folder, "--out", folder + "/x.csv"],
                                  capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": folder})
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds no librondo.so", done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("ensurepip"), "Debian's python3-venv")
    def test_who_ends_the_fetching_finds_nothing_unfinished(self):
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as index:  # never answers
            index.settimeout(40)
            environment = {**WITHOUT_PIP_S_SETTINGS, "PIP_INDEX_URL": "http://127.0.0.1:%d/" % index.getsockname()[1], "no_proxy": "*"}
            with subprocess.Popen([ROOT / "bench/peers/install", "--build", folder, "mpich-5"], env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as fetching:
                try:
                    connection, _ = index.accept()
                    with connection:
                        self.assertTrue(venvs.folder(folder, "mpich-5").exists())
                        fetching.send_signal(signal.SIGINT)
                        self.assertEqual((fetching.communicate(timeout=40)[0], fetching.returncode), ("", 130))
                finally:
                    fetching.kill()
            self.assertFalse(venvs.folder(folder, "mpich-5").exists())

    def test_a_peer_that_is_not_here_is_not_compared_with_in_silence(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "librondo.so").touch()
            words = ["--ours", folder, "--out", folder + "/x.csv", "--build", folder, "--only", "lam", "--total", "1"]
            with unittest.mock.patch.object(programs, "build", lambda name, *_: pathlib.Path(folder, name)):
                wanted = options.make_parser().parse_args(words)
                self.assertRaisesRegex(ValueError, "--only lam: none of the peers", configurations.ours_and_peers, wanted, folder, lambda _: None)

    def test_a_launch_that_does_not_end_is_killed_and_told(self):
        out, error = launching.run(["sh", "-c", "echo begun; sleep 60"], {}, 0.5)
        self.assertEqual((out, error), ("begun\n", "not done after 0 s"))
        self.assertEqual(launching.run(["sh", "-c", "echo no, no >&2; exit 3"], {}, 5), ("", "exit 3: no; no"))


class Guard(unittest.TestCase):
    def test_a_cell_fails_when_three_quarters_of_its_pairs_say_so(self):
        for now, verdict in (([12, 12, 12, 12, 9], "FAIL"), ([12, 12, 10, 9, 9], "pass"), ([10.5] * 5, "pass")):
            rows = launches(now, [10] * 5, theirs=guard.BEFORE, group="guard", bytes=16 << 10)
            told = [one for one in guard.judge(rows) if one.ratio]
            self.assertEqual([(one.what, one.verdict) for one in told], [("all_reduce of 16 KiB, 2 ranks", verdict)], now)
        self.assertEqual([one.verdict for one in guard.judge([])], ["no pair"] * 24)

    def test_sides_take_turns_at_being_first(self):
        wanted = options.make_parser().parse_args(["--pairs", "2"])
        names = [(work.np, work.configuration) for work in guard.launches(wanted, ["now", "before"])]
        self.assertEqual(names, [(2, "now"), (2, "before"), (4, "now"), (4, "before"),
                                 (2, "before"), (2, "now"), (4, "before"), (4, "now")])


    @unittest.skipUnless(shutil.which("git") and shutil.which("cmake"), "git and cmake")
    def test_what_cannot_be_compared_is_told_in_a_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "bench", folder + "/bench", ignore=shutil.ignore_patterns("results"))

            def run(*words):
                done = subprocess.run([folder + "/bench/guard", *words], capture_output=True, text=True, check=False,
                                      env={**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(folder)})
                return done.returncode, done.stderr

            def git(*words):
                subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false",
                                "-c", "core.hooksPath=/dev/null", *words], check=True)

            self.assertRegex(run()[1], r"\Aguard: this is no clone with a commit;.*\n\Z")
            git("init", "--quiet")
            pathlib.Path(folder, ".gitignore").write_text("build\n", encoding="utf-8")
            git("add", ".")
            git("commit", "--quiet", "-m", "the first")
            self.assertEqual(run("nonesuch"), (2, "guard: there is no commit 'nonesuch'.\n"))
            self.assertEqual(run(), (2, "guard: there is no commit 'HEAD~1'.\n"))
            self.assertEqual(run("a", "b"), (2, "guard: one commit at most, not 'a b'; see bench/guard --help.\n"))
            code, told = run("HEAD")
            self.assertEqual((code, "guard: build/guard/source cannot be built; all of it: " in told.splitlines()[-1]), (2, True), told)


class OddCases(unittest.TestCase):
    def test_a_file_is_judged_anew_by_the_cases_that_it_holds(self):
        for group, more, told in (("worlds", dict(np=3, bytes=1 << 20), "all_reduce of 1 MiB, 3 ranks against 4"),
                                  ("guard", {}, "all_reduce of 16 KiB, 2 ranks"), ("all_reduce:8", {}, "1 cells: 0 pass")):
            with tempfile.TemporaryDirectory() as folder, open(folder + "/rows.csv", "w", encoding="utf-8") as file:
                results.write_head(file, [])
                results.write_rows(file, [row(1, "rondo", 1, group=group, **more)])
                done = subprocess.run([ROOT / "bench/compare", "--report-only", "--out", file.name], capture_output=True, text=True,
                                      check=False)
            self.assertIn(told, done.stdout, done.stderr)

    def test_a_cliff_is_found_per_byte(self):
        rows = []
        for order, np, us in ((1, 3, 31.0), (2, 4, 20.0), (3, 3, 31.0), (4, 4, 20.0)):
            rows.append(row(order, "rondo", us, np=np, group="worlds", bytes=1 << 20))
        comparison, = odd.judge(rows)
        self.assertEqual(comparison.verdict, "FAIL")
        self.assertAlmostEqual(comparison.slowdown[1], 1.55)
        self.assertIn("| all_reduce of 1 MiB, 3 ranks against 4 | 1.55 [1.55, 1.55] | 1.5 | FAIL | 2 |", odd.table([comparison]))

    def test_counts_are_compared_per_byte_from_a_kilobyte(self):
        small = [row(1, "rondo", 1.0, group="counts", bytes=4), row(1, "rondo", 1.0, group="counts", bytes=8)]
        self.assertEqual(odd.judge(small)[0].slowdown[1], 1)
        large = [row(1, "rondo", 9.0, group="counts", bytes=4000), row(1, "rondo", 9.216, group="counts", bytes=4096)]
        self.assertAlmostEqual(odd.judge(large)[0].slowdown[1], 1.0)

    def test_types_are_judged_against_sums_of_floats_of_the_same_launch(self):
        head = "program,in_place,bytes,dtype,op,samples,median_us,min_us,max_us,wrong\n"
        known = dict(dataclasses.asdict(row(1, "rondo", 0)), group="types")
        lines = "x,0,1024,float,sum,5,10,1,1,0\nx,1,1024,float,sum,5,99,1,1,0\nx,0,1024,half,sum,5,15,1,1,0\nx,0,1024,int32,sum,5,9,1,1,2\n"
        rows = element_types.rows_of(head + lines, known)
        self.assertEqual([r.check for r in rows], ["ok", "ok", "WRONG"])
        comparison, = element_types.judge(rows)
        self.assertAlmostEqual(comparison.slowdown[1], 1.5)
        self.assertEqual(comparison.verdict, "FAIL")


class Pictures(unittest.TestCase):
    def test_a_picture_is_xml_with_a_panel_per_world_and_a_line_per_library(self):
        rows = [r for np in (2, 4) for size in (8, 4096, 1 << 26) for r in launches([size / 100 + 1], [size / 50 + 1], np=np, bytes=size)]
        rows += [row(9, "openmpi-nocma", 1.001, bytes=8), row(9, "rondo-windows", 1, bytes=8), row(9, "rondo-ring", 1, bytes=8)]
        root = xml.etree.ElementTree.fromstring(drawing.picture(rows, "all_reduce", "shm", "a <machine> & a date"))
        tag = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(root.findall(tag + "rect")), 2)
        self.assertEqual([line.get("class") for line in root.findall(tag + "polyline")].count("rondo"), 3)  # and the legend
        text = [t.text for t in root.findall(tag + "text")]
        for expected in ("a <machine> & a date", "2 ranks", "4 ranks", "Rondo", "Open MPI", "64M"):
            self.assertIn(expected, text)
        self.assertNotIn("MPICH", text)
        self.assertIsNone(drawing.picture(rows, "broadcast", "shm", ""))

    def test_points_lie_inside_the_frame_and_slower_is_higher(self):
        rows = launches([1], [100], bytes=64) + launches([10], [1000], bytes=4096)
        root = xml.etree.ElementTree.fromstring(drawing.picture(rows, "all_reduce", "shm", ""))
        tag = "{http://www.w3.org/2000/svg}"
        frame = root.find(tag + "rect")
        left, top, width, height = (float(frame.get(name)) for name in ("x", "y", "width", "height"))
        ys = {}
        for circle in root.findall(tag + "circle"):
            x, y = float(circle.get("cx")), float(circle.get("cy"))
            self.assertTrue(left <= x <= left + width and top <= y <= top + height)
            ys.setdefault(circle.get("class"), []).append(y)
        self.assertTrue(all(a > b for a, b in zip(sorted(ys["rondo"]), sorted(ys["openmpi"]))))


if __name__ == "__main__":
    unittest.main()
