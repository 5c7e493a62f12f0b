# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Kept pools: a process that seals blocks is killed, and the next one has them."""

import os

import pytest

import tarn

numpy = pytest.importorskip("numpy")

FIRST = """
import os, signal, numpy, tarn
pool = tarn.keep("weights", segment=8 << 20)
assert pool.kept.adopted is False
block = pool.alloc(5 << 20)
numpy.asarray(block)[:] = 7
sealed = pool.seal(block, "layer.0", b"bf16")
assert block.ptr == 0 and sealed.ptr
del block, sealed  # they last
lost = pool.alloc(1 << 20)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def seal(pool, size, value, data=b""):
    """Seals a block of a value under "layer.0"."""
    block = pool.alloc(size)
    numpy.asarray(block)[:] = value
    return pool.seal(block, "layer.0", data)


def test_the_next_process_has_the_blocks(owner, python):
    assert python(FIRST, dies=True) == "ready\n"
    pool = tarn.keep("weights", wait=10)
    assert (pool.kept.adopted, pool.kept.blocks, pool.kept.bytes) == (True, 1, 5 << 20)
    found = pool.sealed("layer.0")
    assert found.nbytes == 5 << 20 and found.data.rstrip(b"\0") == b"bf16"
    assert (numpy.asarray(found) == 7).all()
    with pytest.raises(tarn.InvalidArgumentError):
        pool.sealed("layer.1")
    with pytest.raises(tarn.BusyError):
        tarn.keep("weights")
    block = found.unseal()
    with pytest.raises(tarn.InvalidArgumentError):
        pool.sealed("layer.0")
    numpy.asarray(block)[:] = 8
    again = pool.seal(block, "layer.0")
    assert again.ptr and len(pool.blocks()) == 1
    again.free()
    assert pool.blocks() == []
    pool.close()


READS = """
import numpy, tarn
pool = tarn.keep("weights", wait=10, read=True)
assert (pool.kept.adopted, pool.kept.moved, pool.kept.blocks, pool.kept.read_only) == (True, False, 1, True)
assert (numpy.asarray(pool.sealed("layer.0")) == 9).all()
try:
    pool.alloc(1 << 20)
except tarn.NotSupportedError as error:
    print(error)
pool.close()
"""


def test_another_process_reads_the_blocks(owner, python):
    pool = tarn.keep("weights", segment=8 << 20)
    sealed = seal(pool, 3 << 20, 9)
    assert "only read by this process" in python(READS)
    with pytest.raises(tarn.BusyError, match="this process has pool weights"):
        tarn.keep("weights", wait=60, read=True)
    sealed.free()
    pool.close()


def test_a_pool_becomes_a_file(owner, tmp_path):
    path = tmp_path / "weights.pool"
    pool, other = tarn.keep("weights", segment=8 << 20), tarn.keep("others", segment=8 << 20)
    sealed = seal(pool, 3 << 20, 9, b"bf16")
    pool.save(path)
    other.load(path)
    found = other.sealed("layer.0")
    assert found.nbytes == 3 << 20 and found.data.rstrip(b"\0") == b"bf16" and (numpy.asarray(found) == 9).all()
    with pytest.raises(tarn.InvalidArgumentError, match="layer.0"):
        other.load(path)
    before = path.read_bytes()
    with pytest.raises(tarn.InvalidArgumentError):
        tarn.Pool().save(path)
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["keep", "weights.pool"]
    path.write_bytes(before[:-1])
    found.free()
    with pytest.raises(tarn.InvalidArgumentError, match="size"):
        other.load(str(path))
    assert other.blocks() == []
    sealed.free()
    pool.close()
    other.close()


SAVES = """
import os, threading, numpy, tarn
path, same = os.environ["SAVE_TO"], bool(os.environ["SAME"])
pools = [tarn.keep(f"pool {i}", segment=8 << 20) for i in range(1 if same else 3)]
for i, pool in enumerate(pools):
    block = pool.alloc(2 << 20)
    numpy.asarray(block)[:] = 7 + i
    pool.seal(block, "layer.0")
others = []

def save(pool):
    for _ in range(5):
        try:
            pool.save(path)
        except tarn.BusyError:
            assert same
        except BaseException as error:
            others.append(error)

threads = [threading.Thread(target=save, args=(pools[i % len(pools)],)) for i in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not others, others
assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
copy = tarn.keep("copy", segment=8 << 20)
copy.load(path)
found = numpy.asarray(copy.sealed("layer.0"))
assert found[0] in range(7, 7 + len(pools)) and (found == found[0]).all()
print("loaded")
"""


@pytest.mark.parametrize("same", [True, False])
def test_threads_save_to_one_path(owner, python, tmp_path, same):
    folder = tmp_path / "files"
    folder.mkdir()
    assert python(SAVES, SAVE_TO=str(folder / "weights.pool"), SAME="1" if same else "") == "loaded\n"


def test_a_saved_file_has_the_mode_of_a_new_one_or_of_the_one_before(owner, python, tmp_path):
    python(f"""
        import os, tarn
        os.umask(0o027)
        pool, path = tarn.keep("weights"), {str(tmp_path / ("weights" * 36)[:250])!r}
        pool.save(path)
        assert os.stat(path).st_mode & 0o777 == 0o640
        os.chmod(path, 0o622)
        pool.save(path)
        assert os.stat(path).st_mode & 0o777 == 0o622
        pool.close()
    """)


def inodes(folder):
    return {path.name: path.lstat().st_ino for path in folder.iterdir()}


def test_only_regular_files_are_replaced(owner, tmp_path):
    """A link stays, and what it leads to is replaced."""
    pool = tarn.keep("weights", segment=8 << 20)
    pool.save(tmp_path / "file")
    saved = (tmp_path / "file").read_bytes()
    for target in ("file", "none yet"):
        for link in ("link", "link to link"):
            (tmp_path / link).symlink_to(target if link == "link" else "link")
        (tmp_path / "file").write_bytes(b"old")
        pool.save(tmp_path / "link to link")
        assert (tmp_path / target).read_bytes() == saved and (tmp_path / "link").is_symlink() and (tmp_path / "link to link").is_symlink()
        (tmp_path / "link").unlink()
        (tmp_path / "link to link").unlink()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to fifo").symlink_to("fifo")
    (tmp_path / "round").symlink_to("round")
    with open(tmp_path / "file") as file:
        (tmp_path / "open file").symlink_to(f"/proc/self/fd/{file.fileno()}")
        (tmp_path / "to open file").symlink_to("open file")
        before = inodes(tmp_path)
        for name in ("fifo", "to fifo", "folder"):
            with pytest.raises(tarn.SystemCallError, match=f"{name} exists and is not a regular file"):
                pool.save(tmp_path / name)
        for path in (tmp_path / "open file", tmp_path / "to open file", f"/proc/self/fd/{file.fileno()}"):
            with pytest.raises(tarn.SystemCallError, match="is in /proc"):
                pool.save(path)
        with pytest.raises(OSError):
            pool.save(tmp_path / "round")
        with pytest.raises(FileNotFoundError):
            pool.save(tmp_path / "nowhere" / "file")
    assert inodes(tmp_path) == before
    pool.close()


ARRAYS = """
import os, signal, numpy, tarn
pool = tarn.keep("weights", segment=8 << 20)
for name, shape, typestr in (("matrix", (3, 4), "<f4"), ("number", (), "<i8"), ("half", (5,), "bfloat16")):
    array = pool.alloc(1000).view(shape, typestr)
    numpy.asarray(array.block)[:] = 0
    if typestr[0] == "<":
        numpy.asarray(array)[...] = numpy.arange(array.block.nbytes // 1000 * numpy.prod(shape, dtype=int)).reshape(shape)
    pool.seal(array, name)
pool.seal(pool.alloc(8), "bytes")
block = pool.alloc(8)
for wrong in (block.view((1,), "<f4", 4), block.view((9,) * 2 + (0,) * 40)):
    try:
        pool.seal(wrong, "wrong")
    except ValueError:
        assert block.ptr
    else:
        raise AssertionError(wrong)
try:
    pool.seal(block.view((8,)), "wrong", b"data")
except ValueError:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_arrays_are_found_in_their_type_and_shape(owner, python):
    python(ARRAYS, dies=True)
    pool = tarn.keep("weights", wait=10)
    assert (numpy.asarray(pool.sealed("matrix").array) == numpy.arange(12).reshape(3, 4)).all()
    assert numpy.from_dlpack(pool.sealed("number").array) == 0 and numpy.asarray(pool.sealed("number").array).dtype == "<i8"
    half = pool.sealed("half").array
    assert half.shape == (5,) and half.typestr == "bfloat16" and "dltensor" in repr(half.__dlpack__())
    with pytest.raises(AttributeError, match="DLPack"):
        half.__array_interface__
    with pytest.raises(ValueError, match="without a type and a shape"):
        pool.sealed("bytes").array
    for name in ("matrix", "number", "half", "bytes"):
        pool.sealed(name).free()
    pool.close()


def test_it_sleeps(owner):
    pool = tarn.keep("weights", segment=8 << 20)
    sealed = seal(pool, 3 << 20, 9)
    slept = tarn.sleep()
    assert pool.is_suspended and [item.reason for item in slept.residue if item.pool == pool.id] == ["kept"]
    tarn.wake()
    assert (numpy.asarray(sealed) == 9).all()
    tarn.sleep(save_contents=False)
    tarn.wake()
    with pytest.raises(tarn.InvalidArgumentError):
        pool.sealed("layer.0")
    sealed.free()
    pool.close()


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(tarn.SystemCallError, match="tarn keep --socket"):
        tarn.keep("weights", socket=str(tmp_path / "nobody"))
    pool = tarn.Pool()
    block = pool.alloc(1000)
    with pytest.raises(tarn.InvalidPointerError):
        pool.seal(block, "name")
    assert block.ptr
    with pytest.raises(ValueError):
        pool.seal(block, "name", bytes(65))


def test_a_nul_in_a_name_is_refused(owner):
    """C would read the name up to it. The data of a block may have one."""
    with pytest.raises(ValueError, match="name: a NUL"):
        tarn.keep("a\0b")
    with pytest.raises(ValueError, match="socket: a NUL"):
        tarn.keep("weights", socket="a\0b")
    pool = tarn.keep("weights", segment=8 << 20)
    block = pool.alloc(1000)
    with pytest.raises(ValueError, match="name: a NUL"):
        pool.seal(block, "a\0b")
    sealed = pool.seal(block, "a", b"b\0c")
    assert sealed.data == pool.sealed("a").data == b"b\0c" + bytes(61)
    with pytest.raises(ValueError, match="name: a NUL"):
        pool.sealed("a\0b")
    sealed.free()
    pool.close()


def test_a_signal_ends_a_wait(owner, python):
    assert python("""
        import os, signal, threading, time, tarn
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            tarn.keep("nobody makes it", wait=60, read=True)
        except KeyboardInterrupt:
            print(time.monotonic() - began < 30)
        began = time.monotonic()
        try:
            tarn.keep("nobody makes it", wait=1.1, read=True)
        except tarn.BusyError:
            print(1 <= time.monotonic() - began < 30)
        """) == "True\nTrue\n"


def test_arguments_of_other_types_are_named(owner, tmp_path):
    pool = tarn.keep("weights", segment=8 << 20, socket=tmp_path / "keep", wait=0.5)
    block = pool.alloc(1000)
    for argument, call in {"name: a str is wanted, not 3": lambda: tarn.keep(3),
                           "wait: a number of seconds is wanted, not '3'": lambda: tarn.keep("weights", wait="3"),
                           "socket: a path is wanted, not 3": lambda: tarn.keep("weights", socket=3),
                           "name: a str is wanted, not b'x'": lambda: pool.seal(block, b"x"),
                           "name: a str is wanted, not None": lambda: pool.sealed(None),
                           "data: a bytes object is wanted, not 'text'": lambda: pool.seal(block, "x", "text")}.items():
        with pytest.raises(TypeError, match=f"^{argument}$"):
            call()
    pool.seal(block, "x", bytearray(b"data")).free()
    pool.close()


def test_a_block_has_one_end(owner):
    """All objects of a sealed block know that it was freed, or unsealed: the next block may have its address."""
    pool = tarn.keep("weights", segment=8 << 20)
    for end in (tarn.SealedBlock.free, lambda sealed: sealed.unseal().close()):
        first = pool.seal(pool.alloc(5 << 20), "x")
        second, third = pool.sealed("x"), pool.sealed("x")
        address = first.ptr
        third.close()
        assert first.ptr == second.ptr == pool.sealed("x").ptr and not third.ptr
        end(second)
        assert not first.ptr
        block = pool.alloc(5 << 20)
        assert block.ptr == address
        first.free()
        third.free()
        assert [live.address for live in pool.blocks()] == [address]
        again = pool.seal(block, "x")
        assert not first.ptr and pool.sealed("x").ptr == again.ptr == address
        again.free()
    pool.close()


def test_the_end_of_a_block_is_said(owner):
    pool = tarn.keep("weights", segment=8 << 20)
    array = pool.alloc(1000)
    closed, freed = pool.seal(array.view((1000,)), "x"), pool.sealed("x")
    closed.close()
    freed.free()
    for sealed, words in ((closed, "the object of the sealed block 'x' was closed"), (freed, "the sealed block 'x' was freed or unsealed")):
        with pytest.raises(ValueError, match=words):
            sealed.array
        with pytest.raises(ValueError, match=words):
            sealed.unseal()
    pool.close()


def test_a_pool_seals_no_block_of_another(owner):
    pool, other = tarn.keep("weights", segment=8 << 20), tarn.keep("others", segment=8 << 20)
    block = pool.alloc(1000)
    for wrong in (other, tarn.Pool()):
        with pytest.raises(tarn.InvalidArgumentError, match="not one of <tarn.Pool"):
            wrong.seal(block, "x")
    assert block.ptr
    tarn.Pool.find(*pool.id).seal(block, "x").free()
    pool.close()
    other.close()
