# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Replaces a file only when all of the new one is written, under the rule of src/base/file.h."""

import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import BinaryIO, Iterator, Union

from .errors import SystemCallError

_LINKS = 40  # that Linux follows
_NAME_BYTES = 200  # of the target's name, in that of the part: a file's name has at most 255


def _file_of(path: str) -> str:
    """What a path names, which is not there or is a regular file; where a link leads. Anything else must not be replaced, and nothing in
    /proc: its links name files that a process has open, such as the /dev/stdout of the whole machine."""
    found = path
    for _ in range(_LINKS):
        folder = os.path.realpath(os.path.dirname(found))
        if folder == "/proc" or folder.startswith("/proc/"):
            raise SystemCallError(f"{path} is in /proc, so it is not replaced")
        if not os.path.islink(found):
            break
        found = os.path.join(folder, os.readlink(found))
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(found).st_mode):  # OSError where links go round
            raise SystemCallError(f"{path} exists and is not a regular file, so it is not replaced")
    return found


@contextmanager
def replacing(path: Union[str, "os.PathLike[str]"]) -> Iterator[BinaryIO]:
    """Gives a new file beside `path`, open for reading and writing, which takes its place when the `with` ends without an exception. No
    other call has that file. It has the mode of the file that it replaces, or what the umask leaves. SystemCallError if `path` exists and is not
    a regular file."""
    target = _file_of(os.fsdecode(path))
    try:
        before = os.stat(target)
    except FileNotFoundError:
        before = None
    mode = stat.S_IMODE(before.st_mode) if before else 0o666
    folder, name = os.path.split(target)
    part = os.path.join(folder, f"{os.fsdecode(os.fsencode(name)[:_NAME_BYTES])}.{secrets.token_hex(8)}.part")
    # tempfile.mkstemp() makes files of mode 600, and only the kernel knows the umask without a change of it.
    with open(part, "x+b", opener=lambda path, flags: os.open(path, flags, mode)) as file:
        try:
            if before:
                os.fchmod(file.fileno(), mode)
            yield file
            os.replace(part, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise
