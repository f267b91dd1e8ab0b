# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own tools see of the backend: observed_test.py RONDORUN."""

import datetime
import json
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType, _dump_fr_trace_json

import ranks

CPU = torch.device("cpu")


def recorded():
    return json.loads(_dump_fr_trace_json(backend="rondo")).get("entries", [])


def flight_recorder(rank, world):
    """Name, sizes, state and duration of each call; one that others have not come to is not completed."""
    dist.all_reduce(torch.ones(3, 5))
    dist.broadcast(torch.ones(2), 0, async_op=True).wait()
    peer = (rank + 1) % world
    sent, got = dist.isend(torch.ones(4), peer), torch.empty(4)
    dist.recv(got, (rank - 1) % world)
    sent.wait()
    # A message's name is followed by who sends and who receives.
    entries = {entry["profiling_name"].split(" ")[0]: entry for entry in recorded()}
    assert set(entries) == {"rondo:all_reduce", "rondo:broadcast", "rondo:send", "rondo:recv"}, entries
    assert entries["rondo:all_reduce"]["input_sizes"] == [[3, 5]], entries
    assert entries["rondo:recv"]["is_p2p"] and not entries["rondo:broadcast"]["is_p2p"], entries
    for entry in entries.values():
        assert entry["state"] == "completed" and entry["retired"], entry
        assert entry["duration_ms"] > 0, entry
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        work = dist.all_reduce(torch.ones(7), async_op=True)
        last = recorded()[-1]
        assert last["state"] != "completed" and not last["retired"], last
        store.set("looked", "yes")
        work.wait()
    else:
        store.wait(["looked"])
        dist.all_reduce(torch.ones(7))
    assert recorded()[-1]["state"] == "completed", recorded()[-1]


def profiler(rank, world):
    """The name of each call and the sizes of its tensors, whoever has run it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3, 5))
        dist.all_reduce(torch.ones(7), async_op=True).wait()
        dist.all_gather([torch.ones(2) for _ in range(world)], torch.ones(2))
        dist.barrier()
    seen = [(event.name, event.input_shapes) for event in profile.events() if event.name.startswith("rondo:")]
    assert seen == [("rondo:all_reduce", [[3, 5]]), ("rondo:all_reduce", [[7]]), ("rondo:all_gather", [[2]]),
                    ("rondo:barrier", [])], seen  # fmt: skip


def on_completion(rank, world):
    """A user's hook is told of every call that went well, and one waits for all of them."""
    group = dist.new_group()
    backend = group._get_backend(CPU)
    told = []

    def hook(info):
        # It may use the group, too.
        dist.all_reduce(torch.ones(1), async_op=True).wait()
        told.append((str(info.op_type).split(".")[-1], info.seq, info.active_duration.total_seconds()))

    group._register_on_completion_hook(hook)
    assert group._has_hooks()
    dist.all_reduce(torch.ones(3), group=group)
    dist.broadcast(torch.ones(3), 0, group=group, async_op=True).wait()
    group._wait_for_pending_works()
    assert [one[0] for one in told] == ["ALLREDUCE", "BROADCAST"], told
    assert [one[1] for one in told] == [1, 2] and all(one[2] > 0 for one in told), told
    assert backend._get_sequence_number_for_group() == 2
    dist.destroy_process_group(group)


def states(rank, world):
    """A timeout that was set holds; the backend says what it has failed of; an abort ends who waits."""
    group = dist.new_group()
    backend = group._get_backend(CPU)
    assert backend.get_error() == ErrorType.SUCCESS
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(milliseconds=700), group)
    if rank == 0:
        begun = time.monotonic()
        try:
            dist.all_reduce(torch.ones(1), group=group)
            raise AssertionError("nobody else came")
        except dist.DistBackendError as error:
            assert "rank 1" in str(error), error
        assert 0.6 < time.monotonic() - begun < 20, time.monotonic() - begun
        assert backend.get_error() == ErrorType.TIMEOUT, backend.get_error()
    dist.barrier()
    group = dist.new_group()
    backend = group._get_backend(CPU)
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        backend.abort()
        try:
            work.wait()
            raise AssertionError("an aborted call went well")
        except dist.DistBackendError as error:
            assert "abort" in str(error), error
        assert backend.get_error() == ErrorType.COMM_ERROR, backend.get_error()
    dist.barrier()


def detail(rank, world):
    """PyTorch's wrapper around the group: calls go through, and a mismatch is named before it reaches us."""
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    x = torch.full((2, 3), float(rank))
    dist.all_reduce(x)
    assert x[1, 2].item() == sum(range(world))
    works = [dist.isend(torch.ones(2), (rank + 1) % world), dist.irecv(torch.ones(2), (rank - 1) % world)]
    [work.wait() for work in works]
    for call, words in ((lambda: dist.all_reduce(torch.ones(2 + rank % 2)), "TensorShape=[3]"),
                        (lambda: dist.broadcast(torch.ones(2), 0) if rank else dist.all_reduce(torch.ones(2)),
                         "OpType=BROADCAST")):  # fmt: skip
        try:
            call()
            raise AssertionError("a mismatch went by")
        except RuntimeError as error:
            assert "Detected mismatch between collectives on ranks" in str(error) and words in str(error), error
    dist.all_reduce(x)  # the group has seen nothing of it


class Observed(ranks.ByRanks):
    def test_cases(self):
        self.run_ranks("all", 3)

    def test_detail(self):
        self.run_ranks("detail", 2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def all_cases(rank, world):
    for case in (flight_recorder, profiler, on_completion, states):
        case(rank, world)


if __name__ == "__main__":
    ranks.main({"all": all_cases, "detail": detail})
