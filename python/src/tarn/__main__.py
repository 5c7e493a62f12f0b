# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""`python -m tarn ARGUMENT...` and the command `tarn` of the package: the program `tarn`. `python -m tarn --config [--cflags] [--libs]` prints
what a C compiler takes to build a program with the headers and the library of the package; `--config` may be left out."""

import os
import signal
import sys

from ._library import PACKAGE, program


def config(wanted: list[str]) -> str:
    """The compiler's arguments. A wheel has no symbolic links, so the library is named in full."""
    library = PACKAGE / "lib"
    if not (library / "libtarn.so.0").exists():
        sys.exit("tarn: this package has no library of its own; `pkg-config --cflags --libs tarn` names the one that is installed")
    flags = {"--cflags": f"-I{PACKAGE / 'include'}", "--libs": f"-L{library} -l:libtarn.so.0 -Wl,-rpath,{library}"}
    if not wanted or set(wanted) - set(flags):
        sys.exit("usage: python -m tarn --config [--cflags] [--libs]")
    return " ".join(flags[name] for name in wanted)


def main() -> None:
    """Becomes the program, with this process's arguments."""
    if sys.argv[1:2] and sys.argv[1] in ("--config", "--cflags", "--libs"):
        print(config([word for word in sys.argv[1:] if word != "--config"]))
        return
    try:
        path = program()
    except FileNotFoundError as error:
        sys.exit(str(error))
    for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores, and a program inherits that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(path, ["tarn", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tarn: {path} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
