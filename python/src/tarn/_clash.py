# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Says that another distribution has put its files into this package's folder: the distribution `tarn` of PyPI is somebody else's key-value
store, and ours is `tarn-gpu`. Only the names of files are read, because importing importlib.metadata takes longer than all of tarn."""

import os
import re
import warnings


def look(package: str) -> None:
    """Raises a RuntimeWarning if the folder of `package` has the record of a distribution `tarn`."""
    folder = os.path.dirname(package)
    try:
        theirs = [name for name in os.listdir(folder) if re.fullmatch(r"tarn-[0-9][^-]*(-py[0-9.]+)?\.(dist|egg)-info", name)]
    except OSError:  # in a zip file, say
        return
    if theirs:
        warnings.warn(f"{folder} holds {theirs[0]} too: `tarn` of PyPI is another project, and its files and those of tarn-gpu have the same "
                      "folder. `pip uninstall tarn tarn-gpu` and then `pip install tarn-gpu` leaves this one.", RuntimeWarning, stacklevel=3)
