# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""NVIDIA Warp on tarn: `tarn.warp.enable()`, or `tarn.use(warp=True)`. docs/adaptors/warp.md is the manual."""

from typing import Any, List

from . import adaptors
from .devices import native_address

_enabled: List[Any] = []


class Allocator:
    """What Warp asks for memory of one device: `warp.set_device_allocator("cuda:0", tarn.warp.Allocator("cuda:0"))`."""

    def __init__(self, device: Any) -> None:
        warp = adaptors.wanted("warp", "warp-lang")
        self._device = warp.get_device(device)
        if not self._device.is_cuda:
            raise adaptors.EnableError(f"{device} is no CUDA device: Warp lets nobody else allocate for it")
        self._index = int(self._device.ordinal)

    def allocate(self, size_in_bytes: int) -> int:
        """A block for Warp's current stream on the device."""
        return adaptors.take(self._index, native_address(self._device.stream), size_in_bytes)

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Frees a block behind the work of its stream, and of the stream that is Warp's current one now."""
        adaptors.give(self._index, native_address(self._device.stream), int(ptr or 0))


def enable() -> None:
    """Puts Warp's arrays on tarn, on all CUDA devices. Arrays that exist stay where they are. Calling it again does nothing."""
    if _enabled:
        return
    adaptors.require_gpu()
    warp: Any = adaptors.wanted("warp", "warp-lang")
    if not hasattr(warp, "set_device_allocator"):
        raise adaptors.EnableError(f"Warp {warp.__version__} has no set_device_allocator(): install a newer warp-lang")
    warp.init()
    devices = list(warp.get_cuda_devices())
    if not devices:
        raise adaptors.EnableError("Warp sees no CUDA device: warp.init() prints why")
    try:
        for device in devices:
            warp.set_device_allocator(device, Allocator(device))
            _enabled.append(device)
    except BaseException:
        disable()
        raise


def disable() -> None:
    """Gives Warp its own allocator back. Arrays that exist keep theirs."""
    if not _enabled:
        return
    import warp
    while _enabled:
        warp.set_device_allocator(_enabled.pop(), None)


def is_enabled() -> bool:
    """Whether Warp's new arrays are tarn's memory."""
    return bool(_enabled)


__all__ = ["Allocator", "disable", "enable", "is_enabled"]
