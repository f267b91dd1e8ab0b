#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_run_test.py BUILD: bench/compare measures ours alone, in seconds: every collective, ordinary memory and
windows, and a waiting rank; then bench/plot draws it."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from comparison import configurations, launching, machine, options, results  # noqa: E402

BUILD = sys.argv.pop(1)
SHORT = ["--ours", BUILD, "--build", BUILD + "/peers", "--no-peers", "--pairs", "1", "--rounds", "1", "--budget-ms", "1",
         "--max-iterations", "5", "--quiet-wait", "0", "--retries", "0", "--total", "60", "--limit", "30"]


def compare(*words):
    return subprocess.run([ROOT / "bench/compare", *SHORT, *words], capture_output=True, text=True, check=False, timeout=100)


class Run(unittest.TestCase):
    def test_every_collective_is_measured_and_right(self):
        with tempfile.TemporaryDirectory() as folder:
            file = folder + "/rows.csv"
            done = compare("--np", "2,3", "--windows", "--sizes", "64,4K", "--all-reduce-sizes", "4,64K,1M", "--out", file,
                           "--collectives", ",".join([*options.COLLECTIVES, *options.GROUPS]))
            self.assertEqual(done.returncode, 1, done.stderr)  # without peers no gate holds
            _, rows = results.read(file)
            self.assertEqual({row.check for row in rows}, {"ok"}, done.stderr)
            for np in (2, 3):
                for configuration in ("rondo", "rondo-windows"):
                    found = {row.collective for row in rows if (row.np, row.configuration) == (np, configuration)}
                    self.assertEqual(found, {*options.COLLECTIVES, *options.IN_PLACE, *options.VARIABLE})
                self.check_distances([row for row in rows if row.np == np])
            self.assertIn("have too few pairs", pathlib.Path(folder, "rows.md").read_text(encoding="utf-8"))
            drawn = subprocess.run([ROOT / "bench/plot", file, "-o", folder], capture_output=True, text=True, check=False)
            self.assertEqual(drawn.returncode, 0 if any(row.usable for row in rows) else 1, drawn.stderr)
            for path in pathlib.Path(folder).glob("*.svg"):
                xml.etree.ElementTree.parse(path)

    def test_the_guard_measures_a_build_beside_another_one(self):
        with tempfile.TemporaryDirectory() as folder:
            done = compare("--cases", "guard", "--against", BUILD, "--out", folder + "/rows.csv")
            self.assertIn("all_gather of 1 MiB, 4 ranks", done.stdout, done.stderr)
            _, rows = results.read(folder + "/rows.csv")
            self.assertEqual({row.check for row in rows}, {"ok"}, done.stderr)
            self.assertEqual(len({row.cell for row in rows if row.configuration == "rondo"}), 24)
            self.assertEqual(len({row.cell for row in rows if row.configuration == "rondo-against"}), 24)
        done = compare("--cases", "guard")
        self.assertEqual((done.returncode, done.stderr), (2, "compare: --cases guard needs --against BUILD: what to compare with\n"))

    def test_calls_in_a_row_are_timed_where_none_is_lined_up(self):
        wanted = options.make_parser().parse_args([*SHORT, "--max-iterations", "2000"])
        mine, = configurations.ours(wanted, wanted.build)
        cells = launching.cells(options.COLLECTIVES, [4 << 10])
        rows, seconds = launching.launch(launching.Work(1, 2, "", mine, cells), wanted, 1, 60)
        self.assertEqual([row.collective for row in rows if not row.in_a_row_us], ["broadcast", "reduce", "gather", "scatter"])
        in_a_row = [row for row in rows if row.in_a_row_us]
        for row in in_a_row:  # the loop takes as long as any rank's calls, and those of all together as long as the longest ones
            self.assertGreaterEqual(row.in_a_row_us * row.np, row.mean_us * 0.99, row)
        self.assertLess(sum(row.in_a_row_us * row.iterations for row in in_a_row), seconds * 1e6)

    def check_distances(self, rows):
        """More ranks than cores tell them, too. Beside others a flag may take too long to be passed on."""
        told = {row.distance for row in rows} & {"near", "far"}
        if not told and (machine.CORES < 2 or all(row.foreign > results.QUIET_SHARE for row in rows)):
            print("distances of %d ranks skipped: one core, or others use them" % rows[0].np)
            return
        self.assertTrue(told, rows[0].np)

    def test_a_waiting_rank_is_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            compare("--np", "2", "--collectives", "waiting", "--out", folder + "/rows.csv")
            row, = results.read(folder + "/rows.csv")[1]
            self.assertEqual((row.collective, row.check), ("waiting", "ok"))
            self.assertIn("of a core", pathlib.Path(folder, "rows.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
