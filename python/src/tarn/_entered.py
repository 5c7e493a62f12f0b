# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What `with` statements have begun: scopes of pools, devices and streams.

Python code of one thread takes turns (tasks, generators, signal handlers), so what one of them has entered is not the others'. tarn's own
calls look into the context (contextvars), where each task has its own. C knows the thread only, and so does what PyTorch and CuPy ask of
it: there everything is open that was entered in the thread and has not ended. A `with` may end in whatever order, and in another thread.
C has its scopes and guards nested, so the newer ones are ended too and begun again."""

import threading
from contextvars import ContextVar
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Type, TypeVar
from weakref import ReferenceType, ref

from . import _c
from .errors import ScopeError, check, error_of

_SCOPE = int(_c.tarn_status.TARN_ERROR_SCOPE)
_NOTHING_LEFT = (_c.tarn_status.TARN_ERROR_FORKED, _c.tarn_status.TARN_ERROR_SHUTDOWN)  # no C that has anything open
_serial = count(1)
_Self = TypeVar("_Self", bound="Enterable")


class Entry:
    """One `with` of an object, until it ends."""

    def __init__(self, owner: Any, device: int, key: Any = None, within: "Optional[Entry]" = None) -> None:
        self.owner, self.device = owner, device
        self.key: Any = key or self  # of one key C has one at a time
        self.within = within  # ends where that ends
        self.serial = next(_serial)
        self.outer: Optional[Entry] = None  # what the context had before
        self.statement: Optional[ReferenceType[Any]] = None
        self.is_unsure = self.has_ended = False  # is_unsure: whether C has it

    def is_open(self) -> bool:
        """Whether it has not ended: by leave(), or with its `with` statement, which an exception of a signal handler may end before
        `__exit__` does anything."""
        return not self.has_ended and (self.statement is None or self.statement() is not None) and (
            self.within is None or self.within.is_open())

    def close(self) -> None:
        """Marks it as ended, and drops its owner: contexts may keep the entry."""
        self.has_ended, self.owner = True, None

    def begin(self) -> int:
        """Begins it in C, in the calling thread. Returns the status."""
        raise NotImplementedError

    def end(self) -> int:
        """Undoes begin() in the same thread. Returns the status; 0 if begin() was not called."""
        raise NotImplementedError


class Statement:
    """The `__exit__` of one `with` statement. Nothing else refers to it, so it is collected when the statement has ended, in whatever way."""

    __slots__ = ("owner", "entry", "__weakref__")

    def __init__(self, owner: "Enterable") -> None:
        self.owner, self.entry = owner, None  # type: Enterable, Optional[Entry]
        _looked_up.newest = ref(self)

    def __call__(self, kind: Optional[Type[BaseException]] = None, error: Optional[BaseException] = None,
                 traceback: Optional[TracebackType] = None) -> None:
        self.owner._track.leave(self.entry or self.owner._track.find(self.owner))


class _LookedUp(threading.local):
    """Python looks up `__enter__` and `__exit__` of an object, and then calls `__enter__`."""

    def __init__(self) -> None:
        self.newest: Optional[ReferenceType[Statement]] = None

    def statement_of(self, owner: "Enterable") -> Optional[Statement]:
        """The `with` statement that enters `owner` now. None if something else does, such as contextlib.ExitStack."""
        found = self.newest() if self.newest else None
        return found if found is not None and found.owner is owner and found.entry is None else None


_looked_up = _LookedUp()


class Track(threading.local):
    """The open scopes, or the open devices and streams: those of the context, and those of the calling thread."""

    unstated: List[Entry] = []  # of all threads: open, and without a statement

    def __init__(self, context: "ContextVar[Optional[Entry]]") -> None:
        self.context = context
        self.entered: List[Entry] = []  # in this thread
        self.begun: List[Entry] = []    # of these, what C has open, in its order

    def innermost(self, fits: "Optional[Callable[[Entry], bool]]" = None) -> Optional[Entry]:
        """The newest entry that the context has open and that fits."""
        entry = self.context.get()
        while entry is not None and not (entry.is_open() and (fits is None or fits(entry))):
            entry = entry.outer
        return entry

    def find(self, owner: Any) -> Entry:
        """The entry that a call of `__exit__` outside of a `with` statement ends."""
        entry = self.innermost(lambda one: one.owner is owner and one.statement is None)
        for one in reversed(self.unstated):
            if entry is None and one.owner is owner:
                entry = one
        if entry is None:
            raise ScopeError(f"the program has not entered {owner!r}, or has left it")
        return entry

    def enter(self, entry: Entry) -> None:
        """Opens an entry in the context and in the thread."""
        statement = _looked_up.statement_of(entry.owner)
        try:
            if statement is not None:
                entry.statement, statement.entry = ref(statement), entry
            else:
                self.unstated.append(entry)
            entry.outer = self.innermost()
            is_plain = len(self.entered) == len(self.begun) and all(one.key != entry.key for one in self.begun)
            self.entered.append(entry)
            failed = self._begin(entry) if is_plain else self.settle()
            if not self.begun or self.begun[-1] is not entry:
                raise error_of(failed)
            self.context.set(entry)
        except BaseException:
            self.leave(entry)
            raise

    def leave(self, entry: Entry) -> None:
        """Closes an entry. If another thread entered it, C ends it when that thread next calls tarn."""
        if entry.statement is None and entry in self.unstated:
            self.unstated.remove(entry)
        entry.close()
        if self.context.get() is entry:
            self.context.set(self.innermost())
        if self.begun and len(self.begun) == len(self.entered) and self.begun[-1] is self.entered[-1] is entry:
            check(self._end(entry))
            self.entered = [one for one in self.entered if one is not entry]
        else:
            status = self.settle()
            check(0 if status in _NOTHING_LEFT else status)

    def settle(self) -> int:
        """Has C know of what is open, step by step: what runs meanwhile, a finaliser or a signal handler, may change it. The status of
        the last call that failed."""
        failed = 0
        while True:
            for entry in self.begun + self.entered:
                if not entry.is_open():
                    entry.close()
            self.entered = [entry for entry in self.entered if not entry.has_ended]
            newest = {entry.key: entry for entry in self.entered}
            wanted = [entry for entry in self.entered if newest[entry.key] is entry]
            same = 0
            while same < min(len(wanted), len(self.begun)) and wanted[same] is self.begun[same]:
                same += 1
            if same < len(self.begun):
                status = self._end(self.begun[-1])
                if status:
                    return status  # to be tried again
            elif same < len(wanted):
                failed = self._begin(wanted[same]) or failed
            else:
                return failed

    def _begin(self, entry: Entry) -> int:
        entry.is_unsure = True  # an exception may come before or behind what C does
        self.begun.append(entry)
        status = entry.begin()
        entry.is_unsure = False
        if status:
            self.begun = [one for one in self.begun if one is not entry]
            self.entered = [one for one in self.entered if one is not entry]
        return status

    def _end(self, entry: Entry) -> int:
        was_unsure, entry.is_unsure = entry.is_unsure, True
        status = entry.end()
        if status and status not in _NOTHING_LEFT and not (was_unsure and status == _SCOPE):
            entry.is_unsure = False
            return status
        self.begun = [one for one in self.begun if one is not entry]
        return 0

    def is_idle(self) -> bool:
        """True if neither the context nor the thread has anything open."""
        return self.context.get() is None and not self.begun

    def agrees(self, device: int) -> bool:
        """True if the innermost entry for a device in this Python context is the one that the C library has for the thread."""
        entry = self.context.get()
        if entry is None and not self.begun:
            return True
        if self.begun and self.begun[-1] is entry and entry.device == device and entry.is_open():
            return True  # as nearly always
        self.refresh()
        in_c = next((one for one in reversed(self.begun) if one.device == device), None)
        return self.innermost(lambda one: one.device == device) is in_c

    def refresh(self) -> None:
        """Ends in C the entries of this thread that another thread has ended."""
        for entry in self.begun:
            if not entry.is_open():
                self.settle()
                return


#: Scopes of pools.
scopes = Track(ContextVar("tarn.scopes", default=None))
#: Devices and streams.
guards = Track(ContextVar("tarn.guards", default=None))
#: Regions of the trace, which C has per thread only.
regions = Track(ContextVar("tarn.regions", default=None))


class _Exit:
    def __get__(self, owner: "Optional[Enterable]", kind: Any = None) -> "Callable[..., None]":
        if owner is None:
            return _exit
        return Statement(owner)


def _exit(owner: "Enterable", kind: Optional[Type[BaseException]] = None, error: Optional[BaseException] = None,
          traceback: Optional[TracebackType] = None) -> None:
    owner._track.leave(owner._track.find(owner))


class Enterable:
    """An object for `with`, whose threads, tasks and generators may share it."""

    _track: Track

    def _entry(self) -> Entry:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        self._track.enter(self._entry())
        return self

    if TYPE_CHECKING:
        def __exit__(self, kind: Optional[Type[BaseException]] = None, error: Optional[BaseException] = None,
                     traceback: Optional[TracebackType] = None) -> None:
            """Ends what the `with` began."""
    else:
        __exit__ = _Exit()
