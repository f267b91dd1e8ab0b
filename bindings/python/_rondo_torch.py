# SPDX-License-Identifier: Apache-2.0
"""PyTorch's way to rondo.torch. PyTorch calls autoload() at the end of every `import torch`, in programs that have never
heard of Rondo, too: so nothing is loaded here before it is asked for."""

import os


def autoload() -> None:
    if os.environ.get("RONDO_TORCH_AS"):
        _backend().autoload()


def register() -> None:
    _backend().register()


def _backend():
    try:
        import rondo.torch
    except ModuleNotFoundError as error:
        if error.name != "rondo.torch":
            raise
        raise ImportError("this wheel of rondo-comm was built without the backend for torch.distributed") from None
    return rondo.torch
