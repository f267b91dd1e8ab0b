# SPDX-License-Identifier: Apache-2.0
"""Objects by pickle: anything that pickle knows. Who unpickles trusts the other ranks."""

import array
import pickle
from typing import Any, List, Optional

from rondo._rondo import ANY_SOURCE, Communicator


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _moves_host_memory(comm: Communicator) -> bool:
    return comm.device == "cpu"


def _check_root(comm: Communicator, name: str, root: int) -> None:
    if not 0 <= root < comm.world_size:
        raise ValueError(f"{name}: root {root} is no rank of {comm.world_size}")


def all_gather_object(self: Communicator, value: Any) -> List[Any]:
    """Every rank gets all ranks' objects, in rank order."""
    return [pickle.loads(one) for one in self.all_gather_bytes(_pickled(value))]


def gather_object(self: Communicator, value: Any, root: int = 0) -> Optional[List[Any]]:
    """The root gets all ranks' objects, in rank order; others get None."""
    _check_root(self, "gather_object", root)
    mine = _pickled(value)
    if not _moves_host_memory(self):
        everything = self.all_gather_bytes(mine)
        return [pickle.loads(one) for one in everything] if self.rank == root else None
    lengths = array.array("q", bytes(8 * self.world_size))
    self.all_gather(array.array("q", [len(mine)]), lengths)
    if self.rank != root:
        self.gather_v(mine, None, lengths.tolist(), root)
        return None
    whole = bytearray(sum(lengths))
    self.gather_v(mine, whole, lengths.tolist(), root)
    return _cut(whole, lengths)


def broadcast_object(self: Communicator, value: Any = None, root: int = 0) -> Any:
    """Every rank returns the root's object; what others pass is not looked at."""
    _check_root(self, "broadcast_object", root)
    mine = _pickled(value) if self.rank == root else b""
    if not _moves_host_memory(self):
        data = self.all_gather_bytes(mine)[root]
    else:
        length = array.array("q", [len(mine)])
        self.broadcast(length, root)
        data = bytearray(mine) if self.rank == root else bytearray(length[0])
        self.broadcast(data, root)
    return value if self.rank == root else pickle.loads(data)


def scatter_object(self: Communicator, values: Optional[List[Any]] = None, root: int = 0) -> Any:
    """Rank r returns the root's values[r]; what others pass is not looked at."""
    _check_root(self, "scatter_object", root)
    parts: List[bytes] = []
    if self.rank == root:
        if values is None or len(values) != self.world_size:
            raise ValueError(f"scatter_object: the root passes one object for each of the {self.world_size} ranks")
        parts = [_pickled(value) for value in values]
    if not _moves_host_memory(self):
        return pickle.loads(pickle.loads(self.all_gather_bytes(_pickled(parts))[root])[self.rank])
    lengths = array.array("q", [len(part) for part in parts] or bytes(8 * self.world_size))
    self.broadcast(lengths, root)
    mine = bytearray(lengths[self.rank])
    self.scatter_v(b"".join(parts) if self.rank == root else None, mine, lengths.tolist(), root)
    return pickle.loads(mine)


def send_object(self: Communicator, value: Any, peer: int, tag: int = 0) -> None:
    """To one rank, which calls recv_object with the same tag."""
    _check_host(self, "send_object")
    data = _pickled(value)
    self.send(array.array("q", [len(data)]), peer, tag)
    self.send(data, peer, tag)


def recv_object(self: Communicator, peer: int = ANY_SOURCE, tag: int = 0) -> Any:
    """The object that one rank, or any, has sent by send_object."""
    _check_host(self, "recv_object")
    length = array.array("q", [0])
    source = self.recv(length, peer, tag)
    data = bytearray(length[0])
    self.recv(data, source, tag)
    return pickle.loads(data)


def _check_host(comm: Communicator, name: str) -> None:
    if not _moves_host_memory(comm):
        raise ValueError(f"{name}: the communicator is on {comm.device}, and objects are sent by one on the CPU")


def _cut(whole: bytearray, lengths: "array.array[int]") -> List[Any]:
    objects, start, view = [], 0, memoryview(whole)
    for length in lengths:
        objects.append(pickle.loads(view[start : start + length]))
        start += length
    return objects


for _function in (all_gather_object, gather_object, broadcast_object, scatter_object, send_object, recv_object):
    setattr(Communicator, _function.__name__, _function)
