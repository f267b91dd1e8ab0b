#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hosts_run_test.py BUILD: bench/hosts measures ours alone, in seconds, among network namespaces that are gone
afterwards, also when it is stopped in between."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from comparison import results  # noqa: E402

BUILD = sys.argv.pop(1)


def start(*words):
    command = [ROOT / "bench/hosts", "--ours", BUILD, "--build", BUILD + "/peers", "--budget-ms", "1", "--limit", "40", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def of_run(process, names):
    return [name for name in names.split() if name.startswith("rondo%d" % process.pid)]


def namespaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def why_not():
    """Namespaces and limited links need root and what some containers withhold."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    name = "rondotry%d" % os.getpid()
    words = (["netns", "add", name], ["-n", name, "link", "add", "one", "type", "veth", "peer", "name", "other"],
             ["netns", "exec", name, "tc", "qdisc", "add", "dev", "one", "root", "tbf", "rate", "1gbit", "burst", "128kb",
              "latency", "20ms"])
    try:
        tries = [subprocess.run(["ip", *each], capture_output=True, text=True, check=False) for each in words]
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return next((one.stderr.strip() or "ip failed" for one in tries if one.returncode != 0), None)


class Run(unittest.TestCase):
    def test_hosts_are_measured_against_the_bound(self):
        with tempfile.TemporaryDirectory() as folder:
            process = start("--rounds", "1", "--sizes", "64K,1M", "--configurations", "rondo,rondo@two_level_chunk_bytes=64K",
                            "--out", folder + "/rows.csv")
            out, error = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, out + error)
            _, rows = results.read(folder + "/rows.csv")
            self.assertEqual({row.check for row in rows}, {"ok"})
            self.assertEqual(len(rows), 4)
            for row in rows:  # the link's bucket holds 128 KiB
                if row.bytes == 1 << 20:
                    self.assertGreater(row.median_us, 0.8 * 8389)
            self.assertIn("| all_reduce | 1048576 |", out)
            self.assertIn("| 8389 |", out)
            self.assertEqual(of_run(process, namespaces()), [])

    def test_stopped_it_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            process = start("--rounds", "9", "--sizes", "64K", "--configurations", "rondo", "--out", folder + "/rows.csv")
            self.assertIn("round 1 rondo: ok", process.stderr.readline())
            self.assertEqual(len(of_run(process, namespaces())), 3)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 143)
            self.assertEqual(of_run(process, namespaces()), [])
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_wrong_use_gets_a_sentence(self):
        for words, sentence in ((["--rate", "fast"], "'fast' is no rate"), (["--hosts", "1"], "'1' is no number from 2"),
                                (["--configurations", "nccl"], "'nccl' is none of openmpi")):
            process = start(*words)
            _, error = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 2)
            self.assertIn(sentence, error)


if __name__ == "__main__":
    obstacle = why_not()
    if obstacle:
        print("skipped: %s" % obstacle)
    else:
        unittest.main()
