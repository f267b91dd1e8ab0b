# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's DistributedDataParallel over Gloo gives for the cases of beside_python_test.cpp, two ranks.

python_ddp.py FILE.json    needs a torch that Python can import; tools/torch-check runs it with a current one

Models, inputs and options are those of the C++ side, made from formulas. FILE gets, by case: the losses of each rank
and step, and rank 0's parameters and buffers after the last step, or each rank's where they are meant to differ.
"""
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
STEPS = 6


def noise(shape, seed, dtype=torch.float64):
    count = 1
    for length in shape:
        count *= length
    places = torch.arange(count, dtype=torch.float64)
    return torch.sin(places * 12.9898 + seed * 78.233).reshape(shape).to(dtype)


def fill(module, seed):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(noise(parameter.shape, seed))
            seed += 1


def batch(rank, step):
    return noise((5, 6), 100 + 10 * step + rank)


def goal(x):
    return torch.tanh(x[:, 0:3] * 2)


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def regression(net, rank, step):
    x = batch(rank, step).to(next(net.parameters()).dtype)
    return F.mse_loss(net(x), goal(x))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(6, 3)
        self.right = nn.Linear(6, 3)
        self.nobody = nn.Linear(6, 3)

    def forward(self, x, left):
        return self.left(x) if left else self.right(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 6))

    def forward(self, x):
        return torch.tanh(x.mm(self.weight)).mm(self.weight.t())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(6, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.cells(x.unsqueeze(1))[0].squeeze(1))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, words):
        return self.head(self.table(words))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = x.unsqueeze(1)
        return self.head(self.norm(x + self.attention(x, x, x)[0])).squeeze(1)


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(x) * self.scale


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))


def sgd(net):
    return torch.optim.SGD(net.parameters(), 0.05)


def heavy(net):
    return torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=0.01, nesterov=True)


def branches(net, rank, step):
    x = batch(rank, step)
    return F.mse_loss(net(x, (rank + step) % 2 == 0), goal(x))


def one_branch(net, rank, step):
    x = batch(rank, step)
    return F.mse_loss(net(x, True), goal(x))


def words(net, rank, step):
    return net(torch.arange(5) * 3 % (7 + rank) + step % 2).pow(2).mean()


def images(net, rank, step):
    return F.cross_entropy(net(noise((4, 1, 6, 6), 100 + 10 * step + rank)), (torch.arange(4) + step) % 3)


def shift(net):  # as a checkpoint that is loaded between two steps
    state = {name: value * 0.5 + 0.25 for name, value in net.state_dict().items()}
    net.load_state_dict(state)


def wire():
    return None, default_hooks.bf16_compress_hook


def alone():  # each rank by itself from step 2 on
    return PostLocalSGDState(None, dist.new_subgroups(group_size=1)[0], 2), post_localSGD_hook


def low_rank(**options):
    return lambda: (PowerSGDState(None, start_powerSGD_iter=2, **options), powerSGD_hook)


# name: model, and what is not as in the first case
CASES = {
    "sgd": dict(model=mlp),
    "momentum": dict(model=mlp, optimizer=heavy),
    "adam": dict(model=mlp, optimizer=lambda net: torch.optim.Adam(net.parameters(), 0.01)),
    "adamw": dict(model=mlp, optimizer=lambda net: torch.optim.AdamW(net.parameters(), 0.01)),
    "f32": dict(model=mlp, dtype=torch.float32),
    "small buckets": dict(model=mlp, options=dict(bucket_cap_mb=0.0001)),
    "zeroed gradients": dict(model=mlp, to_none=False),
    "accumulation": dict(model=mlp, micro=3),
    "clipping": dict(model=mlp, clip=0.1),
    "reload": dict(model=mlp, optimizer=heavy, between=shift),
    "unused": dict(model=Branches, loss=branches, options=dict(find_unused_parameters=True)),
    "tied": dict(model=Tied, loss=lambda net, rank, step: net(batch(rank, step)).pow(2).mean()),
    "frozen": dict(model=mlp, frozen=("0.weight",)),
    "batch norm": dict(model=lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))),
    "convolutions": dict(model=convolutions, loss=images),
    "recurrent": dict(model=Recurrent),
    "words": dict(model=Words, loss=words),
    "attention": dict(model=Attending),
    "scalar": dict(model=Scalar),
    "16 bits on the wire": dict(model=mlp, dtype=torch.float32, hook=wire),
    "uneven": dict(model=mlp, uneven=True),
    "ignored": dict(model=mlp, ignored=("0.weight", "2.bias")),
    "static graph": dict(model=Branches, loss=one_branch, options=dict(static_graph=True)),
    "local steps": dict(model=mlp, hook=alone, averager=lambda: PeriodicModelAverager(period=2, warmup_steps=2)),
    "rank 1": dict(model=mlp, hook=low_rank(min_compression_rate=1)),
    "rank 1, f32": dict(model=mlp, dtype=torch.float32, hook=low_rank(min_compression_rate=1, random_seed=3)),
    "rank 1, epsilon": dict(model=mlp, hook=low_rank(min_compression_rate=1, orthogonalization_epsilon=1e-3)),
    "rank 2": dict(
        model=convolutions, loss=images, hook=low_rank(matrix_approximation_rank=2, min_compression_rate=0.5)),
    "rank 2, cold": dict(
        model=mlp, hook=low_rank(matrix_approximation_rank=2, min_compression_rate=0.5, warm_start=False)),
    "rank 3, no feedback": dict(
        model=mlp, hook=low_rank(matrix_approximation_rank=3, min_compression_rate=0.3, use_error_feedback=False)),
}


def steps(case, net, wrapper, rank):
    optimizer = case.get("optimizer", sgd)(net)
    averager = case["averager"]() if "averager" in case else None
    loss_of = case.get("loss", regression)
    losses = []
    count = STEPS - 2 * rank if case.get("uneven") else STEPS
    for step in range(count):
        if step == STEPS // 2 and "between" in case:
            case["between"](net)
        optimizer.zero_grad(set_to_none=case.get("to_none", True))
        micro = case.get("micro", 1)
        for part in range(micro - 1):
            with wrapper.no_sync():
                loss_of(wrapper, rank, step * micro + part).backward()
        loss = loss_of(wrapper, rank, step * micro + micro - 1)
        loss.backward()
        if "clip" in case:
            nn.utils.clip_grad_norm_(net.parameters(), case["clip"])
        optimizer.step()
        if averager:
            averager.average_parameters(net.parameters())
        losses.append(loss.item())
    return losses


def run(case, rank):
    net = case["model"]()
    net.to(case.get("dtype", torch.float64))
    fill(net, rank)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name not in case.get("frozen", ()))
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, case.get("ignored", ()))
    wrapper = DistributedDataParallel(net, **case.get("options", {}))
    if "hook" in case:
        wrapper.register_comm_hook(*case["hook"]())
    if case.get("uneven"):
        with wrapper.join():
            losses = steps(case, net, wrapper, rank)
    else:
        losses = steps(case, net, wrapper, rank)
    flat = [value.detach().double().reshape(-1) for value in [*net.parameters(), *net.buffers()]]
    everybody = [None] * RANKS
    dist.all_gather_object(everybody, (losses, torch.cat(flat).tolist()))
    all_losses, states = zip(*everybody)
    return {"losses": all_losses, "state": states[0]} | ({"states": states} if case.keys() & {"ignored", "averager"} else {})


def rank_main(rank, meeting, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=RANKS)
    results = {name: run(case, rank) for name, case in CASES.items()}
    if rank == 0:
        with open(path, "w", encoding="utf-8") as file:
            lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(result)}" for name, result in results.items())
            file.write(f'{{"torch": "{torch.__version__}", "cases": {{\n{lines}\n}}}}\n')
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python_ddp.py FILE.json")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (os.path.join(folder, "meeting"), sys.argv[1]), nprocs=RANKS)
