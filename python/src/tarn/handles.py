# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Handles of vendor libraries, one per thread and device, bound to the thread's current stream."""

import os
from ctypes import byref, c_int, c_size_t, c_void_p, sizeof
from functools import lru_cache
from types import TracebackType
from typing import Dict, List, NamedTuple, Optional, Tuple, Type

from . import _c, _texts
from ._library import lib
from .devices import DeviceLike, StreamLike, device_index, lease_of, stream_value, value_for_c
from .errors import InvalidArgumentError, Owning, check


class LibraryInfo(NamedTuple):
    """Information about a vendor library. `reason` says why it is not usable."""
    name: str
    found: bool
    usable: bool
    path: str
    version: str
    reason: str


def libraries() -> List[LibraryInfo]:
    """The libraries that tarn knows, and which of them are usable here. Looks for each of them and opens it."""
    result: List[LibraryInfo] = []
    number = 1
    while True:
        info = _c.tarn_library_info(size=sizeof(_c.tarn_library_info))
        try:
            check(lib.tarn_library_info_get(number, byref(info)))
        except InvalidArgumentError:
            return result
        result.append(LibraryInfo(info.name.decode(errors="replace"), info.found, info.usable, os.fsdecode(info.path),
                                  info.version.decode(errors="replace"), info.reason.decode(errors="replace")))
        number += 1


@lru_cache(maxsize=None)
def _number(name: str) -> int:
    number = c_int()
    try:
        check(lib.tarn_library_find(_texts.text("library", name), byref(number)))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f'{error}; tarn.libraries() lists the names, "cublas" is one') from None
    return number.value


def handle(library: str, stream: StreamLike = None) -> int:
    """The calling thread's handle of a library ("cublas", "cudnn"), as a number, bound to `stream` or to the thread's current one. Ask
    again after each change of device or stream, and never destroy it."""
    found = c_void_p()
    check(lib.tarn_handle_get(_number(library), value_for_c(stream), byref(found)))
    return found.value or 0


class Lease(Owning):
    """A handle that no thread has, for tasks that move between threads: `with tarn.Lease("cublas", stream) as handle: ...`"""

    def __init__(self, library: str, stream: StreamLike = None) -> None:
        self._lease = _c.tarn_lease()
        self._library = library
        value = stream_value(stream)
        check(lib.tarn_handle_lease(_number(library), value, byref(self._lease)))
        self._stream = lease_of(value)

    @property
    def handle(self) -> int:
        """The vendor's handle; 0 after it was given back."""
        return self._lease.handle or 0

    def bind(self, stream: StreamLike) -> None:
        """Moves the lease to another stream of the same device. The handle may be another one afterwards."""
        if not self._lease.handle:
            raise InvalidArgumentError("the lease was given back")
        value = stream_value(stream)
        check(lib.tarn_handle_lease_bind(byref(self._lease), value))
        self._stream = lease_of(value)

    def close(self) -> None:
        """Gives the handle back. A second call does nothing."""
        lease, self._lease = self._lease, _c.tarn_lease()
        status = lib.tarn_handle_return(byref(lease)) if lease.handle else 0
        if status:
            self._lease = lease
            check(status)
        self._stream = None

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_lease", None) is not None and self._lease.handle:
            lib.tarn_handle_return(byref(self._lease))

    def __repr__(self) -> str:
        return f"<tarn.Lease of {self._library}{f' at {self.handle:#x}' if self.handle else ', given back'}>"


def prewarm(library: str, count: int = 1, *, device: DeviceLike = None) -> None:
    """Creates handles until `count` are available, so that a capture finds one."""
    check(lib.tarn_handle_prewarm(_number(library), device_index(device), _c.TARN_STREAM_NONE, count))


def trim_handles(library: str, *, device: DeviceLike = None) -> int:
    """Destroys the handles that no thread has; returns how many."""
    destroyed = c_size_t()
    check(lib.tarn_handle_trim(_number(library), device_index(device), byref(destroyed)))
    return destroyed.value


def workspace(library: str, stream: StreamLike = None) -> Tuple[int, int]:
    """Address and bytes of the workspace to pass to a call of the library (cublasLtMatmul)."""
    pointer, size = c_void_p(), c_size_t()
    check(lib.tarn_workspace_get(_number(library), value_for_c(stream), None, byref(pointer), byref(size)))
    return pointer.value or 0, size.value


def handle_stats(library: str, *, device: DeviceLike = None) -> Dict[str, int]:
    """Counters of a library's handles on a device."""
    found = _c.tarn_handle_stats(size=sizeof(_c.tarn_handle_stats))
    check(lib.tarn_handle_stats_get(_number(library), device_index(device), byref(found)))
    return {field[0]: getattr(found, field[0]) for field in found._fields_[1:]}
