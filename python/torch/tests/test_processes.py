# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Tensors that go to other processes, and the ways into tarn that begin outside the program."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

OFF = bool(os.environ.get("TARN_TORCH_OFF"))


def run(tmp_path, files, *arguments, **environment):
    """Writes the files, and runs main.py among them. What it printed; it must end with status 0."""
    for name, text in files.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    words = arguments or (str(tmp_path / "main.py"),)
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=200, cwd=tmp_path,
                           env={**os.environ, **environment})
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


RECEIVER = """
    import torch

    def double(tensors, done):
        for tensor in tensors.get():
            tensor.mul_(2)
        torch.cuda.synchronize()
        done.put(torch.cuda.get_allocator_backend())
        tensors.get()

    def too_late(tensors, done):
        torch.ones(1, device="cuda")   # on PyTorch's own allocator
        try:
            tensors.get()
        except Exception as error:
            done.put(str(error))
        else:
            done.put("received")
"""

SENDER = """
    import os, torch, torch.multiprocessing as mp
    if __name__ == "__main__":
        if not os.environ.get("TARN_TORCH_OFF"):
            import tarn.torch
            tarn.torch.enable()
        import receiver
        context = mp.get_context("spawn")
        tensors, done = context.Queue(), context.Queue()
"""


def test_tensors_are_shared_with_a_process(tmp_path):
    """Two views of one storage, one of another, a parameter and an empty one; the child follows by itself."""
    printed = run(tmp_path, {"receiver.py": RECEIVER, "main.py": SENDER + """
        child = context.Process(target=receiver.double, args=(tensors, done))
        child.start()
        a = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
        b = torch.ones(1000, device="cuda")
        w = torch.nn.Parameter(torch.ones(10, device="cuda"), requires_grad=False)
        tensors.put([a[100:200], b, w, torch.empty(0, device="cuda")])
        print(done.get(timeout=150))
        torch.cuda.synchronize()
        assert a[99].item() == 99 and a[100].item() == 200 and a[199].item() == 398 and a[200].item() == 200
        assert b.sum().item() == 2000 and w.sum().item() == 20
        tensors.put(None)
        child.join(60)
        assert child.exitcode == 0, child.exitcode
        del a, b, w
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()
"""})
    assert printed == ("native\n" if OFF else "tarn\n")


def test_a_pool_can_be_shared(tmp_path):
    run(tmp_path, {"receiver.py": RECEIVER, "main.py": SENDER + """
        child = context.Process(target=receiver.double, args=(tensors, done))
        child.start()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            a = torch.ones(8 << 20, device="cuda")
        tensors.put([a])
        done.get(timeout=150)
        assert a.sum().item() == 16 << 20
        tensors.put(None)
        child.join(60)
"""})


@pytest.mark.skipif(OFF, reason="tarn's own")
def test_a_process_on_the_other_allocator_is_told(tmp_path):
    printed = run(tmp_path, {"receiver.py": RECEIVER, "main.py": SENDER + """
        child = context.Process(target=receiver.too_late, args=(tensors, done))
        child.start()
        a = torch.ones(10, device="cuda")
        tensors.put([a])
        print(done.get(timeout=150))
        child.join(60)
"""})
    assert "tarn.torch.enable()" in printed, printed


@pytest.mark.skipif(OFF, reason="tarn's own")
def test_the_late_error_names_who_came_first(tmp_path):
    run(tmp_path, {"warmup.py": """
        import torch
        torch.ones(1, device="cuda")
        """, "main.py": """
        import warmup, tarn.torch
        try:
            tarn.torch.enable()
        except tarn.torch.EnableError as error:
            assert "an import of warmup" in str(error), error
        else:
            raise AssertionError("enabled")
        """})


@pytest.mark.skipif(OFF, reason="tarn's own")
def test_a_variable_switches_it_on(tmp_path):
    source = Path(os.environ.get("PYTHONPATH", "").split(os.pathsep)[0] or Path(__file__).parents[2] / "src")
    code = (f"import site; site.addsitedir({str(source)!r}); import torch; a = torch.ones(1, device='cuda'); "
            "print(torch.cuda.get_allocator_backend())")
    assert run(tmp_path, {}, "-c", code, TARN_TORCH="1") == "tarn\n"
    assert run(tmp_path, {}, "-c", code, TARN_TORCH="0") == "native\n"


def test_a_tebibyte_is_out_of_memory(tmp_path):
    """By each way in; and the device works afterwards."""
    for way in ("import tarn.torch; tarn.torch.enable()", "import tarn; tarn.use(torch=True)"):
        run(tmp_path, {"main.py": f"""
            import torch
            if not {OFF}:
                {way}
            for size in (1 << 40, 1 << 45, 1 << 59):
                try:
                    torch.empty(size, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError as error:
                    assert "CUDA out of memory. Tried to allocate" in str(error), error
                else:
                    raise AssertionError("no error")
            assert torch.ones(1000, device="cuda").sum().item() == 1000
            """})
