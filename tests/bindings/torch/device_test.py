# SPDX-License-Identifier: Apache-2.0
"""Tensors on a device: device_test.py RONDORUN. The device is a simulated one, which PyTorch knows as "rondosim"; what the
backend asks of PyTorch (streams, events, futures) is the same as on CUDA."""

import copy
import itertools
import os
import signal

import torch
import torch.distributed as dist
from ranks import ByRanks, main
from torch.distributed.device_mesh import init_device_mesh


class DeviceModule:
    """What PyTorch wants to find as torch.rondosim."""

    _lazy_init = staticmethod(lambda: None)
    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)


torch.utils.rename_privateuse1_backend("rondosim")
torch._register_device_module("rondosim", DeviceModule)
import rondo_sim_device  # noqa: E402, the name comes first

SIM = torch.device("rondosim:0")


def on_sim(tensor):
    return tensor.to(SIM)


def check(tensor, expected):
    got = tensor.to("cpu")
    assert torch.equal(got, expected), (got, expected)


def calls(rank, world):
    """Every collective, synchronous and not, on the default stream and on another, of tensors in one piece and not."""
    total = sum(range(world))
    for asynchronous, other, cut in itertools.product((False, True), repeat=3):
        rondo_sim_device.use_stream(other)

        def done(work):
            if asynchronous:
                work.wait()

        def made(*values):
            whole = on_sim(torch.tensor([values, values]).t().contiguous() if cut else torch.tensor(values))
            return whole[:, 0] if cut else whole

        x = made(1.0 + rank, 2.0)
        done(dist.all_reduce(x, async_op=asynchronous))
        check(x, torch.tensor([world + total, 2.0 * world]))
        done(dist.broadcast(y := made(float(rank)), src=world - 1, async_op=asynchronous))
        check(y, torch.tensor([world - 1.0]))
        done(dist.reduce(y := made(1.0, rank), dst=0, async_op=asynchronous))
        if rank == 0:
            check(y, torch.tensor([world, total]).float())
        outs = [made(0, 0) for _ in range(world)]
        done(dist.all_gather(outs, made(rank, 7), async_op=asynchronous))
        for r, out in enumerate(outs):
            check(out, torch.tensor([r, 7]))
        out = made(0.0)
        done(dist.reduce_scatter(out, [made(float(r + rank)) for r in range(world)], async_op=asynchronous))
        check(out, torch.tensor([float(rank * world + total)]))
        whole = on_sim(torch.zeros(2 * world, dtype=torch.int64))
        done(dist.all_gather_into_tensor(whole, made(rank, rank), async_op=asynchronous))
        check(whole, torch.arange(world).repeat_interleave(2))
        out = on_sim(torch.zeros(world, dtype=torch.int64))
        done(dist.all_to_all_single(out, on_sim(10 * rank + torch.arange(world)), async_op=asynchronous))
        check(out, 10 * torch.arange(world) + rank)
        gathered = [made(0) for _ in range(world)] if rank == 0 else None
        done(dist.gather(made(rank), gathered, dst=0, async_op=asynchronous))
        for r, out in enumerate(gathered or []):
            check(out, torch.tensor([r]))
        done(dist.scatter(out := made(0), [made(r) for r in range(world)] if rank == 0 else None, async_op=asynchronous))
        check(out, torch.tensor([rank]))
        dist.all_reduce(nothing := on_sim(torch.empty(0)))
        assert nothing.numel() == 0
    rondo_sim_device.use_stream(False)
    dist.barrier()


def messages(rank, world):
    """Around a ring, one by one and in a batch; calls that are coalesced."""
    left, right = (rank - 1) % world, (rank + 1) % world
    mine, got = on_sim(torch.tensor([rank])), on_sim(torch.tensor([-1]))
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, got, left)]):
        work.wait()
    check(got, torch.tensor([left]))
    if rank == 0:
        dist.send(on_sim(torch.tensor([5.0])), 1)
    if rank == 1:
        assert dist.recv(one := on_sim(torch.zeros(1)), 0) == 0
        check(one, torch.tensor([5.0]))
    parts = [on_sim(torch.tensor([float(i + rank)])) for i in range(3)]
    with dist._coalescing_manager(device=SIM, async_ops=True) as all_of_them:
        for part in parts:
            dist.all_reduce(part, async_op=True)
    all_of_them.wait()
    for i, part in enumerate(parts):
        check(part, torch.tensor([float(i * world + sum(range(world)))]))


def futures(rank, world):
    """What hangs on a future sees the result, and may call the group; a work says when it is done."""
    x = on_sim(torch.tensor([1.0]))
    work = dist.all_reduce(x, async_op=True)

    def again(future):
        (value,) = future.value()
        dist.all_reduce(value)
        return value

    check(work.get_future().then(again).wait(), torch.tensor([float(world * world)]))
    while not work.is_completed():
        pass
    assert work.is_success() and work.get_future().done()
    cpu = torch.tensor([rank])  # the host's calls are a communicator's of their own
    dist.all_reduce(cpu)
    assert cpu.item() == sum(range(world))
    half = dist.new_group(list(range(world // 2)))
    if rank < world // 2:
        dist.all_reduce(y := on_sim(torch.tensor([1])), group=half)
        check(y, torch.tensor([world // 2]))


def training(rank, world):
    """DistributedDataParallel's gradients are those of the same model on the CPU."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    same = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(model).to(SIM))
    model = torch.nn.parallel.DistributedDataParallel(model)
    data = torch.randn(world, 16, 4)[rank]
    for _ in range(2):
        model(data).square().sum().backward()
        same(data.to(SIM)).square().sum().backward()
    for one, other in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.allclose(other.grad.to("cpu"), one.grad), (one.grad, other.grad)


def refusals(rank, world):
    """What cannot be done is refused by name, and the group goes on."""

    def refused(words, call):
        try:
            call()
        except Exception as error:  # noqa: BLE001, any kind
            assert words in str(error), error
        else:
            raise AssertionError(f"no error of {words}")

    sim, cpu = on_sim(torch.zeros(world)), torch.zeros(world)
    refused("on cpu and on rondosim:0", lambda: dist.all_to_all_single(sim, cpu))
    fresh = dist.new_group()._get_backend(SIM)
    refused("a group on meta:0", lambda: fresh.eager_connect_single_device(torch.device("meta:0")))
    refused("all_reduce on meta", lambda: fresh.allreduce([torch.zeros(1, device="meta")], dist.AllreduceOptions()))
    refused("tags", lambda: dist.send(sim, (rank + 1) % world, tag=3))
    dist.all_reduce(sim)
    dist.monitored_barrier()


def lost(rank, world):
    """The last rank is killed between two calls."""
    dist.all_reduce(x := on_sim(torch.tensor([1.0])))
    check(x, torch.tensor([float(world)]))
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.all_reduce(x)
    except dist.DistBackendError as error:
        assert f"rank {world - 1}" in str(error), error
        print("named", flush=True)
    os._exit(0)


def everything(rank, world):
    """One job for all that ends well: importing PyTorch takes longer than the calls."""
    for case in (calls, messages, futures, training, refusals):
        case(rank, world)


def as_nccl(rank, world):
    """What a script for GPUs asks for."""
    assert type(dist.group.WORLD._get_backend(SIM)).__name__ == "RondoBackend"
    calls(rank, world)


as_nccl.backend = "cpu:gloo,rondosim:nccl"


def bound(rank, world):
    """Groups of some ranks, where the default group is bound to a device: ranks outside are asked, too."""

    def counts(group, members):
        dist.all_reduce(x := on_sim(torch.tensor([1.0])), group=group)
        check(x, torch.tensor([float(members)]))

    half = dist.new_group([0, 1])
    if rank < 2:
        counts(half, 2)
    counts(dist.new_subgroups(2)[0], 2)
    counts(dist.split_group(split_ranks=[[0, 2], [1, 3]]), 2)
    counts(dist.new_group(list(range(world)), device_id=SIM), world)
    mesh = init_device_mesh("rondosim", (2, world // 2), mesh_dim_names=("data", "tensor"))
    counts(mesh.get_group("tensor"), 2)
    counts(mesh["data", "tensor"]._flatten().get_group(), world)
    dist.barrier()
    dist.barrier(device_ids=[0])
    dist.broadcast_object_list(objects := [rank], 1)
    assert objects == [1], objects


bound.device = SIM


class Devices(ByRanks):
    def test_calls_of_one_rank(self):
        self.run_ranks("calls", 1)

    def test_calls_messages_futures_training_and_refusals(self):
        self.run_ranks("everything", 4)

    def test_in_the_place_of_gloo_and_nccl(self):
        self.run_ranks("as_nccl", 2, env={"RONDO_TORCH_AS": "gloo,nccl"})

    def test_groups_of_ranks_bound_to_a_device(self):
        self.run_ranks("bound", 4)

    def test_a_lost_rank_is_named(self):
        printed = self.run_ranks("lost", 3, expected=137, env={"RONDO_FAILURE_DIR": "none"})
        self.assertEqual(printed.count("named"), 2, printed)


if __name__ == "__main__":
    main({case.__name__: case for case in (calls, everything, as_nccl, bound, lost)}, backend="cpu:rondo,rondosim:rondo")
