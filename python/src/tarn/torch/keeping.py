# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""The tensors of a module in a kept pool. Each is a sealed block, whose data say its type and shape as those of any array do.

The module gets its tensors when all of them are sealed, so a failure leaves it as it was. A pool that a failed call has taken, and cannot
release because blocks of it are sealed, stays with the process: it is in `_left` for the next call."""

import hashlib
import os
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from ..devices import Event, Stream, device_index
from ..errors import InvalidArgumentError, OutOfMemoryError, TarnError
from ..memory import Block
from ..pools import Pool, SealedBlock, array_data
from ..pools import keep as _keep_pool

#: How a sealed block names PyTorch's types.
_TYPES = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1", "uint64": "<u8",
          "uint32": "<u4", "uint16": "<u2", "uint8": "|u1", "bool": "|b1", "complex64": "<c8", "complex128": "<c16", "bfloat16": "bfloat16",
          "float8_e4m3fn": "float8_e4m3fn", "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2",
          "float8_e5m2fnuz": "float8_e5m2fnuz", "float8_e8m0fnu": "float8_e8m0fnu"}
_NAME_BYTES = 63
#: Pools that failed calls have left, by their owner's socket, their name and the device.
_left: Dict[Tuple[str, str, int], Pool] = {}


class KeptModule(NamedTuple):
    """What keep() did. `adopted`: the contents are those that another process has sealed; otherwise this process has sealed them. `moved`: they
    are at other addresses than there. `tensors` and `bytes` are what is kept, in `pool`."""
    adopted: bool
    moved: bool
    tensors: int
    bytes: int
    pool: Pool


class _Slot:
    """One tensor of a module, and all places that have it: a tied weight has several."""

    def __init__(self, key: str, tensor: Any) -> None:
        self.key, self.tensor = key, tensor
        self.places: List[Tuple[Dict[str, Any], str]] = []
        self.new: Any = None

    def put(self) -> None:
        """Makes `new` the tensor of the module. Where PyTorch allows it the object stays, so that others who refer to it have the new one."""
        import torch
        new, self.new = self.new, None
        if torch._has_compatible_shallow_copy_type(self.tensor, new):
            self.tensor.data = new
            return
        if isinstance(self.tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(new, requires_grad=self.tensor.requires_grad)
            made.__dict__.update(self.tensor.__dict__)
            new = made
        for tensors, name in self.places:
            tensors[name] = new
        self.tensor = new


def _block_name(key: str) -> str:
    """The name of a sealed block for a key of state_dict(): the key, or, where that has more than 63 bytes, its beginning and a digest."""
    text = key.encode()
    if len(text) <= _NAME_BYTES:
        return key
    return text[:30].decode(errors="ignore") + "~" + hashlib.sha256(text).hexdigest()[:32]


def _type_of(tensor: Any) -> str:
    return _TYPES[str(tensor.dtype).partition(".")[2]]


def _check_tensor(key: str, tensor: Any, pool: Pool) -> None:
    """Raises ValueError for a tensor that is not one block of numbers on the pool's device, the host or `meta`."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass
    kind = type(tensor).__name__
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise ValueError(f"keep: {key} is a {kind}, which has no shape yet: run the module once")
    if is_traceable_wrapper_subclass(tensor) or tensor.layout != torch.strided or str(tensor.dtype).partition(".")[2] not in _TYPES:
        raise ValueError(f"keep: {key} is a {kind} of {tensor.dtype}, which is not one block of numbers: keep the module without it, or "
                         "before it is converted")
    if tensor.grad is not None:
        raise ValueError(f"keep: {key} has a gradient, which would stay behind: set it to None")
    if tensor.device.type == "cuda" and tensor.device.index != pool.device.index:
        raise ValueError(f"keep: {key} is on {tensor.device}, and the pool's memory on cuda:{pool.device.index}: keep one module per device")


def _slots_of(module: Any, pool: Pool) -> Tuple[List[_Slot], Dict[str, _Slot]]:
    """The tensors of a module, and which each key of state_dict() means. Buffers that state_dict() leaves out are there too."""
    slots: Dict[int, _Slot] = {}
    by_key: Dict[str, _Slot] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                key = f"{prefix}.{name}" if prefix else name
                _check_tensor(key, tensor, pool)
                slot = slots.setdefault(id(tensor), _Slot(key, tensor))
                slot.places.append((tensors, name))
                by_key[key] = slot
    return list(slots.values()), by_key


def _contents(loaded: Any) -> Iterable[Tuple[str, Any]]:
    """The pairs of a module, a mapping or an iterable of pairs."""
    if hasattr(loaded, "named_parameters"):
        yield from loaded.named_parameters(remove_duplicate=False)
        yield from loaded.named_buffers(remove_duplicate=False)
    else:
        yield from loaded.items() if isinstance(loaded, Mapping) else loaded


class _Filling:
    """Memory of a kept pool that becomes tensors: written first, sealed together when all is there."""

    def __init__(self, pool: Pool) -> None:
        import torch
        self.pool, self.is_host = pool, pool.device.driver == "host"
        self.device = torch.device("cpu" if self.is_host else f"cuda:{pool.device.index}")
        self.blocks: List[Tuple[Block, _Slot]] = []
        self.sealed: List[SealedBlock] = []

    def stream(self) -> Optional[Stream]:
        import torch
        return None if self.is_host else Stream.find(torch.cuda.current_stream(self.device), self.pool.device)

    def alloc(self, size: int) -> Block:
        import torch
        try:
            return self.pool.alloc(size, stream=self.stream())
        except OutOfMemoryError:
            if self.is_host:
                raise
            torch.cuda.empty_cache()  # what PyTorch holds for itself
            return self.pool.alloc(size, stream=self.stream())

    def tensor(self, block: Block, like: Any) -> Any:
        """A tensor over the memory of a block, with the type and shape of another tensor."""
        import torch
        return torch.from_dlpack(block).view(like.dtype).view(like.shape)

    def fill(self, slot: _Slot, contents: Any) -> None:
        import torch
        if tuple(contents.shape) != tuple(slot.tensor.shape):
            raise ValueError(f"keep: {slot.key} has the shape {tuple(contents.shape)} where it is loaded from, and {tuple(slot.tensor.shape)} in "
                             "the module")
        if contents.dtype != slot.tensor.dtype:
            raise ValueError(f"keep: {slot.key} is {contents.dtype} where it is loaded from, and {slot.tensor.dtype} in the module: convert the "
                             "module by to(), or what load() gives")
        if contents.is_meta:
            raise ValueError(f"keep: {slot.key} is on the device meta and has no contents: give keep() a function `load` that has it")
        if not slot.tensor.numel():
            slot.new = torch.empty_like(slot.tensor, device=self.device)
        else:
            block = self.alloc(slot.tensor.numel() * slot.tensor.element_size())
            self.blocks.append((block, slot))
            slot.new = self.tensor(block, slot.tensor)
            slot.new.copy_(contents)

    def seal(self, prefix: str) -> None:
        event = None
        if not self.is_host:
            event = Event(self.pool.device)
            event.record(self.stream())
        for block, slot in self.blocks:
            data = array_data(_type_of(slot.tensor), tuple(slot.tensor.shape))
            self.sealed.append(self.pool.seal(block, _block_name(prefix + slot.key), data, event))

    def undo(self) -> None:
        """Frees what was allocated, sealed or not. No tensor over it is in the module yet."""
        for _, slot in self.blocks:
            slot.new = None
        with suppress(TarnError):  # the caller has an error already
            for sealed in self.sealed:
                sealed.free()
            for block, _ in self.blocks:
                block.close()


def _found(pool: Pool, slots: List[_Slot], prefix: str) -> Dict[str, SealedBlock]:
    """The sealed blocks of a module's tensors, by key. ValueError if one is another tensor than the module's."""
    found: Dict[str, SealedBlock] = {}
    for slot in slots:
        try:
            block = pool.sealed(_block_name(prefix + slot.key))
        except InvalidArgumentError:
            continue
        wanted = array_data(_type_of(slot.tensor), tuple(slot.tensor.shape))
        if block.data.rstrip(bytes(1)) != wanted:
            raise ValueError(f"keep: {slot.key} is \"{wanted.decode()}\" in the module, and \"{block.data.rstrip(bytes(1)).decode(errors='replace')}\" "
                             "in the pool, which is of another model: use another name, or end what uses it and give it up by "
                             "`tarn keep --drop NAME`")
        found[slot.key] = block
    return found


def _fill(filling: _Filling, slots: List[_Slot], by_key: Dict[str, _Slot], load: Optional[Callable[[], Any]], prefix: str) -> None:
    """Gives each slot its new tensor, in sealed memory: with the contents from `load`, otherwise from the module."""
    import torch
    for key, contents in _contents(load()) if load else [(slot.key, slot.tensor) for slot in slots]:
        if key not in by_key:
            raise ValueError(f"keep: load() gives {key}, which the module does not have")
        if by_key[key].new is None:
            filling.fill(by_key[key], contents)
    for slot in slots:
        if load and slot.new is None and isinstance(slot.tensor, torch.nn.Parameter):
            raise ValueError(f"keep: load() does not give {slot.key}")
        if slot.new is None:
            filling.fill(slot, slot.tensor)
    filling.seal(prefix)


def _keep_in(pool: Pool, module: Any, load: Optional[Callable[[], Any]], prefix: str) -> KeptModule:
    """keep() in a pool that the process has."""
    import torch
    if pool.kept is None:
        raise ValueError("keep: the pool is not one of tarn.keep()")
    filling = _Filling(pool)
    slots, by_key = _slots_of(module, pool)
    there = [slot for slot in slots if slot.tensor.numel()]
    found = _found(pool, there, prefix)
    adopted = len(found) == len(there)
    with torch.no_grad():
        if adopted:
            for slot in slots:
                slot.new = (filling.tensor(found[slot.key], slot.tensor) if slot.key in found else
                            torch.empty_like(slot.tensor, device=filling.device))
        else:
            for block in found.values():  # of a process that ended while it sealed
                block.free()
            try:
                _fill(filling, slots, by_key, load, prefix)
            except BaseException:
                filling.undo()
                raise
        for slot in slots:
            slot.put()
    return KeptModule(adopted, pool.kept.moved, len(there), sum(slot.tensor.numel() * slot.tensor.element_size() for slot in there), pool)


def _leave(pool: Pool, key: Tuple[str, str, int]) -> None:
    """After a failure: releases a pool that has nothing for anyone, which ends it, and leaves another to the next call."""
    with suppress(TarnError):
        if pool.kept and not pool.kept.adopted and not pool.blocks():
            pool.close()
            return
    _left[key] = pool


def keep(module: Any, pool: Union[str, Pool], *, load: Optional[Callable[[], Any]] = None, prefix: str = "", device: Any = None,
         socket: Union[str, "os.PathLike[str]", None] = None, segment: int = 0, wait: float = 0) -> KeptModule:
    """Puts the parameters and buffers of a module into the pool that an owner, `tarn keep`, keeps under a name, so that they outlive the
    process; or gives the module those that another process has put there, at the same addresses where that is possible.

    The names of the blocks are the keys of state_dict(), after `prefix`. The first process has the contents from `load()`, which returns a
    module, a mapping or pairs of such keys and tensors, and without `load` from the module. Later ones copy nothing and do not call `load`;
    their module may be on the device `meta`. `adopted` in the result tells them apart. If the pool lacks a tensor of the
    module, because a process ended before all were sealed, all are loaded and sealed again. A tensor of another shape or type is a ValueError. After a failure the module
    is as it was, and a pool of a name can be asked for again by this function.

    `pool` is a name, with `device`, `socket`, `segment` and `wait` as for tarn.keep(), or a pool of tarn.keep() for several modules. What
    changes the tensors later changes what is kept."""
    import torch
    if isinstance(pool, Pool):
        return _keep_in(pool, module, load, prefix)
    index: Optional[int] = None
    if torch.cuda.is_available():  # the pool is of the context that PyTorch makes
        with torch.cuda.device(device):
            index = torch.cuda.current_device()
    key = (os.path.abspath(os.fsdecode(os.environ.get("TARN_KEEP", "") if socket is None else socket)), pool, device_index(index))
    taken = _left.pop(key, None) or _keep_pool(pool, index, socket=socket, segment=segment, wait=wait)
    try:
        return _keep_in(taken, module, load, prefix)
    except BaseException:
        _leave(taken, key)
        raise
