# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Finds the shim between PyTorch's allocator class and tarn for the PyTorch that runs, or compiles it.

The class has no stable ABI: nearly every minor release changes it. So a shim is compiled against the headers of the very PyTorch that runs,
in some seconds, and kept under that build's name; a wheel may bring shims for exact releases. Whatever shim it is: the size of its class's
table of virtual functions must be that of PyTorch's own class, and its C++ library must be the one that PyTorch uses. With a copy of its own
the first number that it prints crashes, which is when memory has run out: parts of the two libraries are shared (symbols that are unique in
a process), and others are not."""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, List, Optional, Tuple

from .. import _library
from .table import CXX_LIBRARY, NATIVE, SHIM, symbol_size

#: Minor versions that the sources compile for; tested on a GPU is 2.11.
SUPPORTED = ("2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")

HERE = Path(__file__).resolve().parent


def _sources() -> Tuple[Path, Path]:
    """The shim's sources and tarn's headers: of the package, or of the source tree."""
    for sources, headers in ((HERE / "src", HERE.parent / "include"), (HERE.parents[2] / "torch", HERE.parents[3] / "include")):
        if (sources / "allocator.h").exists():
            return sources, headers
    raise FileNotFoundError("tarn.torch: the sources of the shim are not installed")


def _cache() -> Path:
    """Where compiled shims are kept. The XDG base directory specification has a relative path ignored."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tarn" / "torch"


def _check_own(path: Path, above: bool = False) -> None:
    """Refuses what another user could have put there, as it is loaded into this process. `above`: a folder above the cache, which may be one
    that all can write if it is sticky, as /tmp is, or of a user whom this user namespace does not know, as root's are in some containers."""
    from . import EnableError
    about = path.lstat()
    trusted = {0, os.geteuid()}
    if above and Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
        trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    if about.st_uid not in trusted:
        why = f"belongs to user {about.st_uid}"
    elif about.st_mode & 0o022 and not (above and about.st_mode & stat.S_ISVTX):
        why = "can be written by other users"
    else:
        return
    raise EnableError(f"{path} {why}, so a compiled shim there is not trusted: remove it or take these rights away, or name another folder in "
                      "XDG_CACHE_HOME")


def _own_cache() -> Path:
    """Makes the cache, for this user alone, and gives it by the name that no link can change."""
    folder = _cache()
    for place in (folder.parent, folder):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        _check_own(place, above=place not in (folder, folder.parent))
    return folder


def _native_table(torch: Any) -> Optional[int]:
    return symbol_size(Path(torch.__file__).parent / "lib" / "libc10_cuda.so", NATIVE)


def check_shim(torch: Any, shim: Path) -> None:
    """Refuses a shim whose class is not that of the PyTorch that runs: calls would land in the wrong functions. Where either file is
    stripped there is nothing to compare. Refuses one with a copy of the C++ library within it, too."""
    from . import EnableError
    native, ours = _native_table(torch), symbol_size(shim, SHIM)
    if native and ours and native != ours:
        raise EnableError(f"the allocator class of this PyTorch {torch.__version__} has {native // 8} entries in its table of virtual "
                          f"functions, and {shim} was made for one that has {ours // 8}: this build of PyTorch is not the release that it "
                          "names, or its headers are another one's. Install a release of PyTorch, or unset TARN_TORCH_SHIM where it is set")
    if symbol_size(shim, CXX_LIBRARY) is not None:
        raise EnableError(f"{shim} has a C++ library of its own, linked statically, which does not work beside PyTorch's: name a compiler in "
                          "CXX that links libstdc++.so.6, and unset TARN_TORCH_SHIM where it is set")


def _loaded_cxx_library() -> List[str]:
    """The libstdc++ that PyTorch has loaded. Before the compiler's own it keeps a compiler that has only the static one from linking that."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in maps if "/libstdc++.so.6" in line}
    return sorted(path for path in paths if os.path.exists(path))[:1]


def _bundled(torch: Any) -> Optional[Path]:
    """The shim that the package brought for this very release, if there is one that certainly fits."""
    release = torch.__version__.partition("+")[0]
    path = HERE / "shims" / f"{release}-abi{int(torch._C._GLIBCXX_USE_CXX11_ABI)}.so"
    native = _native_table(torch) if path.exists() else None
    return path if native and native == symbol_size(path, SHIM) else None


def _why_none_fits(torch: Any) -> str:
    """Why a shim has to be compiled: which PyTorch runs, and which ones the package has shims for."""
    strings = ("older", "newer")
    new = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    this = f"This is PyTorch {torch.__version__}, with the {strings[new]} strings of the C++ library, and this package has "
    release = torch.__version__.partition("+")[0]
    kinds = [path.stem.rpartition("-abi") for path in (HERE / "shims").glob("*-abi[01].so")]
    if (release, "-abi", str(int(new))) in kinds:
        return this + "a compiled shim for that release, but its allocator class is another one"
    brought = sorted((tuple(map(int, name.split("."))), name + ("" if kind == "1" else " with older strings")) for name, _, kind in kinds)
    return this + ("compiled shims only for " + ", ".join(name for _, name in brought) if brought else "no compiled shims")


def shim_path(torch: Any) -> Path:
    """The shim for a PyTorch: TARN_TORCH_SHIM, one that the package brought, one that was compiled before, or one that is compiled now."""
    named = os.environ.get("TARN_TORCH_SHIM")
    if named:
        return Path(named)
    from . import EnableError
    minor = ".".join(torch.__version__.split(".")[:2])
    if minor not in SUPPORTED:
        raise EnableError(f"tarn has no shim for PyTorch {torch.__version__}: it has one for {', '.join(SUPPORTED)}. Install one of these, or "
                          "a newer tarn")
    bundled = _bundled(torch)
    if bundled:
        return bundled
    sources, headers = _sources()
    parts = sorted(sources.glob("*.cc")) + sorted(sources.glob("*.h")) + [Path(__file__)]
    digest = hashlib.sha256()
    for part in (*parts, *sorted((headers / "tarn").glob("*.h"))):
        digest.update(part.read_bytes())
    digest.update(f"{torch.version.git_version} {torch._C._GLIBCXX_USE_CXX11_ABI} {_library.path()}".encode())
    kept = _own_cache() / f"shim-{torch.__version__}-{digest.hexdigest()[:16]}.so"
    if not os.path.lexists(kept):
        _compile(torch, minor, sources, headers, kept)
    _check_own(kept)
    return kept


def _command(torch: Any, minor: str, sources: Path, headers: Path, compiler: str, inputs: List[str], output: str) -> List[str]:
    """Compiles one source to an object, or links objects to a shim."""
    major, sub = (int(part) for part in minor.split("."))
    standard = "c++20" if (major, sub) >= (2, 14) else "c++17"  # what its headers are written in
    library = Path(_library.path()).resolve()
    c10 = Path(torch.__file__).parent / "lib"
    if output.endswith(".o"):
        return [compiler, f"-std={standard}", "-O2", "-fPIC", "-fvisibility=hidden", f"-DTARN_TORCH_VERSION={1000 * major + sub}",
                f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-isystem", str(sources / "cuda"),
                "-isystem", str(Path(torch.__file__).parent / "include"), f"-I{headers}", "-c", "-o", output, *inputs]
    return [compiler, "-shared", "-o", output, *inputs, str(library), f"-L{c10}", "-lc10_cuda", "-lc10", *_loaded_cxx_library(),
            f"-Wl,-rpath,{library.parent}", f"-Wl,-rpath,{c10}", "-Wl,--allow-shlib-undefined"]


def _compile(torch: Any, minor: str, sources: Path, headers: Path, kept: Path) -> None:
    from . import EnableError
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        raise EnableError(f"{_why_none_fits(torch)}. No C++ compiler is here to compile {sources}/*.cc against its headers: install g++ or one "
                          "of these releases, or name a compiler in CXX, or a shim in TARN_TORCH_SHIM")
    warnings.warn(f"{_why_none_fits(torch)}. So {compiler} now compiles {sources}/*.cc against its headers, once, which takes some seconds; the "
                  f"result is kept in {kept.parent}", RuntimeWarning, stacklevel=4)

    def run(command: List[str]) -> None:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise EnableError(f"{command[0]} could not compile the shim for PyTorch {torch.__version__}:\n{ended.stderr[-4000:]}")

    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        objects = {f"{folder}/{source.stem}.o": str(source) for source in sorted(sources.glob("*.cc"))}
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(run, [_command(torch, minor, sources, headers, compiler, [source], made) for made, source in objects.items()]))
        shim = Path(folder, "shim.so")
        run(_command(torch, minor, sources, headers, compiler, list(objects), str(shim)))
        check_shim(torch, shim)
        shim.chmod(0o700)  # whatever the umask is
        shim.replace(kept)
