# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Tries an installed wheel with what every Python has: the library, the program and its shims, in the folder of this file, where
scripts/wheel-check has put a recording, a fake driver and programs. Arguments: an emulator that runs programs."""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from pathlib import Path

warnings.simplefilter("error")
import tarn
from tarn._library import PACKAGE, path, program

HERE = Path(__file__).resolve().parent
EMULATOR = sys.argv[1:]


def run(*command, **environment):
    """What a program prints, on both ways out."""
    ended = subprocess.run([*EMULATOR, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                           check=False, env={**os.environ, **environment})
    assert ended.returncode == 0, f"{command}: {ended.returncode}: {ended.stdout}"
    return ended.stdout


def library(folder):
    assert path() == str(PACKAGE / "lib" / "libtarn.so.0"), path()
    tarn.trace_start()
    with tarn.Pool() as pool, tarn.region("try"):
        block = tarn.alloc(3 << 20, tag="weights")
        assert tarn.memory_stats()["allocated_bytes.all.current"] == 3 << 20
        block.close()
    pool.trim()
    tarn.dump_snapshot(str(folder / "own.pickle"))
    try:
        tarn.handle("cublas")
    except tarn.NotSupportedError:  # of the host device
        pass


def reports(folder):
    recording = HERE / "generate.pickle.zst"  # compressed by zstd
    text = run(program(), "report", recording)
    assert "19,954 events" in text, text
    assert json.loads(run(program(), "report", "--json", recording))
    assert "recorded by tarn" in run(program(), "report", folder / "own.pickle")
    run(program(), "report", "-o", folder / "page.html", recording)
    assert "d3js.org" in (folder / "page.html").read_text()
    assert run(program(), "--version") == f"tarn {tarn.__version__}\n"


def served():
    with subprocess.Popen([*EMULATOR, program(), "metrics", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            with urllib.request.urlopen(server.stdout.readline().strip(), timeout=60) as answer:
                assert b"# TYPE tarn_" in answer.read()
        finally:
            server.terminate()


def checked(*before, **environment):
    """What `tarn check` says. Emulated on a busy machine, a promise may need more than the time that the program gives it."""
    ended = subprocess.run([*EMULATOR, *before, program(), "check", "--json"], stdout=subprocess.PIPE, text=True, timeout=300, check=False,
                           env={**os.environ, **environment})
    found = json.loads(ended.stdout)
    failed = [contract for contract in found["contracts"] if contract["state"] not in ("ok", "not here", "no time" if EMULATOR else "ok")]
    assert found["version"] == tarn.__version__ and not failed, failed
    assert EMULATOR or any(contract["state"] == "ok" for contract in found["contracts"]), found["contracts"]
    return found


def simulated():
    """`tarn check` on the simulated CUDA that the wheel brings. `tarn sim` starts it, where programs can start others."""
    if EMULATOR:
        found = checked(LD_LIBRARY_PATH=str(PACKAGE / "bin" / "sim"))
    else:
        found = checked(program(), "sim", "--devices", "2", "--")
    assert found["driver"] == "cuda" and len(found["devices"]) == (1 if EMULATOR else 2), found
    return found


def shims():
    """A program on a fake CUDA driver. Without --quiet a shim that is not there would be a warning."""
    for options in ([], ["--audit"], ["--pool"]):
        text = run(program(), "run", *options, "--", HERE / "probe", "kinds", LD_LIBRARY_PATH=str(HERE))
        assert "GPU 1, fake device 1" in text and "shim" not in text and "cannot" not in text, text


def main():
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # where programs write
        library(Path(name))
        reports(Path(name))
        assert "runs with" in run(HERE / "program")  # C, by `--config`
        found = [checked(), simulated()]
        os.chdir("/")
    served()
    if not EMULATOR:  # which would have to run what `tarn run` becomes
        shims()
    states = [contract["state"] for each in found for contract in each["contracts"]]
    print(f"tarn {tarn.__version__}: glibc {os.confstr('CS_GNU_LIBC_VERSION').split()[1]}, Python {sys.version.split()[0]}, {os.uname().machine}"
          f"{', emulated' if EMULATOR else ''}, user {os.getuid()}; "
          f"contracts: {states.count('ok')} ok, {states.count('no time')} without time")


main()
