# SPDX-License-Identifier: Apache-2.0
"""What the module promises beside right results: refusals, memory, the GIL, waiting, errors, its stub."""

import array
import ast
import datetime
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import unittest
import weakref

from needs import numpy as np

import rondo

try:
    import torch
except ImportError:
    torch = None


def in_threads(*bodies):
    """Runs each body in a thread of its own and raises the first error."""
    errors = []

    def guarded(body):
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


class Buffers(unittest.TestCase):
    def setUp(self):
        self.comm = rondo.local(1)[0]

    def refused(self, kind, words, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(words, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_what_cannot_be_used_is_refused_by_one_sentence(self):
        reduce = self.comm.all_reduce
        self.refused(ValueError, "the buffer is read-only", lambda: reduce(b"1234"))
        frozen = np.ones(3)
        frozen.flags.writeable = False
        self.refused(ValueError, "read-only", lambda: self.comm.broadcast(frozen))
        self.refused(ValueError, "not contiguous", lambda: reduce(np.ones((4, 4))[:, 1]))
        self.refused(ValueError, "not contiguous", lambda: reduce(memoryview(bytearray(8))[::2]))
        self.refused(TypeError, "neither the buffer protocol nor DLPack", lambda: reduce(3))
        self.refused(TypeError, "'>f'", lambda: reduce(np.ones(3, ">f4")))
        self.refused(TypeError, "'T{", lambda: reduce(np.zeros(3, [("a", "f4"), ("b", "i4")])))
        self.refused(TypeError, "int16 can be moved, not reduced", lambda: reduce(np.ones(3, "i2")))
        self.refused(TypeError, "bool can be moved, not reduced", lambda: reduce(np.ones(3, "?")))
        self.refused(TypeError, "different types", lambda: self.comm.all_gather(np.ones(2, "f4"), np.ones(2, "i4")))
        self.refused(ValueError, "recv has 3 elements, expected 2", lambda: self.comm.all_gather(np.ones(2), np.ones(3)))
        self.refused(ValueError, "counts has 2 elements, expected 1",
                     lambda: self.comm.all_gather_v(np.ones(2), np.ones(2), [1, 1]))
        self.refused(TypeError, "needs recv", lambda: self.comm.gather(np.ones(2), None, 0))
        self.refused(ValueError, "'median' is no operator", lambda: reduce(np.ones(2), "median"))
        self.refused(ValueError, "root", lambda: self.comm.broadcast(np.ones(2), 5))
        self.refused(ValueError, "'tpu' is no device", lambda: rondo.local(1, device="tpu"))
        reduce(np.ones(3))  # none of these has harmed the communicator

    def test_a_device_of_another_kind_is_refused_by_name(self):
        class OnCuda:
            def __dlpack_device__(self):
                return (2, 1)

            def __dlpack__(self, **_):
                raise AssertionError("nobody may ask for it")

        self.refused(ValueError, "CUDA device 1, and the communicator is on the CPU", lambda: self.comm.all_reduce(OnCuda()))

    def test_what_has_memory_is_used_in_place(self):
        for buffer in (array.array("d", [2, 3]), np.array([2.0, 3.0]), memoryview(array.array("d", [2, 3]))):
            self.comm.all_reduce(buffer, rondo.ReduceOp.premul_sum(2))
            self.assertEqual(list(buffer), [4, 6])
        data = bytearray(b"\x02\x03")
        self.comm.all_reduce(data, rondo.ReduceOp.premul_sum(2))
        self.assertEqual(data, b"\x04\x06")
        scalar = np.array(5.0)
        self.comm.all_reduce(scalar, rondo.ReduceOp.premul_sum(2))
        self.assertEqual(scalar, 10)
        nothing = np.zeros((3, 0))
        self.comm.all_reduce(nothing)

    @unittest.skipIf(torch is None, "PyTorch is not here")
    def test_tensors_of_every_type(self):
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64", "int8", "uint8",
                     "int32", "int64"):
            tensor = torch.tensor([1, 2, 3]).to(getattr(torch, name))
            address = tensor.data_ptr()
            self.comm.all_reduce(tensor, rondo.ReduceOp.premul_sum(2))
            self.assertEqual(tensor.to(torch.float32).tolist(), [2, 4, 6], name)
            self.assertEqual(tensor.data_ptr(), address)
        self.refused(ValueError, "not contiguous", lambda: self.comm.all_reduce(torch.ones(2, 3).t()))
        self.refused(TypeError, "detach", lambda: self.comm.all_reduce(torch.ones(2, requires_grad=True)))
        part = torch.arange(6.0)[2:5]
        self.comm.all_reduce(part, rondo.ReduceOp.premul_sum(2))
        self.assertEqual(part.tolist(), [4, 6, 8])

    def test_buffers_live_until_an_asynchronous_call_is_done(self):
        one, other = rondo.local(2)
        memory = np.full(3, 1.0)
        gone = weakref.ref(memory)
        work = one.async_().all_reduce(memory)
        del memory
        gc.collect()
        self.assertIsNotNone(gone())
        other.all_reduce(np.full(3, 2.0))
        self.assertTrue(work.wait(30))
        give_back_deadline = 1000
        while gone() is not None and give_back_deadline > 0:  # Python does it between two of its instructions
            work.wait()
            give_back_deadline -= 1
        self.assertIsNone(gone())


class Calls(unittest.TestCase):
    def test_blocked_calls_leave_the_gil(self):
        # Neither call of a barrier can return before the other thread has run.
        one, other = rondo.local(2, timeout=30)
        in_threads(one.barrier, other.barrier)

    def test_waiting_and_callbacks(self):
        one, other = rondo.local(2, timeout=30)
        data, came, called = np.zeros(2), threading.Event(), []
        work = one.async_().recv(data, 1)
        self.assertFalse(work.wait(0.01))
        self.assertFalse(work.done)
        work.on_done(lambda error: (called.append(error), came.set()))
        other.send(np.array([1.0, 2.0]), 0)
        self.assertTrue(work.wait(datetime.timedelta(seconds=30)))
        self.assertTrue(came.wait(30))
        self.assertEqual(called, [None])
        self.assertEqual(data.tolist(), [1, 2])
        work.on_done(called.append)  # at once
        self.assertEqual(called, [None, None])
        started, finished = work.times
        self.assertLessEqual(started, finished)

    def test_a_callback_gets_the_error(self):
        one, other = rondo.local(2)
        came, errors = threading.Event(), []
        work = one.async_(timeout=0.05).recv(np.zeros(1), 1)
        work.on_done(lambda error: (errors.append(error), came.set()))
        with self.assertRaises(rondo.Error) as caught:
            work.wait()
        self.assertTrue(came.wait(30))
        self.assertEqual(caught.exception.code, rondo.ErrorCode.timeout)
        self.assertEqual((errors[0].code, str(errors[0])), (caught.exception.code, str(caught.exception)))
        self.assertEqual(str(work.error), str(errors[0]))

    def test_a_group_starts_together(self):
        one, other = rondo.local(2, timeout=30)

        def exchange(comm, peer):
            mine, theirs = np.full(100_000, float(comm.rank)), np.zeros(100_000)
            with comm.group() as group:
                group.send(mine, peer)
                group.recv(theirs, peer)
            self.assertEqual(theirs[-1], peer)
            group = comm.group()
            group.send(mine, peer)
            group.recv(theirs, peer)
            self.assertTrue(group.start().wait(30))

        in_threads(lambda: exchange(one, 1), lambda: exchange(other, 0))

    def test_deadlines_name_the_missing(self):
        one, other = rondo.local(2)
        with self.assertRaises(rondo.Error) as caught:
            one.within(0.05).barrier()
        self.assertEqual(caught.exception.code, rondo.ErrorCode.timeout)
        self.assertEqual(caught.exception.culprit, 1)
        del other

    def test_a_rank_that_leaves_is_named(self):
        one, other = rondo.local(2, timeout=30)
        other.close()
        with self.assertRaises(rondo.Error) as caught:
            one.barrier()
        self.assertEqual(caught.exception.culprit, 1)
        with self.assertRaises(rondo.InvalidArgument):
            other.barrier()

    def test_abort_ends_a_call_of_another_thread(self):
        one, other = rondo.local(2)
        failed = []

        def wait():
            try:
                one.barrier()
            except rondo.Error as error:
                failed.append(error.code)

        in_threads(wait, other.abort)
        self.assertEqual(failed, [rondo.ErrorCode.aborted])

    def test_closing_ends_a_call_of_another_thread(self):
        failed = []

        def wait():
            try:
                one.recv(bytearray(1), 1)
            except rondo.Error as error:
                failed.append(error.code)

        for _ in range(20):  # now before the call, now while it waits
            one, other = rondo.local(2)
            in_threads(wait, one.close)
        self.assertEqual(set(failed) - {rondo.ErrorCode.aborted, rondo.ErrorCode.invalid_argument}, set())
        self.assertEqual(len(failed), 20)

    def test_a_callback_may_close_the_communicator(self):
        one, other = rondo.local(2)
        work, closed = one.async_().recv(bytearray(1), 1), threading.Event()

        def close(error):
            one.close()
            closed.set()

        work.on_done(close)
        other.send(bytes(1), 0)
        self.assertTrue(closed.wait(30))
        with self.assertRaises(rondo.InvalidArgument):
            one.barrier()

    def test_split(self):
        comms = rondo.local(3, timeout=30)
        sums = {}

        def body(comm):
            part = comm.split(0 if comm.rank < 2 else -1, key=-comm.rank)
            if part is None:
                sums[comm.rank] = None
                return
            data = np.array([10.0 ** comm.rank])
            part.all_reduce(data)
            sums[comm.rank] = (part.rank, data[0])

        in_threads(*[lambda comm=comm: body(comm) for comm in comms])
        self.assertEqual(sums, {0: (1, 11.0), 1: (0, 11.0), 2: None})

    def test_errors_travel(self):
        with self.assertRaises(rondo.Error) as caught:
            rondo.init("nowhere://", rank=0, world_size=1)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(again), str(again), again.code, again.culprit),
                         (rondo.InvalidArgument, str(caught.exception), rondo.ErrorCode.invalid_argument, None))

    def test_closing_and_the_end_of_python(self):
        with rondo.local(1)[0] as comm:
            comm.barrier()
        with self.assertRaises(rondo.InvalidArgument):
            comm.rank
        # A callback, a Work and a communicator that are still there when the interpreter ends.
        code = ("import rondo, numpy\n"
                "one, other = rondo.local(2)\n"
                "work = one.async_().recv(numpy.zeros(1), 1)\n"
                "work.on_done(lambda error: None)\n")
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_an_interrupt_ends_a_blocked_call(self):
        # More than fits between them is sent once the other end is in its call, which then waits for more.
        code = """
import os, signal, sys, threading, rondo
one, other = rondo.local(2)
def interrupt():
    other.send(bytes(1 << 26), 0)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
group = one.group()
group.recv(bytearray(1 << 26), 1)
group.recv(bytearray(1), 1)
try:
    group.end()
except KeyboardInterrupt:
    pass
else:
    sys.exit("it was not interrupted")
try:
    other.barrier()
except rondo.Error as error:
    assert error.code == rondo.ErrorCode.aborted, error
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 0, ended.stderr)


class Meeting(unittest.TestCase):
    def test_the_store(self):
        store = rondo.Store.open()
        store.set("key", b"one")
        self.assertEqual(store.get("key"), b"one")
        self.assertIsNone(store.try_get("absent"))
        self.assertEqual([store.add("count", 2), store.add("count", 3)], [2, 5])
        self.assertTrue(store.compare_and_set("key", b"one", b"two"))
        self.assertFalse(store.compare_and_set("key", None, b"three"))
        self.assertTrue(store.erase("key"))
        self.assertFalse(store.erase("key"))
        self.assertEqual(store.exchange("all", 0, 1, b"mine"), [b"mine"])
        with self.assertRaises(rondo.Error) as caught:
            store.get("absent", timeout=0.01)
        self.assertEqual(caught.exception.code, rondo.ErrorCode.timeout)

    def test_a_store_written_in_python(self):
        class Mine:
            def __init__(self):
                self.values, self.changed = {}, threading.Condition()

            def set(self, key, value):
                with self.changed:
                    self.values[key] = value
                    self.changed.notify_all()

            def get(self, key, timeout):
                with self.changed:
                    if not self.changed.wait_for(lambda: key in self.values, timeout):
                        raise TimeoutError(key)
                    return self.values[key]

            def try_get(self, key):
                return self.values.get(key)

            def add(self, key, amount):
                with self.changed:
                    self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
                    self.changed.notify_all()
                    return int(self.values[key])

            def compare_and_set(self, key, expected, desired):
                with self.changed:
                    if self.values.get(key) != expected:
                        return False
                    self.values[key] = desired
                    self.changed.notify_all()
                    return True

            def erase(self, key):
                with self.changed:
                    return self.values.pop(key, None) is not None

        store, sums = Mine(), []

        def body(rank):
            comm = rondo.init(rank=rank, world_size=2, store=store, join_timeout=30)
            data = np.array([rank + 1.0])
            comm.all_reduce(data)
            sums.append(data[0])

        in_threads(lambda: body(0), lambda: body(1))
        self.assertEqual(sums, [3, 3])

        class Broken(Mine):
            def add(self, key, amount):
                raise KeyError("the disk is full")

        with self.assertRaises(rondo.Error) as caught:
            rondo.init(rank=0, world_size=2, store=Broken(), join_timeout=5)
        self.assertIn("the disk is full", str(caught.exception))


class Devices(unittest.TestCase):
    def test_what_is_not_there_is_said(self):
        try:
            rondo.local(1, device="cuda:77")
        except rondo.Error as error:
            self.assertEqual(error.code, rondo.ErrorCode.unsupported)
        else:
            self.fail("there is a CUDA device 77")

    def test_objects_and_refusals_of_a_communicator_on_a_device(self):
        comms, kept = rondo.local(2, device="sim", timeout=60), {}

        def body(comm):
            with self.assertRaises(rondo.InvalidArgument) as caught:
                comm.all_reduce(np.ones(3))
            self.assertIn("host memory", str(caught.exception))
            with self.assertRaises(ValueError):
                comm.send_object(1, 1 - comm.rank)
            parts = ["p", "q"] if comm.rank == 1 else None
            kept[comm.rank] = (comm.all_gather_object(comm.rank), comm.broadcast_object({comm.rank}, 1),
                               comm.gather_object(comm.rank, 1), comm.scatter_object(parts, 1))

        in_threads(*[lambda comm=comm: body(comm) for comm in comms])
        self.assertEqual(kept, {0: ([0, 1], {1}, None, "p"), 1: ([0, 1], {1}, [0, 1], "q")})


class Stub(unittest.TestCase):
    def test_the_stub_lists_what_the_module_has(self):
        module = sys.modules["rondo._rondo"]
        package = pathlib.Path(rondo.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        tree = ast.parse((package / "_rondo.pyi").read_text())
        members, bases = {}, {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                names |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
                bases[node.name] = [base.value.id for base in node.bases if isinstance(base, ast.Subscript)]
                for base in bases[node.name]:
                    names |= members.get(base, set())
                members[node.name] = names
            elif isinstance(node, ast.FunctionDef):
                members[node.name] = None
            elif isinstance(node, ast.AnnAssign):
                members[node.target.id] = None
        public = {name for name in dir(module) if not name.startswith("_")}
        self.assertEqual({name for name in members if not name.startswith("_")}, public)
        for name in public:
            if members[name] is not None:
                found = {item for item in vars(getattr(module, name)) if not item.startswith("_")}
                self.assertEqual({item for item in members[name] if not item.startswith("_")}, found, name)


if __name__ == "__main__":
    unittest.main()
