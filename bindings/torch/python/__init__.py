# SPDX-License-Identifier: Apache-2.0
"""The backend "rondo" of torch.distributed. PyTorch finds it by its name: no import is needed.

`RONDO_TORCH_AS=gloo`, `nccl` or `gloo,nccl` in the environment makes it stand in for these, too, in scripts that ask for
them.
"""

import importlib
import os

__all__ = ["autoload", "register"]


# What it may stand in for, on the devices where PyTorch looks for that.
_STANDS_IN = {"gloo": ["cpu", "cuda"], "nccl": ["cuda"]}


def _module():
    import torch

    version = "_".join(torch.__version__.split(".")[:2])
    try:
        return importlib.import_module(f"rondo.torch._backend_{version}")
    except ModuleNotFoundError as error:
        if error.name is None or "_backend_" not in error.name:
            raise
        here = os.path.dirname(__file__)
        built = sorted({n.split(".")[0][9:].replace("_", ".") for n in os.listdir(here) if n.startswith("_backend_")})
        raise ImportError(
            f"rondo's backend has no module for torch {torch.__version__}, only for {', '.join(built) or 'none'}: "
            "install one of these, or build Rondo with this one"
        ) from None


def _make(name):
    def make(options, _):
        return _module().make(options.store, options.group_rank, options.group_size, options.timeout, name)

    return make


def register(name="rondo"):
    """Makes `name` a backend of torch.distributed. Called by PyTorch when a group asks for "rondo"."""
    import torch.distributed as dist

    _module()
    dist.Backend.register_backend(name, _make(name), extended_api=True, devices=_STANDS_IN.get(name, ["cpu", "cuda"]))


def autoload():
    """Called by PyTorch at the end of `import torch`."""
    given = os.environ.get("RONDO_TORCH_AS")
    for name in given.split(",") if given else ():
        if name not in _STANDS_IN:
            raise ValueError(f"RONDO_TORCH_AS={given}: it may name {' and '.join(_STANDS_IN)}, with a comma between them")
        register(name)
