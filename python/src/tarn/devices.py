# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Devices, streams and events. A device is current per thread and context, and so is a stream per device."""

from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p, sizeof
from typing import Any, NamedTuple, Optional, Union
from weakref import WeakValueDictionary

from . import _c, _texts
from ._entered import Enterable, Entry, guards
from ._integers import integer
from ._library import lib
from .errors import InvalidDeviceError, NotReadyError, Owning, check

#: What names a device: a number, a Device, or None for the thread's current one.
DeviceLike = Union["Device", int, None]


class MemoryInfo(NamedTuple):
    """Bytes of a device, as its driver reports them now. Memory that tarn reserves is not free."""
    free: int
    total: int


class _OnDevice(Entry):
    def __init__(self, owner: Any, device: int) -> None:
        super().__init__(owner, device)
        self.guard = _c.tarn_guard()

    def begin(self) -> int:
        return int(lib.tarn_device_guard_set(byref(self.guard), self.device))

    def end(self) -> int:
        return int(lib.tarn_guard_restore(byref(self.guard)))

    @property
    def previous_device(self) -> int:
        """The thread's earlier device."""
        return int(self.guard.previous_device)


class _OnStream(Entry):
    def __init__(self, owner: Any, value: int) -> None:
        if value <= _c.TARN_STREAM_PER_THREAD:
            value = _default_stream(value, current_index())
        super().__init__(owner, index_of_stream(value))
        self.value = value
        self.guard = _c.tarn_guard()

    def begin(self) -> int:
        return int(lib.tarn_stream_guard_set(byref(self.guard), self.value))

    def end(self) -> int:
        return int(lib.tarn_guard_restore(byref(self.guard)))

    @property
    def previous_device(self) -> int:
        """The thread's earlier device."""
        return int(self.guard.previous_device)


class Device(Enterable):
    """A device by its number. As a context manager it is the current device inside."""

    _track = guards

    def __init__(self, index: int) -> None:
        self.index = integer("device", index, -2**31, 2**31 - 1)

    def _entry(self) -> Entry:
        return _OnDevice(self, self.index)

    @property
    def properties(self) -> "_c.tarn_device_properties":
        """What the device is: `name` and `driver` in bytes, `memory`, `granule`, `capability_major`, and whether it is `integrated`,
        `coherent`, a `slice`, shared by `mps` or `paged`; `address_bits` is how many bits addresses have."""
        found = _c.tarn_device_properties(size=sizeof(_c.tarn_device_properties))
        check(lib.tarn_device_properties_get(self.index, byref(found)))
        return found

    @property
    def name(self) -> str:
        """The driver's name of the device."""
        return str(self.properties.name.decode())

    @property
    def driver(self) -> str:
        """"cuda", "hip" or "host"."""
        return str(self.properties.driver.decode())

    def memory_info(self) -> MemoryInfo:
        """Free and total bytes, as the driver reports them now."""
        free, total = c_size_t(), c_size_t()
        check(lib.tarn_device_memory_get(self.index, byref(free), byref(total)))
        return MemoryInfo(free.value, total.value)

    def synchronize(self) -> None:
        """Waits for all work on the device."""
        check(lib.tarn_device_synchronize(self.index))

    def enable_peer(self, peer: "DeviceLike") -> None:
        """Lets this device access the memory of `peer`."""
        check(lib.tarn_device_peer_enable(self.index, device_index(peer)))

    def __index__(self) -> int:
        return self.index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.index == self.index

    def __hash__(self) -> int:
        return hash(("tarn.Device", self.index))

    def __repr__(self) -> str:
        return f"tarn.Device({self.index})"


def device_index(device: DeviceLike) -> int:
    """The number of a device; of the current one for None."""
    if device is None:
        return current_index()
    index = device.index if isinstance(device, Device) else integer("device", device, -2**31, 2**31 - 1)
    if index < 0:  # C has meanings for these
        raise InvalidDeviceError(f"there is no device {index}: devices are numbered from 0")
    return index


def current_index() -> int:
    """The number of the current device."""
    if not guards.is_idle():
        guards.refresh()
        mine = guards.innermost()
        if mine is not None:
            return mine.device
        if guards.begun:  # others of the thread have entered: what it had before is everybody's
            return guards.begun[0].previous_device  # type: ignore[attr-defined, no-any-return]
    return index_of_thread()


def index_of_thread() -> int:
    """The number of the thread's current device."""
    current = c_int()
    check(lib.tarn_device_get(byref(current)))
    return current.value


def device_count() -> int:
    """How many devices there are. Chooses the driver, if nothing has yet."""
    count = c_int()
    check(lib.tarn_device_count_get(byref(count)))
    return count.value


def current_device() -> Device:
    """The current device."""
    return Device(device_index(None))


def set_device(device: Union[Device, int]) -> None:
    """Makes a device the current one of the calling thread, in tarn and in the driver. Inside a `with` of a device or a stream it is so
    until that ends."""
    index = device_index(device)
    check(lib.tarn_device_set(index))
    if guards.is_idle():
        return
    guards.refresh()
    mine = guards.innermost()
    if mine is not None:
        chosen = Entry(None, index, within=mine.within if type(mine) is Entry else mine)
        chosen.outer = mine.outer if type(mine) is Entry else mine
        guards.context.set(chosen)
    elif isinstance(guards.begun[0], (_OnDevice, _OnStream)):
        guards.begun[0].guard.previous_device = index


class Stream(Owning, Enterable):
    """A stream of a device. As a context manager it is the current stream inside, and its device the current one.

    `Stream()` leases one that nobody else is given. `Stream.find()` takes one that another library made; `Stream.legacy()` and
    `Stream.per_thread()` are the default streams. A leased one goes back when the object is closed or collected; blocks that were allocated
    for it and handles that are leased with it keep it."""

    _track = guards

    def __init__(self, device: DeviceLike = None, priority: int = 0) -> None:
        leased = c_uint64()
        check(lib.tarn_stream_lease(device_index(device), priority, byref(leased)))
        self.value: int = leased.value
        self._is_leased = True
        _leased[self.value] = self

    @classmethod
    def _of(cls, value: int) -> "Stream":
        stream = cls.__new__(cls)
        stream.value, stream._is_leased = value, False
        return stream

    @classmethod
    def find(cls, native: Any, device: DeviceLike = None) -> "Stream":
        """The stream that another library made: an address, or an object with `__cuda_stream__`, `cuda_stream` (PyTorch) or `ptr` (CuPy).
        Ask again for each use: what the value stands for ends with the native stream."""
        if isinstance(native, Stream):
            return native
        address = native_address(native)
        found = c_uint64()
        check(lib.tarn_stream_find(device_index(device), address, byref(found)))
        return cls._of(found.value)

    @classmethod
    def legacy(cls) -> "Stream":
        """The legacy default stream of the thread's current device."""
        return cls._of(_c.TARN_STREAM_LEGACY)

    @classmethod
    def per_thread(cls) -> "Stream":
        """The per-thread default stream of the calling thread."""
        return cls._of(_c.TARN_STREAM_PER_THREAD)

    @property
    def native(self) -> int:
        """The native stream: a cudaStream_t or hipStream_t as a number."""
        found = c_void_p()
        check(lib.tarn_stream_native_get(self.value, byref(found)))
        return found.value or 0

    @property
    def device(self) -> Device:
        """The stream's device."""
        return Device(index_of_stream(self.value))

    def is_idle(self) -> bool:
        """True if all work queued so far has finished."""
        try:
            check(lib.tarn_stream_query(self.value))
        except NotReadyError:
            return False
        return True

    def synchronize(self) -> None:
        """Waits for all work queued so far."""
        check(lib.tarn_stream_synchronize(self.value))

    def record(self) -> "Event":
        """An event behind all work queued so far."""
        event = Event(self.device)
        event.record(self)
        return event

    def wait(self, other: Union["Event", "Stream"]) -> None:
        """Work queued from now on waits for an event, or for what another stream has queued so far."""
        event = other.record() if isinstance(other, Stream) else _texts.instance("other", Event, other)
        check(lib.tarn_stream_wait(self.value, event.pointer))

    def close(self) -> None:
        """Gives a leased stream back. Does nothing for any other, or the second time."""
        if self._is_leased:
            self._is_leased = False
            check(lib.tarn_stream_return(self.value))

    def _entry(self) -> Entry:
        return _OnStream(self, self.value)

    def __cuda_stream__(self) -> Any:
        """cuda.core's protocol: version 0 and the native stream."""
        return (0, self.native)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.value == self.value

    def __hash__(self) -> int:
        return hash(("tarn.Stream", self.value))

    def __del__(self) -> None:
        if getattr(self, "_is_leased", False):
            lib.tarn_stream_return(self.value)

    def __repr__(self) -> str:
        names = {_c.TARN_STREAM_LEGACY: "legacy", _c.TARN_STREAM_PER_THREAD: "per thread"}
        return f"<tarn.Stream {names.get(self.value, hex(self.value))}>"


_leased: "WeakValueDictionary[int, Stream]" = WeakValueDictionary()


def lease_of(value: int) -> Optional[Stream]:
    """The Stream object that holds a lease, for what must keep it alive. None if the value is no lease, or its object is gone."""
    return _leased.get(value)


def native_address(native: Any) -> int:
    """The address of a stream that another library made."""
    if hasattr(native, "__cuda_stream__"):
        native = native.__cuda_stream__()[1]
    else:
        named = [name for name in ("cuda_stream", "ptr", "handle") if hasattr(native, name)]
        native = getattr(native, named[0]) if named else native
    return integer("stream", native or 0)


#: What names a stream: a Stream, what Stream.find() takes, or None for the thread's current one.
StreamLike = Any


def stream_value(stream: StreamLike, device: DeviceLike = None) -> int:
    """The value of a stream; of the current one on `device` for None."""
    return Stream.find(stream, device).value if stream is not None else current_value(device_index(device))


def value_for_c(stream: StreamLike) -> int:
    """The same for a call of C, which looks up the thread's current stream itself. A `with` that is open here may have another one."""
    return _c.TARN_STREAM_CURRENT if stream is None and guards.is_idle() else stream_value(stream)


def index_of_stream(value: int) -> int:
    """The number of a stream's device."""
    found = _c.tarn_stream_info(size=sizeof(_c.tarn_stream_info))
    check(lib.tarn_stream_info_get(value, byref(found)))
    return int(found.device)


def current_value(device: int) -> int:
    """The value of the current stream on a device."""
    if not guards.is_idle():
        mine = guards.innermost(lambda entry: isinstance(entry, _OnStream) and entry.device == device)
        if isinstance(mine, _OnStream):
            return mine.value
        for entry in guards.begun:  # others of the thread have entered: what it had before is everybody's
            if isinstance(entry, _OnStream) and entry.device == device:
                value = int(entry.guard.previous_stream)
                return value if value > _c.TARN_STREAM_PER_THREAD else _default_stream(value, device)
    return value_of_thread(device)


def _default_stream(value: int, device: int) -> int:
    """The value of a default stream that names its device too. C says it of the thread's current stream."""
    on_device, on_stream = _c.tarn_guard(), _c.tarn_guard()
    try:
        check(lib.tarn_device_guard_set(byref(on_device), device))
        check(lib.tarn_stream_guard_set(byref(on_stream), value))
        return value_of_thread(device)
    finally:
        lib.tarn_guard_restore(byref(on_stream))
        lib.tarn_guard_restore(byref(on_device))


def value_of_thread(device: int) -> int:
    """The value of the thread's current stream on a device."""
    current = c_uint64()
    check(lib.tarn_stream_get(device, byref(current)))
    return current.value


def current_stream(device: DeviceLike = None) -> Stream:
    """The current stream on a device."""
    return Stream._of(stream_value(None, device))


class Event(Owning):
    """A point in a stream."""

    def __init__(self, device: DeviceLike = None) -> None:
        self.pointer = c_void_p()
        check(lib.tarn_event_create(device_index(device), byref(self.pointer)))

    def record(self, stream: StreamLike = None) -> None:
        """Records the event: it stands for all work queued on the stream so far, and no longer for an earlier recording."""
        check(lib.tarn_event_record(self.pointer, stream_value(stream)))

    def is_done(self) -> bool:
        """True if the recorded work has finished, or nothing was recorded."""
        try:
            check(lib.tarn_event_query(self.pointer))
        except NotReadyError:
            return False
        return True

    def synchronize(self) -> None:
        """Waits for the recorded work."""
        check(lib.tarn_event_synchronize(self.pointer))

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            lib.tarn_event_destroy(self.pointer)


def shutdown() -> None:
    """Gives everything back to the driver. Later calls raise ShutdownError."""
    check(lib.tarn_shutdown())


__all__ = ["Device", "Event", "MemoryInfo", "Stream", "current_device", "current_stream", "device_count", "set_device", "shutdown"]
