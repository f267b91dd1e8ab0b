# SPDX-License-Identifier: Apache-2.0
"""Every verb by every way to call, beside what numpy says. Run by rondorun, on every rank."""

import sys

from needs import numpy as np

import rondo

DTYPES = ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
MOVED = DTYPES + ("i2", "u2", "?", "c8", "c16")
ROOT = min(1, int(sys.argv[1]) - 1)
LENGTH = 5


def values(rank, dtype, length=LENGTH):
    return ((np.arange(length) * 3 + rank * 7) % 11).astype(dtype)


def everybody(comm, dtype, length=LENGTH):
    return np.stack([values(rank, dtype, length) for rank in range(comm.world_size)])


class Check:
    """Calls the verbs of one way, and looks at the results once they are there."""

    def __init__(self, comm, way):
        self.comm, self.way, self.checks = comm, way, []
        self.verbs = comm.group() if way == "group" else {
            "blocking": comm, "async": comm.async_(), "within": comm.within(30)}[way]
        self.works, self.called = [], set()

    def call(self, verb, *arguments, expect, **named):
        """expect: (buffer, what it holds afterwards), and its memory stays where it is."""
        self.called.add(verb)
        buffer, right = expect
        address = None if buffer is None else buffer.ctypes.data
        result = getattr(self.verbs, verb)(*arguments, **named)
        if self.way == "async":
            self.works.append((verb, result))
        else:
            received = (self.comm.rank - 1) % self.comm.world_size  # what messages() below asks for
            assert result == (received if verb == "recv" and self.way != "group" else None), (verb, result)
        self.checks.append((verb, buffer, right, address))

    def finish(self):
        if self.way == "group":
            self.verbs.end()
        for verb, work in self.works:
            assert work.wait() and work.done and work.error is None
            assert work.source == ((self.comm.rank - 1) % self.comm.world_size if verb == "recv" else -1)
        for verb, buffer, right, address in self.checks:
            if buffer is None:
                continue
            assert buffer.ctypes.data == address
            if buffer.tobytes() != right.tobytes():
                raise AssertionError(f"rank {self.comm.rank}, {self.way}, {verb}: {buffer}, not {right}")


def reductions(check, dtype):
    comm, rank, n = check.comm, check.comm.rank, check.comm.world_size
    rows = everybody(comm, dtype)
    floating = dtype.startswith("f")
    right = {"sum": rows.sum(0, dtype=dtype), "product": rows.prod(0, dtype=dtype), "min": rows.min(0), "max": rows.max(0)}
    if not floating:
        right.update(bit_and=np.bitwise_and.reduce(rows), bit_or=np.bitwise_or.reduce(rows),
                     bit_xor=np.bitwise_xor.reduce(rows))
    for op, result in right.items():
        data = rows[rank].copy()
        check.call("all_reduce", data, op, expect=(data, result))
    into = np.zeros(LENGTH, dtype)
    check.call("all_reduce", rows[rank].copy(), rondo.ReduceOp.sum, into=into, expect=(into, right["sum"]))
    data = rows[rank].copy()
    check.call("reduce", data, "max", ROOT, expect=(data, right["max"] if rank == ROOT else rows[rank]))
    if floating:
        data = rows[rank].copy()
        scaled = sum(rows[r].astype("f8") * (r + 1) for r in range(n)).astype(dtype)  # exact: small whole numbers
        check.call("all_reduce", data, rondo.ReduceOp.premul_sum(rank + 1), expect=(data, scaled))
        data = (rows[rank] * n).astype(dtype)
        check.call("all_reduce", data, "average", expect=(data, right["sum"]))
    blocks, mine = everybody(comm, dtype, LENGTH * n), np.zeros(LENGTH, dtype)
    share = blocks.sum(0, dtype=dtype)[rank * LENGTH : (rank + 1) * LENGTH]
    check.call("reduce_scatter", blocks[rank].copy(), mine, expect=(mine, share))


def moves(check, dtype):
    comm, rank, n = check.comm, check.comm.rank, check.comm.world_size
    rows = everybody(comm, dtype)
    data = rows[rank].copy()
    check.call("broadcast", data, ROOT, expect=(data, rows[ROOT]))
    whole = np.zeros(n * LENGTH, dtype)
    check.call("all_gather", rows[rank].copy(), whole, expect=(whole, rows.ravel()))
    whole = np.zeros(n * LENGTH, dtype) if rank == ROOT else None
    check.call("gather", rows[rank].copy(), whole, ROOT, expect=(whole, rows.ravel()))
    mine = np.zeros(LENGTH, dtype)
    send = rows.ravel().copy() if rank == ROOT else None
    check.call("scatter", send, mine, ROOT, expect=(mine, rows[rank]))
    blocks, recv = everybody(comm, dtype, n * LENGTH), np.zeros(n * LENGTH, dtype)
    right = np.concatenate([blocks[r][rank * LENGTH : (rank + 1) * LENGTH] for r in range(n)])
    check.call("all_to_all", blocks[rank].copy(), recv, expect=(recv, right))


def counted(check, dtype):
    comm, rank, n = check.comm, check.comm.rank, check.comm.world_size
    counts = [r + 1 for r in range(n)]
    parts = [values(r, dtype, counts[r]) for r in range(n)]
    together = np.concatenate(parts)
    whole = np.zeros(sum(counts), dtype)
    check.call("all_gather_v", parts[rank].copy(), whole, counts, expect=(whole, together))
    whole = np.zeros(sum(counts), dtype) if rank == ROOT else None
    check.call("gather_v", parts[rank].copy(), whole, counts, ROOT, expect=(whole, together))
    mine = np.zeros(counts[rank], dtype)
    check.call("scatter_v", together.copy() if rank == ROOT else None, mine, counts, ROOT, expect=(mine, parts[rank]))
    # Rank s sends (s + r) % 3 elements to rank r, each the number of the pair.
    lengths = [[(s + r) % 3 for r in range(n)] for s in range(n)]
    send = np.concatenate([np.full(lengths[rank][r], rank * n + r) for r in range(n)]).astype(dtype)
    came = [lengths[s][rank] for s in range(n)]
    right = np.concatenate([np.full(came[s], s * n + rank) for s in range(n)]).astype(dtype)
    recv = np.zeros(sum(came), dtype)
    check.call("all_to_all_v", send, lengths[rank], recv, came, expect=(recv, right))


def messages(check, dtype):
    comm, rank, n = check.comm, check.comm.rank, check.comm.world_size
    rows = everybody(comm, dtype)
    before, after = (rank - 1) % n, (rank + 1) % n
    received = np.zeros(LENGTH, dtype)
    calls = [("send", rows[rank].copy(), after, (None, None)), ("recv", received, before, (received, rows[before]))]
    if rank % 2 == 1:
        calls.reverse()  # by itself a send may wait for its receiver
    for verb, buffer, peer, expect in calls:
        check.call(verb, buffer, peer, expect=expect)
    # The second message of a rank is asked for first, by its tag; and the first one from whoever it may be.
    first, second = np.zeros(LENGTH, dtype), np.zeros(LENGTH, dtype)
    calls = [("send", rows[rank].copy(), after, 3), ("send", rows[after].copy(), after, 4)]
    receives = [("recv", second, before, 4), ("recv", first, rondo.ANY_SOURCE, 3)]
    for verb, buffer, peer, tag in calls + receives:
        right = rows[rank] if buffer is second else rows[before]
        check.call(verb, buffer, peer, tag, expect=(buffer if verb == "recv" else None, right))
    check.call("barrier", expect=(None, None))


def main():
    comm = rondo.init()
    assert comm.world_size == int(sys.argv[1]), comm.world_size
    verbs = {name for name in dir(rondo.Async) if not name.startswith("_")}
    for way in ("blocking", "within", "async", "group"):
        called = set()
        for dtype in MOVED:
            for part in (reductions, moves, counted, messages):
                if part is reductions and dtype not in DTYPES:
                    continue
                check = Check(comm, way)
                part(check, dtype)
                check.finish()
                called |= check.called
        assert called == verbs, verbs ^ called
    store = rondo.Store.open()
    everybody = [bytes([rank]) for rank in range(comm.world_size)]
    assert store.exchange("ranks", comm.rank, comm.world_size, bytes([comm.rank])) == everybody
    print(f"rank {comm.rank}: {len(verbs)} verbs in 4 ways")


main()
