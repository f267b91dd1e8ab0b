# SPDX-License-Identifier: Apache-2.0
"""The wheel of tools/wheel, installed into an empty virtual environment. wheel_test.py FOLDER"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(sys.argv[1])
# Of glibc and of the compiler's runtime, which every Linux with glibc has.
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|ld-linux-aarch64|libstdc\+\+|libgcc_s)\.so\.\d+$")
OURS = re.compile(r"(librondo\.so\.|lib[a-z0-9_-]+-[0-9a-f]{8}\.so)")
TORCHS = re.compile(r"(libtorch|libc10)")  # of the process that has imported it
SUM = """
import array, rondo
comm = rondo.init()
data = array.array("d", [comm.rank + 1])
comm.all_reduce(data)
print("sum", data[0], rondo.__file__)
"""
# Every import of torch asks the wheel, which loads nothing of itself.
AUTOLOADED = """
import torch, sys
assert "_rondo_torch" in sys.modules and "rondo" not in sys.modules, sorted(sys.modules)
"""
# The backend by its name, and in gloo's place.
BACKEND = """
import torch
import torch.distributed as dist
dist.init_process_group({name!r})
data = torch.full((3,), dist.get_rank() + 1.0)
dist.all_reduce(data)
assert data.tolist() == [3, 3, 3], data
print("backend", type(dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))).__module__)
dist.destroy_process_group()
"""
# rondo meets ranks by protobuf and fmt of its own; torch brings others.
BOTH = """
import {first}, {second}
import os, torch, rondo
comm = rondo.init()
data = torch.full((1000,), float(comm.rank + 1))
comm.all_reduce(data)
square = torch.eye(50) @ torch.ones(50, 50)
torch.distributed.init_process_group("gloo", store=torch.distributed.FileStore({path!r}, comm.world_size),
                                     rank=comm.rank, world_size=comm.world_size)
torch.distributed.all_reduce(data)
assert (data == 6).all() and (square == 1).all()
assert comm.all_gather_object({{"t": data}})[1]["t"].equal(data)
torch.distributed.destroy_process_group()
print("both")
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.bin = cls.folder / "env" / "bin"
        subprocess.run([sys.executable, "-m", "venv", cls.folder / "env"], check=True)
        subprocess.run([cls.bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                        "--find-links", FOLDER, "rondo-comm"], check=True)
        # Nothing of this build's, and no compiler.
        cls.environment = {"PATH": str(cls.bin), "HOME": str(cls.folder)}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def site(self):
        return next((self.folder / "env" / "lib").glob("python*/site-packages"))

    def run_it(self, *command, **more):
        ended = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, timeout=120, cwd=self.folder, env={**self.environment, **more})
        self.assertEqual(ended.returncode, 0, ended.stdout)
        return ended.stdout

    def test_programs_and_module(self):
        said = self.run_it(self.bin / "rondorun", "--nproc-per-node", "3", "--", self.bin / "python", "-c", SUM)
        self.assertEqual(said.count("sum 6.0"), 3, said)
        self.assertIn(str(self.folder / "env"), said)
        said = self.run_it(self.bin / "python", "-m", "rondo.run", "--nproc-per-node", "2", "--", self.bin / "python", "-c", SUM)
        self.assertEqual(said.count("sum 3.0"), 2, said)
        self.assertIn("usage", self.run_it(self.bin / "rondo-rendezvous", "--help").lower())

    def test_libraries_are_inside(self):
        for wheel in FOLDER.glob("*.whl"):
            self.assertIn("-manylinux_", wheel.name)  # auditwheel's word for it
        site = self.site()
        looked_at = 0
        for path in [*site.glob("rondo/**/*"), *site.glob("rondo_comm.libs/*")]:
            if not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
                continue
            looked_at += 1
            dynamic = subprocess.run(["readelf", "--dynamic", path], check=True, capture_output=True, text=True).stdout
            for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                torchs = path.name.startswith("_backend_") and TORCHS.match(needed)
                self.assertTrue(SYSTEM.match(needed) or OURS.match(needed) or torchs, f"{path.name} needs {needed}")
            for path_in in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
                self.assertTrue(all(part.startswith("$ORIGIN") for part in path_in.split(":")), f"{path.name}: {path_in}")
        self.assertGreaterEqual(looked_at, 4)

    def test_beside_torch_in_both_orders(self):
        found = importlib.util.find_spec("torch")
        if found is None:
            self.skipTest("PyTorch is not here")
        site = str(pathlib.Path(found.origin).parent.parent)
        self.run_it(self.bin / "python", "-c", AUTOLOADED, PYTHONPATH=site)
        for name, more in (("rondo", {}), ("gloo", {"RONDO_TORCH_AS": "gloo"})):
            command = [self.bin / "rondorun", "--nproc-per-node", "2", "--", self.bin / "python", "-c", BACKEND.format(name=name)]
            if next(self.site().glob("rondo/torch/_backend_*"), None) is None:
                with self.assertRaisesRegex(AssertionError, "built without the backend"):
                    self.run_it(*command, PYTHONPATH=site, **more)
            else:
                said = self.run_it(*command, PYTHONPATH=site, **more)
                self.assertEqual(said.count("backend rondo.torch"), 2, said)
        for first, second in (("torch", "rondo"), ("rondo", "torch")):
            code = BOTH.format(first=first, second=second, path=str(self.folder / f"{first}-store"))
            said = self.run_it(self.bin / "rondorun", "--nproc-per-node", "2", "--", self.bin / "python", "-c", code,
                               PYTHONPATH=site)
            self.assertEqual(said.count("both"), 2, said)


if __name__ == "__main__":
    if not list(FOLDER.glob("rondo_comm-*.whl")):
        print("skipped: tools/wheel has built no wheel")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
