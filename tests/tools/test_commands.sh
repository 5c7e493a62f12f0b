#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The commands' model, tests/tools/commands_model.py: every subcommand with every kind of input and output, with totals computed twice.
# TARN_PROGRAM is the program, TARN_SOURCE the source tree.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LSAN_OPTIONS="${LSAN_OPTIONS:-}:suppressions=$folder/suppressions"
echo 'leak:libamdhip64.so' >"$folder/suppressions"
mkdir "$folder/inputs"
python3 "$TARN_SOURCE/tests/tools/commands_model.py" "$TARN_PROGRAM" "$folder/inputs"
