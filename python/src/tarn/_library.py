# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Finds and opens libtarn, and gives its functions their types. Opening it touches no GPU: the driver is opened by the first call that
needs it."""

import ctypes
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from . import _c
from ._integers import checked

#: The folder of the package's files that are not Python: the package's own, unless pip installed it as editable.
PACKAGE = next((folder for folder in map(Path, sys.modules["tarn"].__path__) if (folder / "lib").is_dir()), Path(__file__).resolve().parent)


def _path() -> str:
    """The library to open: TARN_LIBRARY, otherwise that of this package, otherwise the one that the loader finds."""
    named = os.environ.get("TARN_LIBRARY")
    if named:
        return named
    bundled = PACKAGE / "lib" / "libtarn.so.0"
    return str(bundled) if bundled.exists() else "libtarn.so.0"


def _open() -> ctypes.CDLL:
    path = _path()
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"tarn: {path} cannot be opened ({error}). Install the package with pip, which brings the library along, or "
                          "name a libtarn.so.0 in TARN_LIBRARY.") from error


class _Library:
    """The functions of libtarn, each with its types, and with its integers checked."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name, (result, kinds, _) in _c.FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise ImportError(f"tarn: {library._name} has no {name}: it is of another version than this package. Remove the older of "
                                  "the two; TARN_LIBRARY and LD_LIBRARY_PATH say where a library is taken from.") from None
            function.restype, function.argtypes = result, kinds

    def __getattr__(self, name: str) -> Any:  # once for each
        if name not in _c.FUNCTIONS:
            raise AttributeError(name)
        _, kinds, names = _c.FUNCTIONS[name]
        function = checked(getattr(self._library, name), kinds, names)
        setattr(self, name, function)
        return function


_opened = _open()
lib: Any = _Library(_opened)


def path() -> str:
    """The file of the library in use, as it was named to the loader."""
    return str(_opened._name)


def program() -> str:
    """The program `tarn`: TARN_PROGRAM, otherwise that of this package, otherwise the one on PATH."""
    bundled = PACKAGE / "bin" / "tarn"
    found = os.environ.get("TARN_PROGRAM") or (str(bundled) if bundled.exists() else shutil.which("tarn"))
    if not found:
        raise FileNotFoundError("tarn: the program is not installed: the wheels of tarn-gpu bring it, `make install` of the source "
                                "installs it too, and TARN_PROGRAM names one")
    return found
