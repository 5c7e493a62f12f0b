# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Private pools: memory of one device that serves only what is routed to it."""


import os
import re
from contextlib import contextmanager
from ctypes import byref, c_size_t, c_uint64, c_void_p, sizeof
from numbers import Real
from threading import Lock
from time import monotonic
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union
from weakref import WeakValueDictionary, ref

from . import _c, _texts
from ._entered import Enterable, Entry, guards, scopes
from ._files import replacing
from ._integers import integer
from ._library import lib
from .devices import Device, DeviceLike, Event, StreamLike, current_index, current_value, device_index, stream_value
from .errors import BusyError, InvalidArgumentError, InvalidDeviceError, Owning, ScopeError, TarnError, check
from .memory import Block, View, alloc, end_shared_scopes, shared_scopes
from .stats import flatten

_SEGMENTS = {"default": _c.tarn_segments.TARN_SEGMENTS_DEFAULT, "virtual": _c.tarn_segments.TARN_SEGMENTS_VIRTUAL,
             "plain": _c.tarn_segments.TARN_SEGMENTS_PLAIN, "exact": _c.tarn_segments.TARN_SEGMENTS_EXACT}
_KINDS = {"thread": _c.tarn_scope_kind.TARN_SCOPE_THREAD, "stream": _c.tarn_scope_kind.TARN_SCOPE_STREAM,
          "always": _c.tarn_scope_kind.TARN_SCOPE_ALWAYS}


class PoolId(NamedTuple):
    """(0, 0) is a device's default pool, (0, n) one that was created, (n, 0) one that was made for a graph."""
    first: int
    second: int


class _InPool(Entry):
    """A scope of a pool. C has one for each thread and pool at a time."""

    def __init__(self, owner: Any, pointer: int, device: int, within: Optional[Entry] = None) -> None:
        super().__init__(owner, device, pointer, within)
        self.number = c_uint64()
        self._may_be_elsewhere = within is not None

    def begin(self) -> int:
        self.number = c_uint64()
        status = self._begin()
        if status == _c.tarn_status.TARN_ERROR_INVALID_DEVICE and (self._may_be_elsewhere or current_index() == self.device):
            guard = _c.tarn_guard()  # the thread's device is not the context's
            status = lib.tarn_device_guard_set(byref(guard), self.device) or self._begin()
            lib.tarn_guard_restore(byref(guard))
        self._may_be_elsewhere = True
        return status

    def _begin(self) -> int:
        return int(lib.tarn_scope_begin(self.key, _KINDS["thread"], 0, byref(self.number)))

    def end(self) -> int:
        return int(lib.tarn_scope_end(self.number.value)) if self.number.value else 0

    def check(self) -> None:
        """Refuses for the context what C refuses for a thread: a second scope of the pool, and another device."""
        if self.within is None and not guards.is_idle() and current_index() != self.device:
            raise InvalidDeviceError(f"the pool is of device {self.device}, but device {current_index()} is current")
        if scopes.entered and scopes.innermost(lambda entry: entry.key == self.key and entry in scopes.entered) is not None:
            raise ScopeError(f"a scope of {self.owner!r} is already open for this thread")


class _Shared(Entry):
    """A scope of a stream, which is its owner, or of all threads."""

    def __init__(self, stream: Optional[int], device: int, pointer: Any) -> None:
        super().__init__(stream, device, pointer)
        self.number = c_uint64()

    def begin(self) -> int:
        kind = "always" if self.owner is None else "stream"
        return int(lib.tarn_scope_begin(self.key, _KINDS[kind], self.owner or 0, byref(self.number)))

    def end(self) -> int:
        return int(lib.tarn_scope_end(self.number.value)) if self.number.value else 0


class _Held:
    """An object whose only purpose is to end with what refers to it."""


_DATA_BYTES = 64


class Kept(NamedTuple):
    """What keep() found: sealed blocks, their bytes, the bytes of all segments; whether the pool existed, and whether its blocks are
    at other addresses than before; whether the driver refuses writes to them, of a pool that is only read."""
    blocks: int
    bytes: int
    mapped: int
    adopted: bool
    moved: bool
    read_only: bool = False


def array_data(typestr: str, shape: Tuple[int, ...]) -> bytes:
    """The data of a block that is sealed as an array: its type and shape as text."""
    return f"{typestr} {','.join(str(length) for length in shape)}".encode()


class _Seal:
    """A seal of this process. All objects of the block share it, so that the end of the block is the end of all."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer  # 0 once it was freed or unsealed


#: The seals that objects have, by the block's address and name.
_seals: "WeakValueDictionary[Tuple[int, str], _Seal]" = WeakValueDictionary()
_seals_lock = Lock()


def _seal_of(pointer: int, name: str) -> _Seal:
    with _seals_lock:
        seal = _seals.get((pointer, name))
        if seal is None or not seal.pointer:
            seal = _seals[pointer, name] = _Seal(pointer)
        return seal


class SealedBlock(Block):
    """A sealed block of a kept pool. It lasts longer than this object, and than the process; free() ends it, for all objects that
    Pool.sealed() has given of it."""

    def __init__(self, pointer: int, size: int, device: int, stream: int, name: str, data: bytes) -> None:
        self._seal: Optional[_Seal] = _seal_of(pointer, name)
        super().__init__(pointer, size, device, stream)
        self.name, self.data = name, data

    @property
    def _pointer(self) -> int:
        return self._seal.pointer if self._seal else 0

    @_pointer.setter
    def _pointer(self, pointer: int) -> None:
        if self._seal:
            self._seal.pointer = pointer

    def _open(self) -> int:
        if not self._seal:
            raise InvalidArgumentError(f"the object of the sealed block {self.name!r} was closed")
        if not self._seal.pointer:
            raise InvalidArgumentError(f"the sealed block {self.name!r} was freed or unsealed")
        return self._seal.pointer

    @property
    def array(self) -> View:
        """The array that was sealed, in its type and shape. ValueError for a block that was not sealed as one."""
        self._open()
        typestr, space, shape = self.data.rstrip(bytes(1)).decode("ascii", "replace").partition(" ")
        if not space or not re.fullmatch(r"(\d+(,\d+)*)?", shape):
            raise ValueError(f"{self.name!r} was sealed without a type and a shape: take a view()")
        return self.view([int(length) for length in shape.split(",") if length], typestr)

    def close(self, stream: StreamLike = None) -> None:
        """Forgets the block, which stays as it is."""
        self._seal = None
        self._lease = None

    def __del__(self) -> None:
        self._capsule = None

    def free(self, stream: StreamLike = None) -> None:
        """Frees the block: no successor finds it."""
        super().close(stream)

    def unseal(self) -> Block:
        """Takes the seal off, before the block is written again. What is returned frees the block when it is closed or collected."""
        check(lib.tarn_pool_block_unseal(self._open()))
        return Block(*self._give())


def _idle_release(milliseconds: Optional[int]) -> int:
    if milliseconds is None:
        return 0  # as the setting says
    return integer("idle_release", milliseconds, high=_c.TARN_NO_IDLE_RELEASE - 1) or _c.TARN_NO_IDLE_RELEASE


class Pool(Owning, Enterable):
    """A private pool of one device. As a context manager it serves what is inside: `with pool: block = tarn.alloc(size)`.

    `use_on_oom` lets what lies free in it serve others before they run out of memory; `no_remap` keeps addresses and memory together;
    `exportable` memory can be given to other processes; `registrable` memory can be registered by communication libraries; `segments` is
    "default", "virtual", "plain" or "exact"; `no_split` gives each block a segment of its own; `idle_release` is after how many milliseconds without a use idle memory
    goes back by itself, 0: never; by default the setting says it. The pool is released when the object is closed or collected; its live blocks stay valid."""

    _track = scopes
    _device: Optional[int] = None  # once it was asked for
    #: What keep() found. None for another pool.
    kept: Optional[Kept] = None

    def __init__(self, device: DeviceLike = None, *, limit: Optional[int] = None, use_on_oom: bool = False, no_remap: bool = False,
                 exportable: bool = False, registrable: bool = False, segments: str = "default", no_split: bool = False,
                 idle_release: Optional[int] = None) -> None:
        if segments not in _SEGMENTS:
            raise ValueError(f"no kind of segments: {segments!r}; there are {', '.join(_SEGMENTS)}")
        bytes = None if limit is None else integer("limit", limit)
        options = _c.tarn_pool_options(size=sizeof(_c.tarn_pool_options), device=device_index(device), use_on_oom=use_on_oom,
                                       no_remap=no_remap, exportable=exportable, registrable=registrable, segments=_SEGMENTS[segments],
                                       no_split=no_split, idle_release=_idle_release(idle_release))
        self.pointer = c_void_p()
        check(lib.tarn_pool_create(byref(options), byref(self.pointer)))
        if bytes is not None:
            self.limit = bytes

    @classmethod
    def _of(cls, pointer: c_void_p) -> "Pool":
        pool = cls.__new__(cls)
        pool.pointer = pointer
        return pool

    @classmethod
    def default(cls, device: DeviceLike = None) -> "Pool":
        """The default pool of a device, which serves requests that are routed to no other pool."""
        pointer = c_void_p()
        check(lib.tarn_pool_default(device_index(device), byref(pointer)))
        return cls._of(pointer)

    @classmethod
    def find(cls, first: int, second: int) -> "Pool":
        """Finds the pool that has this id. Raises InvalidArgumentError if no pool has it."""
        pointer = c_void_p()
        check(lib.tarn_pool_find(_c.tarn_pool_id(first, second), byref(pointer)))
        return cls._of(pointer)

    def _open(self) -> c_void_p:
        if not self.pointer:
            raise InvalidArgumentError("the pool was closed")
        return self.pointer

    def seal(self, block: Union[Block, View], name: str, data: bytes = b"", event: Optional[Event] = None) -> "SealedBlock":
        """Seals a block of a kept pool under a name, with at most 64 bytes of `data`: a successor finds it. A view of a whole block has its
        type and shape as data, which SealedBlock.array reads. The contents are complete when `event` is; without one, the caller has waited.
        The block is closed, and what is returned has its memory."""
        encoded, data = _texts.text("name", name), _texts.binary("data", data)
        if isinstance(block, View):
            view, block = block, block.block
            if data or view.ptr != block.ptr:
                raise ValueError("a view is sealed if it begins where its block begins, and without other data")
            data = array_data(view.typestr, view.shape)
        _texts.instance("block", Block, block)
        if len(data) > _DATA_BYTES:
            raise ValueError(f"the data of a sealed block has at most {_DATA_BYTES} bytes, not {len(data)}")
        if block.ptr and tuple(self.id) != (block.info.pool.first, block.info.pool.second):
            raise InvalidArgumentError(f"seal: the block is not one of {self!r}")
        check(lib.tarn_pool_block_seal(block._open(), encoded, data.ljust(_DATA_BYTES, bytes(1)), event.pointer if event else None))
        return SealedBlock(*block._give(), name, data.ljust(_DATA_BYTES, bytes(1)))

    def sealed(self, name: str) -> "SealedBlock":
        """The sealed block of a name. InvalidArgumentError if there is none."""
        found = _c.tarn_sealed_block(size=sizeof(_c.tarn_sealed_block))
        check(lib.tarn_pool_block_find(self._open(), _texts.text("name", name), byref(found)))
        return SealedBlock(found.pointer, found.bytes, self.device.index, current_value(self.device.index), name, bytes(found.data))

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the sealed blocks of a kept pool to a file: their names, data, contents and checksums. A file that was there is replaced
        only when all of it is written, also where several threads or processes save to one path: the last one's stays. Of a link the
        target is replaced. SystemCallError for what is not a regular file, BusyError beside another save of this pool."""
        _texts.path("path", path)
        with replacing(path) as file:
            check(lib.tarn_pool_save(self._open(), file.fileno()))

    def load(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Allocates the blocks of such a file in this kept pool, and seals them: sealed() finds them by their names. InvalidArgumentError if
        the file is broken or the pool has a block of such a name; then the pool has none of them."""
        _texts.path("path", path)
        with open(path, "rb") as file:
            check(lib.tarn_pool_load(self._open(), file.fileno()))

    def _info(self) -> _c.tarn_pool_info:
        found = _c.tarn_pool_info(size=sizeof(_c.tarn_pool_info))
        check(lib.tarn_pool_info_get(self._open(), byref(found)))
        return found

    @property
    def id(self) -> PoolId:
        """The pool's id, as in snapshots and PyTorch."""
        found = self._info().id
        return PoolId(found.first, found.second)

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return Device(self._info().device)

    @property
    def use_count(self) -> int:
        """References to the pool: of users, open scopes, captures and graphs."""
        return int(self._info().use_count)

    @property
    def limit(self) -> int:
        """The pool's limit: the most bytes that it reserves. 2**64 - 1 is no limit."""
        return int(self._info().limit)

    @limit.setter
    def limit(self, bytes: int) -> None:
        check(lib.tarn_pool_limit_set(self._open(), integer("limit", bytes)))

    @property
    def is_suspended(self) -> bool:
        """True if the pool is suspended, is being suspended or resumed, or a prepared sleep includes it."""
        return bool(self._info().state != 0)

    def alloc(self, size: int, *, stream: StreamLike = None, alignment: int = 0, tag: Optional[str] = None) -> Block:
        """Allocates from this pool, whatever scopes are open."""
        return alloc(size, stream=stream, alignment=alignment, tag=tag, pool=self)

    @contextmanager
    def scope(self, kind: str = "thread", stream: StreamLike = None) -> Iterator["Scope"]:
        """Routes allocations to this pool: those of this thread and of those that join ("thread"), those for one stream by any thread
        ("stream"), or all of the device ("always")."""
        if kind not in _KINDS:
            raise ValueError(f"no kind of scope: {kind!r}; there are {', '.join(_KINDS)}")
        if kind == "thread":
            with self:
                yield Scope(scopes.innermost())
            return
        device = self.device.index
        entry = _Shared(stream_value(stream, device) if kind == "stream" else None, device, self._open().value)
        with_this = _Held()
        entry.statement = ref(with_this)
        end_shared_scopes()
        shared_scopes.append(entry)
        try:
            check(entry.begin())
            yield Scope(None, entry.number.value)
        finally:
            entry.close()
            check(end_shared_scopes())

    def trim(self, keep: int = 0) -> None:
        """Gives idle memory back to the device until at most `keep` bytes stay reserved. Waits for work that still uses it."""
        check(lib.tarn_pool_trim(self._open(), keep))

    def suspend(self, *, save_contents: bool = True) -> None:
        """Gives all memory back and keeps the addresses. With `save_contents` the contents of live blocks are saved in host memory."""
        check(lib.tarn_pool_suspend(self._open(), save_contents))

    def resume(self) -> None:
        """Takes memory again, at the same addresses."""
        check(lib.tarn_pool_resume(self._open()))

    def stats(self) -> Dict[str, int]:
        """Its counters, with the keys of `torch.cuda.memory_stats()`."""
        found = _c.tarn_stats(size=sizeof(_c.tarn_stats))
        check(lib.tarn_pool_stats_get(self._open(), byref(found)))
        return flatten(found)

    def _listed(self, kind: Any, list_in_c: Callable[..., int]) -> List[Any]:
        count = c_size_t()
        room = 0
        while True:
            found = (kind * max(room, 1))()
            check(list_in_c(self._open(), found, room, byref(count)))
            if count.value <= room:
                return list(found[:count.value])
            room = count.value + 16  # others may allocate meanwhile

    def blocks(self) -> "List[_c.tarn_pool_block]":
        """Its live blocks."""
        return self._listed(_c.tarn_pool_block, lib.tarn_pool_blocks_get)

    def segments(self) -> "List[_c.tarn_mapping]":
        """The segments of a registrable pool, the oldest first."""
        return self._listed(_c.tarn_mapping, lib.tarn_pool_segments_get)

    def close(self) -> None:
        """Releases the pool. A second call does nothing."""
        pointer, self.pointer = self.pointer, c_void_p()
        check(lib.tarn_pool_release(pointer))

    def _entry(self) -> Entry:
        pointer = self._open()
        if self._device is None:
            self._device = self.device.index
        entry = _InPool(self, pointer.value or 0, self._device)
        entry.check()
        return entry

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            lib.tarn_pool_release(self.pointer)

    def __repr__(self) -> str:
        if not self.pointer:
            return "<tarn.Pool, released>"
        try:
            return f"<tarn.Pool {tuple(self.id)} on device {self.device.index}>"
        except TarnError:
            return "<tarn.Pool, unknown>"


#: How long C waits at a time. In between Python runs signal handlers, so that Ctrl-C ends the wait.
_WAIT_MS = 500


def _milliseconds(wait: float) -> int:
    if not isinstance(wait, Real):
        raise TypeError(f"wait: a number of seconds is wanted, not {wait!r:.100}")
    return integer("wait", int(wait * 1000), high=2**32 - 1)


def keep(name: str, device: DeviceLike = None, *, socket: Union[str, "os.PathLike[str]", None] = None, segment: int = 0, wait: float = 0,
         stream: StreamLike = None, read: bool = False) -> Pool:
    """Takes over the pool that an owner, `tarn keep`, keeps under a name, or makes one; its `kept` says what was found. Waits at most
    `wait` seconds for the end of the process that has it, then BusyError. close() gives the memory back for ever as soon as no block
    is live; the end of the process does not. With `read`, only reads the pool beside the process that has it; waits for one that makes it."""
    encoded, index = _texts.text("name", name), device_index(device)
    options = _c.tarn_keep_options(size=sizeof(_c.tarn_keep_options), device=index, segment=integer("segment", segment),
                                   socket=None if socket is None else _texts.path("socket", socket),
                                   stream=stream_value(stream, index), read=read)
    kept = _c.tarn_kept(size=sizeof(_c.tarn_kept))
    pointer, left, end = c_void_p(), _milliseconds(wait), monotonic() + wait
    while not pointer:
        options.wait_ms = min(left, _WAIT_MS)
        try:
            check(lib.tarn_pool_keep(encoded, byref(options), byref(pointer), byref(kept)))
        except BusyError as error:
            if str(error).startswith("this process has pool "):
                raise BusyError(f"{error}, or its Pool; after a tarn.torch.keep() that failed, call that again") from None
            if left <= _WAIT_MS:
                raise
            left = max(0, int(1000 * (end - monotonic())))
    pool = Pool._of(pointer)
    pool.kept = Kept(kept.blocks, kept.bytes, kept.mapped, kept.adopted, kept.moved, kept.read_only)
    return pool


class Scope:
    """An open scope of threads, which workers may join: `with scope.joined(): ...` in the worker."""

    def __init__(self, entry: Optional[Entry], number: int = 0) -> None:
        self._entry, self._number = entry, number

    @property
    def number(self) -> int:
        """The scope's token in C."""
        return self._entry.number.value if isinstance(self._entry, _InPool) else self._number

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Joins the scope: what is inside allocates from the scope's pool, until the `with` ends."""
        if not isinstance(self._entry, _InPool):
            raise ScopeError(f"scope {self.number} cannot be joined: it is not one of threads")
        with _Worker(self._entry):
            yield

    def __repr__(self) -> str:
        return f"<tarn.Scope {self.number}>"


class _Worker(Enterable):
    _track = scopes

    def __init__(self, joined: _InPool) -> None:
        self._joined = joined

    def _entry(self) -> Entry:
        if not self._joined.is_open():
            raise ScopeError(f"scope {self._joined.number.value} is not open: it has ended")
        entry = _InPool(self, self._joined.key, self._joined.device, within=self._joined)
        entry.check()
        return entry
