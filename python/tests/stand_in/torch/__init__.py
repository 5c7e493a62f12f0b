# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What tarn.torch.keep() needs of PyTorch, over NumPy."""

import types
from contextlib import nullcontext
import numpy

strided = "strided"

class dtype:
    def __init__(self, name): self.name, self.itemsize = name, numpy.dtype(name).itemsize
    def __str__(self): return "torch." + self.name

float32, int64, uint8 = dtype("float32"), dtype("int64"), dtype("uint8")

def device(name): return types.SimpleNamespace(type=name, index=None)

class Tensor:
    __slots__ = ("array", "dtype", "device", "is_meta", "requires_grad", "__dict__")  # the dictionary has what a program sets
    grad, layout = None, strided
    def __init__(self, array, kind=float32, device_type="cpu"):
        self.array, self.dtype, self.device, self.is_meta = array, kind, device(device_type), device_type == "meta"
    shape = property(lambda self: self.array.shape)
    def numel(self): return self.array.size
    def element_size(self): return self.dtype.itemsize
    def copy_(self, other): self.array[...] = other.array
    def data_ptr(self): return self.array.__array_interface__["data"][0]
    def view(self, to):
        return Tensor(self.array.view(to.name), to) if isinstance(to, dtype) else Tensor(self.array.reshape(to), self.dtype)
    def set_data(self, other): self.array, self.dtype = other.array, other.dtype
    data = property(lambda self: self, set_data)

class Parameter(Tensor):
    def __init__(self, tensor, requires_grad=True):
        super().__init__(tensor.array, tensor.dtype, tensor.device.type)
        self.requires_grad = requires_grad

class UninitializedTensorMixin: pass

class Module:
    def __init__(self, kind="cpu", width=4):
        weight = Parameter(Tensor(numpy.arange(3 * width, dtype="f4").reshape(3, width), float32, kind), False)
        self._parameters = {"weight": weight, "tied": weight, "bias": None}
        self._buffers = {"count": Tensor(numpy.array(7), int64, kind), "nothing": Tensor(numpy.zeros(0, "f4"), float32, kind)}
    def named_modules(self, remove_duplicate): yield "", self
    def named_parameters(self, remove_duplicate): return [pair for pair in self._parameters.items() if pair[1]]
    def named_buffers(self, remove_duplicate): return self._buffers.items()
    def to(self, device): return self

nn = types.SimpleNamespace(Parameter=Parameter, parameter=types.SimpleNamespace(UninitializedTensorMixin=UninitializedTensorMixin))
cuda = types.SimpleNamespace(is_available=lambda: False)
no_grad = nullcontext

def from_dlpack(block): return Tensor(numpy.asarray(block), uint8)  # NumPy has read-only arrays by DLPack
def zeros(*shape, dtype=float32): return Tensor(numpy.zeros(shape, dtype.name), dtype)
def empty_like(tensor, device): return Tensor(numpy.empty_like(tensor.array), tensor.dtype)
def _has_compatible_shallow_copy_type(old, new): return old.is_meta == new.is_meta
