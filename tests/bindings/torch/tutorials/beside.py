# SPDX-License-Identifier: Apache-2.0
"""What the tutorials show beside DistributedDataParallel, in ranks that have a group, too: beside.py BACKEND RESULTS.
torch.distributed.rpc moves its own data (TensorPipe); a group of the backend is there at the same time."""

import os
import sys

import idioms
import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.nn as nn
from torch.distributed.optim import DistributedOptimizer


def add(a, b):
    return a + b


class Half(nn.Module):
    """One half of a model; the other one lives in another rank."""

    def __init__(self, seed):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        numbers = torch.Generator().manual_seed(seed)  # remote calls run in other threads, which share torch's own
        for p in self.parameters():
            nn.init.uniform_(p, -0.5, 0.5, generator=numbers)

    def forward(self, x):
        return torch.tanh(self.layer(x))

    def parameter_references(self):
        return [rpc.RRef(p) for p in self.parameters()]


def remote_calls(rank, world):
    """A call, a remote object and its local value."""
    peer = f"worker{(rank + 1) % world}"
    assert torch.equal(rpc.rpc_sync(peer, add, args=(torch.ones(3), rank)), torch.ones(3) + rank)
    reference = rpc.remote(peer, add, args=(torch.full((2,), 2.0), 3))
    assert torch.equal(reference.to_here(), torch.full((2,), 5.0))


def model_parallel(rank, world):
    """Distributed autograd through two halves, and a distributed optimizer; as in one process."""
    peer = f"worker{(rank + 1) % world}"
    first, second = Half(1), rpc.remote(peer, Half, args=(2,))
    parameters = first.parameter_references() + second.rpc_sync().parameter_references()
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.1)
    x = torch.linspace(-1, 1, 8).view(2, 4)
    with dist_autograd.context() as context:
        loss = second.rpc_sync().forward(first(x)).square().sum()
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
    after = second.rpc_sync().forward(first(x)).square().sum()

    alone = nn.Sequential(Half(1), Half(2))
    alone(x).square().sum().backward()
    with torch.no_grad():
        for p in alone.parameters():
            p -= 0.1 * p.grad
    torch.testing.assert_close(after, alone(x).square().sum())
    return {"after": after.detach()}


def data_parallel():
    """Without a GPU nn.DataParallel runs its module as it is."""
    torch.manual_seed(3)
    model = nn.Linear(4, 4)
    x = torch.ones(6, 4)
    assert torch.equal(nn.DataParallel(model)(x), model(x))


def main():
    backend, results = sys.argv[1], sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    idioms.check_backend()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)
    data_parallel()
    remote_calls(rank, world)
    computed = model_parallel(rank, world)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    assert total.item() == world * (world - 1) / 2
    rpc.shutdown()
    computed["weights"] = torch.cat([w.flatten() for w in idioms.ddp_with_sampler(world).values()])
    dist.destroy_process_group()
    torch.save({"beside": computed}, os.path.join(results, f"{rank}.pt"))


if __name__ == "__main__":
    main()
