#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the .safetensors files beside this script: trainings of PyTorch 2.15 in the middle, by safetensors 0.8, one for
each optimizer, and a model with tied tensors. checkpoint_test.cpp goes on from them, and writes the same bytes.

    pip install torch==2.15.0 safetensors==0.8.0 numpy
    tests/torch/data/make_checkpoints.py

`optimizer_tensors` and `load_optimizer` are all that Python needs for files of rondo::save.
"""

import pathlib

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

FOLDER = pathlib.Path(__file__).parent
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
PREFIX = "optimizer."


def optimizer_tensors(model, optimizer):
    """As tensors: numbers without a dimension; what is off or not set is left out."""
    flat = get_optimizer_state_dict(model, optimizer, options=FLAT)
    tensors = {}
    for key, value in flat.items():
        if isinstance(value, (float, tuple)) or (isinstance(value, int) and not isinstance(value, bool)):
            value = torch.tensor(value, dtype=torch.float64)
        elif value is True:
            value = torch.tensor(True)
        if isinstance(value, torch.Tensor):
            tensors[PREFIX + key] = value.contiguous()
    return tensors


def load_optimizer(model, optimizer, tensors):
    """Into an optimizer of the same kind and groups."""
    flat = get_optimizer_state_dict(model, optimizer, options=FLAT)
    for key, value in tensors.items():
        if key.startswith(PREFIX):
            setting = ".param_groups." in key
            flat[key.removeprefix(PREFIX)] = value.tolist() if setting else value
    set_optimizer_state_dict(model, optimizer, flat, options=FLAT)


def noise(*shape, seed):
    """As tests/torch/models.hpp has it."""
    places = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return torch.sin(places * 12.9898 + seed * 78.233).reshape(shape)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 3)
        self.scale = torch.nn.Parameter(torch.tensor(1.5), requires_grad=False)
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.double()
        with torch.no_grad():
            for seed, parameter in enumerate(p for p in self.parameters() if p.requires_grad):
                parameter.copy_(noise(*parameter.shape, seed=seed))

    def forward(self, x):
        return self.last(self.norm(torch.tanh(self.first(x)))) * self.scale * self.mask


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.decode = torch.nn.Linear(4, 5, bias=False)
        self.decode.weight = self.embed.weight
        with torch.no_grad():
            self.embed.weight.copy_(noise(5, 4, seed=3))


OPTIMIZERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
    "plain": lambda groups: torch.optim.SGD(groups, lr=0.1),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.01, betas=(0.8, 0.99), amsgrad=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.01),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.05, lr_decay=0.1, initial_accumulator_value=0.2),
}


def make(kind):
    net = Net()
    rest = [*net.norm.parameters(), *net.last.parameters()]
    optimizer = OPTIMIZERS[kind]([{"params": list(net.first.parameters())}, {"params": rest, "lr": 0.02}])
    return net, optimizer


def step(net, optimizer, batch):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(noise(8, 6, seed=batch)), noise(8, 3, seed=100 + batch)).backward()
    optimizer.step()


def write(kind):
    net, optimizer = make(kind)
    for batch in range(3):
        step(net, optimizer, batch)
    tensors = {key: value.clone() for key, value in net.state_dict().items()}
    tensors |= {key: value.clone() for key, value in optimizer_tensors(net, optimizer).items()}
    step(net, optimizer, 3)
    tensors |= {f"extra.after.{key}": value for key, value in net.state_dict().items()}
    path = FOLDER / f"{kind}.safetensors"
    save_file(tensors, path, metadata={"epoch": "3"})
    path.chmod(0o644)
    check(kind, path, net)


def check(kind, path, expected):
    """Python goes on from the file as from its own state."""
    net, optimizer = make(kind)
    tensors = load_file(path)
    net.load_state_dict({key: tensors[key] for key in net.state_dict()})
    load_optimizer(net, optimizer, tensors)
    step(net, optimizer, 3)
    for key, value in expected.state_dict().items():
        assert torch.equal(net.state_dict()[key], value), (kind, key)


def main():
    torch.set_num_threads(1)
    for kind in OPTIMIZERS:
        write(kind)
    path = FOLDER / "tied.safetensors"
    save_model(Tied(), path)
    path.chmod(0o644)
    load_model(Tied(), path)


if __name__ == "__main__":
    main()
