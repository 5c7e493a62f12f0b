# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""GPU memory pools and library handles: tarn for Python.

    import tarn

    with tarn.Pool() as pool:
        block = tarn.alloc(1 << 20, tag="weights")   # of the pool
    array = cupy.asarray(block.view((256, 1024), "<f4"))
    print(tarn.memory_stats()["allocated_bytes.all.peak"])

Importing it touches no GPU. What fails raises a subclass of TarnError. docs/python.md of the source is its manual."""

import os.path as _path

from . import _clash

_clash.look(_path.dirname(__file__))

from ._c import tarn_status as Status
from ._library import lib as _lib
from .adaptors import EnableError, use
from .configuration import configuration, configure
from .devices import (Device, Event, MemoryInfo, Stream, current_device, current_stream, device_count, set_device, shutdown)
from .errors import (BusyError, CaptureError, ConfigurationError, DeviceLostError, DoubleFreeError, DriverError, ForkedError, InternalError,
                     InvalidArgumentError, InvalidDeviceError, InvalidPointerError, InvalidStreamError, LibraryError,
                     LibraryNotFoundError, MappingLimitError, NoDriverError, NoRoomError, NotReadyError, NotSupportedError,
                     OutOfHostMemoryError, OutOfMemoryError, ScopeError, ShutdownError, SuspendedError, SystemCallError, TarnError,
                     last_error)
from .graphs import GraphCheck, GraphReference, capture_graph, graph_check, graph_launch, remember_graph
from .handles import Lease, LibraryInfo, handle, handle_stats, libraries, prewarm, trim_handles, workspace
from .memory import Block, PinnedBlock, View, alloc, limit, pinned
from .pools import Kept, Pool, PoolId, Scope, SealedBlock, keep
from .ranges import Range, RangeInfo
from .sleeping import Registration, Residue, Sleeper, Slept, cancel_sleep, set_pool_tag, sleep, sleep_state, wake
from .snapshots import dump_snapshot, region, report, snapshot, trace_clear, trace_count, trace_start, trace_stop
from .spilling import Shortage, Spiller
from .stats import (max_memory_allocated, max_memory_reserved, memory_allocated, memory_reserved, memory_stats, metrics,
                    reset_accumulated_memory_stats, reset_peak_memory_stats)

#: The version of the library in use.
__version__: str = _lib.tarn_version().decode()

#: The core, which is that of tarn/core.h; and more.
__all__ = [
    "Block", "Device", "PinnedBlock", "Pool", "Stream", "TarnError", "alloc", "handle", "memory_stats", "pinned", "prewarm",

    "BusyError", "CaptureError", "ConfigurationError", "DeviceLostError", "DoubleFreeError", "DriverError", "EnableError", "Event",
    "ForkedError", "GraphCheck", "GraphReference", "InternalError", "InvalidArgumentError", "InvalidDeviceError", "InvalidPointerError", "InvalidStreamError", "Kept", "Lease",
    "LibraryError", "LibraryInfo", "LibraryNotFoundError", "MappingLimitError", "MemoryInfo", "NoDriverError", "NoRoomError",
    "NotReadyError", "NotSupportedError", "OutOfHostMemoryError", "OutOfMemoryError", "PoolId", "Range", "RangeInfo", "Registration", "Residue", "Scope",
    "ScopeError", "SealedBlock", "Shortage", "ShutdownError", "Sleeper", "Slept", "Spiller", "Status", "SuspendedError", "SystemCallError", "View", "cancel_sleep",
    "capture_graph", "configuration", "configure", "current_device", "current_stream", "device_count", "dump_snapshot", "graph_check", "graph_launch", "handle_stats", "keep", "last_error", "libraries",
    "limit", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "metrics", "region", "remember_graph", "report",
    "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device", "set_pool_tag", "shutdown", "sleep", "sleep_state",
    "snapshot", "trace_clear", "trace_count", "trace_start", "trace_stop", "trim_handles", "use", "wake", "workspace",
]
