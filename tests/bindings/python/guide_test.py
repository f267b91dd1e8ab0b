# SPDX-License-Identifier: Apache-2.0
"""Runs every block of Python in docs/python.md: by rondorun with three ranks, or by itself where it starts its own."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest


class Guide(unittest.TestCase):
    def test_its_programs_run(self):
        page = pathlib.Path(sys.argv[1]).read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 5)
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "block.py")
            for block in blocks:
                script.write_text(block)
                command = [sys.executable, str(script)]
                if "__main__" not in block:
                    command = [sys.argv[2], "--nproc-per-node", "3", "--", *command]
                ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
                self.assertEqual(ended.returncode, 0, block + ended.stdout)
                if "mean.py" in block:
                    self.assertIn("rank 2 of 3: [1.0, 10.0]", ended.stdout)
                if "spawn" in block:
                    self.assertEqual(ended.stdout, "[0, 10, 20]\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
