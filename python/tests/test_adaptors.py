# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What the adaptors share, and use(). The libraries themselves are tried by test_adaptors_libraries.py."""

import copy
import gc
import pickle
import subprocess
import sys
import textwrap
import threading
import types
import weakref
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_void_p

import pytest

import tarn
import tarn.adaptors
import tarn.cupy
import tarn.nvmath
import tarn.numba
import tarn.rmm
import tarn.warp


MIB = 1 << 20


@contextmanager
def busy(stream):
    """Work on a stream of device 0 that ends when the block does."""
    gate = threading.Event()
    function = CFUNCTYPE(None, c_void_p)(lambda user: gate.wait())
    tarn.errors.check(tarn.adaptors.lib.tarn_host_call(0, stream.native, function, None))
    try:
        yield
    finally:
        gate.set()
        tarn.Device(0).synchronize()


def test_a_block_is_owned_until_it_is_freed_or_collected():
    before = tarn.memory_allocated(0)
    owner = tarn.adaptors.Owner(tarn.adaptors.take(0, 0, 1000))
    assert owner.ptr == owner.data_ptr() != 0 and tarn.memory_allocated(0) == before + 1024
    owner.free()
    owner.free()
    assert owner.ptr == 0 and tarn.memory_allocated(0) == before
    owner = tarn.adaptors.Owner(tarn.adaptors.take(0, 0, 1000, alignment=1 << 16))
    assert owner.ptr % (1 << 16) == 0
    del owner
    gc.collect()
    assert tarn.memory_allocated(0) == before


def test_a_block_goes_to_the_stream_and_device_that_are_named():
    with tarn.Device(1):
        stream = tarn.Stream()
    address = tarn.adaptors.take(1, stream.native, 1000)
    block = tarn.Block(address, 1000, 1, stream.value)
    assert block.info.stream == stream.value and block.info.device == 1
    tarn.adaptors.give(1, 0, address)
    block._pointer = 0
    tarn.adaptors.give(1, 0, 0)
    with pytest.raises(tarn.InvalidPointerError):
        tarn.adaptors.give(1, 0, 4096)


def returned_stream():
    """The name of a stream that tarn does not find: it was leased, and has been returned."""
    stream = tarn.Stream()
    native = stream.native
    stream.close()
    return native


def test_no_block_is_given_out_while_work_may_use_it():
    """A free whose stream is not found waits for the device; where it cannot, the block stays until memory is short or another can."""
    captures = tarn.Stream()
    returned, before = returned_stream(), tarn.memory_allocated(0)
    tarn.adaptors.give(0, returned, tarn.adaptors.take(0, 0, MIB))
    assert tarn.memory_allocated(0) == before
    address = tarn.adaptors.take(0, 0, 150 * MIB)
    tarn.errors.check(tarn.adaptors.lib.tarn_capture_begin(captures.value, 0))
    tarn.adaptors.give(0, returned, address)
    assert tarn.memory_allocated(0) == before + 150 * MIB
    with pytest.raises(tarn.OutOfMemoryError):
        tarn.adaptors.take(0, 0, 150 * MIB)
    tarn.errors.check(tarn.adaptors.lib.tarn_capture_abort(captures.value))
    again = tarn.adaptors.take(0, 0, 150 * MIB)
    assert tarn.memory_allocated(0) == before + 150 * MIB
    tarn.adaptors.give(0, 0, again)


def test_a_second_free_during_a_capture_is_refused():
    """By the end of the capture the address may be another block's."""
    captures = tarn.Stream()
    returned, before = returned_stream(), tarn.memory_allocated(0)
    address = tarn.adaptors.take(0, 0, MIB)
    tarn.adaptors.give(0, 0, address)
    tarn.errors.check(tarn.adaptors.lib.tarn_capture_begin(captures.value, 0))
    with pytest.raises(tarn.DoubleFreeError):
        tarn.adaptors.give(0, returned, address)
    tarn.errors.check(tarn.adaptors.lib.tarn_capture_abort(captures.value))
    others = tarn.adaptors.take(0, 0, MIB)
    assert others == address
    tarn.adaptors.flush()
    assert tarn.memory_allocated(0) == before + MIB
    tarn.adaptors.give(0, 0, others)


def test_use_names_what_is_missing(monkeypatch):
    with pytest.raises(ValueError, match="torch=True"):
        tarn.use()
    with pytest.raises(tarn.EnableError, match="host device"):
        tarn.use(cupy=True)
    monkeypatch.setattr(tarn.adaptors, "require_gpu", lambda: None)
    monkeypatch.setitem(sys.modules, "warp", None)
    with pytest.raises(tarn.EnableError, match="warp-lang"):
        tarn.use(warp=True)
    assert issubclass(tarn.EnableError, RuntimeError)


def test_use_switches_all_on_or_none(monkeypatch):
    done = []
    for name in ("cupy", "numba"):
        module = sys.modules[f"tarn.{name}"]
        monkeypatch.setattr(module, "is_enabled", lambda: False)
        monkeypatch.setattr(module, "enable", lambda name=name: done.append(name))
        monkeypatch.setattr(module, "disable", lambda name=name: done.append(f"no {name}"))
    tarn.use(cupy=True, numba=True)
    assert done == ["cupy", "numba"]
    done.clear()
    with pytest.raises(tarn.EnableError):
        tarn.use(cupy=True, numba=True, warp=True)
    assert done == ["cupy", "numba", "no numba", "no cupy"]
    done.clear()
    monkeypatch.setattr(tarn.cupy, "is_enabled", lambda: True)
    with pytest.raises(tarn.EnableError):
        tarn.use(cupy=True, numba=True, warp=True)
    assert done == ["numba", "no numba"]  # what was on before stays on


def test_numba_frees_behind_the_legacy_stream():
    """Work of a blocking stream that is not the block's own has run before the memory is given again."""
    frees = tarn.numba._Frees(0)
    first = tarn.adaptors.take(0, 0, 4 * MIB)
    before = tarn.memory_allocated(0)
    with busy(tarn.Stream.per_thread()):
        frees.free(first)
        assert tarn.memory_allocated(0) < before and not frees.later
        second = tarn.adaptors.take(0, 0, 4 * MIB)
        assert second != first
    frees.free(second)


def test_numba_waits_while_nothing_can_be_recorded(monkeypatch):
    frees = tarn.numba._Frees(0)
    address = tarn.adaptors.take(0, 0, 1000)
    before = tarn.memory_allocated(0)
    monkeypatch.setattr(frees, "_record", lambda: False)
    frees.free(address)
    assert list(frees.later) == [address] and tarn.memory_allocated(0) == before
    monkeypatch.undo()
    frees.flush()
    assert not frees.later and tarn.memory_allocated(0) < before


def test_nvmath_has_blocks_of_the_stream():
    stream = tarn.Stream()
    allocator = tarn.nvmath.Allocator(0, None)
    block = allocator.memalloc_async(1000, stream)
    known = tarn.Block(block.ptr, 1000, 0, 0)
    assert known.info.stream == stream.value and known.info.requested == 1000
    known._pointer = 0


def test_cupy_frees_on_the_stream_that_is_current_then():
    """A block of one stream that is collected while another is current waits for that one too."""
    one, two = tarn.Stream(), tarn.Stream()
    current = [one]
    address = tarn.adaptors.take(0, one.native, 4 * MIB)
    memory = tarn.cupy._Memory(address, 0, one.native, lambda device: current[0].native)
    before = tarn.memory_allocated(0)
    current[0] = two
    with busy(two):
        del memory
        gc.collect()
        assert tarn.memory_allocated(0) < before
        other = tarn.adaptors.take(0, one.native, 4 * MIB)
        assert other != address
    tarn.adaptors.give(0, one.native, other)

    def gone(device):
        raise RuntimeError("the interpreter ends")

    memory = tarn.cupy._Memory(tarn.adaptors.take(0, one.native, 1000), 0, one.native, gone)
    del memory
    gc.collect()
    assert tarn.memory_allocated(0) < before


def test_each_adaptor_says_whether_it_is_enabled():
    for name in ("cupy", "numba", "cuda_core", "warp", "rmm", "triton"):
        module = __import__(f"tarn.{name}", fromlist=["enable"])
        assert isinstance(module, types.ModuleType) and module.is_enabled() is False
        module.disable()


def test_numba_frees_while_it_frees(monkeypatch):
    """The collector may run a finaliser, which frees, between two frees of the same thread."""
    frees = tarn.numba._Frees(0)
    addresses = [tarn.adaptors.take(0, 0, 100) for _ in range(3)]
    monkeypatch.setattr(frees, "_record", lambda: False)
    for address in addresses[:2]:
        frees.free(address)
    monkeypatch.undo()
    freed = tarn._library.lib.tarn_free_after

    def free_after(address, event):
        if addresses:
            addresses.clear()
            frees.free(late)
        return freed(address, event)
    late = addresses[2]
    monkeypatch.setattr(tarn.numba, "lib", types.SimpleNamespace(**{name: getattr(tarn._library.lib, name) for name in (
        "tarn_device_guard_set", "tarn_guard_restore", "tarn_event_create", "tarn_event_record")}, tarn_free_after=free_after))
    frees.flush()
    assert not frees.later and tarn.memory_allocated(0) == 0


def test_rmm_follows_on_all_devices_or_none(monkeypatch):
    resources = {0: "own", 1: "own"}

    def set_resource(device, resource):
        if device == 1 and resource != "own":
            raise RuntimeError("refused")
        resources[device] = resource
    mr = types.ModuleType("rmm.mr")
    mr.CallbackMemoryResource = lambda allocate, deallocate: "tarn's"
    mr.get_per_device_resource, mr.set_per_device_resource = resources.get, set_resource
    monkeypatch.setitem(sys.modules, "rmm.mr", mr)
    monkeypatch.setattr(tarn.adaptors, "require_gpu", lambda: None)
    monkeypatch.setattr(tarn.rmm, "_resources", {})
    with pytest.raises(RuntimeError, match="refused"):
        tarn.use(rmm=True)
    assert not tarn.rmm.is_enabled() and resources == {0: "own", 1: "own"}


def test_rmm_may_refuse_to_wait(monkeypatch):
    mr = types.ModuleType("rmm.mr")
    mr.CallbackMemoryResource = lambda allocate, deallocate: types.SimpleNamespace(allocate=allocate, deallocate=deallocate)
    own, now = {0: "own", 1: "own"}, {}
    mr.get_per_device_resource, mr.set_per_device_resource = own.get, now.__setitem__
    monkeypatch.setitem(sys.modules, "rmm.mr", mr)
    monkeypatch.setattr(tarn.adaptors, "require_gpu", lambda: None)
    monkeypatch.setattr(tarn.rmm, "_resources", {})
    with pytest.raises(tarn.InvalidArgumentError):
        tarn.rmm.enable(wait=-1)
    waits, hurries = tarn.rmm.resource(0), tarn.rmm.resource(0, wait=0)
    assert waits is not hurries and waits is tarn.rmm.resource(0, wait=None) and hurries is tarn.rmm.resource(0, wait=0)
    tarn.rmm.enable(wait=0)
    assert now[0] is hurries
    tarn.rmm.disable()
    size = 32 << 20
    with tarn.Stream(0) as stream, tarn.Stream(0) as other:
        tarn._library.lib.tarn_device_trim(0, 0)
        tarn.limit(size, device=0)
        try:
            address = waits.allocate(size, other.native)
            tarn._library.lib.tarn_host_work(0, other.native, address, size, 10**9)
            waits.deallocate(address, size, other.native)
            with pytest.raises(MemoryError) as caught:
                hurries.allocate(size, stream.native)
            assert isinstance(caught.value.__cause__, tarn.NotReadyError) and tarn.last_error() == str(caught.value)
            waits.deallocate(waits.allocate(size, stream.native), size, stream.native)
        finally:
            tarn.limit(2**64 - 1, device=0)


def test_warp_follows_on_all_devices_or_none(monkeypatch):
    allocators = {}

    def set_allocator(device, allocator):
        if device.ordinal == 1 and allocator:
            raise RuntimeError("refused")
        allocators[device.ordinal] = allocator
    devices = [types.SimpleNamespace(ordinal=ordinal, is_cuda=True) for ordinal in range(2)]
    warp = types.ModuleType("warp")
    warp.init, warp.get_cuda_devices, warp.get_device, warp.set_device_allocator = int, lambda: devices, lambda one: one, set_allocator
    monkeypatch.setitem(sys.modules, "warp", warp)
    monkeypatch.setattr(tarn.adaptors, "require_gpu", lambda: None)
    with pytest.raises(RuntimeError, match="refused"):
        tarn.use(warp=True)
    assert not tarn.warp.is_enabled() and allocators == {0: None}


@pytest.fixture
def cupy(monkeypatch):
    """What the adaptor takes of CuPy: its classes by their signatures (cupy/cupy, cupy/cuda/memory.pyx)."""
    class CupyOutOfMemoryError(MemoryError):
        def __init__(self, size, total, limit=0):
            self._size, self._total, self._limit = size, total, limit
            super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes).")

        def __reduce__(self):
            return type(self), (self._size, self._total, self._limit)

    class UnownedMemory:
        def __init__(self, address, size, owner, device_id):
            self.ptr, self.owner = address, owner

    class MemoryPointer:
        def __init__(self, mem, offset):
            self.mem = mem

    names = {name: types.ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.memory", "cupy.cuda.stream", "cupy.cuda.device")}
    memory = names["cupy.cuda.memory"]
    memory.OutOfMemoryError, memory.UnownedMemory, memory.MemoryPointer = CupyOutOfMemoryError, UnownedMemory, MemoryPointer
    names["cupy.cuda.stream"].get_current_stream = lambda device: types.SimpleNamespace(ptr=0)
    names["cupy.cuda.device"].get_device_id = lambda: 0
    names["cupy.cuda"].memory, names["cupy.cuda"].stream = memory, names["cupy.cuda.stream"]
    for name, module in names.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(tarn.cupy, "_error", None)
    yield memory
    gc.collect()
    tarn.Pool.default().trim()


def test_cupy_gets_memory_of_what_is_garbage(cupy):
    allocate = tarn.cupy.allocator()
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            array = [allocate(200 * MIB)]
            array.append(array)  # it refers to itself
            del array
    finally:
        gc.enable()


def test_what_is_garbage_is_collected_for_every_adaptor(monkeypatch):
    gc.collect()
    gc.disable()
    try:
        for alignment in (0, 1 << 16):
            owner = [tarn.adaptors.Owner(tarn.adaptors.take(0, 0, 200 * MIB, alignment))]
            owner.append(owner)
            del owner
    finally:
        gc.enable()
    collected = []
    monkeypatch.setattr(tarn.adaptors, "gc", types.SimpleNamespace(collect=lambda: collected.append(1)))
    for size, error in ((1 << 40, tarn.OutOfMemoryError), (-1, ValueError)):
        with pytest.raises(error):
            tarn.adaptors.take(0, 0, size)
    assert collected == [1]
    tarn.Pool.default().trim()


def test_an_error_of_cupys_survives_pickle(cupy, monkeypatch):
    error = pytest.raises(cupy.OutOfMemoryError, tarn.cupy.allocator(), 1 << 40).value
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert isinstance(again, cupy.OutOfMemoryError) and isinstance(again, tarn.OutOfMemoryError) and "1 TiB" in str(again)
        assert str(again) == str(error) and again.status == error.status
    data = pickle.dumps(error)
    for name in list(sys.modules):
        if name.partition(".")[0] == "cupy":
            monkeypatch.setitem(sys.modules, name, None)
    again = pickle.loads(data)
    assert type(again) is tarn.OutOfMemoryError and str(again) == str(error)


@pytest.fixture
def numba(monkeypatch):
    """What the adaptor takes of numba-cuda (NVIDIA/numba-cuda, numba_cuda/numba/cuda/cudadrv/driver.py)."""
    class CudaAPIError(Exception):
        def __init__(self, code, msg):
            self.code, self.msg = code, msg
            super().__init__(code, msg)

    class HostOnlyCUDAMemoryManager:
        def __init__(self, context):
            self.context, self.deallocations = context, []

    names = {name: types.ModuleType(name) for name in ("numba", "numba.cuda", "numba.cuda.cudadrv", "numba.cuda.cudadrv.driver")}
    cuda = names["numba.cuda"]
    names["numba"].cuda, names["numba.cuda.cudadrv.driver"].CudaAPIError = cuda, CudaAPIError
    cuda.HostOnlyCUDAMemoryManager = HostOnlyCUDAMemoryManager
    cuda.GetIpcHandleMixin = type("GetIpcHandleMixin", (), {})

    class MemoryPointer:
        def __init__(self, context, address, size, finalizer):
            self.end = weakref.finalize(self, finalizer)
    cuda.MemoryPointer = MemoryPointer
    for name, module in names.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(tarn.numba, "_manager", None)
    monkeypatch.setattr(tarn.numba, "_error", None, raising=False)
    yield names["numba.cuda.cudadrv.driver"]
    gc.collect()
    tarn.numba._frees_of(0).flush()
    tarn.Pool.default().trim()


def test_numba_gets_memory_of_what_is_garbage(numba):
    manager = tarn.numba.manager()(types.SimpleNamespace(device=types.SimpleNamespace(id=0)))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            array = [manager.memalloc(200 * MIB)]
            array.append(array)
            del array
        gc.collect()
    finally:
        gc.enable()
    error = pytest.raises(numba.CudaAPIError, manager.memalloc, 1 << 40).value
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert isinstance(again, numba.CudaAPIError) and isinstance(again, tarn.OutOfMemoryError)
        assert (again.code, again.msg, str(again), again.status) == (2, error.msg, str(error), error.status)


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    """By the error that the manual has, whichever library it is."""
    for module in (tarn.adaptors, tarn.cupy, tarn.numba):
        monkeypatch.setattr(module, "require_gpu", lambda: None)
    for name in ("torch", "cupy", "numba", "cuda_core", "warp", "rmm", "triton"):
        monkeypatch.setitem(sys.modules, "cuda.core" if name == "cuda_core" else name, None)
        with pytest.raises(tarn.EnableError, match="cannot be imported .*pip install .*leave it out"):
            tarn.use(**{name: True})


def test_arrays_that_modules_have_are_freed_as_the_interpreter_ends():
    """The interpreter empties modules before it frees what is left. So the function that gives CuPy's stream may fail, as len() does here without
    an argument, and names of tarn's modules may be None."""
    code = """
        import sys, tarn, tarn.cupy
        for module in list(sys.modules.values()):
            block = tarn.alloc(100)
            module.of_a_test = tarn.cupy._Memory(block.ptr, 0, 0, len)
            block._pointer = 0
        """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
