# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

import ctypes
import threading
import time

import pytest

import tarn


def pool_of(block):
    return (block.info.pool.first, block.info.pool.second)


def test_a_pool_serves_the_thread_inside():
    pool = tarn.Pool()
    with pool:
        inside = tarn.alloc(1000)
        with pytest.raises(tarn.ScopeError):
            pool.__enter__()
    outside = tarn.alloc(1000)
    assert pool_of(inside) == pool.id and pool_of(outside) == (0, 0)
    assert [block.address for block in pool.blocks()] == [inside.ptr]
    assert pool.stats()["allocation.all.current"] == 1
    del inside
    assert pool.blocks() == []


def test_workers_join_a_scope():
    pool, found = tarn.Pool(), []
    with pool.scope() as scope:
        def work():
            with scope.joined():
                found.append(tarn.alloc(100))
            found.append(tarn.alloc(100))
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    assert [pool_of(block) for block in found] == [tuple(pool.id), (0, 0)]
    found.clear()


def test_scopes_of_streams_and_for_all():
    pool, stream = tarn.Pool(), tarn.Stream()
    with pool.scope("stream", stream):
        assert pool_of(tarn.alloc(10, stream=stream)) == pool.id
        assert pool_of(tarn.alloc(10)) == (0, 0)
    with pool.scope("always"):
        assert pool_of(tarn.alloc(10)) == pool.id
    with pytest.raises(ValueError, match="sometimes"):
        with pool.scope("sometimes"):
            pass


def test_an_exception_ends_the_scope():
    pool = tarn.Pool()
    with pytest.raises(KeyError):
        with pool:
            raise KeyError
    assert pool_of(tarn.alloc(10)) == (0, 0)


def test_limit_trim_and_release():
    pool = tarn.Pool(limit=40 << 20)
    assert pool.limit == 40 << 20
    block = pool.alloc(30 << 20)
    with pytest.raises(tarn.OutOfMemoryError):
        pool.alloc(30 << 20)
    block.close()
    pool.trim()
    assert pool.stats()["reserved_bytes.all.current"] == 0
    assert pool.use_count == 1
    first, second = pool.id
    pool.close()
    pool.close()
    assert repr(pool) == "<tarn.Pool, released>"
    with pytest.raises(tarn.InvalidArgumentError):
        tarn.Pool.find(first, second)


def test_suspend_keeps_addresses_and_contents():
    pool = tarn.Pool()
    block = pool.alloc(5 << 20)
    ctypes.memset(block.ptr, 3, 100)
    address = block.ptr
    pool.suspend()
    assert pool.is_suspended and pool.stats()["reserved_bytes.all.current"] == 0
    with pytest.raises(tarn.SuspendedError):
        pool.alloc(100)
    pool.resume()
    assert not pool.is_suspended and block.ptr == address
    assert bytes((ctypes.c_char * 100).from_address(address)) == b"\3" * 100
    block.close()


def test_the_default_pool_is_a_pool():
    pool = tarn.Pool.default(1)
    assert tuple(pool.id) == (0, 0) and pool.device.index == 1
    block = tarn.alloc(100, device=1)
    assert block.ptr in [found.address for found in pool.blocks()]
    block.close()
    with pytest.raises(tarn.InvalidArgumentError):
        pool.suspend()


def test_a_block_outlives_its_pool():
    pool = tarn.Pool()
    block = pool.alloc(1000)
    del pool
    ctypes.memset(block.ptr, 1, 1000)
    block.close()


def test_a_closed_pool_says_so(tmp_path):
    pool = tarn.Pool(registrable=True)
    registration = tarn.Registration(pool, int, int)
    registration.close()
    with pytest.raises(tarn.InvalidArgumentError, match="the registration was closed"):
        registration.update()
    pool.close()
    for name in ("id", "device", "use_count", "limit", "is_suspended"):
        with pytest.raises(tarn.InvalidArgumentError, match="the pool was closed"):
            getattr(pool, name)
    calls = [pool.trim, pool.suspend, pool.resume, pool.stats, pool.blocks, pool.segments, pool.__enter__, lambda: pool.alloc(1),
             lambda: setattr(pool, "limit", 5), lambda: pool.seal(tarn.alloc(1), "a"), lambda: pool.sealed("a"),
             lambda: pool.save(tmp_path / "a"), lambda: pool.load("/dev/null"), lambda: tarn.set_pool_tag(pool, "a"),
             lambda: tarn.Registration(pool, int, int), lambda: tarn.Range(2 << 20, pool=pool),
             *(pool.scope(kind).__enter__ for kind in ("thread", "stream", "always"))]
    for call in calls:
        with pytest.raises(tarn.InvalidArgumentError, match="the pool was closed"):
            call()
    assert not list(tmp_path.iterdir())


def test_options_are_checked():
    with pytest.raises(ValueError, match="bent"):
        tarn.Pool(segments="bent")
    with pytest.raises(tarn.InvalidDeviceError):
        tarn.Pool(device=9)
    plain = tarn.Pool(segments="plain", no_split=True)
    assert plain.alloc(100).info.usable_size >= 100


def test_threads_enter_a_pool_side_by_side():
    pool, turn, errors = tarn.Pool(), threading.Barrier(2, timeout=20), []

    def work(first):
        try:
            if not first:
                turn.wait()
            with pool:
                if first:
                    turn.wait()
                turn.wait()  # both are inside
                assert pool_of(tarn.alloc(1000)) == pool.id
                if not first:
                    turn.wait()
            if first:
                turn.wait()
            assert pool_of(tarn.alloc(1000)) == (0, 0)
        except BaseException as error:
            errors.append(error)
            turn.abort()
    threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert pool.use_count == 1
    pool.close()


def test_idle_memory_goes_back_by_itself():
    quiet, kept = tarn.Pool(idle_release=5), tarn.Pool(idle_release=0)
    stream = tarn.Stream()
    for pool in (quiet, kept):
        pool.alloc(8 << 20, stream=stream).close()
    stream.synchronize()
    end = time.monotonic() + 10
    while quiet.stats()["reserved_bytes.all.current"] and time.monotonic() < end:
        time.sleep(0.005)
    assert quiet.stats()["reserved_bytes.all.current"] == 0
    assert kept.stats()["reserved_bytes.all.current"] >= 8 << 20
    with pytest.raises(ValueError, match="idle_release"):
        tarn.Pool(idle_release=-1)
