# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Sizes of objects and functions in shared libraries, read from their symbol tables.

PyTorch's allocator class has neither a version nor a stable table of virtual functions. The size of the table tells two of them apart, and
PyTorch's releases keep their symbols."""

import mmap
import struct
from pathlib import Path
from typing import Iterator, Optional, Tuple

#: The tables of virtual functions of PyTorch's own allocator and of the shim's.
NATIVE = "_ZTVN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE"
SHIM = "_ZTVN10tarn_torch9AllocatorE"
#: A function of the C++ library, std::locale::classic(), which a file defines that has a copy of that library.
CXX_LIBRARY = "_ZNSt6locale7classicEv"

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_SYMTAB, _DYNSYM = 2, 11


def _tables(file: mmap.mmap) -> Iterator[Tuple[int, int, int, int]]:
    """The symbol tables of a file: where each begins, its bytes, and the same of its names."""
    header = _HEADER.unpack_from(file, 0)
    if header[0][:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return
    first, size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(file, first + i * size) for i in range(count)]
    for section in sections:
        if section[1] in (_SYMTAB, _DYNSYM):
            names = sections[section[6]]
            yield section[4], section[5], names[4], names[5]


def symbol_size(path: Path, name: str) -> Optional[int]:
    """Bytes of an object or a function that a shared library defines. None where its symbols do not say, or it cannot be read."""
    wanted = name.encode() + b"\0"
    try:
        with open(path, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as file:
            for symbols, symbol_bytes, names, name_bytes in _tables(file):
                for at in range(symbols, symbols + symbol_bytes, _SYMBOL.size):
                    string, _, _, section, _, size = _SYMBOL.unpack_from(file, at)
                    if section and string < name_bytes and file[names + string:names + string + len(wanted)] == wanted:
                        return int(size)
    except (OSError, ValueError, IndexError, OverflowError, struct.error):
        pass
    return None
