#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what PyTorch's DistributedSampler gives; sampler_lists.json is its output under torch 1.13.1 of Debian 12.

   python3 tests/trainer/data/make_sampler_lists.py > tests/trainer/data/sampler_lists.json
"""
import json

from torch.utils.data.distributed import DistributedSampler

CASES = [
    # samples, world size, seed, epoch
    (10, 3, 0, 0), (17, 5, 42, 3), (100, 4, 7, 1), (100, 7, 2**32 - 1, 5), (63, 8, 2**33 + 5, 2), (1, 4, 0, 9),
    (3, 7, 0, 1), (240, 2, 123456789, 100), (31, 1, 1, 0), (1000, 6, 3, 11),
]


def lists(samples, world_size, seed, epoch, shuffle, drop_last):
    ranks = []
    for rank in range(world_size):
        sampler = DistributedSampler(range(samples), world_size, rank, shuffle, seed, drop_last)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
    return ranks


rows = []
for samples, world_size, seed, epoch in CASES:
    for shuffle in (False, True):
        for drop_last in (False, True):
            if drop_last and samples < world_size:
                continue  # PyTorch asserts there
            rows.append(dict(samples=samples, world_size=world_size, seed=seed, epoch=epoch, shuffle=shuffle,
                             drop_last=drop_last, ranks=lists(samples, world_size, seed, epoch, shuffle, drop_last)))
print("[" + ",\n".join(json.dumps(row) for row in rows) + "]")
