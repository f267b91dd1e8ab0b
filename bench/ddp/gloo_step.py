# SPDX-License-Identifier: Apache-2.0
"""Times of training steps with PyTorch's DistributedDataParallel over Gloo: rondo_step.cpp's program in Python.

gloo_step.py MODEL BLOCKS STEPS none|zeros
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def conv_net():
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def mlp():
    return nn.Sequential(
        nn.Linear(1024, 3072), nn.ReLU(), nn.Linear(3072, 4096), nn.ReLU(), nn.Linear(4096, 2240), nn.ReLU(),
        nn.Linear(2240, 10))


def main():
    model, blocks, count, to_none = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "none"
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo")
    net = conv_net() if model == "conv" else mlp()
    wrapper = DistributedDataParallel(net, gradient_as_bucket_view=os.environ.get("BUCKET_VIEW") == "1")
    images = torch.randn(100, 3, 32, 32) if model == "conv" else torch.randn(32, 1024)
    labels = torch.randint(0, 10, (images.shape[0],))
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    criterion = nn.CrossEntropyLoss()

    def milliseconds():
        start = time.perf_counter()
        loss = criterion(wrapper(images), labels)
        net.zero_grad(set_to_none=to_none)
        loss.backward()
        optimizer.step()
        return round((time.perf_counter() - start) * 1e3, 4)

    for _ in range(count):
        milliseconds()
    times = {"with": [], "without": []}
    for _ in range(blocks):
        dist.barrier()
        times["with"] += [milliseconds() for _ in range(count)]
        dist.barrier()
        with wrapper.no_sync():
            times["without"] += [milliseconds() for _ in range(count)]
    dist.barrier()
    print(json.dumps({"rank": rank, "torch": torch.__version__, **times}), flush=True)
    dist.destroy_process_group()


main()
