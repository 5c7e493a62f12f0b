# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""RMM on tarn from Python: `tarn.rmm.enable()`, or `tarn.use(rmm=True)`; with it cuDF, cuML, cuGraph and what else asks RMM. Each call
takes the GIL; C++ programs have `tarn/adaptors/tarn_resource.hpp`, which does not. docs/adaptors/rmm.md is the manual."""

from typing import Any, Dict, Optional, Tuple

from . import adaptors
from .devices import Device, device_count, native_address
from .errors import NotReadyError
from .memory import nanoseconds_of

_resources: Dict[Tuple[int, int], Any] = {}  # by device and nanoseconds
_previous: Dict[int, Any] = {}


def resource(device: int = 0, *, wait: Optional[float] = None) -> Any:
    """An RMM resource that allocates a device's memory from tarn.

    `wait` bounds the seconds that an allocation waits for work and for other threads, 0: not at all. Where more might have helped, it
    raises MemoryError, on which RMM's users spill or try again."""
    rmm: Any = adaptors.wanted("rmm.mr", "rmm-cu13")
    index, most = int(device), nanoseconds_of(wait)
    if (index, most) not in _resources:
        def allocate(size: int, stream: Any) -> int:
            try:
                return adaptors.take(index, native_address(stream), size, wait=most)
            except NotReadyError as error:
                raise MemoryError(str(error)) from error

        def deallocate(address: int, size: int, stream: Any) -> None:
            adaptors.give(index, native_address(stream), address)

        _resources[index, most] = rmm.CallbackMemoryResource(allocate, deallocate)
    return _resources[index, most]


def enable(*, wait: Optional[float] = None) -> None:
    """Makes tarn RMM's resource of each device; `wait` is that of resource(). Buffers that exist stay with theirs. Calling it again does
    nothing."""
    if _previous:
        return
    adaptors.require_gpu()
    rmm: Any = adaptors.wanted("rmm.mr", "rmm-cu13")
    try:
        for index in range(device_count()):
            with Device(index):
                before = rmm.get_per_device_resource(index)
                rmm.set_per_device_resource(index, resource(index, wait=wait))
                _previous[index] = before
    except BaseException:
        disable()
        raise


def disable() -> None:
    """Restores RMM's earlier resources. Existing buffers stay in tarn's memory until they are collected."""
    if not _previous:
        return
    rmm: Any = adaptors.wanted("rmm.mr", "rmm-cu13")
    for index, before in list(_previous.items()):
        rmm.set_per_device_resource(index, before)
        del _previous[index]


def is_enabled() -> bool:
    """True if RMM's resources are tarn's."""
    return bool(_previous)


__all__ = ["disable", "enable", "is_enabled", "resource"]
