# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""cuda.core on tarn: `tarn.cuda_core.enable()`, `tarn.use(cuda_core=True)`, or a resource for one call: `tarn.cuda_core.resource(0)`.
docs/adaptors/cuda-core.md is the manual."""

from typing import Any, Dict, Optional, Type

from . import adaptors
from .devices import device_count, native_address

_class: Optional[Type[Any]] = None
_resources: Dict[int, Any] = {}
_previous: Dict[int, Any] = {}


def _resource_class() -> Type[Any]:
    global _class
    if _class is not None:
        return _class
    adaptors.wanted("cuda.core", "cuda-core")
    from cuda.core import Buffer, MemoryResource

    class TarnMemoryResource(MemoryResource):  # type: ignore[misc]
        """Stream-ordered memory of one device, from tarn."""

        def __init__(self, device_id: int) -> None:
            self._device = int(device_id)

        def allocate(self, size: int, *, stream: Any) -> Any:
            """A buffer for work on `stream`, which goes back in that stream's order, or in that of the stream that it is closed on."""
            address = adaptors.take(self._device, _native(stream), size)
            return Buffer.from_handle(address, size, mr=self, stream=stream)

        def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
            """Called by the buffer."""
            adaptors.give(self._device, _native(stream), int(ptr))

        @property
        def is_device_accessible(self) -> bool:
            """Yes."""
            return True

        @property
        def is_host_accessible(self) -> bool:
            """No."""
            return False

        @property
        def is_managed(self) -> bool:
            """No."""
            return False

        @property
        def device_id(self) -> int:
            """The device whose memory it is."""
            return self._device

        def __repr__(self) -> str:
            return f"<tarn's memory of device {self._device}>"

    _class = TarnMemoryResource
    return _class


def _native(stream: Any) -> int:
    if stream is None:
        raise TypeError("tarn's memory resource needs a stream: stream=device.default_stream is the default one")
    return native_address(getattr(stream, "stream", stream))  # a GraphBuilder has a stream


def resource(device: int = 0) -> Any:
    """The memory resource of a device, for what takes one: `resource(0).allocate(size, stream=stream)`."""
    index = int(device)
    if index not in _resources:
        _resources[index] = _resource_class()(index)
    return _resources[index]


def enable() -> None:
    """Makes tarn the memory resource of each device: of `Device.allocate()`, and of the libraries that ask the device. Calling it again
    does nothing."""
    if _previous:
        return
    adaptors.require_gpu()
    _resource_class()
    from cuda.bindings import driver
    from cuda.core import Device as CoreDevice
    _error, current = driver.cuCtxGetCurrent()
    try:
        for index in range(device_count()):
            device = CoreDevice(index)
            device.set_current()  # a device has a resource from then on
            before = device.memory_resource
            device.memory_resource = resource(index)
            _previous[index] = before
    except BaseException:
        disable()
        raise
    finally:
        driver.cuCtxSetCurrent(current)  # none, if the thread had none


def disable() -> None:
    """Restores the devices' earlier resources. Existing buffers stay in tarn's memory until they are closed."""
    if not _previous:
        return
    from cuda.core import Device as CoreDevice
    for index, before in list(_previous.items()):
        CoreDevice(index).memory_resource = before
        del _previous[index]


def is_enabled() -> bool:
    """True if the devices' memory resources are tarn's."""
    return bool(_previous)


__all__ = ["disable", "enable", "is_enabled", "resource"]
