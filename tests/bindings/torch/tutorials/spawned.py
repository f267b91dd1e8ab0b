# SPDX-License-Identifier: Apache-2.0
"""mp.spawn in every way in which the tutorials meet: spawned.py BACKEND RESULTS WAY WORLD PLACE START.

START: "spawn", or "fork" from a process that has torch."""

import datetime
import os
import sys

import idioms
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def meet(way, backend, rank, world, place):
    timeout = datetime.timedelta(seconds=1800)
    if way == "env":
        dist.init_process_group(backend, rank=rank, world_size=world, timeout=timeout)
    elif way == "store":
        store = dist.FileStore(place, world)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    else:
        dist.init_process_group(backend, init_method=place, rank=rank, world_size=world)


def train(local, node, local_world, world, way, backend, place, results):
    torch.set_num_threads(1)
    meet(way, backend, node * local_world + local, world, place)
    idioms.check_backend()
    idioms.run_all(world, results)
    dist.barrier()
    dist.destroy_process_group()


def main(words):
    backend, results, way, world, place, start = words
    world = int(world)
    node, local_world = 0, world
    if way == "openpai":  # one process of this script on each node
        os.environ["MASTER_ADDR"] = os.environ["PAI_HOST_IP_worker_0"]
        os.environ["MASTER_PORT"] = os.environ["PAI_worker_0_SynPort_PORT"]
        node, local_world, way = int(os.environ["PAI_TASK_INDEX"]), 1, "env"
    elif way == "env":
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", place
    arguments = (node, local_world, world, way, backend, place, results)
    mp.start_processes(train, args=arguments, nprocs=local_world, join=True, start_method=start)


if __name__ == "__main__":
    main(sys.argv[1:])
