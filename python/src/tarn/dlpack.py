# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Blocks for other libraries by DLPack (dmlc/dlpack, include/dlpack/dlpack.h): the structures of its versions 0 and 1, and the capsules
that carry them."""

import ctypes
import re
from ctypes import (CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p,
                    py_object)
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from ._library import lib
from .devices import Device, Stream
from .errors import Owning, check

if TYPE_CHECKING:
    from .memory import Block

_DEVICE_TYPES = {"host": 1, "cuda": 2, "hip": 10}  # kDLCPU, kDLCUDA, kDLROCM
#: kDLInt, kDLUInt, kDLFloat, kDLComplex, kDLBool, and the bytes that NumPy has of each.
_KINDS = {"i": (0, (1, 2, 4, 8)), "u": (1, (1, 2, 4, 8)), "f": (2, (2, 4, 8, 16)), "c": (5, (8, 16)), "b": (6, (1,))}
#: Types that NumPy has no string for, by the names that ml_dtypes and PyTorch give them: kDLBfloat, kDLFloat8_... and their bits.
NAMED = {"bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8),
          "float8_e8m0fnu": (14, 8)}


class _Device(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class _DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DataType), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


_Deleter = CFUNCTYPE(None, c_void_p)


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", _Deleter)]


class _ManagedVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", _Deleter), ("flags", c_uint64),
                ("tensor", _Tensor)]


class Taken(Owning):
    """What the consumers of a block share. It gets the block's memory if the block's object is collected before they are done."""

    def __init__(self) -> None:
        self.pointer, self.lease = 0, None  # type: int, Optional[Stream]

    def __del__(self, free: Any = lib.tarn_free) -> None:
        if self.pointer:
            free(self.pointer)


def _python(name: str, result: Any, *kinds: Any) -> Any:
    """A function of Python's C interface. Attributes of ctypes.pythonapi would be shared with all other code, which gives them other types."""
    return PYFUNCTYPE(result, *kinds)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)


def _consumers() -> Tuple[Dict[int, Tuple[Any, ...]], Any, Any]:
    """The tensors that consumers have, by the address of the structure: the structure, its shape, what keeps the memory. The deleter, which removes
    one. The destructor of capsules. All this is never collected: consumers call it until the interpreter has ended, when modules are empty."""
    held: Dict[int, Tuple[Any, ...]] = {}
    is_valid = _python("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
    pointer = _python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)
    raise_pending = _python("PyErr_Occurred", c_void_p)  # ctypes looks for an exception after each call

    def drop(address: Optional[int]) -> None:
        held.pop(address or 0, None)

    def forget(capsule: int) -> None:
        """Runs when a capsule is collected. A capsule that nobody took still has its first name. A consumer renames it, and calls the deleter
        later."""
        try:
            raise_pending()  # that of a consumer that fails: nothing can be done beside it
        finally:
            for name in (b"dltensor", b"dltensor_versioned"):
                if is_valid(capsule, name):
                    drop(pointer(capsule, name))

    callbacks = (_Deleter(drop), CFUNCTYPE(None, c_void_p)(forget))
    for callback in callbacks:
        _python("Py_IncRef", None, py_object)(callback)
    return (held, *callbacks)


_held, _release, _destructor = _consumers()


def type_of(typestr: str) -> Tuple[_DataType, int]:
    """DLPack's type, and the bytes of an element, of a type string of NumPy's, or of a name as "bfloat16"."""
    if typestr in NAMED:
        code, bits = NAMED[typestr]
        return _DataType(code, bits, 1), bits // 8
    match = re.fullmatch(r"[<|=]?([iufcb])(\d+)", typestr)
    kind, sizes = _KINDS[match.group(1)] if match else (0, ())
    size = int(match.group(2)) if match else 0
    if size not in sizes:
        raise ValueError(f'no type string of a number in this machine\'s byte order: {typestr!r}; "<f4" is one, and so is '
                         '"bfloat16"')
    return _DataType(kind, 8 * size, 1), size


def device_of(device: Device) -> Tuple[int, int]:
    """A device as DLPack names it. Memory of the host device is memory of the CPU."""
    kind = _DEVICE_TYPES[device.driver]
    return (kind, 0 if kind == 1 else device.index)


def order(block: "Block", stream: Any) -> None:
    """Lets what the consumer's stream does from now on wait for what the block's has queued. The values of `stream` are those of the array
    API: None and 1 are CUDA's legacy default stream, 2 its per-thread one, 0 HIP's default, -1 asks for no order."""
    driver = block.device.driver
    if driver == "host":
        block.stream.synchronize()  # the consumer is the CPU
        return
    if stream == -1:
        return
    if driver == "cuda" and stream == 0:
        raise ValueError("stream 0 has two meanings with CUDA: give 1, the legacy default stream, or 2, the per-thread one")
    with block.device:
        consumer = Stream.find({None: 0, 1: 0}.get(stream, stream) if driver == "cuda" else stream or 0)
        if consumer != block.stream:
            consumer.wait(block.stream)
            check(lib.tarn_record_stream(block.ptr, consumer.value))


def capsule(block: "Block", address: int, shape: Tuple[int, ...], code: _DataType, max_version: Optional[Tuple[int, int]]) -> Any:
    """A capsule that keeps the memory of `block` until its consumer is done.

    The block has it too. ctypes prints and drops an exception that is pending when the destructor returns, so a consumer that refuses the
    capsule must not be the last to have it: its own exception would be lost."""
    lengths = (c_int64 * max(len(shape), 1))(*shape)
    strides = (c_int64 * max(len(shape), 1))()
    kind, index = device_of(block.device)
    tensor = _Tensor(address or None, _Device(kind, index), len(shape), code, lengths, None, 0)
    is_versioned = max_version is not None and max_version[0] >= 1
    managed: Any = _ManagedVersioned(1, 0, None, _release, 0, tensor) if is_versioned else _Managed(tensor, None, _release)
    step = 1
    for i in reversed(range(len(shape))):
        strides[i], step = step, step * shape[i]
    managed.tensor.strides = strides
    where = ctypes.addressof(managed)
    _held[where] = (managed, lengths, strides, vars(block).setdefault("_taken", Taken()))
    made = block._capsule = _new(where, b"dltensor_versioned" if is_versioned else b"dltensor", ctypes.cast(_destructor, c_void_p))
    return made
