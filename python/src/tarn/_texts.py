# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Checks arguments that are no integers before they are passed to C, which reads a text up to its first NUL."""

import os
from typing import Any, Type, TypeVar

_T = TypeVar("_T")


def _of(name: str, kind: str, value: Any) -> TypeError:
    return TypeError(f"{name}: {kind} is wanted, not {value!r:.100}")


def _whole(name: str, encoded: bytes) -> bytes:
    if b"\0" in encoded:
        raise ValueError(f"{name}: a NUL is in {encoded!r:.100}")
    return encoded


def text(name: str, value: Any) -> bytes:
    """An argument that is a text, for C, with any bytes as in paths. TypeError and ValueError name the argument."""
    if not isinstance(value, str):
        raise _of(name, "a str", value)
    return _whole(name, value.encode(errors="surrogateescape"))


def path(name: str, value: Any) -> bytes:
    """An argument that is a path, for C."""
    try:
        return _whole(name, os.fsencode(value))
    except TypeError:
        raise _of(name, "a path", value) from None


def binary(name: str, value: Any) -> bytes:
    """An argument that is bytes. It may have NULs, since C gets its length."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _of(name, "a bytes object", value)
    return bytes(value)


def instance(name: str, kind: Type[_T], value: Any) -> _T:
    """An argument that is an object of this package."""
    if not isinstance(value, kind):
        raise _of(name, f"a tarn.{kind.__name__}", value)
    return value
