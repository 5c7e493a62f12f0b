# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""The adaptors beside the libraries themselves. On a GPU each runs whole; without one cuda.core and Numba run on simulated CUDA (TARN_SIM, or the
build's), CuPy on the host device as far as it can without a driver. What is not installed is skipped: scripts/adaptor-packages --all makes
an environment that has all of it."""

import importlib.util
import os
import pathlib

import pytest

SIM = os.environ.get("TARN_SIM") or os.path.join(os.environ.get("TARN_BUILD", "none"), "sim")
HAS_GPU = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0")


def has(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def needs(name):
    return pytest.mark.skipif(not has(name), reason=f"{name} is not installed")


def example(name):
    return (pathlib.Path(__file__).resolve().parents[2] / "examples" / "adaptors" / name).read_text()


@pytest.fixture
def cuda(python):
    """Runs a text in a process that has CUDA: a GPU, or the simulated driver."""
    if HAS_GPU:
        return lambda text: python(text, TARN_DRIVER="cuda")
    if not os.path.exists(os.path.join(SIM, "libcuda.so.1")):
        pytest.skip("no GPU and no simulated CUDA")
    return lambda text: python(text, TARN_DRIVER="cuda", LD_LIBRARY_PATH=SIM)


@pytest.fixture
def gpu(python):
    if not HAS_GPU:
        pytest.skip("no GPU")
    return lambda text: python(text, TARN_DRIVER="cuda")


@needs("cuda.core")
def test_cuda_core(cuda):
    assert "done" in cuda("""
        import gc
        import tarn
        from cuda.core import Buffer, Device, MemoryResource

        device = Device(0)
        device.set_current()
        tarn.use(cuda_core=True)
        tarn.use(cuda_core=True)
        resource = device.memory_resource
        assert isinstance(resource, MemoryResource) and resource is tarn.cuda_core.resource(0)
        assert resource.is_device_accessible and not resource.is_host_accessible and resource.device_id == 0
        one, two = device.create_stream(), device.create_stream()
        before = tarn.memory_allocated(0)
        buffer = device.allocate(1 << 20, stream=one)
        assert isinstance(buffer, Buffer) and buffer.size == 1 << 20 and buffer.memory_resource is resource
        block = tarn.Block(int(buffer.handle), 1 << 20, 0, 0)
        assert block.info.stream == tarn.Stream.find(one, 0).value and tarn.memory_allocated(0) == before + (1 << 20)
        block._pointer = 0
        buffer.close(two)
        assert tarn.memory_allocated(0) == before
        buffer = device.allocate(1 << 20, stream=one)
        del buffer
        gc.collect()
        assert tarn.memory_allocated(0) == before
        with device.allocate(0, stream=one) as none:
            assert none.size == 0
        try:
            device.allocate(1 << 50, stream=one)
        except tarn.OutOfMemoryError as error:
            assert isinstance(error, MemoryError) and "1 PiB" in str(error)
        else:
            raise SystemExit("no error")
        try:
            device.memory_resource.allocate(100, stream=None)
        except TypeError as error:
            assert "default_stream" in str(error)
        tarn.cuda_core.disable()
        assert device.memory_resource is not resource and not tarn.cuda_core.is_enabled()
        print("done")
    """)


@needs("cuda.core")
def test_cuda_core_leaves_the_current_device(cuda):
    assert "done" in cuda("""
        import tarn
        from cuda.bindings import driver
        from cuda.core import Device

        tarn.use(cuda_core=True)
        assert not int(driver.cuCtxGetCurrent()[1]) and Device().device_id == 0
        tarn.cuda_core.disable()
        _error, own = driver.cuDevicePrimaryCtxRetain(0)
        driver.cuCtxSetCurrent(own)
        tarn.use(cuda_core=True)
        assert int(driver.cuCtxGetCurrent()[1]) == int(own)
        print("done")
    """)


@needs("numba_cuda")
def test_numba(cuda):
    assert "done" in cuda("""
        import gc
        import numpy
        import tarn
        tarn.use(numba=True)
        tarn.use(numba=True)
        from numba import cuda

        before = tarn.memory_allocated(0)
        array = cuda.to_device(numpy.arange(100.0))
        assert tarn.memory_allocated(0) == before + 1024
        assert (array.copy_to_host() == numpy.arange(100.0)).all()
        block = tarn.Block(array.gpu_data.device_pointer_value, 800, 0, 0)
        assert block.info.requested == 800 and block.info.base == block.ptr
        block._pointer = 0
        part = array[10:20]
        del array
        gc.collect()
        assert tarn.memory_allocated(0) == before + 1024 and (part.copy_to_host() == numpy.arange(10.0, 20.0)).all()
        del part
        gc.collect()
        assert tarn.memory_allocated(0) == before
        info = cuda.current_context().get_memory_info()
        assert 0 < info.free <= info.total
        try:
            cuda.device_array(1 << 50, dtype="u1")
        except cuda.cudadrv.driver.CudaAPIError as error:
            assert isinstance(error, tarn.OutOfMemoryError) and error.code == 2 and "1 PiB" in str(error)
        else:
            raise SystemExit("no error")
        with cuda.defer_cleanup():
            array = cuda.device_array(1000)
            del array
        gc.collect()
        tarn.numba.disable()
        assert not tarn.numba.is_enabled()
        try:
            tarn.numba.enable()
        except tarn.EnableError as error:
            assert "context" in str(error)
        else:
            raise SystemExit("enabled late")
        print("done")
    """)


@needs("numba_cuda")
def test_numba_by_the_environment(cuda):
    assert "done" in cuda("""
        import os
        os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "tarn.numba"
        from numba import cuda
        array = cuda.device_array(1000)
        import tarn
        assert tarn.numba.is_enabled() and tarn.memory_allocated(0) == 8192
        print("done")
    """)


@needs("cupy")
def test_cupy_classes(python):
    """Without a device: CuPy's own objects, of memory of the host device."""
    assert "done" in python("""
        import gc
        import cupy
        from cupy.cuda import device, memory, stream
        import tarn
        import tarn.cupy
        device.get_device_id = lambda: 1
        with tarn.Device(1):
            queue = tarn.Stream()
        stream.get_current_stream = lambda device=None: type("Stream", (), {"ptr": queue.native})
        allocate = tarn.cupy.allocator()
        before = tarn.memory_allocated(1)
        pointer = allocate(1000)
        assert isinstance(pointer, memory.MemoryPointer) and pointer.device_id == 1 and pointer.mem.size == 1000
        block = tarn.Block(pointer.ptr, 1000, 1, 0)
        assert block.info.stream == queue.value and tarn.memory_allocated(1) == before + 1024
        block._pointer = 0
        part = pointer + 100
        del pointer
        gc.collect()
        assert tarn.memory_allocated(1) == before + 1024
        del part
        gc.collect()
        assert tarn.memory_allocated(1) == before
        try:
            allocate(1 << 50)
        except memory.OutOfMemoryError as error:
            assert isinstance(error, tarn.OutOfMemoryError) and "1 PiB" in str(error)
        else:
            raise SystemExit("no error")
        print("done")
    """)


@needs("cupy")
def test_cupy(gpu):
    assert "done" in gpu("""
        import gc
        import cupy
        import tarn
        tarn.use(cupy=True)
        pool = cupy.get_default_memory_pool()
        before = tarn.memory_allocated(0)
        array = cupy.arange(1000, dtype="f4")
        assert tarn.memory_allocated(0) == before + 4096 and pool.used_bytes() == 0
        assert float((array * 2).sum()) == 999000.0
        with cupy.cuda.Stream(non_blocking=True) as stream:
            other = cupy.zeros((512, 512), "f4")
            block = tarn.Block(other.data.ptr, other.nbytes, 0, 0)
            assert block.info.stream == tarn.Stream.find(stream, 0).value
            block._pointer = 0
            assert float((other @ other).sum()) == 0.0
        del other, array
        gc.collect()
        assert tarn.memory_allocated(0) == before
        try:
            cupy.empty(1 << 50, "u1")
        except cupy.cuda.memory.OutOfMemoryError as error:
            assert isinstance(error, tarn.OutOfMemoryError)
        else:
            raise SystemExit("no error")
        with tarn.Pool() as pool:
            array = cupy.ones(1 << 20)
        assert pool.id.second and float(array.sum()) == 1 << 20
        del array
        tarn.cupy.disable()
        array = cupy.ones(1000)
        assert cupy.get_default_memory_pool().used_bytes() > 0
        print("done")
    """)


@needs("warp")
def test_warp(gpu):
    assert "done" in gpu("""
        import gc
        import tarn
        import warp
        tarn.use(warp=True)
        before = tarn.memory_allocated(0)
        array = warp.full(1000, 2.0, dtype=float, device="cuda:0")
        assert tarn.memory_allocated(0) == before + 4096 and array.numpy().sum() == 2000.0
        del array
        gc.collect()
        assert tarn.memory_allocated(0) == before
        print("done")
    """)


@needs("rmm")
def test_rmm(gpu):
    assert "done" in gpu("""
        import gc
        import rmm
        import tarn
        tarn.use(rmm=True)
        before = tarn.memory_allocated(0)
        buffer = rmm.DeviceBuffer(size=1000)
        assert tarn.memory_allocated(0) == before + 1024
        del buffer
        gc.collect()
        assert tarn.memory_allocated(0) == before
        try:
            rmm.DeviceBuffer(size=1 << 50)
        except MemoryError:
            pass
        else:
            raise SystemExit("no error")
        tarn.rmm.disable()
        print("done")
    """)


@needs("triton")
def test_triton(python):
    """The door itself: who sets it, what it gives, and that a thread of its own does not have it."""
    assert "done" in python("""
        import threading
        import tarn
        import tarn.adaptors
        import tarn.triton
        import triton
        from triton.runtime import _allocation, driver
        tarn.adaptors.require_gpu = lambda: None
        driver.set_active(type("Driver", (), {"get_current_device": lambda self: 1})())
        own = _allocation._allocator.get()
        tarn.use(triton=True)
        assert _allocation._allocator.get() is tarn.triton.allocate and tarn.triton.is_enabled()
        with tarn.Device(1):
            queue = tarn.Stream()
        before = tarn.memory_allocated(1)
        scratch = _allocation._allocator.get()(1000, 128, queue.native)
        assert scratch.data_ptr() % 128 == 0 and tarn.memory_allocated(1) == before + 1024
        block = tarn.Block(scratch.data_ptr(), 1000, 1, 0)
        assert block.info.stream == queue.value
        block._pointer = 0
        del scratch
        assert tarn.memory_allocated(1) == before
        seen = []
        thread = threading.Thread(target=lambda: seen.append(tarn.triton.is_enabled()))
        thread.start()
        thread.join()
        assert seen == [False]

        def on_and_off():
            tarn.triton.enable()
            tarn.triton.disable()
            seen.append(_allocation._allocator.get() is own)
        thread = threading.Thread(target=on_and_off)
        thread.start()
        thread.join()
        tarn.triton.disable()
        assert not tarn.triton.is_enabled()
        assert seen == [False, True] and _allocation._allocator.get() is own
        triton.set_allocator(tarn.triton.allocate)
        tarn.triton.disable()
        assert _allocation._allocator.get() is own
        print("done")
    """)


@needs("nvmath")
def test_nvmath(python):
    assert "done" in python("""
        import tarn.nvmath
        from nvmath.memory import BaseCUDAMemoryManagerAsync
        assert issubclass(tarn.nvmath.Allocator, BaseCUDAMemoryManagerAsync)
        assert isinstance(tarn.nvmath.Allocator(0, None), BaseCUDAMemoryManagerAsync)
        print("done")
    """)


@needs("torch")
def test_one_pool_for_all(gpu):
    """PyTorch, CuPy and Numba share memory: what one frees another is given."""
    if not (has("cupy") and has("numba_cuda")):
        pytest.skip("CuPy or Numba is not installed")
    assert "sum in Numba: 499500" in gpu(example("one_pool.py"))


@needs("cuda.core")
def test_the_example_of_cuda_core(cuda):
    assert "1048576 bytes" in cuda(example("cuda_core.py"))


@needs("cupy")
def test_cupy_gives_no_graph_away(python):
    """Why docs/graphs.md takes CuPy's graph before the end of the capture, while CuPy has the attribute for its handle."""
    assert python("""
        from cupy.cuda import Graph, Stream
        empty = Graph.__new__(Graph)
        assert empty.graph == 0 and empty.graphExec == 0 and hasattr(Stream, "begin_capture") and hasattr(Stream, "end_capture")
        print("done")
    """).endswith("done\n")


@needs("warp")
def test_a_graph_of_warp_is_checked_by_its_handle(python):
    assert python("""
        import ctypes
        import tarn
        import warp
        stream, handle = tarn.Stream(), ctypes.c_void_p()
        block = tarn.alloc(4096, stream=stream)
        lib, must = tarn.adaptors.lib, tarn.errors.check
        must(lib.tarn_capture_begin(stream.value, 0))
        must(lib.tarn_host_fill(0, stream.native, block.ptr, 1, 4096))
        must(lib.tarn_capture_end(stream.value, ctypes.byref(handle)))
        graph = warp.Graph(None)
        assert graph.graph is None
        graph.graph = handle  # as warp.capture_end() does
        assert tarn.remember_graph(graph.graph) and tarn.graph_check(graph.graph).verdict == "clean"
        block.close()
        assert [it.certainty for it in tarn.graph_check(graph.graph).findings] == ["certain"]
        graph.graph = None
        must(lib.tarn_host_graph_destroy(handle))
        print("done")
    """).endswith("done\n")
