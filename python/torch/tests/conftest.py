# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""PyTorch on tarn, on a GPU. Each test runs in a process of its own, with the allocator enabled first: what one breaks, another does not
see. `TARN_TORCH_OFF=1` runs the same tests on PyTorch's own allocator: a test that fails there too is wrong."""

import inspect
import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

PROLOGUE = """
import gc, os, sys, torch
if not os.environ.get("TARN_TORCH_OFF"):
    import tarn.torch
    tarn.torch.enable()
    assert torch.cuda.get_allocator_backend() == "tarn"
MIB = 1 << 20
"""


@pytest.fixture
def program(tmp_path):
    """Runs the body of a function as a program on tarn; it must end with status 0."""

    def run(function, **environment):
        body = textwrap.dedent("".join(inspect.getsource(function).splitlines(keepends=True)[1:]))
        path = tmp_path / "program.py"
        path.write_text(PROLOGUE + body)
        ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200,
                               env={**{name: value for name, value in os.environ.items() if not name.startswith("TARN_DRIVER")},
                                    **environment})
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
        return ended.stdout

    return run
