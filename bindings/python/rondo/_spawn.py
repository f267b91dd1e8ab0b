# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes of this one."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence

from rondo._errors import Error
from rondo._rondo import Communicator, init

_SETTLE_SECONDS = 0.25  # for the others to ask who survived a rank's failure, as rondorun has it
_GRACE_SECONDS = 5.0  # from SIGTERM to SIGKILL, and for the report of the rank that another one blames


class RankFailed(RuntimeError):
    """A rank of spawn() failed: it raised (then its exception is __cause__), exited, or was killed."""

    rank: int
    exit_code: int  # 128 + the signal's number where it was killed
    traceback: str  # the rank's own; empty where it did not raise

    def __init__(self, sentence: str, rank: int, exit_code: int, trace: str):
        super().__init__(sentence + ("\n\n" + trace if trace else ""))
        self.rank, self.exit_code, self.traceback = rank, exit_code, trace

    def __reduce__(self):
        return _failed_again, (self.args[0], self.rank, self.exit_code, self.traceback)


def _failed_again(text: str, rank: int, exit_code: int, trace: str) -> RankFailed:
    made = RankFailed("", rank, exit_code, trace)
    made.args = (text,)
    return made


def spawn(
    fn: Callable[..., Any],
    world_size: int,
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    *,
    start_method: str = "spawn",
    **options: Any,
) -> List[Any]:
    """Runs fn(comm, *args, **kwargs) in world_size processes and returns what they returned, in rank order.

    The first rank that fails is raised as RankFailed, and the others are stopped; but where they shrink() within 250 ms,
    they go on without it, and None stands for its result. `options` are init()'s. With the start method "spawn", fn must be importable, and a script calls this under `if __name__ == "__main__"`.
    """
    if world_size < 1:
        raise ValueError(f"spawn: a world of {world_size} ranks cannot be")
    with tempfile.TemporaryDirectory(prefix="rondo-") as folder:
        ranks = _Ranks(multiprocessing.get_context(start_method))
        try:
            for rank in range(world_size):
                ranks.start(rank, (fn, rank, world_size, f"file://{folder}/meeting", options, tuple(args), kwargs or {}))
            ranks.join()
        finally:
            ranks.stop()
        return [ranks.results.get(rank) for rank in range(world_size)]


class _Ranks:
    def __init__(self, context: Any):
        self.context = context
        self.processes: List[Any] = []
        self.pipes: List[multiprocessing.connection.Connection] = []
        self.results: Dict[int, Any] = {}
        self.failures: Dict[int, RankFailed] = {}
        self.asking: set = set()  # ranks that are in shrink()
        self.asked = 0  # how often one has been

    def start(self, rank: int, arguments: tuple) -> None:
        ours, theirs = self.context.Pipe(duplex=False)
        self.pipes.append(ours)
        process = self.context.Process(target=_body, args=(theirs, *arguments), name=f"rondo rank {rank}")
        process.start()
        self.processes.append(process)
        theirs.close()

    def join(self) -> None:
        waiting = set(range(len(self.processes)))
        while waiting:
            self._wait(waiting, None)
            while self.failures:
                failure = self._first_failure(waiting)
                if not self._go_on_without(failure.rank, waiting):
                    raise failure
                del self.failures[failure.rank]
            if self.asked and all(_is_stopped(self.processes[rank].pid) for rank in waiting):
                return  # nobody goes on with those, and stop() ends them

    def _go_on_without(self, rank: int, waiting: set) -> bool:
        before, deadline = self.asked, time.monotonic() + _SETTLE_SECONDS
        while not self.asking - {rank} and self.asked == before:
            left = deadline - time.monotonic()
            if left <= 0 or not waiting:
                return False
            self._wait(waiting, left)
        return True

    # Takes the reports that come within the time, and the ends of ranks that have not reported.
    def _wait(self, waiting: set, seconds: Optional[float]) -> None:
        by_pipe = {self.pipes[rank]: rank for rank in waiting}
        for pipe in multiprocessing.connection.wait(list(by_pipe), seconds):
            rank = by_pipe[pipe]
            try:
                report = pickle.loads(pipe.recv_bytes())
            except EOFError:
                waiting.discard(rank)
                self.asking.discard(rank)
                self._take_end(rank)
                continue
            if report[0] == "asks":
                self.asking.add(rank)
                self.asked += 1
                continue
            self.asking.discard(rank)
            if report[0] == "went on":
                continue
            waiting.discard(rank)
            if report[0] == "result":
                self.results[rank] = report[1]
            else:
                self.failures[rank] = _failure(rank, *report[1:])

    def _take_end(self, rank: int) -> None:
        self.processes[rank].join()
        code = self.processes[rank].exitcode
        if code < 0:
            name = signal.Signals(-code).name
            self.failures[rank] = RankFailed(f"rank {rank} was killed by {name}", rank, 128 - code, "")
        else:
            self.failures[rank] = RankFailed(f"rank {rank} ended without a result, with status {code}", rank, code, "")

    # A rank that was told of another's end reports, too, and may be quicker: whom it blames comes first.
    def _first_failure(self, waiting: set) -> RankFailed:
        failure = next(iter(self.failures.values()))
        deadline = time.monotonic() + _GRACE_SECONDS
        seen = {failure.rank}
        while isinstance(failure.__cause__, Error):
            culprit = failure.__cause__.culprit
            if culprit is None or culprit in seen:
                break
            while culprit in waiting and time.monotonic() < deadline:
                self._wait(waiting, max(0.0, deadline - time.monotonic()))
            if culprit not in self.failures:
                break
            seen.add(culprit)
            failure = self.failures[culprit]
        return failure

    def stop(self) -> None:
        if len(self.results) < len(self.processes):
            for process in self.processes:
                process.terminate()
                if process.is_alive():
                    os.kill(process.pid, signal.SIGCONT)  # one that is stopped has the other signal then
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self.pipes:
            pipe.close()


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


# In a rank: what survivors ask each other, the process that spawned them is told.
def _tell_of_shrinks(pipe: Any) -> None:
    shrink = Communicator.shrink

    def told(self: Communicator) -> Communicator:
        pipe.send_bytes(pickle.dumps(("asks",)))
        smaller = shrink(self)
        pipe.send_bytes(pickle.dumps(("went on",)))
        return smaller

    Communicator.shrink = told  # type: ignore[method-assign]


def _failure(rank: int, pickled: Optional[bytes], text: str, trace: str, exit_code: int) -> RankFailed:
    failure = RankFailed(f"rank {rank} failed: {text}", rank, exit_code, trace)
    if pickled is not None:
        try:
            failure.__cause__ = pickle.loads(pickled)
        except Exception as error:  # a class that this process does not have; its text and traceback are there
            failure.__cause__ = RuntimeError(f"the exception cannot be unpickled here: {error}")
    return failure


def _body(pipe: Any, fn: Any, rank: int, world_size: int, url: str, options: Dict[str, Any], args: tuple, kwargs: Dict[str, Any]) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world_size))
    status = 0
    _tell_of_shrinks(pipe)
    try:
        with init(url, rank=rank, world_size=world_size, **options) as comm:
            report = pickle.dumps(("result", fn(comm, *args, **kwargs)))
    except KeyboardInterrupt:
        status = 130
        report = _error_report(KeyboardInterrupt(), "it was interrupted", status)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        report = _error_report(error, f"it exited with status {status}", status)
    except BaseException as error:
        status = 1
        report = _error_report(error, "".join(traceback.format_exception_only(type(error), error)).strip(), status)
    pipe.send_bytes(report)
    pipe.close()
    raise SystemExit(status)


def _error_report(error: BaseException, text: str, status: int) -> bytes:
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickled = pickle.dumps(error)
    except Exception:  # an exception that holds what cannot travel; its text and traceback do
        pickled = None
    return pickle.dumps(("error", pickled, text, trace, status))
