# SPDX-License-Identifier: Apache-2.0
"""A script for torchrun, torch.distributed.launch and rondorun: script.py BACKEND RESULTS."""

import argparse
import os

import idioms
import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("results")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=None)
    parser.add_argument("--local_world_size", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        assert os.environ[name], name
    if args.local_rank is not None:
        assert args.local_rank == int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend=args.backend)
    assert dist.get_rank() == int(os.environ["RANK"]) and dist.get_world_size() == int(os.environ["WORLD_SIZE"])
    assert dist.get_backend() == args.backend
    idioms.check_backend()
    idioms.run_all(dist.get_world_size(), args.results)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
