# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What is said of an installation: another distribution's files in the folder, and how a C program takes the library."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tarn
from tarn import __main__ as command
from tarn import _library


@pytest.mark.parametrize("record, said", [("tarn-0.14.2.dist-info", True), ("tarn-0.1.egg-info", True), ("tarn-0.1-py3.9.egg-info", True),
                                          ("tarn_gpu-0.2.0.dist-info", False), ("tarn-0.2.0-notes", False)])
def test_a_clash_is_named(tmp_path, record, said):
    shutil.copytree(Path(tarn.__file__).parent, tmp_path / "tarn", ignore=shutil.ignore_patterns("__pycache__", "bin"))
    (tmp_path / record).mkdir()
    ended = subprocess.run([sys.executable, "-S", "-c", "import tarn"], capture_output=True, text=True, check=True,
                           env={**os.environ, "PYTHONPATH": str(tmp_path), "TARN_LIBRARY": _library.path(), "PYTHONDONTWRITEBYTECODE": "1"})
    assert (record in ended.stderr and "pip uninstall tarn tarn-gpu" in ended.stderr) is said, ended.stderr


def test_config_names_the_packages_own_library(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "PACKAGE", tmp_path)
    with pytest.raises(SystemExit, match="no library of its own"):
        command.config(["--libs"])
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtarn.so.0").touch()
    assert command.config(["--cflags", "--libs"]) == f"-I{tmp_path}/include -L{tmp_path}/lib -l:libtarn.so.0 -Wl,-rpath,{tmp_path}/lib"
    for arguments in ([], ["--cflag"]):
        with pytest.raises(SystemExit, match="usage"):
            command.config(arguments)


@pytest.mark.parametrize("words", [["--config", "--cflags"], ["--cflags"]])
def test_config_may_be_left_out(tmp_path, monkeypatch, capsys, words):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtarn.so.0").touch()
    monkeypatch.setattr(command, "PACKAGE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tarn", *words])
    command.main()
    assert capsys.readouterr().out == f"-I{tmp_path}/include\n"


def test_a_program_that_cannot_be_run_is_named(monkeypatch):
    monkeypatch.setenv("TARN_PROGRAM", "/no-such/tarn")
    with pytest.raises(SystemExit, match="^tarn: /no-such/tarn cannot be run: No such file or directory$"):
        command.main()


@pytest.mark.parametrize("name", ["PIPE", "XFSZ"])
def test_the_program_ends_by_the_signals_that_python_ignores(name):
    """`tarn report FILE | head` is silent, and what `tarn run` runs inherits what its shell has."""
    ended = subprocess.run([sys.executable, "-m", "tarn", "-c", f"kill -{name} $$; echo ignored"], capture_output=True, text=True, check=False,
                           env={**os.environ, "TARN_PROGRAM": "/bin/sh"}, restore_signals=True)
    assert (ended.returncode, ended.stdout) == (-getattr(signal, f"SIG{name}"), "")
