# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""`python -m tarn ARGUMENT...` and the command `tarn` of the package: the program `tarn`."""

import os
import sys

from ._library import program


def main() -> None:
    """Becomes the program, with this process's arguments."""
    try:
        path = program()
        os.execv(path, ["tarn", *sys.argv[1:]])
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
