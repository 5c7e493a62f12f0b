#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Writes src/tarn/_c.py, the ctypes binding, from the public headers.

generate.py [--check]

The headers are preprocessed by the C compiler and read by pycparser, so that the binding never says anything that they do not.
With --check nothing is written, and the exit status is 1 where the file is not what the headers make of it."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from pycparser import c_ast, c_parser
except ModuleNotFoundError:
    sys.exit("generate.py: pycparser is missing: apt-get install python3-pycparser, or pip install pycparser")

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "python/src/tarn/_c.py"
HEADERS = ["tarn/tarn.h", "tarn/host.h", "tarn/live.h", "tarn/metrics.h"]

# What the headers take of the C library. The real ones have extensions that pycparser does not read.
STANDARD = {
    "stddef.h": "typedef unsigned long size_t;\n#define NULL ((void *)0)\n",
    "stdbool.h": "typedef _Bool bool;\n",
    "stdint.h": "".join(f"typedef {sign}{kind} {name}{bits}_t;\n"
                        for sign, name in (("signed ", "int"), ("unsigned ", "uint"))
                        for kind, bits in (("char", 8), ("short", 16), ("int", 32), ("long", 64)))
                + "typedef unsigned long uintptr_t;\n#define SIZE_MAX 0xfffffffffffffffful\n"
                  "#define UINT64_MAX 0xfffffffffffffffful\n",
}

PLAIN = {
    "int": "c_int", "unsigned int": "c_uint", "unsigned": "c_uint", "_Bool": "c_bool", "char": "c_char", "double": "c_double",
    "float": "c_float", "size_t": "c_size_t", "bool": "c_bool", "uintptr_t": "c_size_t",
    **{f"{u}int{bits}_t": f"c_{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
}


def preprocess(*options):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in STANDARD.items():
            Path(folder, name).write_text(text)
        source = "".join(f"#include <{header}>\n" for header in HEADERS)
        command = ["cc", "-E", "-P", "-nostdinc", "-I", folder, "-I", str(ROOT / "include"), "-D__attribute__(x)=", *options, "-"]
        return subprocess.run(command, input=source, text=True, check=True, capture_output=True).stdout


class Binding:
    """The declarations in their order: what Python needs of them."""

    def __init__(self):
        self.typedefs = {}   # name -> node, of tarn
        self.structs = {}    # tag -> name in Python, of those that have fields
        self.enums = []      # (name, [(constant, value)])
        self.lines = []      # of structures and callbacks
        self.functions = []  # (name, result, arguments, their names)

    def type_of(self, node):
        if isinstance(node, c_ast.TypeDecl):
            return self.type_of(node.type)
        if isinstance(node, c_ast.IdentifierType):
            name = " ".join(node.names)
            if name == "void":
                return "None"
            if name in PLAIN:
                return PLAIN[name]
            if name in self.typedefs:
                return self.type_of(self.typedefs[name])
            raise SystemExit(f"generate.py: no type {name}")
        if isinstance(node, c_ast.Enum):
            return "c_int"
        if isinstance(node, c_ast.Struct):
            return self.structs.get(node.name)
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self.type_of(node.type)} * {self.value(node.dim)}"
        if isinstance(node, c_ast.PtrDecl):
            return self.pointer(node.type)
        if isinstance(node, c_ast.FuncDecl):
            return self.callback(node)
        raise SystemExit(f"generate.py: {type(node).__name__} is not understood")

    def pointer(self, target):
        if isinstance(target, c_ast.FuncDecl):
            return self.callback(target)
        inner = self.type_of(target)
        if inner in ("None", None):  # void, or a structure that only tarn sees
            return "c_void_p"
        return "c_char_p" if inner == "c_char" else f"POINTER({inner})"

    def callback(self, node):
        parts = [self.type_of(node.type), *self.arguments(node)]
        return f"CFUNCTYPE({', '.join(parts)})"

    def arguments(self, node):
        found = [self.type_of(argument.type) for argument in (node.args.params if node.args else [])]
        return [] if found == ["None"] else found

    def value(self, node):
        if isinstance(node, c_ast.ID):
            return dict(pair for _, pairs in self.enums for pair in pairs)[node.name]
        if isinstance(node, c_ast.UnaryOp) and node.op == "-":
            return -self.value(node.expr)
        if isinstance(node, c_ast.BinaryOp) and node.op == "<<":
            return self.value(node.left) << self.value(node.right)
        return int(node.value.rstrip("uUlL"), 0)

    def enum(self, name, node):
        pairs, next_value = [], 0
        for entry in node.values.enumerators:
            next_value = self.value(entry.value) if entry.value else next_value
            pairs.append((entry.name, next_value))
            next_value += 1
        self.enums.append((name, pairs))

    def struct(self, name, node):
        self.structs[node.name] = name
        self.lines.append(f"\n\nclass {name}(Structure):\n    _fields_ = [")
        self.lines += [f'\n        ("{field.name}", {self.type_of(field.type)}),' for field in node.decls]
        self.lines.append("\n    ]")

    def add(self, node):
        if isinstance(node, c_ast.Typedef):
            inner = node.type.type if isinstance(node.type, c_ast.TypeDecl) else None
            if isinstance(inner, c_ast.Struct) and inner.decls:
                self.struct(node.name, inner)
            elif isinstance(inner, c_ast.Enum) and inner.values:
                self.enum(node.name, inner)
            self.typedefs[node.name] = node.type

    def add_function(self, node):
        """After all structures: core.h names some that later headers have."""
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            arguments = self.arguments(node.type)
            names = [argument.name for argument in node.type.args.params] if arguments else []
            self.functions.append((node.name, self.type_of(node.type.type), arguments, names))


def constants():
    """Macros that are a number."""
    found = {}
    for name, text in re.findall(r"^#define (TARN_\w+) (.+)$", preprocess("-dM"), re.M):
        match = re.fullmatch(r"\(?(-?)(0x[0-9a-f]+|\d+)[uUlL]*(?: << (\d+))?\)?", text)
        if match:
            sign, digits, shift = match.groups()
            found[name] = (-1 if sign else 1) * (int(digits, 0) << int(shift or 0))
        elif text == "SIZE_MAX":
            found[name] = 2**64 - 1
    return found


def text():
    binding = Binding()
    nodes = c_parser.CParser().parse(preprocess()).ext
    for node in nodes:
        binding.add(node)
    for node in nodes:
        binding.add_function(node)
    parts = ['''# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Made by python/generate.py from the public headers. Do not edit.

"""The C interface as it is: constants, structures, and the type of each function. The rest of the package says it in Python."""

from ctypes import (CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p)
from enum import IntEnum
from typing import Any

from ._integers import Structure
''']
    parts += [f"\n{name} = {value}" for name, value in sorted(constants().items())]
    for name, pairs in binding.enums:
        parts.append(f"\n\n\nclass {name}(IntEnum):")
        parts += [f"\n    {constant} = {value}" for constant, value in pairs]
    parts += binding.lines
    parts.append("\n\n\n# name -> (result, arguments, their names)\nFUNCTIONS: dict[str, tuple[Any, list[Any], str]] = {")
    parts += [f'\n    "{name}": ({result}, [{", ".join(arguments)}], "{" ".join(names)}"),' for name, result, arguments, names in binding.functions]
    parts.append("\n}\n")
    return "".join(parts)


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: generate.py [--check]")
    made = text()
    if not sys.argv[1:]:
        OUTPUT.write_text(made)
    elif not OUTPUT.exists() or OUTPUT.read_text() != made:
        sys.exit("generate.py: src/tarn/_c.py is not what the headers make of it: run python/generate.py")


main()
