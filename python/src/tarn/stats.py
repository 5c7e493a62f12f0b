# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Statistics of a device, with the keys of PyTorch, and metrics for Prometheus."""

from ctypes import byref, c_int64, sizeof, string_at
from typing import Any, Dict

from . import _c
from ._library import lib
from .devices import DeviceLike, device_index
from .errors import Callbacks, check

_CLASSES = ("all", "small_pool", "large_pool")


def flatten(stats: "_c.tarn_stats") -> Dict[str, int]:
    """The counters by PyTorch's keys ("allocated_bytes.all.current"), sorted as it sorts them, and tarn's own `metadata_bytes`."""
    found: Dict[str, int] = {}
    for field in _c.tarn_stats._fields_[1:]:
        name, kind = field[:2]
        value = getattr(stats, name)
        if kind is c_int64:
            found[name] = value
        elif kind is _c.tarn_stat:
            found.update(_metrics(name, value))
        else:
            for label, one in zip(_CLASSES, value):
                found.update(_metrics(f"{name}.{label}", one))
    return dict(sorted(found.items()))


def _metrics(prefix: str, stat: "_c.tarn_stat") -> Dict[str, int]:
    return {f"{prefix}.{name}": getattr(stat, name) for name in ("current", "peak", "allocated", "freed")}


def memory_stats(device: DeviceLike = None) -> Dict[str, int]:
    """The counters of a device's memory, with the keys and meanings of `torch.cuda.memory_stats()`."""
    found = _c.tarn_stats(size=sizeof(_c.tarn_stats))
    check(lib.tarn_device_stats_get(device_index(device), byref(found)))
    return flatten(found)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Every peak becomes the current value."""
    check(lib.tarn_device_stats_reset(device_index(device), _c.tarn_stats_what.TARN_STATS_PEAK))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """The sums of increases and decreases become zero."""
    check(lib.tarn_device_stats_reset(device_index(device), _c.tarn_stats_what.TARN_STATS_ACCUMULATED))


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in live blocks."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that live blocks had."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that came from the driver."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes that came from the driver."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def metrics() -> str:
    """What tarn has in this process, in Prometheus's text format."""
    parts = []

    def take(text: int, length: int, _user: Any) -> bool:
        parts.append(string_at(text, length))
        return True

    callbacks = Callbacks()
    callback = _c.FUNCTIONS["tarn_metrics_print"][1][0](callbacks.guard(take, lambda *_: False))
    callbacks.check(lib.tarn_metrics_print(callback, None))
    return b"".join(parts).decode()
