# SPDX-License-Identifier: Apache-2.0
"""A rank is killed while workers of data loaders live, its own and the others': failures_test.py RONDORUN. With a case's
name behind it, it is one of the ranks."""

import os
import re
import signal
import tempfile
import time

import ranks
import torch
import torch.distributed as dist

# Who waits looks every 50 ms whether those live for whom it waits, so that it knows within that; the exception itself
# takes a millisecond. The rest is for a busy machine, where who is told waits for a core.
TOLD_WITHIN_S = 0.3


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.tensor(float(i * i))


def workers_by(method):
    """An iterator over batches, whose two workers live as long as it does."""
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context=method)
    batches = iter(loader)
    assert next(batches).tolist() == [0.0, 1.0, 4.0, 9.0]
    return batches


def killed_among_workers(rank, world):
    """Workers by fork on ranks 0 and 1, by spawn on 1 and 2."""
    held = [workers_by(method) for method in (["fork"], ["fork", "spawn"], ["spawn"])[rank]]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's, which must not come before the last word
    moment = os.environ["MOMENT"]
    print(*files_in_memory(), flush=True)
    dist.barrier()
    if rank == 1:
        with open(moment, "w") as file:
            file.write(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1))
    except dist.DistBackendError as error:
        told = time.monotonic()
        with open(moment) as file:
            print(f"told after {told - float(file.read()):.3f} s: {error}", flush=True)
    os._exit(0 if held else 1)  # what it leaves, others tidy


def files_in_memory():
    """Semaphores of spawned workers among them."""
    with open("/proc/self/maps") as maps:
        return {line.split()[5] for line in maps if "/dev/shm/" in line}


def left_of(token):
    """Processes that have it in their environment."""
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if token.encode() in file.read():
                    left.append(int(pid))
        except OSError:  # it has ended, or is another user's
            continue
    return left


class Failures(ranks.ByRanks):
    def test_a_rank_killed_among_workers_is_named_and_nothing_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            moment = os.path.join(folder, "moment")
            text = self.run_ranks("killed_among_workers", 3, 137, env={"MOMENT": moment})
            self.assertEqual(left_of(moment), [])
        told = re.findall(r"told after ([0-9.]+) s: (.*)", text)
        print(*(f"told after {seconds} s" for seconds, _ in told), sep=", ")
        self.assertEqual(len(told), 2, text)
        for seconds, sentence in told:
            self.assertIn("rank 1 ", sentence)
            self.assertLess(float(seconds), TOLD_WITHIN_S)
        files = set(re.findall(r"/dev/shm/\S+", text))
        self.assertGreater(len(files), 0, text)
        self.assertEqual([file for file in files if os.path.exists(file)], [])


if __name__ == "__main__":
    ranks.main({f.__name__: f for f in (killed_among_workers,)})
