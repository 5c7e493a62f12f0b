# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Blocks of stream-ordered device memory, and pinned host memory."""

import ctypes
import operator
from ctypes import byref, c_int, c_size_t, c_uint16, c_uint64, c_void_p, sizeof
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Optional, Sequence, Tuple, Type

from . import _c, _texts, dlpack
from ._entered import Entry, guards, scopes
from ._integers import integer
from ._library import lib
from .devices import (Device, DeviceLike, Stream, StreamLike, current_value, device_index, index_of_stream, index_of_thread, lease_of, stream_value,
                      value_for_c, value_of_thread)
from .errors import InvalidArgumentError, Owning, check

if TYPE_CHECKING:
    from .pools import Pool

_ON_DEVICE = "device memory cannot be read by the host: copy it by CuPy, PyTorch or Numba"


def tag_number(text: Optional[str], name: str = "tag") -> int:
    """The number of a tag; 0 for none. `name` is that of the argument."""
    if text is None or text == "":
        return 0
    tag = c_uint16()
    check(lib.tarn_tag_intern(_texts.text(name, text), byref(tag)))
    return tag.value


class Block(Owning):
    """A block of device memory, which is freed when the object is closed or collected.

    After a free the stream that the block was allocated for may use the memory again at once; other streams wait for the work queued
    before. So say `record_stream()` for each other stream whose work uses the block. Other libraries take a block through
    `__cuda_array_interface__` or `__dlpack__`, as bytes, or as an array by `view()`."""

    _taken: Optional[dlpack.Taken] = None  # once it was given to a consumer of DLPack
    _capsule: Any = None  # the newest of such

    def __init__(self, pointer: int, size: int, device: int, stream: int) -> None:
        self._pointer = pointer
        self._size = size
        self._device = device
        self._stream = stream
        self._lease = lease_of(stream)

    def _open(self) -> int:
        if not self._pointer and self._size:
            raise InvalidArgumentError("the block was freed")
        return self._pointer

    @property
    def ptr(self) -> int:
        """The address on the device; 0 after close() and for a block of 0 bytes."""
        return self._pointer

    @property
    def nbytes(self) -> int:
        """The requested bytes."""
        return self._size

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return Device(self._device)

    @property
    def stream(self) -> Stream:
        """The stream that it was allocated for."""
        return Stream._of(self._stream)

    @property
    def info(self) -> "_c.tarn_block_info":
        """What tarn knows of the block: `usable_size`, `tag`, `pool` and more."""
        found = _c.tarn_block_info(size=sizeof(_c.tarn_block_info))
        check(lib.tarn_pointer_info_get(self._open(), byref(found)))
        return found

    def record_stream(self, stream: StreamLike) -> None:
        """Work on `stream` uses the block: once freed, its memory is not given out before that work has finished."""
        check(lib.tarn_record_stream(self._open(), stream_value(stream, self._device)))

    def _give(self) -> Tuple[int, int, int, int]:
        """Gives the memory to another object, which is made of these; this one is closed."""
        pointer, self._pointer = self._pointer, 0
        self._lease = None
        return pointer, self._size, self._device, self._stream

    def extend(self, size: int) -> None:
        """Grows the block in place to at least `size` bytes. If the memory behind it is not free: NoRoomError, and the block is unchanged."""
        check(lib.tarn_extend(self._open(), size))
        self._size = max(self._size, int(size))

    def close(self, stream: StreamLike = None) -> None:
        """Frees the block; after the work that is queued on `stream` too, if one is given. Nothing happens the second time.

        Arrays of it, also those that other libraries have made, must not be used afterwards."""
        pointer, self._pointer = self._pointer, 0
        if not pointer:
            return
        status = lib.tarn_free(pointer) if stream is None else lib.tarn_free_on(pointer, stream_value(stream, self._device))
        if status:
            self._pointer = pointer
            check(status)
        self._lease = None

    def view(self, shape: Sequence[int], dtype: str = "|u1", offset: int = 0) -> "View":
        """The block, or a part of it from byte `offset` on, as a contiguous array. `dtype` is a type string of NumPy's ("<f4"),
        anything with a `str` attribute like it, or one of the names "bfloat16", "float8_e4m3fn" and so on, for DLPack alone."""
        return View(self, tuple(operator.index(length) for length in shape), str(getattr(dtype, "str", dtype)), offset)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return self.view((self._size,)).__cuda_array_interface__

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return self.view((self._size,)).__array_interface__

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(_ON_DEVICE)

    def __dlpack__(self, **options: Any) -> Any:
        return self.view((self._size,)).__dlpack__(**options)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return dlpack.device_of(self.device)

    def __len__(self) -> int:
        return self._size

    def __enter__(self) -> "Block":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if self._taken is not None:
            self._capsule = None
            self._taken.pointer, self._taken.lease = self._pointer, self._lease
        elif getattr(self, "_pointer", 0):
            lib.tarn_free(self._pointer)

    def __repr__(self) -> str:
        if not self._pointer:
            return f"<tarn.Block of {self._size} bytes, freed>" if self._size else "<tarn.Block of 0 bytes>"
        return f"<tarn.Block of {self._size} bytes at {self._pointer:#x} on device {self._device}>"


class View:
    """A block as an array, for other libraries: `cupy.asarray(view)`, `torch.from_dlpack(view)`, `numba.cuda.as_cuda_array(view)`; on the
    host device `numpy.asarray(view)` too. It keeps the block."""

    def __init__(self, block: Block, shape: Tuple[int, ...], typestr: str, offset: int) -> None:
        self._code, item = dlpack.type_of(typestr)
        needed = strides = item
        for length in shape:
            if length < 0:
                raise ValueError(f"a negative length in the shape {shape}")
            needed *= length
            strides *= length or 1  # an array without elements has strides too
        if strides >= 1 << 63:
            raise ValueError(f"the strides of {shape} of {typestr} overflow")
        offset = operator.index(offset)
        if offset < 0 or offset % item or offset + needed > block.nbytes:
            raise ValueError(f"{shape} of {typestr} from byte {offset} on takes {needed} bytes, and {item} divides the offset: the block has "
                             f"{block.nbytes}")
        self.block, self.shape, self.typestr, self._offset = block, shape, typestr, offset

    @property
    def ptr(self) -> int:
        """The address of the first element."""
        pointer = self.block._open()
        return pointer + self._offset if pointer else 0

    def _needs_typestr(self) -> None:
        if self.typestr in dlpack.NAMED:
            raise AttributeError(f"NumPy has no type string for {self.typestr}: take the array by DLPack")

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self.block.device.driver == "host":
            raise AttributeError("memory of the host device is no CUDA memory: numpy.asarray() takes it")
        self._needs_typestr()
        stream = self.block.stream.native
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.ptr, False), "version": 3, "strides": None,
                "stream": stream or 1}  # 1: the legacy default stream

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if self.block.device.driver != "host":
            raise AttributeError(_ON_DEVICE)
        self._needs_typestr()
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.ptr, False), "version": 3, "strides": None}

    def __array__(self, *_: Any, **__: Any) -> NoReturn:  # NumPy asks last, and would make an array of one object
        raise TypeError(_ON_DEVICE)

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("tarn makes no copies: take the array as it is, and copy it there")
        dlpack.order(self.block, stream)
        return dlpack.capsule(self.block, self.ptr, self.shape, self._code, max_version)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return dlpack.device_of(self.block.device)

    def __repr__(self) -> str:
        return f"<tarn.View {self.shape} of {self.typestr} in {self.block!r}>"


#: The open scopes of streams and of all threads, the oldest first. `owner` is the stream, or None for all.
shared_scopes: List[Entry] = []


def end_shared_scopes() -> int:
    """Ends in C the scopes whose `with` has ended. Returns the status of the first that C did not end."""
    for entry in list(shared_scopes):
        if not entry.is_open():
            status = entry.end()
            if status and status != _c.tarn_status.TARN_ERROR_SCOPE:  # with that it has ended before
                return status
            shared_scopes.remove(entry)
    return 0


def _pool_of_context(device: int, stream: int) -> Optional[Any]:
    """The pool that the context says, where the thread's scopes in C say another. None for a capture, whose memory C has to choose."""
    mine = scopes.innermost(lambda entry: entry.device == device)
    state, _ = c_int(), c_uint64()
    check(lib.tarn_capture_state_get(stream, byref(state), byref(_), None))
    if state.value:
        return None
    for entry in reversed(shared_scopes):
        if entry.is_open() and entry.device == device and entry.owner in (None, stream) and (mine is None or entry.serial > mine.serial):
            return entry.key
    if mine is not None:
        return mine.key
    pointer = c_void_p()
    check(lib.tarn_pool_default(device, byref(pointer)))
    return pointer


def nanoseconds_of(wait: Optional[float]) -> int:
    """The option `wait` of an allocation for so many seconds."""
    if wait is None:
        return 0
    if not wait >= 0:
        raise InvalidArgumentError(f"wait is {wait!r} seconds")
    return max(1, int(min(wait, 1e9) * 1e9)) if wait else _c.TARN_NO_WAIT


@lru_cache(maxsize=None)
def _pool_class() -> Type["Pool"]:
    from .pools import Pool  # which imports this module
    return Pool


def alloc(size: int, *, device: DeviceLike = None, stream: StreamLike = None, alignment: int = 0, tag: Optional[str] = None,
          pool: Optional["Pool"] = None, wait: Optional[float] = None) -> Block:
    """Allocates `size` bytes for work on `stream`.

    By default on the device of `stream`, otherwise on the current one for its current stream, and from the pool of the innermost `with`.
    `tag` names the block in statistics, snapshots and reports. `wait` bounds the seconds that it waits for work and for other threads, 0:
    not at all; where more might have helped, it raises NotReadyError."""
    if pool is not None:
        opened = _texts.instance("pool", _pool_class(), pool)._open()
    of_thread = device is None and pool is None and guards.is_idle()  # as nearly always
    index = index_of_thread() if of_thread else device_index(pool.device if pool is not None and device is None else device)
    value = stream_value(stream, index) if stream is not None else value_of_thread(index) if of_thread else current_value(index)
    if stream is not None and device is None and pool is None and value > _c.TARN_STREAM_PER_THREAD:
        index = index_of_stream(value)
    chosen = opened if pool is not None else None if scopes.agrees(index) else _pool_of_context(index, value)
    if shared_scopes:
        end_shared_scopes()
    pointer = c_void_p()
    is_sure = device is None or stream is None  # that the stream is of the device
    if chosen is None and not alignment and not tag and wait is None and is_sure and (of_thread or value > _c.TARN_STREAM_PER_THREAD):
        check(lib.tarn_alloc_on(value, size, byref(pointer)))  # the short way
    else:
        options = _c.tarn_alloc_options(size=sizeof(_c.tarn_alloc_options), device=index, stream=value, alignment=alignment,
                                        tag=tag_number(tag), pool=chosen, wait=nanoseconds_of(wait))
        check(lib.tarn_alloc(byref(options), size, byref(pointer)))
    return Block(pointer.value or 0, int(size), index, value)


class _PinnedMemory(Owning):
    """Memory of a pinned block. The block has it until close(), and each buffer of the block as long as the buffer lives: the last frees it."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        self.failures: List[int] = []

    def __del__(self) -> None:
        status = lib.tarn_free(self.pointer)
        if status:
            self.failures.append(status)


class PinnedBlock(Owning):
    """Page-locked memory of the host. `buffer` is its memory for Python: `numpy.frombuffer(block.buffer, dtype="f4")`.

    The memory is freed when the block is closed or collected and no buffer is alive: what is made of one keeps it."""

    def __init__(self, size: int, stream: StreamLike = None) -> None:
        pointer = c_void_p()
        check(lib.tarn_pinned_alloc(value_for_c(stream), size, byref(pointer)))
        self._memory: Optional[_PinnedMemory] = _PinnedMemory(pointer.value or 0)
        self._size = int(size)

    def _open(self) -> _PinnedMemory:
        memory = self._memory
        if memory is None:
            raise InvalidArgumentError("the block was freed")
        return memory

    @property
    def ptr(self) -> int:
        """The address; 0 after close()."""
        memory = self._memory
        return memory.pointer if memory else 0

    @property
    def nbytes(self) -> int:
        """The requested bytes."""
        return self._size

    @property
    def buffer(self) -> "ctypes.Array[ctypes.c_char]":
        """The memory, writable. It stays until the buffer and all objects that are made of it are gone, also after close()."""
        memory = self._open()  # another thread may close the block meanwhile
        array = (ctypes.c_char * self._size).from_address(memory.pointer) if memory.pointer else (ctypes.c_char * 0)()
        array._memory = memory  # type: ignore[attr-defined]
        return array

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"shape": (self._size,), "typestr": "|u1", "data": self.buffer, "version": 3}  # NumPy keeps what `data` is

    def record_stream(self, stream: StreamLike) -> None:
        """Work on `stream` uses the block: once freed, its memory is not given out before that work has finished."""
        check(lib.tarn_record_stream(self._open().pointer, stream_value(stream)))

    def close(self) -> None:
        """Frees the block, as soon as no buffer of it is alive. Nothing happens the second time."""
        memory, self._memory = self._memory, None
        failures = memory.failures if memory else []
        del memory  # frees it, unless a buffer has it
        for status in failures:
            check(status)

    def __len__(self) -> int:
        return self._size

    def __enter__(self) -> "PinnedBlock":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tarn.PinnedBlock of {self._size} bytes{f' at {self.ptr:#x}' if self.ptr else ', freed'}>"


def pinned(size: int, *, stream: StreamLike = None) -> PinnedBlock:
    """Allocates page-locked host memory."""
    return PinnedBlock(size, stream)


def limit(bytes: Optional[int] = None, *, device: DeviceLike = None) -> int:
    """The limit of a device: the most bytes that tarn reserves there. Sets it first if `bytes` is given. 2**64 - 1 is no limit."""
    index = device_index(device)
    if bytes is not None:
        check(lib.tarn_device_limit_set(index, integer("bytes", bytes)))
    found = c_size_t()
    check(lib.tarn_device_limit_get(index, byref(found)))
    return found.value
