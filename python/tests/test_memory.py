# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

import copy
import ctypes
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tarn
from tarn.devices import Stream
from tarn.errors import error_of


def fill(block, value):
    ctypes.memset(block.ptr, value, block.nbytes)


def test_a_block_is_freed_when_it_is_closed_or_collected():
    before = tarn.memory_allocated()
    block = tarn.alloc(5000, tag="weights")
    assert block.ptr % 512 == 0 and len(block) == 5000
    assert tarn.memory_allocated() > before
    assert block.info.requested == 5000 and block.info.usable_size >= 5000
    block.close()
    block.close()
    assert block.ptr == 0 and tarn.memory_allocated() == before
    kept = tarn.alloc(100)
    del kept
    gc.collect()
    assert tarn.memory_allocated() == before


def test_a_block_is_of_its_streams_device():
    stream, pool = tarn.Stream(1), tarn.Pool(1)
    with tarn.Device(1), pool:
        with tarn.Device(0):
            for options in ({}, {"tag": "of the other device"}, {"device": 1}):
                block = tarn.alloc(100, stream=stream, **options)
                assert block.device == tarn.Device(1) and block.info.device == 1 and block.info.pool.second == pool.id.second
    block = tarn.alloc(100, stream=stream)
    assert block.device == tarn.Device(1) and block.info.pool.second == 0
    for options in ({}, {"tag": "of none"}):
        with pytest.raises(tarn.InvalidStreamError, match="of device 1, not of device 0"):
            tarn.alloc(100, stream=stream, device=0, **options)


def test_a_block_of_0_bytes_is_nothing():
    block = tarn.alloc(0)
    assert block.ptr == 0 and len(block) == 0
    block.close()
    assert "0 bytes" in repr(block)


def test_a_closed_block_says_so():
    stream, block, pinned = tarn.Stream(), tarn.alloc(100), tarn.pinned(100)
    view = block.view((100,))
    for closed in (block, pinned):
        closed.close()
        with pytest.raises(tarn.InvalidArgumentError, match="the block was freed"):
            closed.record_stream(stream)
    for call in (lambda: block.info, lambda: block.extend(200), lambda: view.ptr, lambda: pinned.buffer):
        with pytest.raises(tarn.InvalidArgumentError, match="the block was freed"):
            call()
    tarn.alloc(0).record_stream(stream)
    tarn.pinned(0).record_stream(stream)


def test_a_failed_close_can_be_tried_again():
    block = tarn.alloc(100)
    with pytest.raises(tarn.InvalidStreamError):
        block.close(stream=Stream._of(0xdead0000))
    assert block.ptr
    block.close()


def test_alignment_device_stream_and_pool_are_honoured():
    stream = tarn.Stream(device=1)
    pool = tarn.Pool(device=1)
    block = tarn.alloc(70000, stream=stream, device=1, alignment=1 << 20)
    inside = tarn.alloc(100, pool=pool)
    assert block.ptr % (1 << 20) == 0
    assert block.info.device == 1 and block.info.stream == stream.value
    assert inside.info.device == 1 and (inside.info.pool.first, inside.info.pool.second) == pool.id
    inside.close()
    block.close()


def test_errors_say_what_python_calls_them():
    with pytest.raises(MemoryError) as error:
        tarn.alloc(1 << 40)
    assert isinstance(error.value, tarn.OutOfMemoryError) and error.value.status == tarn.Status.TARN_ERROR_OUT_OF_MEMORY
    assert "1 TiB on device 0" in str(error.value)
    with pytest.raises(ValueError, match="alignment"):
        tarn.alloc(100, alignment=3)
    with pytest.raises(tarn.InvalidDeviceError):
        tarn.alloc(100, device=7)
    with pytest.raises(tarn.ConfigurationError, match="segment"):
        tarn.configure("segment:plain")


def test_each_status_has_an_exception_in_tarn():
    statuses = [status for status in tarn.Status if status]
    kinds = {type(error_of(status)) for status in statuses}
    assert len(kinds) == len(statuses) and tarn.TarnError not in kinds
    assert all(getattr(tarn, kind.__name__) is kind and kind.__name__ in tarn.__all__ for kind in kinds)


def test_a_block_grows_in_place_or_stays():
    blocks = sorted((tarn.alloc(3 << 20) for _ in range(6)), key=lambda block: block.ptr)
    at = next(i for i in range(5) if blocks[i].ptr + (3 << 20) == blocks[i + 1].ptr)
    block, behind = blocks[at], blocks[at + 1]
    with pytest.raises(tarn.NoRoomError):
        block.extend((3 << 20) + 100)
    assert block.nbytes == 3 << 20
    behind.close()
    block.extend((3 << 20) + 100)
    assert block.nbytes == (3 << 20) + 100 and block.info.usable_size >= block.nbytes
    for block in blocks:
        block.close()


def test_streams_order_frees():
    stream = tarn.Stream()
    with stream:
        assert tarn.current_stream() == stream
        block = tarn.alloc(1 << 20)
    assert tarn.current_stream() != stream
    other = tarn.Stream()
    block.record_stream(other)
    other.wait(stream)
    event = other.record()
    event.synchronize()
    assert event.is_done()
    block.close(stream=other)
    stream.synchronize()
    assert stream.is_idle()
    stream.close()
    stream.close()
    with pytest.raises(tarn.InvalidStreamError):
        tarn.alloc(100, stream=stream)


def test_a_block_keeps_the_lease_of_its_stream():
    with tarn.Stream():
        current = tarn.alloc(4096)
    for block in (current, tarn.alloc(4096, stream=tarn.Stream()), tarn.Pool().alloc(4096, stream=tarn.Stream())):
        gc.collect()
        block.stream.synchronize()
        block.__dlpack__()
        value = block.stream.value
        block.close()
        gc.collect()
        with pytest.raises(tarn.InvalidStreamError):  # it goes back with the block
            tarn.alloc(100, stream=Stream._of(value))


def test_devices_are_current_per_thread():
    assert tarn.device_count() == 2
    with tarn.Device(1) as device:
        assert tarn.current_device() == device
        with tarn.Device(0):
            assert tarn.current_device().index == 0
        assert tarn.alloc(100).device == device
        seen = []
        thread = threading.Thread(target=lambda: seen.append(tarn.current_device().index))
        thread.start()
        thread.join()
        assert seen == [0]
    assert tarn.current_device().index == 0
    info = tarn.Device(0).memory_info()
    assert 0 < info.free <= info.total == 256 << 20
    assert tarn.Device(0).driver == "host" and tarn.Device(0).name
    found = tarn.Device(0).properties
    assert not (found.integrated or found.coherent or found.slice or found.mps or found.paged) and 38 <= found.address_bits <= 56


def test_a_device_guard_nests_with_itself():
    device = tarn.Device(1)
    with device:
        with device:
            pass
        assert tarn.current_device().index == 1
    assert tarn.current_device().index == 0


def test_threads_allocate_and_free_each_other():
    blocks = []

    def work(seed):
        for i in range(200):
            blocks.append(tarn.alloc(1 + (seed * 7919 + i * 104729) % 100000))
            if i % 3 == 0:
                blocks.pop().close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    addresses = sorted((block.ptr, block.nbytes) for block in blocks)
    assert all(a + size <= b for (a, size), (b, _) in zip(addresses, addresses[1:]))
    while blocks:
        blocks.pop().close()


def test_limit_is_read_and_set():
    unlimited = tarn.limit()
    try:
        assert tarn.limit(64 << 20) == 64 << 20 == tarn.limit()
        with pytest.raises(tarn.OutOfMemoryError):
            tarn.alloc(100 << 20)
    finally:
        tarn.limit(unlimited)


def test_pinned_memory_has_a_buffer():
    with tarn.pinned(1000) as block:
        block.buffer[:5] = b"hello"
        assert bytes(memoryview(block.buffer)[:5]) == b"hello"
        assert len(block) == 1000 and block.ptr % 8 == 0
    with pytest.raises(ValueError):
        block.buffer
    assert len(tarn.pinned(0).buffer) == 0


def pinned_bytes():
    from tarn import _c
    from tarn._library import lib
    found = _c.tarn_pinned_stats(size=ctypes.sizeof(_c.tarn_pinned_stats))
    assert lib.tarn_pinned_stats_get(ctypes.byref(found)) == 0
    return found.requested_bytes.current


@pytest.mark.parametrize("of", ["memoryview", "numpy.frombuffer", "numpy.asarray"])
def test_pinned_memory_outlives_what_is_made_of_it(of):
    numpy = pytest.importorskip("numpy")
    before = pinned_bytes()
    with tarn.pinned(5000) as block:
        made = (memoryview(block.buffer).cast("B") if of == "memoryview" else
                numpy.frombuffer(block.buffer, "u1") if of == "numpy.frombuffer" else numpy.asarray(block))
        made[:4] = numpy.frombuffer(b"mine", "u1")
    assert block.ptr == 0 and "freed" in repr(block) and pinned_bytes() == before + 5000
    other = tarn.pinned(5000)
    other.buffer[:4] = b"else"
    assert bytes(made[:4]) == b"mine"
    block.close()
    other.close()
    assert pinned_bytes() == before + 5000
    part = made[:4]
    del made
    assert pinned_bytes() == before + 5000
    del part
    assert pinned_bytes() == before


def test_a_buffer_of_pinned_memory_outlives_a_shutdown(python):
    assert python("""
        import copy, tarn
        block = tarn.pinned(1 << 20)
        view = memoryview(block.buffer).cast("B")
        view[0] = 7
        block.close()
        tarn.shutdown()
        print(view[0])
        try:
            copy.deepcopy(view.obj)
        except TypeError as error:
            print("cannot be copied" in str(error))
        """) == "7\nTrue\n"


def test_shutdown_ends_it(python):
    assert python("""
        import tarn
        block = tarn.alloc(1000)
        tarn.shutdown()
        try:
            tarn.alloc(1)
        except tarn.ShutdownError as error:
            print(type(error).__name__)
        """) == "ShutdownError\n"


def test_a_forked_child_gets_an_error_and_ends_well(python):
    assert python("""
        import os, sys, tarn
        block = tarn.alloc(1000)
        child = os.fork()
        if not child:
            try:
                tarn.alloc(1)
            except tarn.ForkedError:
                del block
                sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """) == "7\n"


def test_what_a_forked_child_inherits_has_a_text(python):
    assert python("""
        import os, sys, tarn
        pool = tarn.Pool()
        objects = [pool, pool.alloc(1000), tarn.alloc(1000).view((1000,)), tarn.pinned(10), tarn.Stream(), tarn.Event(), tarn.Device(0)]
        with pool.scope() as scope:
            objects.append(scope)
            child = os.fork()
            if not child:
                try:
                    texts = [repr(each) for each in objects]
                    assert "unknown" in texts[0], texts
                    os._exit(7)
                finally:
                    os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """) == "7\n"


def test_importing_starts_nothing(python):
    """No thread, no device: a driver that does not exist is found out by the first call that needs one."""
    assert python("""
        import tarn, threading
        print(len([line for line in open("/proc/self/maps") if "libcuda" in line or "libamdhip" in line]), threading.active_count())
        try:
            tarn.device_count()
        except tarn.TarnError as error:
            print("refused")
        """, TARN_DRIVER="no-such-driver") == "0 1\nrefused\n"


def test_a_library_that_is_missing_is_named(python):
    assert "no-such.so" in python("""
        try:
            import tarn
        except ImportError as error:
            print(error)
        """, TARN_LIBRARY="/no-such.so")


def test_the_interpreter_ends_with_live_objects(python):
    python("""
        import tarn
        keep = [tarn.alloc(1000), tarn.Stream(), tarn.Pool(), tarn.pinned(10), tarn.Event()]
        keep.append(keep)
        """)


def test_threads_share_devices_and_streams_that_they_enter():
    """The first to enter is the first to leave: each gets back what it had."""
    device, stream, turn, seen = tarn.Device(1), tarn.Stream(0), threading.Barrier(2, timeout=20), {}

    def work(first):
        tarn.set_device(0 if first else 1)
        own = tarn.current_stream(0)
        for shared in (device, stream):
            if not first:
                turn.wait()
            with shared:
                if first:
                    turn.wait()
                turn.wait()  # both are inside
                if not first:
                    turn.wait()
            if first:
                turn.wait()
        seen[first] = (tarn.current_device().index, tarn.current_stream(0) == own)
    threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {True: (0, True), False: (1, True)}
    with pytest.raises(tarn.ScopeError, match="has not entered"):
        device.__exit__(None, None, None)
    stream.close()


def test_a_closed_pool_serves_nobody():
    pool = tarn.Pool(0)
    pool.close()
    with pytest.raises(tarn.InvalidArgumentError):
        tarn.alloc(1000, pool=pool)
    with pytest.raises(tarn.InvalidArgumentError):
        tarn.alloc(1000, device=0, pool=pool)


def test_a_spiller_is_asked_until_the_request_has_room(capsys):
    tarn.limit(64 << 20)
    cache = [tarn.alloc(10 << 20) for _ in range(5)]
    asked = []

    def spill(shortage):
        asked.append(shortage)
        if cache:
            cache.pop().close()
            return True
        raise ValueError("nothing is left")

    try:
        with pytest.raises(TypeError, match="^spill: "):
            tarn.Spiller(5)
        with pytest.raises(TypeError):
            copy.copy(tarn.Spiller(spill))
        for spiller in list(tarn.spilling._spillers.values()):
            spiller.close()
        with tarn.Spiller(spill, device=0) as spiller:
            block = tarn.alloc(30 << 20)
            assert 0 < len(cache) <= 3 and len(asked) == 5 - len(cache)
            assert asked[0].requested == 30 << 20 and asked[0].device == 0 and asked[0].limit == 64 << 20
            with pytest.raises(tarn.OutOfMemoryError):
                tarn.alloc(60 << 20)
            assert not cache and "nothing is left" in capsys.readouterr().err
        spiller.close()
        asked.clear()
        with pytest.raises(tarn.OutOfMemoryError):
            tarn.alloc(60 << 20)
        assert not asked
        block.close()
    finally:
        tarn.limit(2**64 - 1)


def test_a_spiller_is_asked_before_growth(capsys):
    tarn._library.lib.tarn_device_trim(0, 0)
    cache = [tarn.alloc(30 << 20)]
    asked = []

    def grows(device, nbytes):
        asked.append((device, nbytes))
        if cache:
            cache.pop().close()
            return True
        raise ValueError("grow, then")

    for wrong in ({}, {"before_growth": 5}):
        with pytest.raises(TypeError, match="before_growth"):
            tarn.Spiller(**wrong)
    with tarn.Spiller(before_growth=grows, device=0), tarn.alloc(30 << 20, device=0) as block:
        assert not cache and len(asked) == 1 and asked[0][0] == 0 and asked[0][1] >= block.nbytes
        with tarn.alloc(30 << 20, device=0):
            assert len(asked) == 2 and "grow, then" in capsys.readouterr().err
    tarn.alloc(60 << 20, device=0).close()
    assert len(asked) == 2


def test_the_last_error_is_for_everyone():
    with pytest.raises(tarn.OutOfMemoryError) as caught:
        tarn.alloc(1 << 40)
    assert tarn.last_error() == str(caught.value) and "1 TiB" in tarn.last_error()


def test_a_request_that_cannot_succeed_leaves_the_cache():
    tarn.limit(64 << 20)
    cache = [tarn.alloc(10 << 20) for _ in range(5)]
    asked = []

    def spill(shortage):
        asked.append(shortage.rejected)
        if cache:
            cache.pop().close()
            return True
        return False

    try:
        with tarn.Spiller(spill), pytest.raises(tarn.OutOfMemoryError):
            tarn.alloc(1 << 30)
        assert asked == [True] and len(cache) == 4
        with tarn.Spiller(spill), tarn.alloc(30 << 20):
            assert asked[1:] and not any(asked[1:])
    finally:
        tarn.limit(2**64 - 1)
        for block in cache:
            block.close()


def test_an_allocation_may_refuse_to_wait():
    for wait in (0, 1e-9, 0.5, 1e30):
        tarn.alloc(3 << 20, wait=wait).close()
    for wait in (-1, float("nan")):
        with pytest.raises(tarn.InvalidArgumentError):
            tarn.alloc(100, wait=wait)
    pool = tarn.Pool()
    with pytest.raises(tarn.OutOfMemoryError):
        tarn.alloc(1 << 40, pool=pool, wait=0)
    pool.close()


def test_the_example_spills():
    example = Path(__file__).parents[2] / "examples/spill.py"
    printed = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True, timeout=120).stdout
    assert printed == "3 blocks of 10 MiB are left beside the one of 30 MiB\n"
