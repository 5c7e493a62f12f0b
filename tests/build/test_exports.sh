#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The headers, the export map and the library agree on what is public, and the model in which features meet calls all of it.
set -euo pipefail
"$TARN_SOURCE/scripts/check-model"
exec "$TARN_SOURCE/scripts/check-exports" "$TARN_BUILD/libtarn.so"
