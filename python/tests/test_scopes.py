# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What `with` begins ends with it, whatever runs in between and in whatever order: for tarn's own calls by the context, for what PyTorch and
CuPy ask of C by the thread."""

import asyncio
import contextlib
import contextvars
import gc
import signal
import sys
import threading
import time

import pytest

import tarn
import tarn.adaptors
from tarn._entered import scopes
from tarn._library import lib


def pool_of(block):
    return (block.info.pool.first, block.info.pool.second)


def pool_here():
    return pool_of(tarn.alloc(1000))


def pool_in_c(device=0):
    """Where an allocation of another library of this thread goes."""
    return pool_of(tarn.Block(tarn.adaptors.take(device, 0, 1000), 1000, device, 0))


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    gc.collect()
    assert pool_here() == pool_in_c() == (0, 0) and tarn.current_device().index == 0
    # What an exception broke off may leave an entry that has ended; the next `with` drops it.
    assert not scopes.begun and not any(entry.is_open() for entry in scopes.entered) and not scopes.unstated


def is_left(pool):
    """Whether nobody but its creator holds a pool. A thread leaves its scopes when it ends, which is after join()."""
    end = time.monotonic() + 20
    while pool.use_count > 1 and time.monotonic() < end:
        time.sleep(0.001)
    return pool.use_count == 1


def in_thread(work):
    """Runs a function in a thread of its own, and gives what it returned."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(20)
    return found[0]


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_tasks_have_scopes_of_their_own():
    first, second = tarn.Pool(), tarn.Pool()

    async def work(pool, before, inside):
        await turns(before)
        with pool:
            for _ in range(inside):
                assert pool_here() == pool.id
                await turns(1)
        assert pool_here() == (0, 0)

    async def outside():
        for _ in range(8):
            assert pool_here() == (0, 0)
            await turns(1)

    async def main():
        await asyncio.gather(work(first, 0, 3), work(second, 1, 5), work(first, 2, 4), outside())
    for _ in range(2):
        asyncio.run(main())
    assert first.use_count == second.use_count == 1


def test_tasks_have_streams_and_devices_of_their_own():
    before, streams = tarn.current_stream(), [tarn.Stream(), tarn.Stream(device=1), tarn.Stream()]

    async def work(stream, device, delay):
        await turns(delay)
        with stream:
            await turns(3)
            assert tarn.current_stream() == stream and tarn.current_device() == stream.device
            assert tarn.alloc(100).stream == stream and tarn.alloc(100).device == stream.device
            with device:
                await turns(2)
                assert tarn.current_device() == device
            assert tarn.current_device() == stream.device
            with tarn.Stream.legacy():
                await turns(1)
                assert tarn.current_device() == stream.device
                assert tarn.current_stream() != stream and tarn.current_stream().device == stream.device

    async def outside():
        for _ in range(8):
            assert tarn.current_stream() == before and tarn.current_device().index == 0
            assert tarn.alloc(100).info.device == 0
            await turns(1)

    async def main():
        await asyncio.gather(*(work(stream, tarn.Device(at % 2), at) for at, stream in enumerate(streams)), outside())
    asyncio.run(main())
    assert tarn.current_stream() == before


def test_what_c_would_take_from_the_thread_is_the_contexts(monkeypatch):
    """The device of a range, and the stream of pinned memory."""
    stream, before, asked, allocate = tarn.Stream(device=1), tarn.current_stream(), [], lib.tarn_pinned_alloc
    monkeypatch.setattr(lib, "tarn_pinned_alloc", lambda value, *more: asked.append(value) or allocate(value, *more))

    async def inside():
        with stream:
            await turns(2)

    async def outside():
        await turns(1)
        assert tarn.Range(2 << 20).device.index == 0
        tarn.pinned(100)

    async def main():
        await asyncio.gather(inside(), outside())
    asyncio.run(main())
    assert asked == [before.value]


def test_a_device_that_is_set_is_the_contexts():
    async def inside():
        with tarn.Device(1):
            await turns(2)
            assert tarn.current_device().index == 1
            tarn.set_device(0)
            tarn.set_device(0)
            assert tarn.current_device().index == 0 and tarn.alloc(10).info.device == 0
            with tarn.Device(1):
                assert tarn.current_device().index == 1
            assert tarn.current_device().index == 0
            await turns(2)
        assert tarn.current_device().index == 1  # what the other has set meanwhile

    async def outside():
        await turns(1)
        tarn.set_device(1)
        assert tarn.current_device().index == 1
        await turns(5)
        assert tarn.current_device().index == 1
        tarn.set_device(0)

    async def main():
        await asyncio.gather(inside(), outside())
    asyncio.run(main())


def test_a_scope_of_another_device_is_begun_and_ended_there():
    pools = [tarn.Pool(0), tarn.Pool(1)]

    async def work(at, inside):
        with tarn.Device(at):
            await turns(1)
            with pools[at]:
                await turns(inside)
                assert pool_here() == pools[at].id and tarn.alloc(10, device=1 - at).info.pool.second == 0
            with pytest.raises(tarn.InvalidDeviceError):
                pools[1 - at].__enter__()

    async def main():
        await asyncio.gather(work(0, 2), work(1, 4))
    asyncio.run(main())
    with pytest.raises(tarn.InvalidDeviceError):
        with pools[1]:
            pass
    assert pools[0].use_count == pools[1].use_count == 1


def test_other_libraries_follow_the_thread():
    """What is newest there and open: in whatever order the others end."""
    pools = [tarn.Pool() for _ in range(4)]
    stacks = [contextvars.copy_context() for _ in pools]
    for pool, context in zip(pools, stacks):
        context.run(pool.__enter__)
        assert pool_in_c() == pool.id and pool_here() == (0, 0)
    for left, newest in ((1, 3), (3, 2), (0, 2), (2, None)):
        stacks[left].run(pools[left].__exit__, None, None, None)
        assert pool_in_c() == ((0, 0) if newest is None else tuple(pools[newest].id))
    assert [pool.use_count for pool in pools] == [1] * 4


def test_the_same_pool_of_two_tasks():
    shared, other = tarn.Pool(), tarn.Pool()
    one, two, three = (contextvars.copy_context() for _ in range(3))
    one.run(shared.__enter__)
    two.run(other.__enter__)
    three.run(shared.__enter__)
    assert pool_in_c() == shared.id
    three.run(shared.__exit__)
    assert pool_in_c() == other.id and one.run(pool_here) == shared.id and three.run(pool_here) == (0, 0)
    two.run(other.__exit__)
    assert pool_in_c() == shared.id
    one.run(shared.__exit__)
    with pytest.raises(tarn.ScopeError, match="has not entered"):
        one.run(shared.__exit__)
    with shared, pytest.raises(tarn.ScopeError, match="already open"), shared:
        pass


def generator(pool):
    with pool:
        yield tarn.alloc(1000)


def test_a_generator_that_is_closed_elsewhere():
    for close in (lambda one: one.close(), lambda one: next(one, None)):
        pool = tarn.Pool()
        inside = generator(pool)
        assert pool_of(next(inside)) == pool.id
        in_thread(lambda: close(inside))
        assert pool_here() == (0, 0)
        assert pool_in_c() == (0, 0)  # with the call before
        assert pool.use_count == 1


def test_a_generator_ends_its_own_with_and_no_other():
    pool = tarn.Pool()
    inside = generator(pool)
    in_thread(lambda: next(inside))
    with pool:
        inside.close()
        assert pool_here() == pool_in_c() == pool.id
    assert is_left(pool)


def test_generators_that_take_turns():
    pools = [tarn.Pool(), tarn.Pool()]
    running = [generator(pool) for pool in pools]
    for one in running:
        next(one)
    running[0].close()
    assert pool_here() == pool_in_c() == pools[1].id
    del running[1], one
    assert pool_here() == pool_in_c() == (0, 0)
    assert [pool.use_count for pool in pools] == [1, 1]


def test_an_asynchronous_generator_that_the_loop_closes():
    pool, kept = tarn.Pool(), []

    async def inside():
        with pool:
            while True:
                yield pool_here()

    async def main():
        kept.append(inside())
        assert await kept[0].__anext__() == pool.id
    asyncio.run(main())
    assert pool_here() == (0, 0) and pool.use_count == 1


def test_a_context_goes_where_it_is_run():
    """asyncio.to_thread() runs in a copy of the task's context, and the thread keeps nothing of it."""
    pool, stream = tarn.Pool(), tarn.Stream()

    async def main():
        with pool, stream:
            assert await asyncio.to_thread(pool_here) == pool.id
            assert await asyncio.to_thread(tarn.current_stream) == stream
            assert await asyncio.to_thread(pool_in_c) == (0, 0)
            assert in_thread(pool_here) == (0, 0)
    asyncio.run(main())
    late = contextvars.copy_context()
    with pool:
        late = contextvars.copy_context()
    assert late.run(pool_here) == (0, 0)
    first, second = pool.id
    del pool
    gc.collect()
    with pytest.raises(tarn.InvalidArgumentError):  # a context that was copied inside does not keep it
        tarn.Pool.find(first, second)


def test_what_enters_without_a_statement():
    pool, stream = tarn.Pool(), tarn.Stream()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pool)
        stack.enter_context(stream)
        assert pool_here() == pool_in_c() == pool.id and tarn.current_stream() == stream
    assert pool.use_count == 1 and tarn.current_stream() != stream

    def inside():
        with contextlib.ExitStack() as stack:
            stack.enter_context(pool)
            yield
    one = inside()
    next(one)
    in_thread(one.close)
    assert pool_here() == (0, 0) and pool.use_count == 1
    pool.__enter__()
    assert pool_here() == pool.id
    pool.__exit__(None, None, None)
    assert hasattr(pool, "__exit__") and pool_here() == (0, 0)


def test_a_pool_that_is_closed_inside():
    pool = tarn.Pool()
    with pool:
        pool.close()
    with pytest.raises(tarn.InvalidArgumentError):
        with pool:
            pass


def test_an_end_that_fails_is_made_up_for(monkeypatch):
    pool = tarn.Pool()
    with pytest.raises(tarn.BusyError):
        with pool:
            monkeypatch.setattr(type(scopes.begun[0]), "end", lambda entry: tarn.Status.TARN_ERROR_BUSY)
    assert pool_here() == (0, 0) and pool_in_c() == pool.id
    monkeypatch.undo()
    assert pool_here() == pool_in_c() == (0, 0) and pool.use_count == 1


def test_newer_scopes_of_streams_and_of_all_win():
    """In a thread that has other scopes too, as in one that has not."""
    own, newer, stream = tarn.Pool(), tarn.Pool(), tarn.Stream()

    async def other():
        with tarn.Pool():
            await turns(3)

    async def main():
        task = asyncio.ensure_future(other())
        for kind, given in (("stream", stream), ("always", None)):
            with own:
                await turns(1)
                with newer.scope(kind, given):
                    assert pool_of(tarn.alloc(10, stream=stream)) == newer.id
                    assert pool_here() == (own.id if kind == "stream" else newer.id)
                    with contextlib.closing(contextlib.ExitStack()) as stack:
                        newest = stack.enter_context(tarn.Pool())
                        assert pool_of(tarn.alloc(10, stream=stream)) == newest.id
            with newer.scope(kind, given):
                assert pool_here() == ((0, 0) if kind == "stream" else newer.id)
        await task
    asyncio.run(main())


def test_workers_join_while_the_scope_is_open():
    pool = tarn.Pool()
    with pool.scope() as scope:
        with pytest.raises(tarn.ScopeError, match="already open"):
            with scope.joined():
                pass
        steps = iter(worker(scope, pool))
        in_thread(lambda: next(steps))
    assert is_left(pool)

    def late():
        with pytest.raises(tarn.ScopeError, match="has ended"):
            with scope.joined():
                pass
        return pool_here()
    assert in_thread(late) == (0, 0)
    with pool.scope("always") as everywhere, pytest.raises(tarn.ScopeError, match="cannot be joined"), everywhere.joined():
        pass


def worker(scope, pool):
    with scope.joined():
        assert pool_here() == pool_in_c() == pool.id
        yield


def test_a_scope_that_ends_under_its_worker():
    pool, turn = tarn.Pool(), threading.Barrier(2, timeout=20)

    def work():
        with scope.joined():
            turn.wait()
            turn.wait()
            return pool_here(), pool_in_c()
    found = []
    with pool.scope() as scope:
        thread = threading.Thread(target=lambda: found.append(work()))
        thread.start()
        turn.wait()
    turn.wait()
    thread.join()
    assert found == [((0, 0), (0, 0))] and is_left(pool)


def test_regions_end_in_whatever_order():
    one, two = (contextvars.copy_context() for _ in range(2))
    regions = [tarn.region("first"), tarn.region("second")]
    one.run(regions[0].__enter__)
    two.run(regions[1].__enter__)
    one.run(regions[0].__exit__, None, None, None)
    two.run(regions[1].__exit__, None, None, None)
    assert tarn._library.lib.tarn_region_pop() == tarn.Status.TARN_ERROR_INVALID_ARGUMENT  # there is none


class Late(BaseException):
    """What a signal handler raises."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("delay", [3e-6, 20e-6, 90e-6])
def test_an_exception_of_a_signal_handler_at_any_point(delay):
    """A `with` that is broken off, before, inside or after: nothing of it stays."""
    pool, other, stream = tarn.Pool(), tarn.Pool(), tarn.Stream()
    before = tarn.current_stream()

    def handler(number, frame):
        raise Late
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        for round in range(400):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, delay * (1 + round % 7))
                    for _ in range(50):
                        with pool, stream:
                            with other.scope():
                                pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:
                pass
            except BaseException as error:
                assert isinstance(error.__context__, Late), error
            assert pool_here() == (0, 0) and tarn.current_stream() == before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert pool_in_c() == (0, 0)
    assert pool.use_count == other.use_count == 1


def interrupted_at(step, work):
    """Runs a function and raises Late at one of the instructions that the package executes for it. False where there are fewer."""
    left = [step]

    def trace(frame, event, argument):
        if "tarn" not in frame.f_globals.get("__name__", ""):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                raise Late
        return trace
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at it in settrace() alone (python/cpython#103615)
    sys.settrace(trace)
    try:
        work()
    except Late:
        pass
    finally:
        sys.settrace(None)
    return left[0] <= 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("order", ["nested", "crossed"])
def test_an_exception_at_each_instruction(order):
    """As the test before, and at all points, of a thread that has other scopes open, too."""
    pools, streams = [tarn.Pool(), tarn.Pool()], [tarn.Stream(), tarn.Stream()]
    before = tarn.current_stream()

    def inside(at):
        with pools[at], streams[at]:
            yield

    def work():
        first, second = inside(0), inside(1)
        next(first)
        next(second)
        for one in (first, second) if order == "crossed" else (second, first):
            one.close()
        with pools[0].scope("always"), pools[1].scope("stream", streams[0]):
            pass
    step = 1
    while interrupted_at(step, work):
        assert pool_here() == (0, 0) and tarn.current_stream() == before, step
        assert pool_in_c() == (0, 0), step
        step += 3 if step > 100 else 1
    assert step > 300
    assert pools[0].use_count == pools[1].use_count == 1
