# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""`python -m tarn.check [--json]`: the program's `tarn check`, what tarn finds on this machine and which of its promises hold here."""

import sys

from .__main__ import main

if __name__ == "__main__":
    sys.argv.insert(1, "check")
    main()
