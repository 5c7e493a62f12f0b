# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Settings of the memory layer, in the language of PYTORCH_CUDA_ALLOC_CONF."""

from ctypes import byref, c_size_t, create_string_buffer

from . import _texts
from ._library import lib
from .errors import check


def configure(text: str) -> None:
    """Changes the settings that `text` names, for the whole process: `tarn.configure("compaction:on_oom")`."""
    check(lib.tarn_configuration_set(_texts.text("text", text)))


def configuration() -> str:
    """The current settings, as a text for configure()."""
    needed = c_size_t()
    check(lib.tarn_configuration_get(None, 0, byref(needed)))
    buffer = create_string_buffer(needed.value + 256)  # another thread may add to them meanwhile
    check(lib.tarn_configuration_get(buffer, len(buffer), None))
    return buffer.value.decode(errors="surrogateescape")
