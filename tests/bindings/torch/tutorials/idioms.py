# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's tutorials on DistributedDataParallel do, one function each. Every one runs in a process group of any
size, or in none (`world` 1), and returns what it has computed. Data are drawn from seeds, so that one process can do the
work of all ranks."""

import contextlib
import functools
import os
import re
import struct
import tempfile

import numpy
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Job:
    """The ranks whose work this process does: its own, or, without a group, those of a world one after another."""

    def __init__(self, world):
        self.alone = not dist.is_initialized()
        self.world = world if self.alone else dist.get_world_size()
        self.ranks = range(self.world) if self.alone else [dist.get_rank()]
        self.rank = 0 if self.alone else dist.get_rank()

    def wrap(self, model, **options):
        return model if self.alone else DistributedDataParallel(model, **options)

    def barrier(self):
        if not self.alone:
            dist.barrier()

    def gathered(self, value):
        """By rank; alone, `value` is a list by rank already."""
        if self.alone:
            return value
        values = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def loaders(self, dataset, batch, **options):
        return [
            DataLoader(dataset, batch_size=batch, sampler=DistributedSampler(dataset, self.world, rank, **options))
            for rank in self.ranks
        ]

    def step(self, model, optimizer, loss_of, batches):
        """The mean of the ranks' gradients is the gradient of the mean of their losses."""
        optimizer.zero_grad(set_to_none=True)
        losses = [loss_of(model, batch) for batch in batches]
        (sum(losses) / len(losses)).backward()
        optimizer.step()


def weights(model):
    model = model.module if hasattr(model, "module") else model
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def linear_data(n=44):
    random = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(n, 10, generator=random), torch.randn(n, 10, generator=random))


def mean_square(model, batch):
    return F.mse_loss(model(batch[0]), batch[1])


def ddp_with_sampler(world):
    """Three epochs over shares of the samples, set_epoch before each; the last batch is padded."""
    job = Job(world)
    torch.manual_seed(0)
    model = job.wrap(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loaders = job.loaders(linear_data(), 4, shuffle=True, drop_last=False)
    for epoch in range(3):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        for batches in zip(*loaders):
            job.step(model, optimizer, mean_square, batches)
    return weights(model)


class Branches(nn.Module):
    """Which of the two layers it uses depends on the input."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.never = nn.Linear(10, 10), nn.Linear(10, 10), nn.Linear(10, 10)

    def forward(self, x):
        return self.left(x) if x[0, 0] > 0 else self.right(x)


def find_unused_parameters(world):
    job = Job(world)
    torch.manual_seed(1)
    model = job.wrap(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batches in zip(*job.loaders(linear_data(), 2, shuffle=False)):
        job.step(model, optimizer, mean_square, batches)
    return weights(model)


def accumulated_gradients(world):
    """no_sync() for all micro-batches but the last."""
    job = Job(world)
    torch.manual_seed(2)
    model = job.wrap(nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for i, batches in enumerate(zip(*job.loaders(linear_data(), 2, shuffle=False))):
        last = i % 2 == 1
        with contextlib.nullcontext() if job.alone or last else model.no_sync():
            sum(mean_square(model, batch) for batch in batches).div(len(batches)).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return weights(model)


class Cifar10(Dataset):
    """A file of CIFAR-10's binary version: a label and 3 x 32 x 32 bytes each."""

    record = 1 + 3 * 32 * 32

    def __init__(self, path):
        raw = numpy.fromfile(path, numpy.uint8).reshape(-1, self.record)
        self.labels = torch.from_numpy(raw[:, 0].astype(numpy.int64))
        self.images = torch.from_numpy(raw[:, 1:].astype(numpy.float32)).view(-1, 3, 32, 32) / 255 - 0.5

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


def cifar_file(directory):
    path = os.path.join(directory, "data_batch_1.bin")
    random = numpy.random.default_rng(5)
    labels = random.integers(0, 10, 64, numpy.uint8)
    with open(path + ".part", "wb") as out:
        for label in labels:
            image = random.integers(0, 200, 3 * 1024, numpy.uint8) + numpy.uint8(5 * label)
            out.write(struct.pack("B", label) + image.tobytes())
    os.replace(path + ".part", path)
    return path


def zero_first(job, prepare):
    """torch_distributed_zero_first: rank 0 prepares, then the others find it prepared."""
    if job.rank != 0:
        dist.barrier()
    prepared = prepare()
    if job.rank == 0:
        job.barrier()
    return prepared


def shared_directory(job):
    names = [tempfile.mkdtemp(prefix="rondo-tutorials-") if job.rank == 0 else None]
    if not job.alone:
        dist.broadcast_object_list(names, src=0)
    return names[0]


def convnet(world, precision=None):
    job = Job(world)
    directory = shared_directory(job)
    path = zero_first(job, lambda: os.path.join(directory, "data_batch_1.bin") if job.rank else cifar_file(directory))
    loaders = job.loaders(Cifar10(path), 8, shuffle=True)
    torch.manual_seed(0)
    model = job.wrap(ConvNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", enabled=precision is not None)

    def loss_of(model, batch):
        with torch.autocast("cpu", precision, enabled=precision is not None):
            return F.cross_entropy(model(batch[0]), batch[1])

    for batches in zip(*loaders):
        optimizer.zero_grad()
        losses = [loss_of(model, batch) for batch in batches]
        scaler.scale(sum(losses) / len(losses)).backward()
        scaler.step(optimizer)
        scaler.update()
    job.barrier()
    if job.rank == 0:
        os.remove(path)
        os.rmdir(directory)
    return weights(model)


convnet_mixed_precision = functools.partial(convnet, precision=torch.bfloat16)


def accuracy_and_f1(world):
    """Accuracy by all_reduce of counts; F1 from the predictions of all ranks, by all_gather."""
    job = Job(world)
    random = torch.Generator().manual_seed(9)
    label, predicted = (torch.randint(0, 4, (48,), generator=random) for _ in range(2))
    mine = [torch.arange(rank, 48, job.world) for rank in job.ranks]
    score = torch.stack([(label[m] == predicted[m]).double().mean() for m in mine]).sum()
    both = [torch.stack([predicted[m], label[m]]) for m in mine]
    if not job.alone:
        dist.all_reduce(score, op=dist.ReduceOp.SUM)
        gathered = [torch.empty_like(both[0]) for _ in range(job.world)]
        dist.all_gather(gathered, both[0])
        at_root = [torch.empty_like(both[0]) for _ in range(job.world)] if job.rank == 0 else None
        dist.gather(both[0], at_root, dst=0)
        if job.rank == 0:
            assert all(torch.equal(a, b) for a, b in zip(gathered, at_root))
        both = gathered
    said, true = torch.cat(both, dim=1)
    f1 = []
    for kind in range(4):
        hits = ((said == kind) & (true == kind)).sum()
        f1.append(2 * hits.double() / ((said == kind).sum() + (true == kind).sum()))
    return {"accuracy": score / job.world, "f1": torch.stack(f1)}


def gathered_objects(world):
    job = Job(world)
    mine = [{"tensor": torch.ones(3) + r, "list": [1, 2, 3, r], "dict": {"rank": r}} for r in job.ranks]
    everybody = job.gathered(mine if job.alone else mine[0])
    assert [one["dict"]["rank"] for one in everybody] == list(range(job.world))
    return {"tensors": torch.stack([one["tensor"] for one in everybody])}


def checkpoint(world):
    """Rank 0 saves, a barrier, all load; one with the prefix of DDP, one without."""
    job = Job(world)
    torch.manual_seed(job.rank)
    model = job.wrap(nn.Linear(10, 10))
    directory = shared_directory(job)
    path = os.path.join(directory, "latest_model.pth")
    if job.rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": None, "epoch": 3}, path)
    job.barrier()
    loaded = torch.load(path, map_location={"cuda:0": f"cuda:{job.rank}"}, weights_only=True)
    other = job.wrap(nn.Linear(10, 10))
    other.load_state_dict(loaded["model"])
    plain = nn.Linear(10, 10)
    plain.load_state_dict({re.sub(r"^module\.", "", name): value for name, value in loaded["model"].items()})
    job.barrier()
    if job.rank == 0:
        os.remove(path)
        os.rmdir(directory)
    assert all(torch.equal(a, b) for a, b in zip(weights(plain).values(), weights(other).values()))
    return weights(other)


def workers_of_the_loader(world):
    """DataLoader(num_workers=2): they are forked from ranks that have a group."""
    job = Job(world)
    torch.manual_seed(4)
    model = job.wrap(nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    workers = {} if job.alone else {"num_workers": 2, "multiprocessing_context": "fork"}  # spawned ranks spawn them
    data = linear_data()
    loaders = [DataLoader(data, 4, sampler=DistributedSampler(data, job.world, r), **workers) for r in job.ranks]
    for _ in range(2):
        for batches in zip(*loaders):
            job.step(model, optimizer, mean_square, batches)
    return weights(model)


IDIOMS = {
    each.__name__ if hasattr(each, "__name__") else "convnet_mixed_precision": each
    for each in (
        ddp_with_sampler,
        find_unused_parameters,
        accumulated_gradients,
        convnet,
        convnet_mixed_precision,
        accuracy_and_f1,
        gathered_objects,
        checkpoint,
        workers_of_the_loader,
    )
}


def check_backend():
    """Whether "gloo" is Rondo: with EXPECT_RONDO the group's backend is ours."""
    if "EXPECT_RONDO" in os.environ:
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        assert "Rondo" in type(backend).__name__, f"this is {type(backend)}"


def run_all(world, results):
    """Writes what this rank has computed to RESULTS/<rank>.pt: one file that is there as a whole."""
    computed = {name: idiom(world) for name, idiom in IDIOMS.items()}
    rank = dist.get_rank() if dist.is_initialized() else 0
    path = os.path.join(results, f"{rank}.pt")
    torch.save(computed, path + ".part")
    os.replace(path + ".part", path)
