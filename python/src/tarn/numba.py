# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Numba on tarn, by its interface for external memory management: `tarn.numba.enable()`, `tarn.use(numba=True)`, or
NUMBA_CUDA_MEMORY_MANAGER=tarn.numba in the environment.

The interface names no stream. So a block belongs to the legacy default stream, for whose earlier work Numba's streams wait, and a freed
block is given out again only after the work that all blocking streams of the device have at the free. docs/adaptors/numba.md is the
manual."""

import threading
from collections import deque
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Deque, Dict, Optional, Type

from . import _c
from ._library import lib
from .adaptors import EnableError, require_gpu, take, wanted
from .devices import Device
from .errors import OutOfMemoryError

_LEGACY = 0
_CUDA_ERROR_OUT_OF_MEMORY = 2

_manager: Optional[Type[Any]] = None
_previous: Any = None
_error: Optional[Type[Exception]] = None


class _Frees:
    """Frees blocks of one device behind all of its blocking streams: behind an event on the legacy default stream, which waits for them.
    A finaliser calls it, in any thread; so nothing is raised here."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.event: Optional[c_void_p] = None
        self.later: Deque[int] = deque()  # could not be freed: a stream captures
        self.lock = threading.RLock()     # a finaliser may run inside

    def free(self, address: int) -> None:
        with self.lock:
            self.later.append(address)
            self.flush()

    def flush(self) -> None:
        """Frees blocks that wait. While a capture is open, nothing is recorded on the legacy stream, and they continue to wait."""
        if not self.later:
            return
        with self.lock:
            if not self._record():
                return
            for _ in range(len(self.later)):
                if not self.later:
                    return  # a finaliser that ran meanwhile has freed them
                address = self.later.popleft()
                if lib.tarn_free_after(address, self.event) == _c.tarn_status.TARN_ERROR_OUT_OF_HOST_MEMORY:
                    self.later.append(address)

    def _record(self) -> bool:
        guard = _c.tarn_guard()
        if lib.tarn_device_guard_set(byref(guard), self.device):
            return False
        try:
            if self.event is None:
                event = c_void_p()
                if lib.tarn_event_create(self.device, byref(event)):
                    return False
                self.event = event
            return not lib.tarn_event_record(self.event, _c.TARN_STREAM_LEGACY)
        finally:
            lib.tarn_guard_restore(byref(guard))


_frees: Dict[int, _Frees] = {}


def _frees_of(device: int) -> _Frees:
    return _frees.setdefault(device, _Frees(device))


def _error_again(text: str, attributes: Dict[str, Any]) -> Exception:
    """Unpickles an error. Without Numba it is only tarn's."""
    try:
        manager()
    except EnableError:
        pass
    error = (_error or OutOfMemoryError)(text)
    error.__dict__.update(attributes)
    return error


def manager() -> Type[Any]:
    """The class for `numba.cuda.set_memory_manager()`."""
    global _manager
    if _manager is not None:
        return _manager
    wanted("numba.cuda", "numba-cuda")
    from numba import cuda
    from numba.cuda.cudadrv.driver import CudaAPIError

    class OutOfMemory(OutOfMemoryError, CudaAPIError):  # type: ignore[misc]
        """An error that users of Numba and users of tarn both catch."""

        def __init__(self, text: str) -> None:
            Exception.__init__(self, text)
            self.code, self.msg = _CUDA_ERROR_OUT_OF_MEMORY, text

        def __str__(self) -> str:
            return str(self.msg)

        def __reduce__(self) -> Any:
            return _error_again, (str(self), self.__dict__)

    OutOfMemory.__name__ = OutOfMemory.__qualname__ = "OutOfMemoryError"
    global _error
    _error = OutOfMemory

    class TarnMemoryManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """Numba's device memory from tarn; pinned memory stays Numba's."""

        def initialize(self) -> None:
            """Nothing to do: tarn starts with the first allocation."""

        def memalloc(self, size: int) -> Any:
            """A block of the context's device."""
            device = int(self.context.device.id)
            frees = _frees_of(device)
            frees.flush()
            try:
                address = take(device, _LEGACY, size)
            except OutOfMemoryError:
                self.deallocations.clear()  # Numba's own: modules, pinned memory
                try:
                    address = take(device, _LEGACY, size)
                except OutOfMemoryError as error:
                    raise OutOfMemory(str(error)) from None

            def finish() -> None:
                if address:
                    frees.free(address)

            return cuda.MemoryPointer(self.context, c_void_p(address), size, finalizer=finish)

        def get_memory_info(self) -> Any:
            """Bytes as the driver reports them. Memory that tarn reserves counts as used."""
            found = Device(int(self.context.device.id)).memory_info()
            return cuda.MemoryInfo(free=found.free, total=found.total)

        def get_ipc_handle(self, memory: Any) -> Any:
            """A handle of cudaIpcGetMemHandle(), which mapped memory does not have."""
            try:
                return super().get_ipc_handle(memory)
            except CudaAPIError as error:
                raise RuntimeError(f"this memory has no CUDA IPC handle ({error}): it is mapped in pieces. With segments:plain in "
                                   "TARN_ALLOC_CONF it has one") from error

        @property
        def interface_version(self) -> int:
            """The version of Numba's interface."""
            return 1

    _manager = TarnMemoryManager
    return _manager


def __getattr__(name: str) -> Any:
    if name == "_numba_memory_manager":  # what NUMBA_CUDA_MEMORY_MANAGER=tarn.numba asks for
        return manager()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enable() -> None:
    """Puts Numba's device memory on tarn. To be called before Numba has a context on any device: EnableError afterwards. Calling it again
    does nothing."""
    global _previous
    if is_enabled():
        return
    require_gpu()
    new = manager()
    from numba import cuda
    from numba.cuda.cudadrv import driver
    if _has_context(driver):
        raise EnableError("Numba has a context already, which keeps its memory manager: call tarn.numba.enable() before the first use of "
                          "numba.cuda")
    _previous = driver._memory_manager
    cuda.set_memory_manager(new)


def disable() -> None:
    """Restores the memory manager that Numba had before enable(), for later contexts."""
    global _previous
    if not is_enabled():
        return
    from numba.cuda.cudadrv import driver
    driver._memory_manager, _previous = _previous, None


def is_enabled() -> bool:
    """True if later contexts of Numba allocate from tarn."""
    if _manager is None:
        return False
    from numba.cuda.cudadrv import driver
    return bool(driver._memory_manager is _manager)


def _has_context(driver: Any) -> bool:
    return any(device.primary_context is not None for device in driver.driver.devices.values())


if TYPE_CHECKING:
    _numba_memory_manager: Type[Any]

__all__ = ["disable", "enable", "is_enabled", "manager"]
