# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""A program in Python on the host device, by ctypes: memory, streams, a pool and a scope, statistics, a library of its own with handles,
and errors by their status.

program.py LIBTARN_SO FUNCTIONS MACROS: FUNCTIONS has a name a line, each of which the library must have; MACROS the constants of the
headers, "NAME VALUE" as the preprocessor has them, each of which must be a plain number."""

import ctypes
import re
import sys
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint16, c_uint64, c_void_p, sizeof

path, functions, macros = sys.argv[1:]
library = ctypes.CDLL(path)
missing = [name for name in open(functions).read().split() if not hasattr(library, name)]
assert not missing, f"not exported: {missing}"


def number(name, text):
    """A literal, negative or shifted, perhaps in parentheses."""
    found = re.fullmatch(r"\(?(-?)(\d+)[uUlL]*(?: << (\d+))?\)?", text)
    assert found, f"{name} is {text}, which no generator of bindings takes for a number"
    sign, digits, shift = found.groups()
    return (-1 if sign else 1) * (int(digits) << int(shift or 0))


constants = {name: number(name, text) for name, text in (line.split(" ", 1) for line in open(macros).read().splitlines())}
CURRENT_DEVICE, LEGACY = constants["TARN_CURRENT_DEVICE"], constants["TARN_STREAM_LEGACY"]


class PoolId(Structure):
    _fields_ = [("first", c_uint64), ("second", c_uint64)]


class BlockInfo(Structure):
    _fields_ = [("size", c_size_t), ("base", c_void_p), ("usable_size", c_size_t), ("requested", c_size_t), ("device", c_int),
                ("stream", c_uint64), ("tag", c_uint16), ("pool", PoolId), ("imported", c_bool)]


class PoolInfo(Structure):
    """Its first fields: as an older program has it."""
    _fields_ = [("size", c_size_t), ("id", PoolId)]


class AllocOptions(Structure):
    _fields_ = [("size", c_size_t), ("device", c_int), ("stream", c_uint64), ("alignment", c_size_t), ("tag", c_uint16)]


class Stat(Structure):
    _fields_ = [(name, c_int64) for name in ("current", "peak", "allocated", "freed")]


class Stats(Structure):
    """Its first fields: as an older program has it."""
    _fields_ = [("size", c_size_t), ("max_split_size", c_int64), ("metadata_bytes", c_int64), ("allocation", Stat * 3)]


Create, Destroy, SetStream = (ctypes.CFUNCTYPE(c_int, *types) for types in ((POINTER(c_void_p),), (c_void_p,), (c_void_p, c_void_p)))


class LibraryRow(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("platform", c_int), ("flags", c_uint), ("create_number", c_int),
                ("out_of_memory", c_int), ("sonames", c_void_p), ("names", c_char_p * 7), ("create", Create),
                ("create_with_number", c_void_p), ("destroy", Destroy), ("set_stream", SetStream)]


def prototype(name, *arguments, result=c_int):
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, result
    return function


last_error = prototype("tarn_last_error", result=c_char_p)
status_name = prototype("tarn_status_name", c_int, result=c_char_p)
last_status = prototype("tarn_last_status")
malloc = prototype("tarn_malloc", c_size_t, result=c_void_p)
free = prototype("tarn_free", c_void_p)
alloc = prototype("tarn_alloc", POINTER(AllocOptions), c_size_t, POINTER(c_void_p))
pointer_info_get = prototype("tarn_pointer_info_get", c_void_p, POINTER(BlockInfo))
stream_lease = prototype("tarn_stream_lease", c_int, c_int, POINTER(c_uint64))
stream_synchronize = prototype("tarn_stream_synchronize", c_uint64)
stream_return = prototype("tarn_stream_return", c_uint64)
pool_create = prototype("tarn_pool_create", c_void_p, POINTER(c_void_p))
pool_info_get = prototype("tarn_pool_info_get", c_void_p, POINTER(PoolInfo))
pool_stats_get = prototype("tarn_pool_stats_get", c_void_p, POINTER(Stats))
pool_release = prototype("tarn_pool_release", c_void_p)
scope_begin = prototype("tarn_scope_begin", c_void_p, c_int, c_uint64, POINTER(c_uint64))
scope_end = prototype("tarn_scope_end", c_uint64)
library_register = prototype("tarn_library_register", POINTER(LibraryRow), POINTER(c_int))
handle_get = prototype("tarn_handle_get", c_int, c_uint64, POINTER(c_void_p))
shutdown = prototype("tarn_shutdown")


class TarnError(Exception):
    def __init__(self, status):
        self.name = status_name(status).decode()
        super().__init__(f"{self.name}: {last_error().decode()}")


def ok(status):
    if status:
        raise TarnError(status)


def refused(status, name, text=""):
    error = TarnError(status)
    assert status and error.name == name and text in str(error), error


block = malloc(1000)
info = BlockInfo(size=sizeof(BlockInfo))
ok(pointer_info_get(block + 999, byref(info)))
assert (info.base, info.requested, info.device) == (block, 1000, 0) and info.usable_size >= 1000
ctypes.memset(block, 7, 1000)
ok(free(block))
refused(free(block), "TARN_ERROR_DOUBLE_FREE")
assert malloc(constants["TARN_MAX_SIZE"] + 1) is None
refused(last_status(), "TARN_ERROR_OUT_OF_MEMORY")

stream, pointer = c_uint64(), c_void_p()
ok(stream_lease(0, 0, byref(stream)))
options = AllocOptions(size=sizeof(AllocOptions), device=CURRENT_DEVICE, stream=stream, alignment=constants["TARN_MAX_ALIGNMENT"])
ok(alloc(byref(options), 5000, byref(pointer)))
assert pointer.value % constants["TARN_MAX_ALIGNMENT"] == 0
ok(free(pointer))
ok(stream_synchronize(stream))
ok(stream_return(stream))
options.size = 0
refused(alloc(byref(options), 5000, byref(pointer)), "TARN_ERROR_INVALID_ARGUMENT", "sizeof(tarn_alloc_options)")

pool, scope, pool_info, stats = c_void_p(), c_uint64(), PoolInfo(size=sizeof(PoolInfo)), Stats(size=sizeof(Stats))
ok(pool_create(None, byref(pool)))
ok(scope_begin(pool, 0, LEGACY, byref(scope)))
inside = malloc(3 << 20)
ok(scope_end(scope))
outside = malloc(3 << 20)
ok(pool_info_get(pool, byref(pool_info)))
for block, is_inside in (inside, True), (outside, False):
    ok(pointer_info_get(block, byref(info)))
    assert ((info.pool.first, info.pool.second) == (pool_info.id.first, pool_info.id.second)) == is_inside
ok(pool_stats_get(pool, byref(stats)))
assert stats.allocation[0].current == 1 and stats.size == sizeof(Stats)
ok(free(inside))
ok(free(outside))
ok(pool_release(pool))


def make(handle):
    handle[0] = 4711
    return 0


row = LibraryRow(size=sizeof(LibraryRow), name=b"snake", create=Create(make), destroy=Destroy(lambda handle: 0))
number_of, handle, again = c_int(), c_void_p(), c_void_p()
ok(library_register(byref(row), byref(number_of)))
ok(handle_get(number_of, constants["TARN_STREAM_CURRENT"], byref(handle)))
ok(handle_get(number_of, constants["TARN_STREAM_CURRENT"], byref(again)))
assert handle.value == again.value == 4711

ok(shutdown())
assert malloc(1) is None
refused(last_status(), "TARN_ERROR_SHUTDOWN")
