# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""The tests run on the host device, so that they need no GPU. What changes the whole process (shutdown, fork, the environment) runs in
one of its own, by the fixture `python`."""

import os
import signal
import subprocess
import sys
import textwrap

os.environ.setdefault("TARN_DRIVER", "host")
os.environ.setdefault("TARN_HOST_DEVICES", "2")
os.environ.setdefault("TARN_HOST_MEMORY", "256M")

import pytest  # noqa: E402


@pytest.fixture
def python():
    """Runs a text as a program, and gives what it printed. It must end with status 0, or `dies` by SIGKILL."""

    def run(text, dies=False, **environment):
        ended = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=300,
                               env={**os.environ, **environment})
        assert ended.returncode == (-signal.SIGKILL if dies else 0), ended.stderr
        return ended.stdout

    return run


@pytest.fixture
def owner(tmp_path, monkeypatch):
    """An owner of kept pools, which the variable TARN_KEEP names."""
    if "TARN_PROGRAM" not in os.environ:
        pytest.skip("needs the program `tarn` (TARN_PROGRAM)")
    path = str(tmp_path / "keep")
    process = subprocess.Popen([os.environ["TARN_PROGRAM"], "keep", "--socket", path], stdout=subprocess.PIPE, text=True)
    assert "listening" in process.stdout.readline()
    monkeypatch.setenv("TARN_KEEP", path)
    yield
    process.terminate()
    assert process.wait() == 0
    process.stdout.close()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Each test gives back what it took."""
    import gc

    import tarn
    devices = range(tarn.device_count())
    before = [tarn.memory_allocated(device) for device in devices]
    yield
    gc.collect()
    assert [tarn.memory_allocated(device) for device in devices] == before
