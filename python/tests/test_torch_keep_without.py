# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""tarn.torch.keep() where there is no PyTorch: `torch` is what it needs of one here, over NumPy. test_torch_keep.py has the real one."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif("TARN_PROGRAM" not in os.environ, reason="needs the program `tarn` (TARN_PROGRAM)")

TORCH = '''
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

nn = types.SimpleNamespace(Parameter=Parameter, parameter=types.SimpleNamespace(UninitializedTensorMixin=UninitializedTensorMixin))
cuda = types.SimpleNamespace(is_available=lambda: False)
no_grad = nullcontext

def from_dlpack(block): return Tensor(numpy.asarray(block), uint8)  # NumPy has read-only arrays by DLPack
def empty_like(tensor, device): return Tensor(numpy.empty_like(tensor.array), tensor.dtype)
def _has_compatible_shallow_copy_type(old, new): return old.is_meta == new.is_meta
'''

COMMON = """
import os, signal, sys, numpy, tarn.torch, torch
def never(): raise AssertionError("load() was called")
def die(): sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)
def check(module):
    assert (module._parameters["weight"].array == numpy.arange(12).reshape(3, 4)).all() and module._buffers["count"].array == 7
    assert module._parameters["weight"] is module._parameters["tied"] and module._parameters["weight"].requires_grad is False
    assert module._buffers["nothing"].shape == (0,) and not any(tensor.is_meta for tensor in module._buffers.values())
    print(module._parameters["weight"].data_ptr())
def refuses(words, *arguments, **options):
    try:
        tarn.torch.keep(*arguments, **options)
    except ValueError as caught:
        assert words in str(caught), caught
    else:
        raise AssertionError(f"no error with {words!r}")
"""


@pytest.fixture
def process(tmp_path):
    """Runs a text in a process that has an owner, and that dies at its end."""
    path = str(tmp_path / "keep")
    (tmp_path / "torch" / "utils" / "_python_dispatch").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "torch" / "utils" / "__init__.py").write_text("")
    (tmp_path / "torch" / "utils" / "_python_dispatch" / "__init__.py").write_text("def is_traceable_wrapper_subclass(tensor): return False\n")
    environment = {**os.environ, "TARN_KEEP": path, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    owner = subprocess.Popen([os.environ["TARN_PROGRAM"], "keep", "--socket", path], stdout=subprocess.PIPE, text=True)
    assert "listening" in owner.stdout.readline()

    def run(text):
        ended = subprocess.run([sys.executable, "-c", COMMON + textwrap.dedent(text) + "\ndie()"], capture_output=True, text=True, timeout=120,
                               env=environment)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        return ended.stdout

    yield run
    owner.terminate()
    assert owner.wait() == 0
    owner.stdout.close()


LATER = """
    module = torch.Module("meta")
    kept = tarn.torch.keep(module, "weights", load=never, wait=20)
    assert kept[:4] == (True, False, 2, 56)
    check(module)
"""


@pytest.mark.parametrize("load", ["None", "torch.Module", "(lambda: {'tied': torch.Module()._parameters['weight'], **torch.Module()._buffers})"])
def test_the_next_process_has_the_tensors(process, load):
    first = process(f"""
        module = torch.Module("cpu" if {load} is None else "meta")
        kept = tarn.torch.keep(module, "weights", load={load}, segment=8 << 20)
        assert kept[:4] == (False, False, 2, 56), kept
        check(module)
    """)
    assert process(LATER) == first
    assert process("""
        module = torch.Module()
        before = module._parameters["weight"], module._buffers["count"]
        assert tarn.torch.keep(module, "weights", wait=20).adopted
        assert (module._parameters["weight"], module._buffers["count"]) == before
        check(module)
        refuses("not one of tarn.keep()", module, tarn.Pool())
    """) == first


def test_what_was_not_sealed_is_loaded_again(process):
    process("""
        pool = tarn.keep("weights", segment=8 << 20)
        pool.seal(pool.alloc(8).view((), "<i8"), "count")
    """)
    first = process("""
        module = torch.Module("meta")
        refuses("weight is on the device meta and has no contents", torch.Module("meta"), pool := tarn.keep("weights", wait=20))
        kept = tarn.torch.keep(module, pool, load=torch.Module)
        assert not kept.adopted and len(pool.blocks()) == 2
        check(module)
    """)
    assert process(LATER) == first


def test_another_model_is_refused(process):
    process("""
        pool = tarn.keep("weights", segment=8 << 20)
        refuses("load() gives more, which", torch.Module(), pool, load=lambda: {"more": None})
        refuses("load() does not give weight", torch.Module(), pool, load=dict)
        refuses("has the shape (3, 5) where it is loaded from, and (3, 4)", torch.Module(), pool, load=lambda: torch.Module(width=5))
        refuses("is torch.int64 where it is loaded from, and torch.float32", torch.Module(), pool,
                load=lambda: {"weight": torch.Tensor(numpy.zeros((3, 4), "i8"), torch.int64)})
        assert pool.blocks() == []
        for prefix in ("", "long." * 20):
            assert not tarn.torch.keep(torch.Module(), pool, prefix=prefix).adopted and tarn.torch.keep(torch.Module(), pool, prefix=prefix).adopted
        refuses('weight is "<f4 3,5" in the module, and "<f4 3,4" in the pool', torch.Module(width=5), pool)
        assert len(pool.blocks()) == 4
    """)
