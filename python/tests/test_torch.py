# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What tarn.torch does before there is a GPU: how it is switched on, and what it refuses. `torch` is a package of a few lines here."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest
import tarn

#: Where tarn and tarn.pth lie: in the source tree, or installed.
SOURCE = Path(tarn.__file__).resolve().parents[1]


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """Makes a package torch of some version, with CUDA or without."""

    def make(version="2.11.0", cuda=True):
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(
            f"import types\n__version__ = {version!r}\nversion = types.SimpleNamespace(git_version='x')\n"
            f"backends = types.SimpleNamespace(cuda=types.SimpleNamespace(is_built=lambda: {cuda}))\n")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{SOURCE}")

    monkeypatch.setenv("TARN_TORCH", "1")
    return make


def site(code):
    """Runs a text where tarn.pth is read, as it is in a site directory."""
    return subprocess.run([sys.executable, "-c", f"import site; site.addsitedir({str(SOURCE)!r})\n{code}"], capture_output=True, text=True,
                          timeout=120, check=False, cwd=Path(__file__).parent)


def test_the_variable_enables_tarn_with_the_import(torch):
    torch(version="2.1.0")
    ended = site("import torch")
    assert ended.returncode == 1
    assert "ImportError: TARN_TORCH=1: tarn has no shim for PyTorch 2.1.0" in ended.stderr and "Unset it" in ended.stderr


@pytest.mark.parametrize("before", ["importlib.util.find_spec('torch')", "exec('try: import torch\\nexcept ImportError: pass')"])
def test_the_variable_holds_until_torch_is_imported(torch, before):
    """transformers and accelerate look whether there is a torch before they import it."""
    torch(version="2.1.0")
    ended = site(f"import importlib.util\n{before}\nimport torch")
    assert ended.returncode == 1 and "ImportError: TARN_TORCH=1: tarn has no shim for PyTorch 2.1.0" in ended.stderr, ended.stderr


def test_without_the_variable_nothing_happens(torch, monkeypatch):
    torch(version="2.1.0")
    for value in ("", "0"):
        monkeypatch.setenv("TARN_TORCH", value)
        ended = site("import sys, torch\nassert 'tarn' not in sys.modules\nprint(torch.__version__)")
        assert (ended.stdout, ended.stderr) == ("2.1.0\n", "")


def test_python_starts_without_torch(torch):
    ended = site("import sys\nassert 'torch' not in sys.modules\nprint('started')")
    assert (ended.stdout, ended.stderr) == ("started\n", "")


def test_a_torch_that_is_not_there_is_not_found(torch):
    ended = site("import torch")
    assert "ModuleNotFoundError: No module named 'torch'" in ended.stderr


def test_another_value_is_refused(torch, monkeypatch):
    torch()
    monkeypatch.setenv("TARN_TORCH", "yes")
    ended = site("")
    assert "TARN_TORCH=yes: 1 puts PyTorch on tarn, 0 does not" in ended.stderr


def test_a_program_finds_the_modules_that_it_finds_without_tarn(python, tmp_path):
    """Those of its own folder, where a link leads, and none of the current one."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "program.py").write_text("import sys\nimport beside\nprint(sys.path, sys.argv)\n")
    (tmp_path / "project" / "beside.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "project" / "program.py")
    words = [str(tmp_path / "link.py"), "--help"]
    alone = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout
    assert python(f"""
        import sys
        import tarn.torch
        from tarn.torch.__main__ import main
        tarn.torch.enable = lambda: None
        sys.argv[1:] = {words}
        main()
    """) == alone


def test_what_cannot_be_enabled_says_why(torch, python, monkeypatch):
    torch(cuda=False)
    monkeypatch.setenv("TARN_TORCH", "0")
    python("""
        import tarn.torch
        try:
            tarn.torch.enable()
        except tarn.torch.EnableError as error:
            assert "has no CUDA" in str(error), error
        else:
            raise AssertionError("enabled")
        assert not tarn.torch.is_enabled()
    """)


def test_a_shim_for_another_release_is_refused(torch, python, tmp_path, monkeypatch):
    torch(version="2.12.0")
    monkeypatch.setenv("TARN_TORCH", "0")
    source = tmp_path / "shim.c"
    source.write_text("int tarn_torch_version(void) { return 2011; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "shim.so"), str(source)], check=True)
    python("""
        import tarn.torch
        try:
            tarn.torch.enable()
        except tarn.torch.EnableError as error:
            assert "compiled for PyTorch 2.11, and this is 2.12.0" in str(error), error
        else:
            raise AssertionError("enabled")
    """, TARN_TORCH_SHIM=str(tmp_path / "shim.so"))


SHIM_TEXT = """
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
static int state; /* 0: native's, 1: tarn's, 2: another's */
int tarn_torch_version(void) { return 2011; }
bool tarn_torch_is_installed(void) { return state == 1; }
void tarn_torch_settle(void) {}
void replace(void) { state = 2; }
int tarn_torch_install(bool late, char *text, size_t size)
{
    if (state == 2)
        return snprintf(text, size, "PyTorch's allocator is \\"pluggable\\" and not its own"), 1;
    return state = 1, 0;
}
void tarn_torch_uninstall(void) { state = 0; }
int tarn_torch_install_pinned(char *text, size_t size)
{
    return getenv("NO_PINNED") ? snprintf(text, size, "there is no function for it"), 1 : 0;
}
"""


@pytest.fixture
def enabled(torch, python, tmp_path, monkeypatch):
    """Runs a text with a torch of which tarn.torch needs no more than it has, and a shim that only answers."""
    torch()
    (tmp_path / "torch" / "multiprocessing").mkdir()
    (tmp_path / "torch" / "multiprocessing" / "__init__.py").write_text("")
    (tmp_path / "torch" / "multiprocessing" / "reductions.py").write_text("def reduce_tensor(tensor): return (id, (tensor,))\n")
    with open(tmp_path / "torch" / "__init__.py", "a", encoding="utf-8") as file:
        file.write("class Tensor: is_cuda = True\n_tensor_classes = ()\n"
                   "nn = types.SimpleNamespace(parameter=types.SimpleNamespace(Parameter=Tensor))\n"
                   "cuda = types.SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 1)\n"
                   "def device(text): return types.SimpleNamespace(index=int(text[5:]) if ':' in text else None)\n")
    monkeypatch.setenv("TARN_TORCH", "0")
    (tmp_path / "shim.c").write_text(SHIM_TEXT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "shim.so"), str(tmp_path / "shim.c")], check=True)
    return lambda text, **environment: python(text, TARN_TORCH_SHIM=str(tmp_path / "shim.so"), **environment)


def test_a_reload_changes_nothing(enabled):
    enabled("""
        import importlib, pickle
        import tarn.torch, torch
        from multiprocessing.reduction import ForkingPickler
        tarn.torch.enable()
        for module in (tarn.torch.processes, tarn.torch, tarn.torch.processes):
            importlib.reload(module)
            assert tarn.torch.is_enabled()
            tarn.torch.enable()
        function, arguments = ForkingPickler._extra_reducers[torch.Tensor](torch.Tensor())
        assert function.__name__ == "rebuild" and arguments[0] is id, (function, arguments)
    """)


def test_an_allocator_that_took_tarns_place_is_seen(enabled):
    enabled("""
        import tarn.torch
        tarn.torch.enable()
        tarn.torch._shim.replace()
        assert not tarn.torch.is_enabled()
        try:
            tarn.torch.enable()
        except tarn.torch.EnableError as error:
            assert "pluggable" in str(error), error
        else:
            raise AssertionError("enabled")
    """)


def test_a_failure_leaves_pytorch_as_it_was(enabled):
    """Where pinned memory cannot be tarn's, device memory is not tarn's either, until it is asked for without."""
    enabled("""
        import ctypes, os
        import tarn.torch
        shim = ctypes.CDLL(os.environ["TARN_TORCH_SHIM"])
        try:
            tarn.torch.enable()
        except tarn.torch.EnableError as error:
            assert "pinned=False leaves it to PyTorch" in str(error), error
        else:
            raise AssertionError("enabled")
        assert not shim.tarn_torch_is_installed()
        tarn.torch.enable(pinned=False)
        assert tarn.torch.is_enabled() and shim.tarn_torch_is_installed()
    """, NO_PINNED="1")


def test_devices_are_named_as_in_pytorch(enabled):
    """PyTorch's current device is 1 here."""
    enabled("""
        import types
        import tarn, tarn.torch
        tarn.torch.limit(1 << 27, device="cuda:1")
        for device in ("cuda:1", "cuda", 1, types.SimpleNamespace(index=1), None):
            assert tarn.torch.limit(device=device) == 1 << 27, device
        assert tarn.torch.limit(device="cuda:0") == 2**64 - 1
        with tarn.Device(1):
            block = tarn.alloc(1000)
        assert [tarn.torch.memory_stats(device)["allocated_bytes.all.current"] for device in ("cuda:0", "cuda:1", None)] == [0, 1024, 1024]
    """)


def test_pytorchs_settings_are_said_to_do_nothing_where_they_are_not_read(enabled):
    text = """
        import warnings
        import tarn.torch
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tarn.torch.enable()
            tarn.torch.enable()
        print(*(str(one.message) for one in said), sep="\\n")
    """
    assert enabled(text) == "\n"
    printed = enabled(text, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True").splitlines()
    assert len(printed) == 1 and "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True does nothing on tarn" in printed[0]
    assert "TARN_ALLOC_CONF=pytorch" in printed[0]
    assert enabled(text, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", TARN_ALLOC_CONF="pytorch") == "\n"


def test_packages_that_came_first_are_named(torch, python, tmp_path, monkeypatch):
    torch()
    monkeypatch.setenv("TARN_TORCH", "0")
    (tmp_path / "early_bird.py").write_text("import torch\n")
    assert python("""
        import tarn.torch
        print(tarn.torch._who_came_first())
        import early_bird
        print(tarn.torch._who_came_first())
    """).splitlines() == ["No other package uses torch here, so the program itself did it",
                          "It was the program itself, or an import of early_bird"]


@pytest.mark.parametrize("device, wanted", [(None, 1), (2, 2), (types.SimpleNamespace(index=3), 3), (types.SimpleNamespace(index=None), 1)])
def test_a_pool_is_looked_up_on_its_own_device(device, wanted, monkeypatch):
    """tarn's current device is 0 here, and PyTorch's is 1."""
    import tarn.torch
    asked = []

    def tarn_torch_pool(index, *_):
        asked.append(index)
        return 1

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(current_device=lambda: 1)))
    monkeypatch.setattr(tarn.torch, "_shim", types.SimpleNamespace(tarn_torch_pool=tarn_torch_pool))
    pool = types.SimpleNamespace(id=(0, 1), **({} if device is None else {"device": device}))
    with pytest.raises(ValueError, match=f"on device {wanted}"):
        tarn.torch._id_of(pool)
    assert asked == [wanted]


def library(path, *symbols, version=2011):
    """A shared library with objects of the sizes given, and the shim's first question."""
    objects = "".join(f"const char {name}[{size}] = {{1}};\n" for name, size in symbols)
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(f"{objects}int tarn_torch_version(void) {{ return {version}; }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return path


def test_a_table_is_read_from_the_symbols(tmp_path):
    from tarn.torch.table import symbol_size
    found = library(tmp_path / "a.so", ("first", 416), ("a_first", 8))
    assert [symbol_size(found, name) for name in ("first", "a_first", "irst", "firs", "printf")] == [416, 8, None, None, None]
    subprocess.run(["strip", str(found)], check=True)
    assert symbol_size(found, "first") == 416  # of the dynamic symbols
    whole = found.read_bytes()
    for length in (0, 1, 63, 64, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.so").write_bytes(whole[:length])
        assert symbol_size(tmp_path / "cut.so", "first") in (None, 416)
    for rubbish in (b"rubbish" * 20, b"\x7fELF\x01\x01" + b"\xff" * 100, b"\x7fELF\x02\x01" + b"\xff" * 100):
        (tmp_path / "rubbish.so").write_bytes(rubbish)
        assert symbol_size(tmp_path / "rubbish.so", "first") is None
    assert symbol_size(tmp_path / "nothing.so", "first") is None and symbol_size(tmp_path, "first") is None


NATIVE = "_ZTVN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE"
SHIM = "_ZTVN10tarn_torch9AllocatorE"


def test_a_shim_of_another_table_is_refused(torch, python, tmp_path, monkeypatch):
    torch()
    monkeypatch.setenv("TARN_TORCH", "0")
    library(tmp_path / "torch" / "lib" / "libc10_cuda.so", (NATIVE, 424))
    shim = library(tmp_path / "shim.so", (SHIM, 416))
    python("""
        import tarn.torch
        try:
            tarn.torch.enable()
        except tarn.torch.EnableError as error:
            assert "has 53 entries" in str(error) and "that has 52" in str(error) and "unset TARN_TORCH_SHIM" in str(error), error
        else:
            raise AssertionError("enabled")
    """, TARN_TORCH_SHIM=str(shim))


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_a_shim_has_no_cxx_library_of_its_own(tmp_path, monkeypatch):
    """One that has crashes in PyTorch's process when it prints a number, since the libraries there are opened locally."""
    import tarn.torch
    from tarn.torch import shim as found
    (tmp_path / "shim.cc").write_text("#include <sstream>\n"
                                      "std::string text(double number) { std::ostringstream out; out << number; return out.str(); }\n")
    monkeypatch.setenv("TARN_TORCH", "0")
    pytorch = types.SimpleNamespace(__version__="2.11.0", __file__=str(tmp_path / "torch" / "__init__.py"))
    ctypes.CDLL("libstdc++.so.6")
    shim = tmp_path / "shim.so"
    static = ["g++", "-shared", "-fPIC", "-static-libstdc++", "-o", str(shim), str(tmp_path / "shim.cc")]
    subprocess.run(static, check=True)
    with pytest.raises(tarn.torch.EnableError, match="a C\\+\\+ library of its own, linked statically.*name a compiler in CXX"):
        found.check_shim(pytorch, shim)
    subprocess.run([*static, *found._loaded_cxx_library()], check=True)
    found.check_shim(pytorch, shim)


@pytest.mark.parametrize("version, native, shim, taken", [
    ("2.11.0", 416, 416, True), ("2.11.0+cu130", 416, 416, True), ("2.11.1", 416, 416, False), ("2.11.0", 424, 416, False),
    ("2.11.0", None, 416, False)])
def test_a_shim_that_the_package_brings_is_taken_where_it_fits(version, native, shim, taken, tmp_path, monkeypatch):
    from tarn.torch import shim as found
    library(tmp_path / "torch" / "lib" / "libc10_cuda.so", *([(NATIVE, native)] if native else []))
    brought = library(tmp_path / "shims" / "2.11.0-abi1.so", (SHIM, shim))
    pytorch = types.SimpleNamespace(__version__=version, __file__=str(tmp_path / "torch" / "__init__.py"),
                                    _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True))
    monkeypatch.setattr(found, "HERE", tmp_path)
    assert found._bundled(pytorch) == (brought if taken else None)
    pytorch._C._GLIBCXX_USE_CXX11_ABI = False
    assert found._bundled(pytorch) is None


@pytest.mark.parametrize("version, strings, taken", [
    ("2.10.0", True, "2.10.0-abi1.so"), ("2.10.0+cu128", True, "2.10.0-abi1.so"), ("2.6.0", False, "2.6.0-abi0.so"), ("2.6.0", True, None),
    ("2.10.0", False, None), ("2.10.1", True, None), ("2.10.0.dev20260101", True, None), ("2.10.0a0+git1234", True, None), ("2.1.0", True, None), ("2.16.0", True, None)])
def test_the_shim_of_a_version_is_chosen_or_compiled(version, strings, taken, tmp_path, monkeypatch):
    """By the exact release and its C++ library's strings. Where none fits, what is compiled, for which PyTorch, and why, is said before."""
    import tarn.torch
    from tarn.torch import shim as found
    library(tmp_path / "torch" / "lib" / "libc10_cuda.so", (NATIVE, 416))
    for name in ("2.6.0-abi0", "2.10.0-abi1", "2.9.1-abi1"):
        library(tmp_path / "shims" / f"{name}.so", (SHIM, 416))
    pytorch = types.SimpleNamespace(__version__=version, __file__=str(tmp_path / "torch" / "__init__.py"), version=types.SimpleNamespace(git_version="x"),
                                    _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=strings))
    sources = found._sources()
    monkeypatch.setattr(found, "HERE", tmp_path)
    monkeypatch.setattr(found, "_sources", lambda: sources)
    monkeypatch.setattr(found, "_command", lambda *arguments: ["sh", "-c", f"echo shim >{arguments[-1]}"])
    monkeypatch.delenv("TARN_TORCH_SHIM", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "c++-of-the-test")
    if version in ("2.1.0", "2.16.0"):  # unknown: nothing is compiled
        with pytest.raises(tarn.torch.EnableError, match=f"tarn has no shim for PyTorch {version}: it has one for 2.6, 2.7, .*, or a newer tarn"):
            found.shim_path(pytorch)
    elif taken:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert found.shim_path(pytorch) == tmp_path / "shims" / taken
    else:
        kind = "newer" if strings else "older"
        said = re.escape(f"This is PyTorch {version}, with the {kind} strings of the C++ library, and this package has compiled shims only for "
                         "2.6.0 with older strings, 2.9.1, 2.10.0")
        with pytest.warns(RuntimeWarning, match=said + ". So c\\+\\+-of-the-test now compiles .*/\\*.cc against its headers.*is kept in"):
            kept = found.shim_path(pytorch)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert found.shim_path(pytorch) == kept  # the second time nothing is compiled
        kept.unlink()
        monkeypatch.delenv("CXX")
        monkeypatch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(tarn.torch.EnableError, match=said + ". No C.. compiler is here to compile .*: install g\\+\\+ or one of these releases"):
            found.shim_path(pytorch)


def test_a_shim_of_the_right_name_for_another_class_is_not_said_to_be_missing(tmp_path, monkeypatch):
    from tarn.torch import shim as found
    monkeypatch.setattr(found, "HERE", tmp_path)
    pytorch = types.SimpleNamespace(__version__="2.9.1+cu128", _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True))
    assert found._why_none_fits(pytorch).endswith("and this package has no compiled shims")
    library(tmp_path / "shims" / "2.9.1-abi1.so", (SHIM, 416))
    assert found._why_none_fits(pytorch).endswith("a compiled shim for that release, but its allocator class is another one")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Makes the call that finds a shim, whose compiler writes a few bytes, with a cache in the folder of the test."""
    from tarn.torch import shim as found
    pytorch = types.SimpleNamespace(__version__="2.11.0", __file__="/nonexistent/torch/__init__.py",
                                    version=types.SimpleNamespace(git_version="x"),
                                    _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True))
    monkeypatch.delenv("TARN_TORCH_SHIM", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(found, "_command", lambda *arguments: ["sh", "-c", f"echo shim >{arguments[-1]}"])

    def quietly():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return found.shim_path(pytorch)

    return quietly


def test_the_cache_is_this_users_alone(cache, tmp_path):
    before = os.umask(0)
    try:
        kept = cache()
    finally:
        os.umask(before)
    for place in (tmp_path / "tarn", tmp_path / "tarn" / "torch", kept):
        assert place.stat().st_mode & 0o777 == 0o700
    assert kept.parent == tmp_path.resolve() / "tarn" / "torch" and kept.read_text() == "shim\n"
    kept.write_text("kept\n")
    assert cache().read_text() == "kept\n"


def test_a_shim_is_linked_from_all_sources_and_nothing_else_is_kept(cache, monkeypatch):
    from tarn.torch import shim as found
    monkeypatch.setattr(found, "_command", lambda *arguments: [
        "sh", "-c", f'{"basename" if arguments[-1].endswith(".o") else "cat"} "$@" >{arguments[-1]}', "sh", *arguments[-2]])
    kept = cache()
    assert kept.read_text().split() == sorted(source.name for source in found._sources()[0].glob("*.cc"))
    assert list(kept.parent.iterdir()) == [kept]


@pytest.mark.parametrize("place", ["tarn", "tarn/torch", "shim", "."])
def test_a_cache_that_others_may_write_is_refused(place, cache, tmp_path):
    import tarn.torch
    kept = cache()
    harmed = kept if place == "shim" else tmp_path / place
    for mode in (0o720, 0o702):
        harmed.chmod(mode)
        with pytest.raises(tarn.torch.EnableError, match=f"^{harmed.resolve()} can be written by other users.*XDG_CACHE_HOME"):
            cache()
    harmed.chmod(0o1777)
    if place == ".":  # as /tmp
        cache()
    else:
        with pytest.raises(tarn.torch.EnableError, match="can be written by other users"):
            cache()


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes a second user")
@pytest.mark.parametrize("place", ["tarn", "tarn/torch", "shim", "."])
def test_a_cache_of_another_user_is_refused(place, cache, tmp_path):
    import tarn.torch
    kept = cache()
    harmed = kept if place == "shim" else tmp_path / place
    os.chown(harmed, 65534, 65534)
    with pytest.raises(tarn.torch.EnableError, match=f"^{harmed.resolve()} belongs to user 65534"):
        cache()


def test_a_relative_cache_is_ignored(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache().parent == tmp_path.resolve() / "home" / ".cache" / "tarn" / "torch"
    assert not (tmp_path / "here").exists()


class _Graph:
    """A torch.cuda.CUDAGraph of the host device, which gives its graph to nobody."""
    stream, handle, replays = None, None, 0

    def capture_begin(self, stream):
        self.stream = stream
        tarn.errors.check(tarn.adaptors.lib.tarn_capture_begin(stream.value, 0))

    def capture_end(self):
        self.handle = ctypes.c_void_p()
        tarn.errors.check(tarn.adaptors.lib.tarn_capture_end(self.stream.value, ctypes.byref(self.handle)))

    def replay(self):
        self.replays += 1


def _captured(kind, stream, block):
    graph = kind()
    graph.capture_begin(stream)
    tarn.errors.check(tarn.adaptors.lib.tarn_host_fill(0, stream.native, block.ptr, 1, block.nbytes))
    graph.capture_end()
    return graph


def test_replays_of_graphs_are_watched():
    from tarn.torch import check_graph, watching
    stream, kind = tarn.Stream(), type("CUDAGraph", (_Graph,), {})
    cuda = types.SimpleNamespace(CUDAGraph=kind, current_stream=lambda: types.SimpleNamespace(cuda_stream=stream.native, device_index=0))
    for _ in range(2):
        watching.watch(cuda)
    kept, block = tarn.alloc(4096, stream=stream), tarn.alloc(1 << 20, stream=stream)
    graph, good = _captured(kind, stream, block), _captured(kind, stream, kept)
    assert check_graph(graph).verdict == "clean"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()
        block.close()  # which is no finding
        good.replay()
    with pytest.warns(watching.GraphMemoryWarning) as told:
        graph.replay()
        graph.replay()
    text = str(told[0].message)
    assert len(told) == 1 and told[0].filename == __file__ and graph.replays == 3
    assert "a fill (node 0, parameter 0)" in text and "of 1048576 bytes whose memory is free" in text
    assert "graph.capture_end()" in text and "_captured" in text and not text.endswith("Freed at: ")
    for it in (graph, good):
        tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(it.handle))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()  # what is gone is not checked
    with pytest.raises(tarn.InvalidArgumentError, match="^check_graph: the graph was reset"):
        check_graph(graph)
    kept.close()


class _Shim:
    """The shim, as far as it tells of frees."""

    def __init__(self):
        self.python, self.blocks = None, []

        def follow(python):
            from tarn.torch import watching
            self.python = python and watching._Python.from_buffer_copy(watching._Python.from_address(python))
        self.tarn_torch_follow_frees, self.tarn_torch_await_frees = follow, lambda blocks, count: self.blocks.extend(blocks[:count])

    def free(self, block):
        if self.python is not None and block.ptr in self.blocks:
            self.blocks.remove(block.ptr)
            self.python.freed(block.ptr)
        block.close()


def test_a_free_has_the_stack_of_python(monkeypatch):
    from tarn.torch import check_graph, watching
    stream, kind, shim, ends = tarn.Stream(), type("CUDAGraph", (_Graph,), {}), _Shim(), []
    monkeypatch.setattr(watching, "_shim", None)
    monkeypatch.setattr(watching, "_awaited", {})
    monkeypatch.setattr(watching.atexit, "register", lambda function, *arguments: ends.append((function, arguments)))
    watching.follow_frees(shim)
    watching.watch(types.SimpleNamespace(CUDAGraph=kind, current_stream=lambda: types.SimpleNamespace(cuda_stream=stream.native, device_index=0)))
    other, block, unseen = (tarn.alloc(1 << 20, stream=stream) for _ in range(3))
    graph, same, late = _captured(kind, stream, block), _captured(kind, stream, block), _captured(kind, stream, unseen)
    assert shim.blocks == [block.ptr, block.ptr, unseen.ptr]
    gone = _captured(kind, stream, block)
    tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(gone.handle))
    del gone
    assert len(watching._awaited[block.ptr]) == 2

    def lose():
        shim.free(block)  # here
    lose()
    shim.free(other)
    assert list(watching._awaited) == [unseen.ptr]
    for it in (graph, same):
        with pytest.warns(watching.GraphMemoryWarning) as told:
            it.replay()
        text = str(told[0].message)
        freed = text.partition("Freed at:\n")[2]
        assert len(told) == 1 and "in _captured" in text and "in lose\n    shim.free(block)  # here\n" in freed and "in _freed" not in freed
        found, = check_graph(it).findings
        assert found.freed_at == freed
    unseen.close()  # without the shim: by the native stack
    with pytest.warns(watching.GraphMemoryWarning) as told:
        late.replay()
    assert "Freed at: " in str(told[0].message) and "in lose" not in str(told[0].message)
    (end, arguments), = ends
    end(*arguments)
    assert shim.python is None
    for it in (graph, same, late):
        tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(it.handle))


def test_memory_that_no_tensor_had_is_warned_of_once():
    from tarn.torch import watching
    stream, kind = tarn.Stream(), type("CUDAGraph", (_Graph,), {})
    watching.watch(types.SimpleNamespace(CUDAGraph=kind, current_stream=lambda: types.SimpleNamespace(cuda_stream=stream.native, device_index=0)))
    block, graph = tarn.alloc(1 << 20, stream=stream), kind()
    address = block.ptr
    graph.capture_begin(stream)
    tarn.errors.check(tarn.adaptors.lib.tarn_host_fill(0, stream.native, address, 1, 4096))
    tarn.errors.check(tarn.adaptors.lib.tarn_host_fill(0, stream.native, address + 4096, 1, 4096))
    block.close()
    graph.capture_end()
    with pytest.warns(watching.GraphMemoryWarning) as told:
        for _ in range(3):
            graph.replay()
    first, second = [str(it.message) for it in told]
    assert f"has the address {address:#x}, whose memory is free" in first and f"{address + 4096:#x}, whose memory is free" in second
    assert "no tensor had when its capture ended" in first and " bytes" not in first and "Freed at" not in first
    assert first.split("Captured at:\n")[1].strip().endswith("graph.capture_end()")
    later = tarn.alloc(1 << 20, stream=stream)
    assert later.ptr == address
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()  # the same memory, which a later tensor has by now
    again = kind()
    again.handle = graph.handle
    again._tarn_watched = graph._tarn_watched._replace(told=set())
    with pytest.warns(watching.GraphMemoryWarning) as told:
        again.replay()
        again.replay()
    assert [f"{it:#x}, whose memory is another tensor's" in str(warned.message) for it, warned in zip((address, address + 4096), told)] == [True] * 2
    assert len(told) == 2
    tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(graph.handle))
    later.close()


def test_a_check_that_fails_is_warned_of_once_and_tried_again(monkeypatch):
    from tarn import graphs
    from tarn.torch import watching
    stream, kind = tarn.Stream(), type("CUDAGraph", (_Graph,), {})
    watching.watch(types.SimpleNamespace(CUDAGraph=kind, current_stream=lambda: types.SimpleNamespace(cuda_stream=stream.native, device_index=0)))
    block = tarn.alloc(4096, stream=stream)
    graph = _captured(kind, stream, block)
    block.close()
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning) as told:
        def full(*_arguments):
            raise tarn.OutOfHostMemoryError("no host memory to check a graph")
        patch.setattr(graphs, "certain_count", full)
        graph.replay()
        graph.replay()
    assert [str(it.message) for it in told] == ["a graph is replayed without a check of its memory: no host memory to check a graph"]
    assert told[0].filename == __file__
    with pytest.warns(watching.GraphMemoryWarning, match="whose memory is free"):
        graph.replay()
    tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(graph.handle))


def test_a_graph_that_cannot_be_watched_is_warned_of(monkeypatch):
    from tarn import graphs
    from tarn.torch import watching
    stream, kind = tarn.Stream(), type("CUDAGraph", (_Graph,), {})
    watching.watch(types.SimpleNamespace(CUDAGraph=kind, current_stream=lambda: types.SimpleNamespace(cuda_stream=stream.native, device_index=0)))

    def old(_stream):
        raise tarn.NotSupportedError("this driver does not show the graph of a capture")
    monkeypatch.setattr(graphs, "capture_graph", old)
    with tarn.alloc(4096, stream=stream) as block, pytest.warns(RuntimeWarning) as told:
        graph = _captured(kind, stream, block)
    assert [str(it.message) for it in told] == ["a graph is captured whose memory is not watched: this driver does not show the graph of a capture"]
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.replay()
    tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(graph.handle))


def test_what_is_no_graph_is_refused_by_its_type():
    import tarn.torch
    for call in (tarn.torch.check_graph, tarn.torch.remember_graph):
        for wrong, kind in ((None, "NoneType"), ("abc", "str"), (5, "int")):
            with pytest.raises(TypeError, match=f"^{call.__name__}: a torch.cuda.CUDAGraph is taken, and this is no graph but of type {kind}$"):
                call(wrong)
        with pytest.raises(RuntimeError, match=f"^{call.__name__}: this PyTorch does not show graphs"):
            call(_Graph())


def test_the_environment_asks_for_watching(monkeypatch):
    from tarn.torch import watching
    for words, wanted in (("", False), ("graphs", True), ("sites,graphs", True), ("all,quiet", True), ("poison", False)):
        monkeypatch.setenv("TARN_DEBUG", words)
        assert watching.is_wanted() == wanted
