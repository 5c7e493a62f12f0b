# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""One exception per status. Each is a TarnError, and also what Python calls such an error, where it has a name for it."""

import atexit
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, List, NoReturn, Type

from ._c import tarn_status
from ._library import lib


class TarnError(RuntimeError):
    """A call of tarn failed. The message says what was tried, and the remedy where one is known."""

    #: The status, a number of `tarn.Status`.
    status: int = 0


class InvalidArgumentError(TarnError, ValueError):
    """An argument is outside what the call accepts."""


class OutOfMemoryError(TarnError, MemoryError):
    """The device, or a limit set on it, has no memory left for the request."""


class OutOfHostMemoryError(TarnError, MemoryError):
    """The host has no memory left for the library's own records."""


class InvalidPointerError(TarnError, ValueError):
    """The pointer is not the start of a live block of tarn."""


class DoubleFreeError(TarnError, ValueError):
    """The block was freed before."""


class InvalidDeviceError(TarnError, ValueError):
    """There is no device of that number."""


class InvalidStreamError(TarnError, ValueError):
    """The stream is unknown, retired, or of another device."""


class NotReadyError(TarnError):
    """The work asked about has not finished."""


class BusyError(TarnError):
    """The object is still in use."""


class CaptureError(TarnError):
    """The call is not allowed while a stream captures."""


class DeviceLostError(TarnError):
    """An earlier error has left the device unusable."""


class MappingLimitError(TarnError):
    """The machine's limit of memory mappings is reached."""


class DriverError(TarnError):
    """A call of the driver failed."""


class NoDriverError(TarnError):
    """No driver could be loaded."""


class LibraryNotFoundError(TarnError, FileNotFoundError):
    """A vendor library could not be loaded."""


class NotSupportedError(TarnError, NotImplementedError):
    """The driver or the device cannot do this."""


class ForkedError(TarnError):
    """The process was forked after tarn was first used."""


class ShutdownError(TarnError):
    """tarn was shut down before, or the vendor's driver was."""


class ConfigurationError(TarnError, ValueError):
    """An environment variable or a configuration string is malformed."""


class NoRoomError(TarnError):
    """The block cannot grow where it is."""


class InternalError(TarnError):
    """An invariant of the library is broken. Please report it."""


class LibraryError(TarnError):
    """A call of a vendor library failed."""


class ScopeError(TarnError):
    """The scope has ended, is open already, or is not the newest of this thread."""


class SuspendedError(TarnError):
    """The pool is suspended."""


class SystemCallError(TarnError):
    """A call of the operating system failed."""


# Each status needs a class above, named by the words of its name: without one, the import fails.
_BY_STATUS: Dict[int, Type[TarnError]] = {
    status: globals()["SystemCallError" if name == "TARN_ERROR_SYSTEM" else
                      "".join(word.title() for word in name[len("TARN_ERROR_"):].split("_")) + "Error"]
    for name, status in tarn_status.__members__.items() if status
}
for _status, _class in _BY_STATUS.items():
    _class.status = int(_status)


def error_of(status: int) -> TarnError:
    """The exception for a status that the last call in this thread returned. It is a plain TarnError if _c.py
    does not know the status."""
    kind = _BY_STATUS.get(status, TarnError)
    text: str = last_error() or lib.tarn_status_text(status).decode()
    error = kind(text)
    error.status = int(status)
    return error


def last_error() -> str:
    """Why the last failing call of tarn failed in this thread: for errors that another library reports without tarn's text."""
    text: str = lib.tarn_last_error().decode("utf-8", "replace")
    return text


def check(status: int) -> None:
    """Raises the exception of `status`, unless that is success."""
    if status:
        raise error_of(status)


class Callbacks(threading.local):
    """Python functions that C calls. An exception is not raised through C, but by check() after the call, in the same thread."""

    def __init__(self) -> None:
        self._raised: List[BaseException] = []

    def guard(self, function: Callable[..., Any], failed: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a function for C. If `function` raises, the result is that of `failed` for the exception and the same arguments."""

        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException as error:
                self._raised.append(error)
                return failed(error, *arguments)
        return call

    def check(self, status: int) -> None:
        """Raises what a callback raised to end the program, KeyboardInterrupt or SystemExit; else what `status` says, because of what a
        callback raised."""
        raised, self._raised = self._raised, []
        for error in raised:
            if not isinstance(error, Exception):
                raise error
        if status:
            raise error_of(status) from (raised[-1] if raised else None)


def close_at_exit(objects: Dict[int, Any]) -> None:
    """Closes objects whose functions the library calls, when the interpreter or subinterpreter ends. A call after that would end the process."""

    def close() -> None:
        for each in list(objects.values()):
            with suppress(TarnError):  # in a forked child, or after shutdown()
                each.close()
    atexit.register(close)


class Owning:
    """Owns something that it gives back to tarn when it is collected. It cannot be copied, since the copy would give it back again."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a tarn.{type(self).__name__} cannot be copied, pickled or sent: it owns what it has in this process, and a copy would "
                        "too. Hand on the object itself; memory goes to another process by an export (tarn_export(), docs/sharing.md)")
