# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

import os
import subprocess
import sys

import pytest

import tarn


def test_libraries_say_why_they_are_not_usable():
    found = {library.name: library for library in tarn.libraries()}
    assert {"cublas", "cudnn", "cusparse", "miopen"} <= set(found)
    assert all(library.usable or library.reason for library in found.values())


def test_paths_that_are_no_utf8(python, tmp_path):
    folder = tmp_path / "\udcff"
    folder.mkdir()
    (folder / "libMIOpen.so.1").write_text("no library")
    assert int(python("import tarn; print(len(tarn.libraries()))", TARN_LIBRARY_PATH=str(folder))) > 10


def test_a_name_that_is_none_is_refused():
    with pytest.raises(tarn.InvalidArgumentError, match="tarn.libraries"):
        tarn.handle("cubals")


def test_a_library_that_is_not_here_is_named():
    """On the host device no vendor library serves."""
    with pytest.raises(tarn.TarnError):
        tarn.handle("cublas")


SIMULATED = """
import tarn
with tarn.Stream() as stream:
    first = tarn.handle("cublas")
    assert first and first == tarn.handle("cublas") == tarn.handle("cublas", stream)
with tarn.Lease("cublas", stream) as lease:
    assert lease.handle not in (0, first)
    lease.bind(tarn.Stream.legacy())
assert lease.handle == 0
try:
    lease.bind(stream)
except tarn.InvalidArgumentError as error:
    assert "the lease was given back" in str(error)
else:
    raise AssertionError
own = tarn.Stream()
native = own.native
lease = tarn.Lease("cublas", own)
del own
other = tarn.Stream()
assert other.native != native  # it is the handle's as long as that is bound to it
del other
lease.bind(tarn.Stream.legacy())
assert tarn.Stream().native == native
lib, give_back = tarn._library.lib, tarn._library.lib.tarn_handle_return
def beside(held):  # another thread closes it while this one is in C
    lib.tarn_handle_return = give_back
    lease.close()
    return give_back(held)
lib.tarn_handle_return = beside
lease.close()
tarn.prewarm("cusparse", 3)
assert tarn.handle_stats("cusparse")["created"] == 3
assert tarn.trim_handles("cusparse") == 3
address, size = tarn.workspace("cublaslt")
assert address and size >= 1 << 20

block = tarn.alloc(100, stream=stream)
interface = block.__cuda_array_interface__
assert interface["data"] == (block.ptr, False) and interface["stream"] == stream.native
other = tarn.Stream()
capsule = block.__dlpack__(stream=other.native)
assert block.__dlpack_device__() == (2, 0)
try:
    block.__dlpack__(stream=0)
except ValueError:
    pass
else:
    raise AssertionError("stream 0 is ambiguous with CUDA")

class Foreign:
    cuda_stream = other.native

assert tarn.Stream.find(other) == other == tarn.Stream.find(Foreign())
print("all held", tarn.Device(0).driver)
"""


def test_handles_on_simulated_cuda():
    """Threads, streams, leases and foreign streams, with the simulated libraries."""
    if "TARN_BUILD" not in os.environ:
        pytest.skip("TARN_BUILD does not name a build of the source, which has the simulated libraries")
    program = os.path.join(os.environ["TARN_BUILD"], "tarn")
    ended = subprocess.run([program, "sim", "--", sys.executable, "-c", SIMULATED], env={**os.environ, "TARN_DRIVER": "cuda"},
                           capture_output=True, text=True, timeout=120)
    assert ended.stdout == "all held cuda\n", ended.stderr
