# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""tarn.torch.keep(): the tensors of a module outlive the process. On the host device they are CPU tensors; on a GPU the same runs there, with
PyTorch's allocator and with tarn's. Where there is no PyTorch, stand_in/torch is what keep() needs of one."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("numpy")
HAS_GPU = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0")
HERE = Path(__file__).parent

COMMON = """
import os, signal, sys
import torch
import tarn.torch
if os.environ.get("ENABLE"):
    tarn.torch.enable()

def never():
    raise AssertionError("load() was called")

def die():
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)

def refuses(words, *arguments, error=ValueError, **options):
    try:
        tarn.torch.keep(*arguments, **options)
    except error as caught:
        assert words in str(caught), caught
    else:
        raise AssertionError(f"no error with {words!r}")
"""

STAND_IN = """
import numpy
DEVICE, KEPT, OTHER = "cpu", 2, (5, 'weight is "<f4 3,5" in the module, and "<f4 3,4" in the pool')

def build(width=4):
    return torch.Module(width=width)

def on_meta(width=4):
    return torch.Module("meta", width)

def tensors(model):
    return {**dict(model.named_parameters(False)), **model._buffers}

def check(model):
    all = tensors(model)
    assert all["weight"] is all["tied"] and all["weight"].requires_grad is False
    assert all["nothing"].shape == (0,) and not any(tensor.is_meta for tensor in all.values())

def said(model):
    return [[tensor.array.tolist() for tensor in tensors(model).values()], model._parameters["weight"].data_ptr()]
"""

REAL = """
import hashlib
DEVICE, KEPT = "cpu" if os.environ["TARN_DRIVER"] == "host" else "cuda:0", 14
OTHER = 65, 'mask is "|b1 65" in the module, and "|b1 64" in the pool, which is of another model'

class Model(torch.nn.Module):
    def __init__(self, width=64, dtype=torch.bfloat16):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, width, dtype=dtype)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, dtype=dtype) for _ in range(3))
        self.head = torch.nn.Linear(width, 100, bias=False, dtype=dtype)
        self.head.weight = self.embedding.weight
        self.norm = torch.nn.BatchNorm1d(width, dtype=dtype)
        self.register_buffer("mask", torch.arange(width) % 3 == 0)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)
        self.register_buffer("nothing", torch.empty(0))
        self.eval()

    def forward(self, numbers):
        x = self.embedding(numbers)
        for layer in self.layers:
            x = torch.relu(layer(x)) * self.mask
        return self.head(self.norm(x)) * self.scale.to(x.dtype)

def build(*arguments):
    torch.manual_seed(1)
    return Model(*arguments)

def on_meta(*arguments):
    with torch.device("meta"):
        return Model(*arguments)

def tensors(model):
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}

def said(model):
    with torch.no_grad():
        result = model(torch.arange(32, device=DEVICE)).float().cpu().numpy().tobytes()
    return [hashlib.sha256(result).hexdigest(), sorted((name, tensor.data_ptr()) for name, tensor in tensors(model).items() if tensor.numel())]

def check(model):
    assert model.head.weight is model.embedding.weight and model.head.weight.requires_grad
    assert {tensor.device for tensor in tensors(model).values()} == {torch.device(DEVICE)} and model.nothing.shape == (0,)
"""


@pytest.fixture(params=["stand-in", "host", "cuda"])
def process(request, owner, python, monkeypatch):
    """Runs a text in a process that has an owner. It prints one line, and is killed where it calls die()."""
    driver = {"stand-in": "host"}.get(request.param, request.param)
    if request.param == "stand-in":
        monkeypatch.setenv("PYTHONPATH", str(HERE / "stand_in"), prepend=os.pathsep)
    elif importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if driver == "cuda":
        if not HAS_GPU:
            pytest.skip("no GPU")
        monkeypatch.delenv("TARN_HOST_MEMORY", raising=False)
    common = COMMON + (STAND_IN if request.param == "stand-in" else REAL)
    return lambda text, **more: python(common + textwrap.dedent(text), "die()" in text, TARN_DRIVER=driver, **more)


with_pytorch = pytest.mark.parametrize("process", ["host", "cuda"], indirect=True)

FIRST = """
    model = build()
    kept = tarn.torch.keep(model, "weights", segment=8 << 20)
    assert kept[:3] == (False, False, KEPT), kept
    check(model)
    print(said(model))
    die()
"""

LATER = """
    model = on_meta()
    kept = tarn.torch.keep(model, "weights", load=never, wait=20)
    assert kept[:3] == (True, False, KEPT), kept
    check(model)
    print(said(model))
    die()
"""


def test_the_next_process_has_the_tensors(process):
    first = process(FIRST)
    assert process(LATER) == first
    assert process(LATER) == first


@pytest.mark.skipif(not HAS_GPU, reason="no GPU")
@pytest.mark.parametrize("process", ["cuda"], indirect=True)
def test_with_tarns_allocator_too(process):
    first = process(FIRST, ENABLE="1")
    assert process(LATER, ENABLE="1") == first
    assert process(LATER) == first


def test_a_module_that_has_contents_gets_those_that_are_kept(process):
    """Its objects stay, so that what refers to a parameter has the one that is kept."""
    first = process(FIRST)
    assert process("""
        model = build().to(DEVICE)
        before = {name: id(tensor) for name, tensor in tensors(model).items()}
        name, changed = next(iter(tensors(model).items()))
        with torch.no_grad():
            changed.copy_(torch.zeros(*changed.shape))
        kept = tarn.torch.keep(model, "weights", wait=20)
        assert kept.adopted and kept.pool.sealed(name).ptr == changed.data_ptr()
        assert {name: id(tensor) for name, tensor in tensors(model).items()} == before
        check(model)
        print(said(model))
    """) == first


@pytest.mark.parametrize("load", ["build()", "build().to(DEVICE)", "dict(tensors(build()))", "iter(tensors(build()).items())"])
def test_contents_come_from_load(process, load):
    first = process(f"""
        model = on_meta()
        kept = tarn.torch.keep(model, "weights", load=lambda: {load}, segment=8 << 20)
        assert kept[:3] == (False, False, KEPT)
        assert said(model)[0] == said(build().to(DEVICE))[0]
        print(said(model))
        die()
    """)
    assert process(LATER) == first


def test_a_process_that_ends_while_it_seals_leaves_nothing(process):
    process("""
        whole, calls = tarn.Pool.seal, []
        def seal(*arguments):
            if len(calls) == KEPT - 1:
                die()
            calls.append(whole(*arguments))
        tarn.Pool.seal = seal
        tarn.torch.keep(build(), "weights", segment=8 << 20)
    """)
    first = process("""
        model = build()
        kept = tarn.torch.keep(model, "weights", wait=20)
        assert kept.pool.kept.blocks == KEPT - 1 and not kept.adopted and len(kept.pool.blocks()) == KEPT
        assert said(model)[0] == said(build().to(DEVICE))[0]
        print(said(model))
        die()
    """)
    assert process(LATER) == first


def test_another_model_is_refused(process):
    first = process(FIRST)
    process("""
        refuses(OTHER[1], on_meta(OTHER[0]), "weights", wait=20)
    """)
    assert process(LATER) == first


def test_after_another_model_the_right_one_is_kept(process):
    """The pool of the call that was refused stays with the process."""
    first = process(FIRST)
    assert process("""
        for _ in range(2):
            refuses(OTHER[1], on_meta(OTHER[0]), "weights", wait=20)
        model = on_meta()
        assert tarn.torch.keep(model, "weights", load=never).adopted
        check(model)
        print(said(model))
        die()
    """) == first
    assert process(LATER) == first


FAILS = """
    whole = dict(tensors(build()))
    model = on_meta()
    before = {name: (id(tensor), tensor.is_meta) for name, tensor in tensors(model).items()}
    assert all(is_meta for _, is_meta in before.values())

    def fails(**options):
        try:
            tarn.torch.keep(model, "weights", segment=8 << 20, **options)
        except (InterruptedError, KeyboardInterrupt) as error:
            caught = error  # with its frames
        else:
            raise AssertionError("no error")
        assert {name: (id(tensor), tensor.is_meta) for name, tensor in tensors(model).items()} == before
        return caught
"""
AGAIN = """
    kept = tarn.torch.keep(model, "weights", load=lambda: whole, segment=8 << 20)
    assert kept[:3] == (False, False, KEPT) and len(kept.pool.blocks()) == KEPT
    check(model)
    print(said(model))
    die()
"""


@pytest.mark.parametrize("error", ["InterruptedError", "KeyboardInterrupt"])
def test_a_load_that_fails_leaves_nothing_and_may_come_again(process, error):
    first = process(FAILS + f"""
    def load():
        for i, pair in enumerate(whole.items()):
            if i == len(whole) - 1:
                raise {error}
            yield pair

    caught = [fails(load=load), fails(load=load)]
    pool = tarn.keep("weights")
    assert not pool.kept.adopted  # the one before has ended
    pool.close()
    """ + AGAIN)
    assert process(LATER) == first


def test_a_seal_that_fails_leaves_nothing_and_may_come_again(process):
    """The pool has the block of another module, so it stays with the process."""
    process("""
        pool = tarn.keep("weights", segment=8 << 20)
        pool.seal(pool.alloc(1000), "of another module")
        die()
    """)
    first = process(FAILS + """
    seal, calls = tarn.Pool.seal, []

    def seal_one(pool, *arguments):
        calls.append(pool)
        if len(calls) == KEPT:
            raise InterruptedError
        return seal(pool, *arguments)

    tarn.Pool.seal = seal_one
    caught = fails(load=lambda: whole, wait=20)
    tarn.Pool.seal = seal
    assert len(calls) == KEPT and len(calls[0].blocks()) == 1
    try:
        tarn.keep("weights")
    except tarn.BusyError as error:
        assert "this process has pool" in str(error), error
    else:
        raise AssertionError("no error")
    """ + AGAIN.replace("== KEPT\n", "== KEPT + 1\n"))
    assert process(LATER) == first


@with_pytorch
def test_another_type_is_refused(process):
    first = process(FIRST)
    process("""
        model = build(64, torch.float32)
        was = said(model.to(DEVICE))
        refuses('is "<f4 100,64" in the module, and "bfloat16 100,64" in the pool', model, "weights", wait=20)
        assert said(model) == was
    """)
    assert process(LATER) == first


def test_what_cannot_be_loaded_is_said(process):
    """Nothing is left then; after that, the pool has a module twice, once under a long prefix."""
    process("""
        import gc
        pool = tarn.keep("weights", segment=8 << 20)
        whole = tensors(build())
        name = next(iter(whole))
        shape = tuple(whole[name].shape)
        refuses(" is on the device meta and has no contents: give keep() a function `load`", on_meta(), pool)
        refuses("load() gives extra, which the module does not have", build(), pool, load=lambda: {**whole, "extra": torch.zeros(1)})
        refuses(f"load() does not give {name}", build(), pool, load=dict)
        refuses(f"{name} has the shape (3, 3) where it is loaded from, and {shape} in the module", build(), pool,
                load=lambda: {**whole, name: torch.zeros(3, 3)})
        refuses(f"{name} is torch.int64 where it is loaded from, and {whole[name].dtype} in the module", build(), pool,
                load=lambda: {**whole, name: torch.zeros(*shape, dtype=torch.int64)})
        refuses("not one of tarn.keep()", build(), tarn.Pool())
        gc.collect()
        assert pool.blocks() == []
        refuses("weights", build(), "weights", error=tarn.BusyError)
        for prefix in ("", "long." * 20):
            for adopted in (False, True):
                assert tarn.torch.keep(build(), pool, prefix=prefix).adopted == adopted
        assert len(pool.blocks()) == 2 * KEPT
        die()
    """)


@with_pytorch
def test_what_cannot_be_kept_is_said(process):
    process("""
        pool = tarn.keep("weights", segment=8 << 20)
        refuses("weight is a UninitializedParameter", torch.nn.LazyLinear(3), pool)
        sparse = torch.nn.Module()
        sparse.register_buffer("indices", torch.eye(3).to_sparse())
        refuses("indices is a Tensor of torch.float32, which is not one block of numbers", sparse, pool)
        model = torch.nn.Linear(3, 3)
        model(torch.ones(3)).sum().backward()
        refuses("weight has a gradient", model, pool)
        assert pool.blocks() == []
    """)


@with_pytorch
def test_modules_share_a_pool(process):
    """Too long a name is shortened. Other libraries find each array by its name."""
    text = """
        import gc
        pool = tarn.keep("weights", segment=8 << 20, wait=20)
        inner = torch.nn.ModuleDict({"a" * 40: torch.nn.ModuleDict({"b" * 40: torch.nn.Linear(3, 5)})})
        for i, prefix in enumerate(("first.", "second.")):
            torch.manual_seed(i)
            for module in (torch.nn.Linear(7, 7), inner):
                kept = tarn.torch.keep(module, pool, prefix=prefix)
                assert kept.adopted == ADOPTED and kept.tensors == 2
            torch.manual_seed(i)
            with torch.no_grad():
                assert torch.equal(torch.nn.Linear(7, 7)(torch.ones(7)), torch.from_dlpack(pool.sealed(prefix + "weight").array).cpu()
                    @ torch.ones(7) + torch.from_dlpack(pool.sealed(prefix + "bias").array).cpu())
        assert len(pool.blocks()) == 8
        del pool, kept
        gc.collect()  # the blocks stay
        die()
    """
    process("ADOPTED = False" + text.replace("\n        ", "\n"))
    process("ADOPTED = True" + text.replace("\n        ", "\n"))


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("driver", ["host", "cuda"])
def test_the_example_serves_again(driver):
    """On a GPU too with a small model here: without arguments the example has one of 8 GB."""
    if driver == "cuda" and not HAS_GPU:
        pytest.skip("no GPU")
    environment = {**os.environ, "TARN_DRIVER": driver, **({"CUDA_VISIBLE_DEVICES": ""} if driver == "host" else {})}
    ended = subprocess.run([sys.executable, Path(__file__).parents[2] / "examples/keep/run.py", "--small"], capture_output=True, text=True,
                           timeout=600, env=environment)
    assert ended.returncode == 0 and "logits and 9 tokens: equal in all; addresses: the same" in ended.stdout, ended.stdout + ended.stderr
