# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""`python -m tarn.torch PROGRAM.py ARG...` or `python -m tarn.torch -m MODULE ARG...`: runs a program with PyTorch on tarn."""

import os
import runpy
import sys

USAGE = """usage: python -m tarn.torch PROGRAM.py [ARG...]
       python -m tarn.torch -m MODULE [ARG...]
Runs a program whose PyTorch takes its device memory from tarn."""


def main() -> None:
    """Enables tarn, and becomes the program."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if arguments else 2)
    is_module = arguments[0] == "-m"
    if is_module and len(arguments) < 2:
        sys.exit(USAGE)
    from . import EnableError, enable
    try:
        enable()
    except EnableError as error:
        sys.exit(f"tarn.torch: {error}")
    if is_module:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        if not os.path.exists(arguments[0]):
            sys.exit(f"tarn.torch: there is no file {arguments[0]}")
        sys.argv = arguments
        if not getattr(sys.flags, "safe_path", False):  # as without tarn: the program's folder in place of the current one
            sys.path[0] = os.path.dirname(os.path.realpath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
