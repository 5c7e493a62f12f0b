# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""One memory for the GPU libraries of a process: `use()`, and what their adaptors share.

An adaptor is a module of the library's name (`tarn.cupy`) with `enable()`, `disable()` and `is_enabled()`. It allocates from the default
pool of the device, for the stream that the library names, and takes the library's own idiom of plugging in."""

import gc
import importlib
from collections import deque
from ctypes import byref, c_size_t, c_uint64, c_void_p, sizeof
from types import ModuleType
from typing import Any, Deque, List, Tuple

from . import _c
from ._library import lib
from .devices import Device
from .errors import Owning, TarnError, check
from .torch import EnableError


def stream_of(device: int, native: int) -> int:
    """tarn's value of a native stream. Valid for one use: the library may destroy the stream without telling tarn."""
    found = c_uint64()
    status = lib.tarn_stream_find(device, native, byref(found))
    if status:
        check(status)
    return found.value


def take(device: int, native: int, size: int, alignment: int = 0, *, wait: int = 0, is_last: bool = False) -> int:
    """The address of `size` bytes for work on a native stream; 0 for none. Before memory runs out garbage is collected, unless `is_last`:
    arrays that only refer to each other still have theirs. With `wait`, as in tarn_alloc_options, none is: that takes any time."""
    pointer = c_void_p()
    stream = stream_of(device, native)
    if alignment or wait:
        options = _c.tarn_alloc_options(size=sizeof(_c.tarn_alloc_options), device=device, stream=stream, alignment=alignment, wait=wait)
        status = lib.tarn_alloc(byref(options), size, byref(pointer))
    else:
        status = lib.tarn_alloc_on(stream, size, byref(pointer))
    if status:
        if is_last or wait or status != _c.tarn_status.TARN_ERROR_OUT_OF_MEMORY:
            check(status)
        gc.collect()
        flush()
        return take(device, native, size, alignment, is_last=True)
    return pointer.value or 0


def give(device: int, native: int, address: int) -> None:
    """Frees a block after the work that is queued on a native stream now, as well as after that of the block's own. Where tarn does not find
    the stream, after all work of the device."""
    if not address:
        return
    found = c_uint64()
    status = lib.tarn_stream_find(device, native, byref(found)) or lib.tarn_free_on(address, found.value)
    if status and status not in _NO_BLOCK:
        status = give_late(device, address)
    if status:
        check(status)


# Finalisers look these up while the interpreter ends, when the module _c is empty.
#: What tarn says of an address that is not a block, and where a device cannot be waited for now.
_NO_BLOCK = (_c.tarn_status.TARN_ERROR_INVALID_POINTER, _c.tarn_status.TARN_ERROR_DOUBLE_FREE)
_NO_WAIT = (_c.tarn_status.TARN_ERROR_CAPTURE, _c.tarn_status.TARN_ERROR_DRIVER)


#: Blocks whose device could not be waited for, as (device, address).
_late: Deque[Tuple[int, int]] = deque()


def give_late(device: int, address: int) -> int:
    """Frees a block after all work of its device. While a known capture is open there, the device cannot be waited for, and the block stays
    allocated until flush(). Returns the status of an address that is not a block, otherwise 0. Such an address is not kept for flush(),
    because another owner could have a block there by then. Raises nothing, because finalisers call it."""
    status: int = lib.tarn_usable_size_get(address, byref(c_size_t()))
    if status not in _NO_BLOCK:
        status = 0
        _late.append((device, address))
        flush()
    return status


def flush() -> bool:
    """Frees blocks that give_late() has left, if their device can be waited for now. True if any was freed."""
    freed = False
    for _ in range(len(_late)):
        try:
            device, address = _late.popleft()
        except IndexError:
            break  # another thread has freed them
        if lib.tarn_device_synchronize(device) in _NO_WAIT:
            _late.append((device, address))
        else:
            freed = not lib.tarn_free(address) or freed
    return freed


class Owner(Owning):
    """Owns a tarn block by its address, and frees it in the order of its stream when it is collected."""

    __slots__ = ("address", "__weakref__")

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        """The address, for Triton."""
        return self.address

    @property
    def ptr(self) -> int:
        """The address, for nvmath."""
        return self.address

    def free(self) -> None:
        """Frees the block now. Nothing happens the second time."""
        address, self.address = self.address, 0
        check(lib.tarn_free(address))

    def __del__(self) -> None:
        if self.address:
            lib.tarn_free(self.address)


def wanted(name: str, package: str) -> ModuleType:
    """Imports a library's module. EnableError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EnableError(f"{name} cannot be imported ({error}): pip install {package}, or leave it out") from error


def require_gpu() -> None:
    """Raises EnableError if tarn has no GPU: GPU libraries cannot use the host device's memory."""
    try:
        driver = Device(0).driver
    except TarnError as error:
        raise EnableError(f"tarn finds no GPU: {error}") from error
    if driver == "host":
        raise EnableError("tarn uses the host device, whose memory is no GPU's: TARN_DRIVER chooses it, or there is no GPU. With "
                          "TARN_DRIVER=cuda (or hip) tarn says why that driver is not used")


def use(*, torch: bool = False, cupy: bool = False, numba: bool = False, cuda_core: bool = False, warp: bool = False,
        rmm: bool = False, triton: bool = False) -> None:
    """Puts the device memory of the libraries that are named on tarn: one memory, one limit, one set of numbers.

    To be called before these libraries allocate. What is on tarn already stays there. EnableError says which library could not
    follow and what helps; then none was switched on by this call."""
    # PyTorch last: it cannot be switched back.
    names = [name for name, wants in (("cupy", cupy), ("numba", numba), ("cuda_core", cuda_core), ("warp", warp), ("rmm", rmm),
                                      ("triton", triton), ("torch", torch)) if wants]
    if not names:
        raise ValueError("say which libraries, as in tarn.use(torch=True, cupy=True)")
    adaptors = [importlib.import_module(f".{name}", __package__) for name in names]
    done: List[Any] = []
    try:
        for adaptor in adaptors:
            if not adaptor.is_enabled():
                adaptor.enable()
                done.append(adaptor)
    except BaseException:
        for adaptor in reversed(done):
            adaptor.disable()
        raise


__all__ = ["EnableError", "use"]
