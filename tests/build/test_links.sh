#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Every relative link in a document leads to a file and, with #, to a heading; docs/README.md, which is the entrance, leads to every page.
set -euo pipefail
cd "$TARN_SOURCE"
exec scripts/check-links
