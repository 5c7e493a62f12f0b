# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Checks integers before they are passed to C, because ctypes drops the bits that do not fit: 2**64 + 5 bytes would be 5."""

import ctypes
import operator
from typing import Any, Callable, Dict, List, Tuple

# c_int, c_uint and c_size_t are other names of these.
_SIGNED = (ctypes.c_int32, ctypes.c_int64)
_INTEGERS = (ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, *_SIGNED)


def bounds(kind: Any) -> Tuple[int, int]:
    """The least and the largest integer of a ctypes type."""
    bits = 8 * ctypes.sizeof(kind)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind in _SIGNED else (0, (1 << bits) - 1)


def integer(name: str, value: Any, low: int = 0, high: int = 2**64 - 1) -> int:
    """An argument as an integer that fits. TypeError, ValueError and OverflowError name the argument."""
    if type(value) is int and low <= value <= high:
        return value
    try:
        number = int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name}: an integer is wanted, not {value!r:.100}") from None
    if low <= number <= high:
        return number
    if number < 0 <= low:
        raise ValueError(f"{name}: {number} is negative")
    raise OverflowError(f"{name}: {number} is not between {low} and {high}")


def checked(function: Any, kinds: List[Any], names: str) -> Callable[..., Any]:
    """A function of C whose integers are checked before it is called. It is written out: a loop would cost as much as the call."""
    limits = {name: bounds(kind) for name, kind in zip(names.split(), kinds) if kind in _INTEGERS}
    if not limits:
        return function  # type: ignore[no-any-return]
    listed = ", ".join(f"{name}_" for name in names.split())  # a parameter may be called "from"
    fit = " and ".join(f"{low} <= {name}_ <= {high}" for name, (low, high) in limits.items())
    checks = "; ".join(f"{name}_ = integer({name!r}, {name}_, {low}, {high})" for name, (low, high) in limits.items())
    made: Dict[str, Any] = {"integer": integer, "function": function, "ArgumentError": ctypes.ArgumentError}
    exec(f"""def call({listed}):
        try:
            fits = {fit}
        except TypeError:
            fits = False
        if fits:
            try:
                return function({listed})
            except ArgumentError:  # a number that is no integer, or another argument: C was not called
                pass
        {checks}
        return function({listed})""", made)
    return made["call"]  # type: ignore[no-any-return]


class Structure(ctypes.Structure):
    """A structure of C whose integers are checked when they are set."""

    _limits: Dict[str, Tuple[int, int]] = {}

    def __init_subclass__(cls) -> None:
        cls._limits = {name: bounds(kind) for name, kind in cls.__dict__["_fields_"] if kind in _INTEGERS}

    def __setattr__(self, name: str, value: Any) -> None:
        low, high = self._limits.get(name, (0, 0))
        if high and not (type(value) is int and low <= value <= high):
            value = integer(name, value, low, high)
        super().__setattr__(name, value)
