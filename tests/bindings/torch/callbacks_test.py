# SPDX-License-Identifier: Apache-2.0
"""What hangs on a future starts calls of the same group and waits for them: callbacks_test.py RONDORUN."""

import datetime
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import ranks


def trained(rank, world, hook, state, bucket_mb=25):
    """Steps of a model under `hook`: the weights, which are the same on every rank."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    parallel = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
    if hook:
        parallel.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(8):
        optimizer.zero_grad()
        parallel(torch.randn(16, 64, generator=generator)).square().mean().backward()
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    everybodys = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everybodys, weights)
    for theirs in everybodys:
        assert torch.equal(theirs, weights)
    return weights


def power_sgd(rank, world):
    """Two all_reduces in a chain behind the first, each waited for in a callback. A rank as high as the matrices' loses
    nothing."""
    plain = trained(rank, world, None, None)
    for warm_start in (True, False):
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=64, start_powerSGD_iter=2,
                                            min_compression_rate=0.1, warm_start=warm_start)  # fmt: skip
        assert torch.allclose(trained(rank, world, powerSGD_hook.powerSGD_hook, state), plain, atol=1e-4)
        assert state.iter == 8, state.iter  # its own path was taken


def power_sgd_by_buckets(rank, world):
    """Several buckets, each of which has gone through all three calls when the next one begins: a hook that waits for
    what it returns keeps the order of calls equal."""
    plain = trained(rank, world, None, None)
    seen = set()

    def in_turn(state, bucket):
        seen.add(bucket.index())
        future = powerSGD_hook.powerSGD_hook(state, bucket)
        future.wait()
        return future

    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=64, start_powerSGD_iter=2, min_compression_rate=0.1)
    assert torch.allclose(trained(rank, world, in_turn, state, 0.01), plain, atol=1e-4)
    assert len(seen) >= 3 and state.iter == 8, (seen, state.iter)


def waits_in_then(_, bucket):
    """The mean in two steps: the sum of halves, and in its callback once more."""
    world = dist.get_world_size()

    def again(future):
        half = future.value()[0]
        total = dist.all_reduce(half, async_op=True).get_future().wait()[0]
        return total.div_(world)

    half = bucket.buffer().div_(world)
    return dist.all_reduce(half, async_op=True).get_future().then(again)


def hand_made_hook(rank, world):
    plain = trained(rank, world, None, None)
    assert torch.allclose(trained(rank, world, waits_in_then, None), plain, atol=1e-5)
    # Callbacks that wait for nothing may stand behind calls of many buckets.
    assert torch.allclose(trained(rank, world, default_hooks.allreduce_hook, None, 0.01), plain, atol=1e-5)


def chains(rank, world):
    """A callback waits for a call that it has started, whose callback does the same, and so on; and for a call of its own
    that runs in its thread."""

    def deeper(level):
        def callback(future):
            x = future.value()[0] / world + 1
            if level == 0:
                dist.all_reduce(x)
                dist.barrier()
                return x
            return dist.all_reduce(x, async_op=True).get_future().then(deeper(level - 1)).wait()

        return callback

    for level in range(4):
        x = torch.zeros(3)
        got = dist.all_reduce(x, async_op=True).get_future().then(deeper(level)).wait()
        assert got.tolist() == [float(level + 1) * world] * 3, (level, got)


def waits_for_others(rank, world):
    """A callback waits for a call that another thread has started after its own, by the call and by its future, and for
    its own."""
    for by_future in (False, True):
        go = threading.Event()
        later = []

        def callback(_):
            assert first.wait()
            assert go.wait(30)
            waits = later[0].get_future().wait if by_future else later[0].wait
            return bool(waits())

        first = dist.all_reduce(torch.ones(1), async_op=True)
        # Not in this thread: it has to start the call that the callback waits for.
        hung = []
        hanging = threading.Thread(target=lambda: hung.append(first.get_future().then(callback)))
        hanging.start()
        later.append(dist.all_reduce(torch.ones(1), async_op=True))
        later[0].get_future()
        go.set()
        hanging.join()
        assert hung[0].wait() is True


def in_order(rank, world):
    """Callbacks of calls that are on their way run one after the other, in the order of the calls."""
    seen = []
    gate = torch.zeros(1)
    if rank == 0:
        time.sleep(0.3)  # so that the others hang theirs on calls that run; nobody waits for this
    calls = [dist.all_reduce(gate, async_op=True) for _ in range(20)]
    hung = [call.get_future().then(lambda _, i=i: seen.append(i)) for i, call in enumerate(calls)]
    [one.wait() for one in hung]
    assert rank == 0 or seen == list(range(20)), seen


def at_the_end(rank, world):
    """A group goes when its callbacks have run, and from within one."""
    for _ in range(5):
        group = dist.new_group(timeout=datetime.timedelta(seconds=30))
        seen = []

        def callback(_):
            dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future().wait()
            seen.append(1)

        works = [dist.all_reduce(torch.ones(1), group=group, async_op=True) for _ in range(3)]
        for work in works:
            work.get_future().then(callback).wait()
        dist.destroy_process_group(group)
        assert len(seen) == 3
        group = dist.new_group()
        ended = threading.Event()

        def end(_):
            dist.destroy_process_group(group)
            ended.set()

        hung = dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future()
        hung.add_done_callback(end)
        assert ended.wait(30)


CASES = (power_sgd, power_sgd_by_buckets, hand_made_hook, chains, waits_for_others, in_order, at_the_end)


def all_cases(rank, world):
    for case in CASES:
        case(rank, world)
        dist.barrier()


class Callbacks(ranks.ByRanks):
    def test_cases(self):
        for world in (2, 3):
            with self.subTest(world=world):
                self.run_ranks("all", world, timeout=90)


if __name__ == "__main__":
    ranks.main({"all": all_cases, **{case.__name__: case for case in CASES}})
