# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Blocks as arrays of other libraries. NumPy takes those of the host device."""

import ctypes
import gc

import pytest

import tarn

numpy = pytest.importorskip("numpy")


def test_numpy_shares_the_memory():
    block = tarn.alloc(4 * 12)
    view = block.view((3, 4), "<f4")
    array = numpy.asarray(view)
    array[:] = numpy.arange(12).reshape(3, 4)
    assert array.__array_interface__["data"][0] == block.ptr
    assert list((ctypes.c_float * 12).from_address(block.ptr)) == list(range(12))
    del array, view
    block.close()


def test_dlpack_keeps_the_block_until_the_consumer_is_done():
    before = tarn.memory_allocated()
    view = tarn.alloc(8 * 5).view((5,), "<i8")
    array = numpy.from_dlpack(view)
    assert array.dtype == numpy.int64 and array.shape == (5,)
    address = view.ptr
    del view
    gc.collect()
    assert tarn.memory_allocated() > before
    assert array.__array_interface__["data"][0] == address
    del array
    gc.collect()
    assert tarn.memory_allocated() == before


def test_a_capsule_that_nobody_takes_gives_the_block_back():
    before = tarn.memory_allocated()
    for version in (None, (1, 0)):
        capsule = tarn.alloc(100).__dlpack__(max_version=version)
        assert ("dltensor_versioned" if version else "dltensor") in repr(capsule)
        assert tarn.memory_allocated() > before
        del capsule
        gc.collect()
        assert tarn.memory_allocated() == before


def refusal(consume):
    """The error of a consumer of DLPack that fails in C while it has the capsule, as text: a traceback would keep the memory."""
    try:
        consume()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_a_consumer_that_refuses_says_why_and_has_nothing(monkeypatch):
    before, ignored = tarn.memory_allocated(), []
    monkeypatch.setattr("sys.unraisablehook", lambda what: ignored.append(str(what.exc_value)))
    assert refusal(lambda: numpy.from_dlpack(tarn.alloc(8).view((4,), "bfloat16"))).endswith(": Unsupported dtype in DLTensor.")
    assert tarn.memory_allocated() == before
    block = tarn.alloc(1000)
    for _ in range(3):
        assert "TypeError: int() argument" in refusal(lambda: int(block.__dlpack__()))
    array = numpy.from_dlpack(block)
    assert "TypeError: int() argument" in refusal(lambda: int(block.view((5,), "<i8").__dlpack__(max_version=(1, 0))))
    ctypes.memset(block.ptr, 7, 1000)
    del block
    assert tarn.memory_allocated() > before and (array == 7).all()
    del array
    assert tarn.memory_allocated() == before and not ignored


def test_a_consumer_that_refuses_and_has_the_block_alone_gives_it_back(monkeypatch):
    before, ignored = tarn.memory_allocated(), []
    monkeypatch.setattr("sys.unraisablehook", lambda what: ignored.append(str(what.exc_value)))
    assert "SystemError" in refusal(lambda: int(tarn.alloc(1000).__dlpack__()))
    assert tarn.memory_allocated() == before and ["PyCapsule" in text for text in ignored] == [True]


def test_capsules_leave_what_all_share_as_it_is(python):
    """ctypes.pythonapi belongs to no library. NVIDIA's warp gives its functions types for Python objects, which tarn's must not meet."""
    assert python("""
        import ctypes, gc

        def claim():
            api = ctypes.pythonapi
            api.PyCapsule_GetPointer.restype = ctypes.c_void_p
            api.PyCapsule_GetPointer.argtypes = api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
            return api.PyCapsule_GetPointer

        of_another = claim()
        import tarn
        capsule = tarn.alloc(100).__dlpack__()
        print(of_another(capsule, b"dltensor") > 0)
        claim()
        del capsule
        gc.collect()
        print(tarn.memory_allocated())
        """) == "True\n0\n"


def test_the_interpreter_ends_with_arrays_that_modules_have(python):
    """Modules are emptied one after the other. What the last of them have is collected when tarn's are empty."""
    python("""
        import numpy, sys, tarn
        block = tarn.alloc(4096)
        for module in list(sys.modules.values()):
            module.of_a_test = [numpy.from_dlpack(block), numpy.from_dlpack(tarn.alloc(4096)), block.__dlpack__()]
        """)


def test_the_host_waits_for_the_stream_before_it_reads():
    """DLPack's consumer is the CPU here, so that queued work must have run when it has the array."""
    from tarn import _c  # noqa: F401
    from tarn._library import lib
    stream = tarn.Stream()
    block = tarn.alloc(1 << 20, stream=stream)
    assert lib.tarn_host_fill(0, stream.native, block.ptr, 7, 1 << 20) == 0
    array = numpy.from_dlpack(block)
    assert array.dtype == numpy.uint8 and (array == 7).all()
    del array
    block.close()


def test_views_are_checked():
    block = tarn.alloc(100)
    for shape, dtype, offset in (((26,), "<f4", 0), ((1,), "<f4", 2), ((2, -1), "<f4", 0), ((1,), "<f4", 100), ((1,), "<f4", -4)):
        with pytest.raises(ValueError):
            block.view(shape, dtype, offset)
    for dtype in (">f4", "O", "<f3", "", "<U4", "f1", "|b8", "<c2", "<c4", "<i16"):
        with pytest.raises(ValueError, match="type string"):
            block.view((1,), dtype)
    assert block.view((25,), "<f4").ptr == block.ptr
    assert block.view((24,), numpy.dtype("f4"), offset=4).ptr == block.ptr + 4
    with pytest.raises(ValueError, match="overflow"):
        block.view((0, 1 << 62, 2))
    view = block.view((1,))
    with pytest.raises(BufferError):
        view.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        view.__dlpack__(dl_device=(2, 0))
    with pytest.raises(AttributeError):
        view.__cuda_array_interface__
    block.close()
    with pytest.raises(ValueError, match="freed"):
        view.__array_interface__
