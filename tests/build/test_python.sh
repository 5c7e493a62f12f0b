#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The Python package says what the headers say, and works on the library of this build: its tests, on the host device and on
# simulated CUDA. That pip builds and installs it is tried by `make wheels`.
set -euo pipefail
cd "$TARN_SOURCE"

# Debian's packages belong to Debian's Python, which need not be the first.
for python in python3 /usr/bin/python3 none; do
    [ $python != none ] || { echo "test_python: no python3 has pycparser, pytest, numpy and hypothesis; scripts/setup test installs them"; exit 77; }
    ! "$python" -c 'import pycparser, pytest, numpy, hypothesis' 2>/dev/null || break
done

export TARN_LIBRARY=$TARN_BUILD/libtarn.so.0 TARN_PROGRAM=$TARN_BUILD/tarn PYTHONPATH=$TARN_SOURCE/python/src PYTHONDONTWRITEBYTECODE=1
unset TARN_DRIVER TARN_HOST_DEVICES TARN_HOST_MEMORY
"$python" python/generate.py --check
"$python" -m pytest -q python/tests
