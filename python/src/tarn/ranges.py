# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Ranges: addresses that get and lose memory page by page."""

from ctypes import byref, c_void_p, sizeof
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Optional, Type

from . import _c, _texts
from ._integers import integer
from ._library import lib
from .devices import Device, StreamLike, stream_value
from .errors import InvalidArgumentError, Owning, check
from .graphs import GraphHandle, graph_pointer
from .memory import tag_number
from .pools import Pool, PoolId


class RangeInfo(NamedTuple):
    """A range at one moment; sizes in bytes. `decommitted` pages still have memory."""
    address: int
    nbytes: int
    page: int
    device: Device
    pool: PoolId
    committed: int
    decommitted: int


class Range(Owning):
    """A range of addresses in which pages get memory by `commit()` and lose it by `decommit()`, in the order of a stream.

    The memory is that of `pool`, by default the current device's default pool. `page` is a multiple of the device's granule, which it is
    by default. `tag` names the pages in traces and snapshots. Offsets and sizes are bytes, in whole pages. The range ends when the object is
    closed or collected, after the work of the streams that its pages were committed for."""

    def __init__(self, nbytes: int, *, page: int = 0, pool: Optional[Pool] = None, tag: Optional[str] = None) -> None:
        pointer = (Pool.default() if pool is None else _texts.instance("pool", Pool, pool))._open()
        options = _c.tarn_range_options(size=sizeof(_c.tarn_range_options), pool=pointer,
                                        page=integer("page", page), tag=tag_number(tag))
        self.pointer = c_void_p()
        check(lib.tarn_range_create(byref(options), nbytes, byref(self.pointer)))
        found = self.info
        self._address, self._device = found.address, found.device.index

    def _open(self) -> c_void_p:
        if not self.pointer:
            raise InvalidArgumentError("the range was closed")
        return self.pointer

    @property
    def info(self) -> RangeInfo:
        """The range's current state."""
        found = _c.tarn_range_info(size=sizeof(_c.tarn_range_info))
        check(lib.tarn_range_info_get(self._open(), byref(found)))
        return RangeInfo(found.address, found.bytes, found.page, Device(found.device), PoolId(found.pool.first, found.pool.second),
                         found.committed, found.decommitted)

    @property
    def ptr(self) -> int:
        """The address of its first byte."""
        return self._address

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return Device(self._device)

    def commit(self, offset: int, nbytes: int, stream: StreamLike = None) -> None:
        """Gives pages memory, for work that is queued on `stream` from now on. Their contents are undefined."""
        check(lib.tarn_range_commit(self._open(), offset, nbytes, stream_value(stream, self._device)))

    def decommit(self, offset: int, nbytes: int, stream: StreamLike = None) -> None:
        """Takes pages back, when the work that was queued on `stream` has ended. BusyError if a page is held."""
        check(lib.tarn_range_decommit(self._open(), offset, nbytes, stream_value(stream, self._device)))

    def hold(self, offset: int, nbytes: int, graph: Optional[GraphHandle] = None) -> None:
        """Holds committed pages: until a graph is gone, given by its handle, or without one until `unhold()`."""
        check(lib.tarn_range_hold(self._open(), offset, nbytes, None if graph is None else graph_pointer(graph)))

    def unhold(self, offset: int, nbytes: int) -> None:
        """Ends one hold without a graph of the same pages."""
        check(lib.tarn_range_unhold(self._open(), offset, nbytes))

    def __dlpack__(self, **_: Any) -> NoReturn:
        raise BufferError("a range is not an array, since its pages come and go: give a kernel the address, `ptr` and an offset")

    def close(self) -> None:
        """Ends the range. A second call does nothing. BusyError while a page is held."""
        pointer, self.pointer = self.pointer, c_void_p()
        status = lib.tarn_range_destroy(pointer) if pointer else 0
        if status:
            self.pointer = pointer
            check(status)

    def __enter__(self) -> "Range":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            lib.tarn_range_destroy(self.pointer)

    def __repr__(self) -> str:
        return f"<tarn.Range at {self._address:#x} on device {self._device}>" if self.pointer else "<tarn.Range, closed>"
