# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""TARN_TORCH=1: PyTorch is put on tarn when it is imported, whoever imports it. tarn.pth calls start() as Python starts, where
the variable is set. torch is not imported by it, nor is a GPU touched."""

import importlib.abc
import importlib.machinery
import os
import sys
from typing import Any, Optional, Sequence


class _Loader(importlib.abc.Loader):
    """Loads a module as it would be loaded anyway, and then enables tarn."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        from . import EnableError, enable
        try:
            enable()
        except EnableError as error:
            raise ImportError(f"TARN_TORCH={os.environ.get('TARN_TORCH')}: {error}. Unset it to run on PyTorch's own allocator") from error
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


class _Finder(importlib.abc.MetaPathFinder):
    """Has torch found by those who would find it anyway, until it is imported. importlib.util.find_spec() asks too, and imports nothing."""

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any = None) -> Any:
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            for finder in sys.meta_path:
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    break
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def start() -> None:
    """Waits for the import of torch, or takes it as it is where it was imported already."""
    value = os.environ.get("TARN_TORCH", "")
    if value in ("", "0"):
        return
    if value != "1":
        raise ValueError(f"TARN_TORCH={value}: 1 puts PyTorch on tarn, 0 does not")
    if "torch" in sys.modules:
        from . import enable
        enable()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
