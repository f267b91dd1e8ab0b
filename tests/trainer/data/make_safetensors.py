#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes types.safetensors beside this script: what PyTorch 2.15 and safetensors 0.8 make of every type they share, with
scalars, empty tensors, names that need escapes and a BatchNorm. checkpoint_test.cpp reads it, and writes the same bytes.

    pip install torch==2.15.0 safetensors==0.8.0 numpy
    tests/trainer/data/make_safetensors.py
"""

import pathlib

import torch
from safetensors.torch import save_file

TYPES = [
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float4_e2m1fn_x2",
]  # fmt: skip


def sample(name):
    """Six bytes-worth of elements whose bytes are 1, 2, 3, ... (booleans: 1, 0, 1, ...), as a matrix of two rows."""
    dtype = getattr(torch, name)
    size = torch.empty(0, dtype=dtype).element_size()
    values = torch.arange(1, 6 * size + 1, dtype=torch.uint8)
    return (values % 2).bool().reshape(2, 3) if name == "bool" else values.view(dtype).reshape(2, 3)


def main():
    tensors = {name: sample(name) for name in TYPES}
    tensors |= {
        "scalar.f32": torch.tensor(0.5),
        "scalar.bool": torch.tensor(True),
        "empty": torch.empty(0, 5, dtype=torch.float16),
        "one": torch.tensor([7], dtype=torch.int32),
        'a "quoted" \\ name\n\t\x01': torch.tensor([1, 2], dtype=torch.int32),
        "größe/大きさ": torch.tensor([3], dtype=torch.uint8),
    }
    norm = torch.nn.BatchNorm1d(3)
    for _ in range(2):
        norm(torch.arange(12.0).reshape(4, 3))
    tensors |= {f"norm.{key}": value for key, value in norm.state_dict().items()}
    path = pathlib.Path(__file__).with_name("types.safetensors")
    save_file({key: value.detach().contiguous() for key, value in tensors.items()}, path, metadata={"note": 'é "q"\n'})


if __name__ == "__main__":
    main()
