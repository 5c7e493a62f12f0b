#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Why the advice on each recording in TARN_TRACES and TARN_CASES (folders joined by colons) is true, a line each: tests/tools/advice_model.py.
# The largest are tried with TARN_NIGHTLY=1. TARN_PROGRAM is the program, TARN_SOURCE the source tree.
set -euo pipefail
IFS=: read -ra folders <<<"$TARN_TRACES${TARN_CASES:+:$TARN_CASES}"
python3 "$TARN_SOURCE/tests/tools/advice_model.py" "$TARN_PROGRAM" "${folders[@]}" "$TARN_SOURCE/tests/tools/recordings"
