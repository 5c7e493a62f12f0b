# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Integers on their way into C, and objects that own something."""

import copy
import ctypes
import multiprocessing
import pickle
import re

import pytest

import tarn
from tarn import _c, _integers
from tarn._library import lib

UNSIGNED = [ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64]
SIGNED = [ctypes.c_int32, ctypes.c_int64]


def outside(kind):
    bits = 8 * ctypes.sizeof(kind)
    return [-1, 1 << bits, (1 << bits) + 5] if kind in UNSIGNED else [-(1 << (bits - 1)) - 1, 1 << (bits - 1), 1 << bits]


def test_no_function_of_c_gets_an_integer_that_does_not_fit():
    """All functions, all parameters: the error comes before the call, and names the parameter."""
    checked = 0
    for function, (_, kinds, names) in _c.FUNCTIONS.items():
        names = names.split()
        assert len(names) == len(kinds)
        for at, kind in enumerate(kinds):
            if kind not in UNSIGNED + SIGNED:
                continue
            for value in outside(kind) + [1.5, "4", None]:
                arguments = [0 if other in UNSIGNED + SIGNED else None for other in kinds]
                arguments[at] = value
                with pytest.raises((ValueError, OverflowError) if isinstance(value, int) else TypeError, match=f"^{names[at]}: "):
                    getattr(lib, function)(*arguments)
                checked += 1
    assert checked > 500


def test_no_field_of_c_gets_an_integer_that_does_not_fit():
    structures = [value for value in vars(_c).values() if isinstance(value, type) and issubclass(value, ctypes.Structure)]
    assert len(structures) > 30
    for structure in structures:
        for field, kind in getattr(structure, "_fields_", []):
            for value in outside(kind) if kind in UNSIGNED + SIGNED else []:
                with pytest.raises((ValueError, OverflowError), match=f"^{field}: "):
                    structure(**{field: value})


TOO_LARGE = 2**64 + 5
CALLS = {
    "size": [tarn.alloc, tarn.pinned, lambda size: tarn.Pool().alloc(size), lambda size: tarn.alloc(1).extend(size)],
    "alignment": [lambda value: tarn.alloc(1, alignment=value)],
    "device": [tarn.Device, tarn.set_device, tarn.memory_stats, tarn.Stream, tarn.Event, tarn.Pool,
               lambda value: tarn.alloc(1, device=value), lambda value: tarn.limit(device=value)],
    "stream": [lambda value: tarn.alloc(1, stream=value), lambda value: tarn.pinned(1, stream=value), tarn.Stream.find],
    "limit": [lambda value: tarn.Pool(limit=value), lambda value: setattr(tarn.Pool(), "limit", value)],
    "bytes": [tarn.limit],
    "keep": [lambda value: tarn.Pool().trim(value)],
    "count": [lambda value: tarn.prewarm("cublas", value)],
    "records": [lambda value: tarn.trace_start(records=value)],
    "max_bytes": [tarn.snapshot, lambda value: tarn.dump_snapshot("/nowhere", max_bytes=value)],
    "first": [lambda value: tarn.Pool.find(value, 1)],
    "second": [lambda value: tarn.Pool.find(0, value)],
    "priority": [lambda value: tarn.Stream(priority=value)],
}


@pytest.mark.parametrize("name", CALLS)
def test_errors_name_the_argument(name):
    before = tarn.limit()
    for call in CALLS[name]:
        with pytest.raises(OverflowError, match=f"^{name}: .*{TOO_LARGE}"):
            call(TOO_LARGE)
        with pytest.raises(TypeError, match=f"^{name}: "):
            call("4")
        if name not in ("device", "priority"):  # C's own errors of these say what there is
            with pytest.raises(ValueError, match=f"^{name}: -1 is negative"):
                call(-1)
    assert tarn.limit() == before


TEXTS = {
    "name": [lambda text: tarn.region(text).__enter__(), lambda text: tarn.Sleeper(text, commit=int, wake=int),
             lambda text: tarn.set_pool_tag(tarn.Pool(), text)],
    "text": [tarn.configure],
    "tag": [lambda text: tarn.alloc(1, tag=text), lambda text: tarn.Range(2 << 20, tag=text)],
    "library": [tarn.handle, tarn.Lease, tarn.prewarm, tarn.trim_handles, tarn.workspace, tarn.handle_stats],
    "discard": [lambda text: tarn.sleep(discard=[text])],
    "path": [tarn.dump_snapshot, tarn.report, lambda path: tarn.Pool().save(path), lambda path: tarn.Pool().load(path)],
}


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_is_cut_at_a_nul(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = tarn.configuration()
    for call in TEXTS[name]:
        with pytest.raises(ValueError, match=f"^{name}: a NUL is in"):
            call("limit_mb:100\0b")
        with pytest.raises(TypeError, match=f"^{name}: "):
            call(5)
    assert tarn.configuration() == before and not list(tmp_path.iterdir()) and tarn.sleep_state() == "awake"


def test_an_object_of_another_kind_is_refused_by_the_arguments_name():
    for name, call in (("pool", lambda one: tarn.alloc(1, pool=one)), ("pool", lambda one: tarn.set_pool_tag(one, "a")),
                       ("pool", lambda one: tarn.Sleeper("a", commit=int, wake=int, pool=one)), ("pool", lambda one: tarn.Range(2 << 20, pool=one)),
                       ("pool", lambda one: tarn.Registration(one, int, int)), ("other", tarn.Stream().wait),
                       ("block", lambda one: tarn.Pool().seal(one, "a"))):
        for one in (5, "a", tarn.Device(0)):
            with pytest.raises(TypeError, match=f"^{name}: a tarn.* is wanted, not "):
                call(one)


def test_what_is_an_integer_is_taken():
    class Index:
        def __index__(self):
            return 3000

    numpy = pytest.importorskip("numpy")
    for size in (Index(), numpy.int64(3000), numpy.uint8(200), True):
        block = tarn.alloc(size)
        assert type(block.nbytes) is int and block.nbytes == int(block.info.requested) == block.view((block.nbytes,)).shape[0]
    assert tarn.Device(numpy.int32(1)) == tarn.Device(1)
    for shape in ((1.5,), ("4",)):
        with pytest.raises(TypeError):
            tarn.alloc(100).view(shape)
    with pytest.raises(tarn.InvalidDeviceError):
        tarn.alloc(1, device=-1, stream=tarn.Stream())


def test_a_signal_handler_that_raises_type_error_calls_c_once():
    calls = []

    def function(size):
        calls.append(size)
        raise TypeError("of a handler")
    with pytest.raises(TypeError, match="of a handler"):
        _integers.checked(function, [ctypes.c_size_t], "size")(5)
    assert calls == [5]


def owners():
    sleeper = tarn.Sleeper("one", commit=int, wake=int)
    sleeper.close()
    registration = tarn.Registration(tarn.Pool(registrable=True), int, int)
    registration.close()
    spiller = tarn.Spiller(bool)
    spiller.close()
    yield from (tarn.alloc(100), tarn.pinned(100), tarn.Pool(), tarn.Event(), tarn.Stream(), sleeper, registration, spiller,
                tarn.adaptors.Owner(tarn.adaptors.take(0, 0, 100)), tarn.Lease.__new__(tarn.Lease), tarn.alloc(100).view((100,)))
    with tarn.Pool().scope() as scope:
        yield scope


def test_what_owns_is_not_copied_pickled_or_sent():
    before = tarn.memory_allocated()
    for owner in owners():
        ways = [copy.deepcopy, pickle.dumps, lambda one: pickle.dumps([one], protocol=2), multiprocessing.SimpleQueue().put]
        if isinstance(owner, tarn.errors.Owning):
            ways.append(copy.copy)
            assert "tarn_export()" in str(pytest.raises(TypeError, copy.copy, owner).value)
        for way in ways:
            with pytest.raises(TypeError, match=f"a tarn.{'Block|Pool' if isinstance(owner, (tarn.View, tarn.Scope)) else type(owner).__name__}"):
                way(owner)
    del owner
    assert tarn.memory_allocated() == before


def test_what_is_a_value_is_copied():
    assert pickle.loads(pickle.dumps(tarn.Device(1))) == tarn.Device(1) == copy.copy(tarn.Device(1))
    assert pickle.loads(pickle.dumps(tarn.PoolId(0, 3))) == (0, 3)
    error = pytest.raises(tarn.OutOfMemoryError, tarn.alloc, 1 << 40).value
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.status == error.status


def test_a_block_is_an_array_of_numpys():
    numpy = pytest.importorskip("numpy")
    block = tarn.alloc(1000)
    array = numpy.asarray(block)
    array[:] = 7
    assert array.dtype == numpy.uint8 and array.shape == (1000,) and ctypes.string_at(block.ptr, 1000) == b"\7" * 1000
    pinned = tarn.pinned(10)
    numpy.asarray(pinned)[:] = 3
    assert bytes(pinned.buffer) == b"\3" * 10
    pinned.close()
    for freed in (block, pinned):
        freed.close()
        with pytest.raises(ValueError, match="freed"):
            numpy.asarray(freed)


def test_device_memory_is_no_array_of_numpys(monkeypatch):
    """It is not an array of one object either."""
    numpy = pytest.importorskip("numpy")
    block = tarn.alloc(1000)
    monkeypatch.setattr(tarn.Device, "driver", "cuda")
    for one in (block, block.view((1000,))):
        with pytest.raises(TypeError, match=re.escape("copy it by CuPy")):
            numpy.asarray(one)
