# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""CuPy on tarn: `tarn.cupy.enable()`, or `tarn.use(cupy=True)`.

A block belongs to the stream that was CuPy's current one when it was allocated, as with CuPy's own pool. If another stream is current
where the block is freed, its queued work is waited for too. docs/adaptors/cupy.md is the manual."""

from typing import Any, Dict, Optional, Type

from ._library import lib
from .adaptors import Owner, give, give_late, require_gpu, take, wanted
from .errors import OutOfMemoryError

_previous: Any = None
_allocator: Any = None
_error: Optional[Type[Exception]] = None


class _Memory(Owner):
    """A block of tarn, as CuPy's memory object."""

    __slots__ = ("device", "native", "current")

    def __init__(self, address: int, device: int, native: int, current: Any) -> None:
        super().__init__(address)
        self.device, self.native, self.current = device, native, current

    def __del__(self) -> None:
        address, self.address = self.address, 0
        if not address:
            return
        try:
            native = self.current(self.device)
        except Exception:  # at the interpreter's end CuPy may be gone, and the stream is not known
            give_late(self.device, address)
            return
        if native == self.native:
            lib.tarn_free(address)
        else:
            give(self.device, native, address)


def _out_of_memory(memory: Any) -> Type[Exception]:
    """An error that users of CuPy and users of tarn both catch."""
    global _error
    if _error is None:
        class OutOfMemory(OutOfMemoryError, memory.OutOfMemoryError):  # type: ignore[misc]
            def __init__(self, text: str) -> None:
                Exception.__init__(self, text)

            def __str__(self) -> str:
                return str(self.args[0])

            def __reduce__(self) -> Any:
                return _error_again, (str(self), self.__dict__)

        OutOfMemory.__name__ = OutOfMemory.__qualname__ = "OutOfMemoryError"
        _error = OutOfMemory
    return _error


def _error_again(text: str, attributes: Dict[str, Any]) -> Exception:
    """Unpickles an error. Without CuPy it is only tarn's."""
    try:
        from cupy.cuda import memory
        error = _out_of_memory(memory)(text)
    except ImportError:
        error = OutOfMemoryError(text)
    error.__dict__.update(attributes)
    return error


def allocator() -> Any:
    """An allocator for `cupy.cuda.set_allocator()` or `cupy.cuda.using_allocator()`."""
    wanted("cupy", "cupy-cuda13x")
    from cupy.cuda import memory, stream
    from cupy.cuda.device import get_device_id

    pointer, unowned, current = memory.MemoryPointer, memory.UnownedMemory, stream.get_current_stream

    def native_of(device: int) -> int:
        return int(current(device).ptr)

    def allocate(size: int) -> Any:
        device = get_device_id()
        native = native_of(device)
        try:
            address = take(device, native, size)
        except OutOfMemoryError as error:
            raise _out_of_memory(memory)(str(error)) from None
        return pointer(unowned(address, size, _Memory(address, device, native, native_of), device), 0)

    return allocate


def enable() -> None:
    """Puts CuPy's device memory on tarn, for all threads. Arrays that exist stay where they are. Calling it again does nothing."""
    global _allocator, _previous
    if _allocator is not None:
        return
    require_gpu()
    new = allocator()
    import cupy
    previous = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(new)
    _previous, _allocator = previous, new


def disable() -> None:
    """Restores the allocator that CuPy had before enable(). Existing arrays stay in tarn's memory until they are collected."""
    global _allocator, _previous
    if _allocator is None:
        return
    import cupy
    cupy.cuda.set_allocator(_previous)
    _previous = _allocator = None


def is_enabled() -> bool:
    """True if CuPy allocates new arrays from tarn."""
    return _allocator is not None


__all__ = ["allocator", "disable", "enable", "is_enabled"]
