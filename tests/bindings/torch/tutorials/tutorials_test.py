# SPDX-License-Identifier: Apache-2.0
"""The tutorials' scripts by every launcher and every way to meet: tutorials_test.py RONDORUN [CONTROL].

They run with the backend "rondo", and say "gloo" where Rondo stands in for it. Ranks end with the same bits, runs of one
world do, and one process that does the work of all comes to the same within rounding. CONTROL is a backend of PyTorch's
own that runs instead."""

import importlib.util
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import unittest

import idioms
import spawned
import torch
import torch._dynamo  # what DDP imports once it is made: forked ranks have it then

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT, SPAWNED, BESIDE, ON_TOP = (os.path.join(HERE, f"{name}.py") for name in ("script", "spawned", "beside", "on_top"))
FRAMEWORKS = os.path.join(HERE, "frameworks.py")
RONDORUN = CONTROL = None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Forked:
    """spawned.py in a process that has torch already: importing it takes longer than all that it does."""

    def __init__(self, words, environment):
        self.args = words
        self.output = tempfile.TemporaryFile()
        self.process = multiprocessing.get_context("fork").Process(target=self.main, args=(environment,))
        self.process.start()

    def main(self, environment):
        for stream in (1, 2):
            os.dup2(self.output.fileno(), stream)
        os.environ.update(environment)
        if environment["RONDO_TORCH_AS"]:
            import rondo.torch

            rondo.torch.autoload()  # as the end of `import torch` does where that is set before
        spawned.main(self.args)

    def communicate(self, timeout):
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.returncode = self.process.exitcode
        self.output.seek(0)
        return self.output.read(), None


def run(commands, environment):
    """Programs that run at the same time."""
    running = [
        subprocess.Popen(command, env={**os.environ, **environment, **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if command[0] in (sys.executable, RONDORUN)
        else Forked(command, {**environment, **more})
        for command, more in commands
    ]
    said = [each.communicate(timeout=300)[0].decode(errors="replace") for each in running]
    for each, text in zip(running, said):
        assert each.returncode == 0, f"exit status {each.returncode} of {each.args}:\n{text}"


class Tutorials(unittest.TestCase):
    firsts = {}  # by world: what the first run computed

    def check(self, world, as_gloo, commands):
        computed = self.computed(world, as_gloo, commands)
        self.assert_same(self.firsts.setdefault(world, computed), computed)

    def computed(self, world, as_gloo, commands):
        backend = CONTROL or ("gloo" if as_gloo else "rondo")
        environment = {"OMP_NUM_THREADS": "1", "RONDO_TORCH_AS": "gloo" if as_gloo and not CONTROL else ""}
        if not CONTROL:
            environment["EXPECT_RONDO"] = "1"
        with tempfile.TemporaryDirectory() as results:
            run(commands(backend, results), environment)
            ranks = [torch.load(os.path.join(results, f"{rank}.pt")) for rank in range(world)]
        for rank in ranks[1:]:
            self.assert_same(ranks[0], rank)
        return ranks[0]

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        for idiom, values in one.items():
            for name, value in values.items():
                self.assertTrue(torch.equal(value, other[idiom][name]), f"{idiom}: {name} differs")

    def test_torchrun(self):
        self.check(
            2,
            False,
            lambda backend, results: [
                (
                    [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc_per_node=2"]
                    + ["--master_port", free_port(), SCRIPT, backend, results],
                    {},
                )
            ],
        )

    def test_launch_as_gloo(self):
        self.check(
            2,
            True,
            lambda backend, results: [
                (
                    [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node", "2"]
                    + ["--master_port", free_port(), SCRIPT, backend, results],
                    {},
                )
            ],
        )

    def test_rondorun(self):
        self.check(
            3,
            False,
            lambda backend, results: [
                ([RONDORUN, "--nproc-per-node", "3", "--pass-local-rank", "local-rank", sys.executable, SCRIPT, backend, results], {})
            ],
        )

    def test_what_stands_beside(self):
        """rpc, distributed autograd, DataParallel."""
        both = [
            self.computed(
                2,
                as_gloo,
                lambda backend, results: [
                    ([RONDORUN, "--nproc-per-node", "2", sys.executable, BESIDE, backend, results], {})
                ],
            )
            for as_gloo in (False, True)
        ]
        self.assert_same(*both)

    def test_what_users_run_on_top(self):
        """FSDP2, DTensor, device meshes, distributed checkpoints, pipelines, torch.compile."""
        for as_gloo in (False, True):
            self.computed(
                4,
                as_gloo,
                lambda backend, results: [
                    ([RONDORUN, "--nproc-per-node", "4", sys.executable, ON_TOP, backend, results], {})
                ],
            )

    def framework(self, name, as_gloo):
        package = "pytorch_lightning" if name == "lightning" else name
        if importlib.util.find_spec(package) is None:
            self.skipTest(f"{package} is not here; a site that tools/torch-env makes anew has it")
        self.computed(
            2,
            as_gloo,
            lambda backend, results: [
                ([RONDORUN, "--nproc-per-node", "2", sys.executable, FRAMEWORKS, name, backend, results], {})
            ],
        )

    def test_accelerate(self):
        self.framework("accelerate", True)  # it knows its backends by name

    def test_lightning(self):
        self.framework("lightning", False)

    def spawned(self, world, as_gloo, way, place, nodes=({},), start="fork"):
        def commands(backend, results):
            where = place(results) if callable(place) else place
            words = [backend, results, way, str(world), where, start]
            return [([sys.executable, SPAWNED] + words if start == "spawn" else words, more) for more in nodes]

        self.check(world, as_gloo, commands)

    def test_spawn_with_env(self):
        self.spawned(2, True, "env", free_port(), start="spawn")

    def test_spawn_with_tcp(self):
        self.spawned(3, False, "tcp", f"tcp://127.0.0.1:{free_port()}")

    def test_spawn_with_file(self):
        self.spawned(2, True, "file", lambda results: f"file://{results}/meeting")

    def test_spawn_with_store(self):
        self.spawned(2, False, "store", lambda results: f"{results}/store")

    def test_two_nodes_of_openpai(self):
        common = {"PAI_HOST_IP_worker_0": "127.0.0.1", "PAI_worker_0_SynPort_PORT": free_port()}
        self.spawned(2, False, "openpai", "", [{**common, "PAI_TASK_INDEX": node} for node in "01"])

    @classmethod
    def tearDownClass(cls):
        """Against one process. bfloat16 has eight bits of mantissa."""
        torch.set_num_threads(1)
        for world, computed in cls.firsts.items():
            for name, idiom in idioms.IDIOMS.items():
                rounding = 1e-2 if name == "convnet_mixed_precision" else 1e-5
                for value, expected in zip(computed[name].values(), idiom(world).values(), strict=True):
                    torch.testing.assert_close(value, expected, rtol=rounding, atol=rounding, msg=lambda m: f"{name}: {m}")


if __name__ == "__main__":
    RONDORUN = os.path.abspath(sys.argv[1])
    CONTROL = sys.argv[2] if len(sys.argv) > 2 else None
    del sys.argv[1:]
    unittest.main(verbosity=2)
