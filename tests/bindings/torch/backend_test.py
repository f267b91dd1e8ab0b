# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own tests do not ask of the backend: backend_test.py RONDORUN. With a case's name behind it, it is one of
the ranks."""

import datetime
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import torch
import torch.distributed as dist

RONDORUN = None


def tensors():
    """Dense, cut out, transposed, one element, none."""
    yield torch.arange(12.0)
    yield torch.arange(24.0).view(4, 6)[:, ::2]
    yield torch.arange(12.0).view(3, 4).t()
    yield torch.tensor(5.0)
    yield torch.empty(0)


def types(rank, world):
    """Every type that moves, and sums of those that add up."""
    for dtype in (torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16):  # fmt: skip
        mine = torch.tensor([rank % 2, 1, 0]).to(dtype)
        got = [torch.zeros(3, dtype=torch.uint8).to(dtype) for _ in range(world)]
        dist.all_gather(got, mine)
        for r, one in enumerate(got):
            assert torch.equal(one.view(torch.uint8), torch.tensor([r % 2, 1, 0]).to(dtype).view(torch.uint8)), dtype
        if dtype in (torch.int16, torch.uint16):
            try:
                dist.all_reduce(mine)
            except TypeError as error:
                assert "all_reduce" in str(error), error
            else:
                raise AssertionError(f"{dtype} was added up")
            continue
        dist.all_reduce(mine)
        ones = sum(r % 2 for r in range(world))
        expected = torch.tensor([ones > 0, True, False]) if dtype == torch.bool else torch.tensor([ones, world, 0]).to(dtype)
        assert torch.equal(mine.to(torch.complex128), expected.to(torch.complex128)), (dtype, mine)
    flag = torch.tensor([rank == 0, True])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    assert flag.tolist() == [world == 1, True]


def views(rank, world):
    """Views, transposed, scattered and empty tensors, synchronous and not."""
    for asynchronous, _ in itertools.product((False, True), range(2)):

        def done(work):
            if asynchronous:
                work.wait()

        for t in tensors():
            base = t.clone()
            x = (t.as_strided(t.size(), t.stride()) + rank).as_strided(t.size(), t.contiguous().stride())
            x = t
            t += rank
            done(dist.all_reduce(x, async_op=asynchronous))
            assert torch.equal(x, base * world + sum(range(world)))
            y = base + rank
            done(dist.broadcast(y, src=world - 1, async_op=asynchronous))
            assert torch.equal(y, base + world - 1)
            whole = torch.zeros((world,) + base.shape)
            outs = [whole[world - 1 - r] for r in range(world)]  # in the wrong order: no one piece
            done(dist.all_gather(outs, base + rank, async_op=asynchronous))
            for r in range(world):
                assert torch.equal(outs[r], base + r)
            mine = torch.empty_like(base.t() if base.dim() == 2 else base).t() if base.dim() == 2 else torch.empty_like(base)
            done(dist.reduce_scatter(mine, [base + rank + r for r in range(world)], async_op=asynchronous))
            assert torch.equal(mine, (base + rank) * world + sum(range(world)))
            outs = [torch.empty_like(base) for _ in range(world)]
            done(dist.all_to_all(outs, [base + 10 * rank + r for r in range(world)], async_op=asynchronous))
            for r in range(world):
                assert torch.equal(outs[r], base + 10 * r + rank)


def uneven(rank, world):
    """Blocks of different lengths."""
    outs = [torch.empty(r) for r in range(world)]
    dist.all_gather(outs, torch.full((rank,), float(rank)))
    assert [o.tolist() for o in outs] == [[float(r)] * r for r in range(world)]
    mine = torch.empty(rank + 1)
    dist.reduce_scatter(mine, [torch.full((r + 1,), float(rank)) for r in range(world)])
    assert mine.tolist() == [float(sum(range(world)))] * (rank + 1)
    splits = [(rank + r) % 3 for r in range(world)]
    out = torch.empty(sum(splits), 2)
    dist.all_to_all_single(out, torch.full((sum(splits), 2), float(rank)), splits, splits)
    assert out[:, 0].tolist() == [float(r) for r in range(world) for _ in range(splits[r])]


def messages(rank, world):
    """Both ways at once, of any length, by tags in another order, from anyone; a collective in between."""
    peer = (rank + 1) % world, (rank - 1) % world
    for n in (1, 3_000_000):
        sent, got = torch.full((n,), float(rank)), torch.empty(n)
        early = dist.irecv(got, peer[1], tag=9)
        dist.barrier()
        works = [dist.isend(sent, peer[0], tag=9), early]
        for work in works:
            work.wait()
        assert got[-1] == peer[1]
    first, second = torch.zeros(1), torch.zeros(1)
    works = [dist.isend(torch.ones(1), peer[0], tag=1), dist.isend(torch.ones(1) * 2, peer[0], tag=2)]
    dist.recv(second, peer[1], tag=2)
    dist.recv(first, peer[1], tag=1)
    assert (first.item(), second.item()) == (1, 2)
    [work.wait() for work in works]
    out = torch.zeros(1)
    ops = [dist.P2POp(dist.isend, torch.ones(1) * rank, peer[0]), dist.P2POp(dist.irecv, out, peer[1])]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert out.item() == peer[1]
    if rank == 0:
        seen = {dist.recv(torch.empty(1)) for _ in range(world - 1)}
        assert seen == set(range(1, world))
    else:
        dist.send(torch.ones(1), 0)


def futures(rank, world):
    """What hangs on a call runs, and may start others."""
    x = torch.ones(4)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * world] * 4
    later, has_started = [], threading.Event()
    y = torch.ones(2)

    def start_another(_):
        later.append(dist.all_reduce(y, async_op=True))
        has_started.set()

    dist.all_reduce(x, async_op=True).get_future().then(start_another)
    assert has_started.wait(60)  # the order of calls is the same on all ranks
    everybody = torch.tensor([1.0])
    dist.all_reduce(everybody)
    later[0].wait()
    assert y.tolist() == [float(world)] * 2


def threads(rank, world):
    """Two threads of a process, each with a group of its own, and one more that uses the first's."""
    groups = [dist.new_group() for _ in range(2)]
    wrong = []

    def work(group):
        for i in range(200):
            x = torch.full((1 + i % 50,), float(rank))
            dist.all_reduce(x, group=group, async_op=i % 3 == 0)
            dist.barrier(group=group)
            if x[0] != sum(range(world)):
                wrong.append(x)

    running = [threading.Thread(target=work, args=(group,)) for group in groups]
    [t.start() for t in running]
    [t.join() for t in running]
    assert not wrong


def meshes(rank, world):
    """Dozens of groups, used and given back."""
    for i in range(20):
        group = dist.new_group(list(range(0, world, 2)) if i % 2 else None)
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            x = torch.ones(3)
            dist.all_reduce(x, group=group)
            assert x[0] == dist.get_world_size(group)
            dist.destroy_process_group(group)
        dist.barrier()


def said(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return type(error).__name__, str(error)
    return "nothing", ""


def mismatches(rank, world):
    """Another shape, type or call: every rank is told by whom and in what."""
    name, text = said(lambda: dist.all_reduce(torch.ones(2 + (rank == 1))))
    assert name == "DistBackendError" and "count" in text and "rank 1" in text, (name, text)


def late(rank, world):
    """Of a rank that never comes, at the deadline of the call; out of wait(), too."""
    group = dist.new_group(timeout=datetime.timedelta(milliseconds=1500))
    if rank == 1:
        time.sleep(5)  # the rank that is late; nobody waits for this
        return
    begun = time.monotonic()
    name, text = said(lambda: dist.all_reduce(torch.ones(1), group=group, async_op=True).wait())
    assert name == "DistBackendError" and "rank 1" in text and 1.4 < time.monotonic() - begun < 4, (name, text)


def killed(rank, world):
    """Rank 1 is killed while the others wait for it, with forked children of everybody alive."""
    for _ in range(2):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    name, text = said(lambda: dist.all_reduce(torch.ones(1)))
    print(f"told {name}: {text} after {time.monotonic() - begun:.3f} s", flush=True)
    time.sleep(0.2)  # so that the launcher does not cut the line short


CASES = (types, views, uneven, messages, futures, threads, meshes, mismatches, late)


class Backend(unittest.TestCase):
    def run_ranks(self, name, world, expected=0):
        ended = subprocess.run(
            [RONDORUN, "--nproc-per-node", str(world), sys.executable, __file__, RONDORUN, name],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        self.assertEqual(ended.returncode, expected, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def test_cases(self):
        for world in (1, 2, 3):
            with self.subTest(world=world):
                self.run_ranks(f"several{world}", world)

    def test_a_killed_rank_is_named_at_once(self):
        text = self.run_ranks("killed", 3, 137)
        told = [line for line in text.splitlines() if "told " in line]
        self.assertEqual(len(told), 2, text)
        for line in told:
            self.assertIn("told DistBackendError", line)
            self.assertIn("rank 1", line)
            self.assertLess(float(line.split(" after ")[1].split()[0]), 0.3)  # as in failures_test.py

    def test_without_a_module_for_the_version(self):
        code = "import torch; torch.__version__ = '9.8.7'; import rondo.torch as r; r.register()"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        self.assertIn("no module for torch 9.8.7", ended.stderr)
        wrong = subprocess.run([sys.executable, "-c", "import torch"], env={**os.environ, "RONDO_TORCH_AS": "gloo, mpi"},
                               capture_output=True, text=True, check=False)  # fmt: skip
        self.assertIn("RONDO_TORCH_AS=gloo, mpi: it may name gloo and nccl", wrong.stderr)


def main():
    if len(sys.argv) > 2:
        torch.set_num_threads(1)
        dist.init_process_group("rondo")
        rank, world = dist.get_rank(), dist.get_world_size()
        if sys.argv[2] == "killed":
            killed(rank, world)
            os._exit(0)
        for case in CASES:
            if world == 1 and case in (messages, mismatches, late):
                continue
            if case is mismatches:
                group = dist.new_group()
                dist.barrier(group)
                continue
            case(rank, world)
        if world > 1:
            mismatches(rank, world)
        dist.destroy_process_group()
        return
    del sys.argv[1:]
    unittest.main(verbosity=2)


if __name__ == "__main__":
    RONDORUN = os.path.abspath(sys.argv[1])
    main()
