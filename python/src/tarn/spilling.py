# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Spilling: what a program can do without gives its memory back when a request would fail, or before tarn takes more."""

import sys
from ctypes import byref, c_uint64, sizeof
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import _c
from ._library import lib
from .devices import DeviceLike, device_index
from .errors import Owning, check, close_at_exit


class Shortage(NamedTuple):
    """A request that would fail. In bytes."""
    device: int
    requested: int  #: in one range, rounded
    reserved: int  #: that tarn has of the device
    limit: int  #: that it may have by the limits, by leave_free_mb now, or by what an integrated or paged device has now; 2**64 - 1: no limit
    free: int  #: that the driver reports
    total: int  #: of the device
    rejected: bool  #: larger than the device or the limit: what is freed does not serve it


_spillers: "Dict[int, Spiller]" = {}  # the library has the callbacks of these
close_at_exit(_spillers)


def _for_c(kind: Any, function: Callable[..., Any]) -> Any:
    """A function for C. What it raises is printed, and counts as False."""

    def call(*arguments: Any) -> bool:
        try:
            return bool(function(*arguments))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            return False
    return kind(call)


class Spiller(Owning):
    """Calls `spill(shortage)` before a request fails for lack of memory, and `before_growth(device, nbytes)` each time before tarn asks the
    driver for memory, each if given and in the thread that asked.

    A function frees what it can, and returns whether it freed anything; then tarn tries again. It calls `spill` again while that does not
    suffice, so with nothing left it must return False. A request that is larger than the device or the limit is reported once
    (`shortage.rejected`), and is tried again only if the callback has raised the limit. Functions may call everything except shutdown().
    What they raise is printed, and counts as False. It takes part until close(), whether the object is kept or not."""

    def __init__(self, spill: Optional[Callable[[Shortage], Any]] = None, *, before_growth: Optional[Callable[[int, int], Any]] = None,
                 device: DeviceLike = None) -> None:
        for name, function in (("spill", spill), ("before_growth", before_growth)):
            if function is not None and not callable(function):
                raise TypeError(f"{name}: a function is wanted, not {function!r:.100}")
        if spill is None and before_growth is None:
            raise TypeError("spill: a function is wanted, here or as before_growth")

        types: Dict[str, Any] = {field[0]: field[1] for field in _c.tarn_observer_options._fields_}
        options = _c.tarn_observer_options(size=sizeof(_c.tarn_observer_options),
                                           device=_c.TARN_ALL_DEVICES if device is None else device_index(device))
        self._calls: List[Any] = []  # the library has these
        if spill is not None:
            report = spill

            def short(at: Any, _user: Any) -> Any:
                of = at.contents
                return report(Shortage(of.device, of.requested, of.reserved, of.limit, of.free, of.total, of.rejected))
            self._calls.append(_for_c(types["out_of_memory"], short))
            options.out_of_memory = self._calls[-1]
        if before_growth is not None:
            ask = before_growth
            self._calls.append(_for_c(types["before_growth"], lambda index, nbytes, _user: ask(index, nbytes)))
            options.before_growth = self._calls[-1]
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
