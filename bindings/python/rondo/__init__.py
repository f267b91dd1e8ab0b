# SPDX-License-Identifier: Apache-2.0
"""Collective communication: the processes of a program find each other, then reduce, gather, scatter and exchange
arrays. Buffers are anything with the buffer protocol or DLPack, used in place."""

import atexit as _atexit

from rondo._errors import Error, ErrorCode, InvalidArgument
from rondo._rondo import ANY_SOURCE, Async, Communicator, Group, ReduceOp, Store, Within, Work, init, join, local
from rondo._rondo import _close_all
from rondo import _objects as _objects  # adds the verbs for objects to Communicator
from rondo._spawn import RankFailed, spawn

__all__ = [
    "ANY_SOURCE",
    "Async",
    "Communicator",
    "Error",
    "ErrorCode",
    "Group",
    "InvalidArgument",
    "RankFailed",
    "ReduceOp",
    "Store",
    "Within",
    "Work",
    "init",
    "join",
    "local",
    "spawn",
]

# Their threads may call Python: they end before it does.
_atexit.register(_close_all)
