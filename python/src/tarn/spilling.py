# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Spilling: what a program can do without gives its memory back when a request would fail."""

import sys
from ctypes import byref, c_uint64, sizeof
from typing import Any, Callable, Dict, NamedTuple

from . import _c
from ._library import lib
from .devices import DeviceLike, device_index
from .errors import Owning, check


class Shortage(NamedTuple):
    """A request that would fail. In bytes."""
    device: int
    requested: int  #: in one range, rounded
    reserved: int  #: that tarn has of the device
    limit: int  #: that it may have, now if none is set and the device is integrated or paged; 2**64 - 1: no limit
    free: int  #: that the driver reports
    total: int  #: of the device
    rejected: bool  #: larger than the device or the limit: what is freed does not serve it


_spillers: "Dict[int, Spiller]" = {}  # the library has the callbacks of these


class Spiller(Owning):
    """Calls `spill(shortage)` before a request fails for lack of memory, in the thread that asked.

    It frees what it can, and returns whether it freed anything; then tarn tries again, and calls it again while that does not suffice, so
    with nothing left it must return False. A request that is larger than the device or the limit is reported once (`shortage.rejected`),
    and is tried again only if the callback has raised the limit. It may call everything except shutdown(). What it raises is printed, and
    counts as False. It takes part until close(), whether the object is kept or not."""

    def __init__(self, spill: Callable[[Shortage], Any], *, device: DeviceLike = None) -> None:
        if not callable(spill):
            raise TypeError(f"spill: a function is wanted, not {spill!r:.100}")

        def call(at: Any, _user: Any) -> bool:
            of = at.contents
            try:
                return bool(spill(Shortage(of.device, of.requested, of.reserved, of.limit, of.free, of.total, of.rejected)))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                return False

        types: Dict[str, Any] = {field[0]: field[1] for field in _c.tarn_observer_options._fields_}
        self._call = types["out_of_memory"](call)
        options = _c.tarn_observer_options(size=sizeof(_c.tarn_observer_options), out_of_memory=self._call,
                                           device=_c.TARN_ALL_DEVICES if device is None else device_index(device))
        number = c_uint64()
        check(lib.tarn_observer_add(byref(options), byref(number)))
        self.number = number.value
        _spillers[self.number] = self

    def close(self) -> None:
        """Removes it. Waits for calls that run in other threads. Nothing happens the second time."""
        number, self.number = self.number, 0
        if number:
            check(lib.tarn_observer_remove(number))
            _spillers.pop(number, None)

    def __enter__(self) -> "Spiller":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
