# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""A random program against a model of what it may see: blocks with contents, copies, scopes, devices and streams, in threads, tasks and
generators, which end in whatever order and by whatever exception; and programs that end in the middle of it.

An actor is a thread, or a task of the main thread: a context of its own there. Each `with` is the frame of a generator, so that any actor
can end it. The model keeps, for each context, what was entered in it, and for each thread, what was entered there."""

import contextvars
import copy
import ctypes
import gc
import itertools
import pickle
import queue
import threading

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tarn
import tarn.adaptors
from tarn._entered import guards, scopes

PLAIN = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


class Thread:
    """A thread that does what it is told, one thing at a time. The main thread does it itself."""

    def __init__(self, is_main):
        self.entered = []
        self.orders = None if is_main else queue.SimpleQueue()
        self.answers = queue.SimpleQueue()
        if not is_main:
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()

    def work(self):
        for order in iter(self.orders.get, None):
            try:
                self.answers.put((order(), None))
            except BaseException as error:
                self.answers.put((None, error))
            del order

    def run(self, order):
        if self.orders is None:
            return order()
        self.orders.put(order)
        del order
        answer, error = self.answers.get(timeout=60)
        if error is not None:
            raise error
        return answer

    def end(self):
        if self.orders is not None:
            self.orders.put(None)
            self.thread.join(60)


class Actor:
    """A context, and the thread in which it runs."""

    def __init__(self, thread, context, chain):
        self.thread, self.context, self.chain = thread, context, list(chain)

    def run(self, function, *arguments):
        return self.thread.run(lambda: self.context.run(function, *arguments))

    def innermost(self, kinds, device=None):
        """What the model says that is innermost."""
        return next((one for one in reversed(self.chain) if one.is_open and one.kind in kinds and device in (None, one.device)), None)

    def device(self):
        one = self.innermost(("device", "stream"))
        return one.device if one else 0


class With:
    """An open `with`, as the model has it."""

    def __init__(self, kind, target, device, actor, frame):
        self.kind, self.target, self.device, self.actor, self.frame, self.is_open = kind, target, device, actor, frame, True


class Stop(Exception):
    pass


def frame(manager):
    with manager:
        yield


def pool_of(address):
    info = tarn.Block(address, 0, 0, 0)
    try:
        return info.info.pool.first, info.info.pool.second
    finally:
        info._pointer = 0


def pool_in_c(device):
    """Where C puts an allocation of another library of this thread."""
    address = tarn.adaptors.take(device, 0, 100)
    try:
        return pool_of(address)
    finally:
        tarn._library.lib.tarn_free(address)


class Program(RuleBasedStateMachine):
    @initialize()
    def start(self):
        gc.collect()
        self.pools = [tarn.Pool(0), tarn.Pool(0), tarn.Pool(1)]
        self.streams = [tarn.Stream(0), tarn.Stream(1)]
        main = Thread(True)
        self.threads = [main, Thread(False), Thread(False)]
        self.actors = [Actor(thread, thread.run(contextvars.copy_context), ()) for thread in self.threads]
        self.before = {(thread, device): thread.run(lambda device=device: tarn.current_stream(device))
                       for thread in self.threads for device in (0, 1)}
        self.open, self.blocks, self.pattern = [], [], itertools.count(1)

    # Blocks: whatever becomes of the objects, live memory is of one block alone.

    @rule(at=st.integers(0, 99), size=st.sampled_from([1, 100, 4096, 70000, 3 << 20]), pinned=st.booleans(), stream=st.integers(-1, 1))
    def allocate(self, at, size, pinned, stream):
        actor = self.actors[at % len(self.actors)]
        if pinned:
            block = actor.run(tarn.pinned, size)
        else:
            chosen = None if stream < 0 else self.streams[stream]
            block = actor.run(lambda: tarn.alloc(size, stream=chosen, device=None if chosen is None else stream))
            self.look(actor, block, chosen)
        value = next(self.pattern) % 251
        ctypes.memset(block.ptr, value, size)
        self.blocks.append((block, value, size))

    def look(self, actor, block, chosen):
        device = block.info.device
        assert device == (actor.device() if chosen is None else chosen.device.index)
        scope = actor.innermost(("pool", "scope"), device)
        assert (block.info.pool.first, block.info.pool.second) == (scope.target.id if scope else (0, 0))
        if chosen is None:
            stream = actor.innermost(("stream",), device)
            assert block.stream == (stream.target if stream else self.before[actor.thread, device])

    @precondition(lambda self: self.blocks)
    @rule(at=st.integers(0, 99), by=st.integers(0, 99), how=st.sampled_from(["close", "drop", "cycle"]))
    def free(self, at, by, how):
        block, _, _ = self.blocks.pop(at % len(self.blocks))
        actor = self.actors[by % len(self.actors)]
        if how == "close":
            actor.run(block.close)
        elif how == "cycle":
            kept = [block]
            kept.append(kept)

    @precondition(lambda self: self.blocks)
    @rule(at=st.integers(0, 99), way=st.sampled_from([copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]),
          what=st.sampled_from(["block", "pool", "stream"]))
    def copy(self, at, way, what):
        """There is no copy; if there were one, it would be dropped now, and what is checked later would show it."""
        one = {"block": self.blocks[at % len(self.blocks)][0], "pool": self.pools[at % 3], "stream": self.streams[at % 2]}[what]
        try:
            way(one)
        except TypeError:
            pass

    @rule(number=st.one_of(st.integers(-5, 5), st.integers(2**64 - 5, 2**64 + 5), st.integers(2**32 - 2, 2**32 + 2)),
          what=st.sampled_from(["size", "pinned", "limit", "device", "alignment"]))
    def number(self, number, what):
        """An integer means itself, or an error."""
        try:
            if what == "limit":
                pool = tarn.Pool(limit=number)
                assert pool.limit == number
            elif what == "device":
                assert tarn.Device(number).properties.size and number in (0, 1)
            elif what == "alignment":
                assert tarn.alloc(100, alignment=number).ptr % max(number, 1) == 0
            else:
                block = tarn.alloc(number) if what == "size" else tarn.pinned(number)
                assert block.nbytes == number and number < 1 << 33
        except (ValueError, OverflowError, MemoryError):
            assert number < 0 or number > 2**31 or what in ("device", "alignment")

    # What `with` begins

    @rule(at=st.integers(0, 99), kind=st.sampled_from(["pool", "pool", "scope", "device", "stream"]), which=st.integers(0, 5))
    def enter(self, at, kind, which):
        actor = self.actors[at % len(self.actors)]
        if kind in ("pool", "scope"):
            target = self.pools[which % 3]
            device = int(which % 3 == 2)
            manager = target if kind == "pool" else target.scope()
            twice = any(one.is_open and one.kind in ("pool", "scope") and one.target is target and one.actor.thread is actor.thread
                        for one in actor.chain)
            refused = tarn.InvalidDeviceError if device != actor.device() else tarn.ScopeError if twice else None
        else:
            device = which % 2
            target = manager = tarn.Device(device) if kind == "device" else self.streams[device]
            refused = None
        new = With(kind, target, device, actor, frame(manager))
        if refused:
            with pytest.raises(refused):
                actor.run(next, new.frame)
            return
        actor.run(next, new.frame)
        actor.chain.append(new)
        actor.thread.entered.append(new)
        self.open.append(new)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 99), by=st.integers(0, 99), how=st.sampled_from(["next", "close", "throw", "drop"]))
    def leave(self, at, by, how):
        """In whatever order, by whatever actor, in whatever way."""
        old = self.open.pop(at % len(self.open))
        actor = self.actors[by % len(self.actors)] if by % 3 == 0 else old.actor
        frame, old.frame = [old.frame], None
        old.is_open = False

        def end():
            one = frame.pop()
            if how == "throw":
                with pytest.raises(Stop):
                    one.throw(Stop())
            elif how == "next":
                assert next(one, "ended") == "ended"
            elif how == "close":
                one.close()
        actor.run(end)

    @precondition(lambda self: len(self.actors) < 7)
    @rule(at=st.integers(0, 99))
    def task(self, at):
        """A task begins in a copy of the context."""
        actor = self.actors[at % len(self.actors)]
        self.actors.append(Actor(actor.thread, actor.run(contextvars.copy_context), actor.chain))

    @rule(at=st.integers(0, 99))
    def set_device(self, at):
        """Inside of `with tarn.Device()` it lasts as long as that."""
        actor = self.actors[at % len(self.actors)]

        def inside():
            before = tarn.current_device().index
            with tarn.Device(before):
                tarn.set_device(1 - before)
                assert tarn.current_device().index == 1 - before
            assert tarn.current_device().index == before
        actor.run(inside)

    # What must be true all the time

    @invariant()
    def contents_are_kept(self):
        spans = []
        for block, value, size in getattr(self, "blocks", ()):
            assert ctypes.string_at(block.ptr, size) == bytes([value]) * size
            spans.append((block.ptr, size))
        spans.sort()
        assert all(first + size <= second for (first, size), (second, _) in zip(spans, spans[1:])), "live blocks share memory"

    @invariant()
    def each_context_has_its_own(self):
        for actor in getattr(self, "actors", ()):
            actor.run(self.check_context, actor)

    def check_context(self, actor):
        assert tarn.current_device().index == actor.device()
        for device in (0, 1):
            block = tarn.alloc(100, device=device)
            scope = actor.innermost(("pool", "scope"), device)
            assert (block.info.pool.first, block.info.pool.second) == (scope.target.id if scope else (0, 0))
            stream = actor.innermost(("stream",), device)
            assert tarn.current_stream(device) == (stream.target if stream else self.before[actor.thread, device])
            newest = next((one for one in reversed(actor.thread.entered) if one.is_open and one.kind in ("pool", "scope")
                           and one.device == device), None)
            assert pool_in_c(device) == (newest.target.id if newest else (0, 0))

    def teardown(self):
        if not hasattr(self, "threads"):
            return
        while self.open:
            self.leave(0, 1, "close")
        for actor in self.actors:
            actor.run(self.check_context, actor)
        for thread in self.threads:
            thread.run(lambda: self.nothing_is_open())
        assert [pool.use_count for pool in self.pools] == [1, 1, 1]
        for thread in self.threads:
            thread.end()
        self.blocks.clear()
        for pool in self.pools:
            pool.close()

    @staticmethod
    def nothing_is_open():
        for track in (scopes, guards):
            track.refresh()
            assert not track.begun and not track.unstated


Program.TestCase.settings = settings(PLAIN, max_examples=30, stateful_step_count=40)
test_a_random_program = Program.TestCase


# Programs that end ------------------------------------------------------------------------------------------------------------------

STATEMENTS = {
    "blocks": "keep += [tarn.alloc(1000), tarn.pinned(10), tarn.Pool().alloc(5000), tarn.alloc(10).view((10,))]",
    "cycle": "keep.append(keep)",
    "streams": "keep += [tarn.Stream(), tarn.Event(), tarn.Stream().record()]; keep[-3].__enter__()",
    "pool": "pool = tarn.Pool(); keep.append(pool); pool.__enter__()",
    "scope": "scope = tarn.Pool().scope(); scope.__enter__(); keep.append(scope)",
    "generator": "one = generator(); next(one); keep.append(one)",
    "task": "import asyncio; loop = asyncio.new_event_loop(); keep.append(loop.create_task(task())); loop.run_until_complete(asyncio.sleep(0))",
    "thread": "threading.Thread(target=lambda: attempt('work()'), daemon=True).start()",
    "waiting": "threading.Thread(target=lambda: [time.sleep(0.05), attempt('keep.append(tarn.alloc(10))')]).start()",
    "local": "local = threading.local(); local.block = tarn.alloc(10); local.pool = tarn.Pool()",
    "atexit": "atexit.register(lambda: attempt('keep.append(tarn.alloc(100))'))",
    "module": "sys.modules['kept'] = tarn.alloc(100)",
    "sleeper": "tarn.Sleeper('one', commit=int, wake=int, held=int); tarn.sleep()",
    "dlpack": "keep.append(tarn.alloc(10).__dlpack__())",
    "copy": "pytest_raises(lambda: copy.copy(tarn.alloc(100)))",
    "shutdown": "tarn.shutdown()",
    "fork": "os.fork() or sys.exit(0)",
    "inside": "with tarn.Pool(), tarn.Stream(), tarn.region('one'): os.fork() or sys.exit(0)",
}
ENDS = {"return": ("", 0), "exit": ("sys.exit(5)", 5), "error": ("raise Stop", 1), "collect": ("keep.clear(); gc.collect()", 0)}
PROGRAM = """
import atexit, copy, gc, os, sys, threading, time
import tarn

class Stop(Exception):
    pass

keep = []
BEHIND = (tarn.ShutdownError, tarn.ForkedError, tarn.SuspendedError)  # what others have ended: also in threads, tasks and at the exit

def generator():
    with tarn.Pool(), tarn.Stream():
        yield tarn.alloc(100)

async def task():
    import asyncio
    try:
        with tarn.Pool():
            keep.append(tarn.alloc(100))
            await asyncio.sleep(1000)
    except BEHIND:
        pass

def work():
    with tarn.Pool(), tarn.Stream():
        while True:
            tarn.alloc(1000).close()

def pytest_raises(call):
    try:
        call()
    except TypeError:
        return
    raise AssertionError("a copy")

def attempt(text):
    try:
        exec(text, globals())
    except BEHIND:
        pass
"""


@settings(PLAIN, max_examples=25)
@example(statements=["scope", "pool", "fork"], end="collect")
@given(statements=st.lists(st.sampled_from(sorted(STATEMENTS)), min_size=1, max_size=5, unique=True), end=st.sampled_from(sorted(ENDS)))
def test_a_program_ends_as_it_says(program, statements, end):
    text, status = ENDS[end]
    lines = [PROGRAM, *(f"attempt({STATEMENTS[name]!r})" for name in statements), text]
    ended = program("\n".join(lines))
    told = [line for line in ended.stderr.splitlines() if "Task was destroyed" not in line and not line.startswith("task: <Task")]
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.count("Traceback") == (end == "error") and (told == [] or end == "error"), ended.stderr


@pytest.fixture(scope="module")
def program():
    import os
    import subprocess
    import sys
    return lambda text: subprocess.run([sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", text], capture_output=True, text=True, timeout=120,
                                       env={**os.environ, "TARN_HOST_DEVICES": "2"})
