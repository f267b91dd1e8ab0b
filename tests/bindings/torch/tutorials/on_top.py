# SPDX-License-Identifier: Apache-2.0
"""What users of PyTorch run on top of a group, each compared with one process: on_top.py BACKEND RESULTS, on 4 ranks."""

import copy
import os
import shutil
import sys

import idioms
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def model_of(seed, width=16):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width))


def inputs_of(world, n=4, width=16):
    return torch.randn(world, n, width, generator=torch.Generator().manual_seed(8))


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def same(a, b, what):
    torch.testing.assert_close(whole(a), whole(b), rtol=1e-5, atol=1e-5, msg=lambda m: f"{what}: {m}")


def average(rank, world):
    """ReduceOp.AVG divides, also in reduce_scatter; pytorch#162338."""
    x = torch.arange(4.0 * world) + rank
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    same(x, torch.arange(4.0 * world) + (world - 1) / 2, "all_reduce")
    share = torch.empty(4)
    dist.reduce_scatter_tensor(share, torch.arange(4.0 * world) * (rank + 1), op=dist.ReduceOp.AVG)
    same(share, torch.arange(4.0 * world)[4 * rank : 4 * rank + 4] * (world + 1) / 2, "reduce_scatter")


def fsdp2(rank, world):
    model, alone = model_of(1), model_of(1)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, alone)]
    x = inputs_of(world)
    for _ in range(3):
        for m, mine, optimizer in zip((model, alone), (x[rank], x.flatten(0, 1)), optimizers):
            m(mine).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for (name, p), q in zip(model.named_parameters(), alone.parameters()):
        same(p, q, name)
    return model, alone


def distributed_checkpoint(rank, world, directory):
    """Saved in shares by all, loaded as a whole into one and again in shares."""
    model, alone = fsdp2(rank, world)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=directory)
    other = model_of(5)
    fully_shard(other)
    state = {"model": other.state_dict()}
    checkpoint.load(state, checkpoint_id=directory)
    other.load_state_dict(state["model"])
    for p, q in zip(other.parameters(), alone.parameters()):
        same(p, q, "loaded")


def tensor_parallel(rank, world):
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "tensor"))
    model, alone = model_of(2), model_of(2)
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    x = inputs_of(2)
    model(x[mesh["data"].get_local_rank()]).square().mean().backward()
    alone(x.flatten(0, 1)).square().mean().backward()
    for (name, p), q in zip(model.named_parameters(), alone.parameters()):
        same(p.grad, q.grad, name)


def distributed_tensors(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    a, b = (torch.randn(8, 8, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    rows = distribute_tensor(a, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])  # an all_to_all
    same(columns.redistribute(mesh, [Replicate()]).to_local(), a, "redistribute")
    same(columns @ distribute_tensor(b, mesh, [Shard(0)]), a @ b, "matmul")


def pipeline(rank, world, schedule, name):
    """A stage on each rank; activations go up and gradients come down as point-to-point messages."""
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(world)]
    for seed, layer in enumerate(layers):
        torch.manual_seed(seed)
        layer[0].reset_parameters()
    alone = nn.Sequential(*copy.deepcopy(layers))
    x, target = inputs_of(2, 8)

    def loss_of(y, t):
        return (y - t).square().mean()

    steps = schedule(PipelineStage(layers[rank], rank, world, torch.device("cpu")), 4, loss_fn=loss_of)
    steps.step(*([x] if rank == 0 else []), **({"target": target} if rank == world - 1 else {}))
    loss_of(alone(x), target).backward()
    for p, q in zip(layers[rank].parameters(), alone[rank].parameters()):
        same(p.grad, q.grad, name)


def compiled(rank, world):
    """Functional collectives in a compiled function; the backend "aot_eager" needs no compiler of C++."""

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    same(step(torch.full((5,), float(rank))), torch.full((5,), float(world * (world - 1) + 1)), "compiled")


def main():
    backend, results = sys.argv[1], sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    idioms.check_backend()
    directory = os.path.join(results, "checkpoint")
    average(rank, world)
    fsdp2(rank, world)
    distributed_checkpoint(rank, world, directory)
    tensor_parallel(rank, world)
    distributed_tensors(rank, world)
    pipeline(rank, world, ScheduleGPipe, "GPipe")
    pipeline(rank, world, Schedule1F1B, "1F1B")
    compiled(rank, world)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(directory)
    dist.destroy_process_group()
    torch.save({}, os.path.join(results, f"{rank}.pt"))


if __name__ == "__main__":
    main()
