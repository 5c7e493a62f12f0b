#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The page of `tarn report` in Firefox: tests/tools/page_firefox.py.
set -euo pipefail

command -v firefox-esr >/dev/null || { echo "Firefox is missing; \`scripts/setup viewer\` installs it"; exit 77; }
/usr/bin/python3 "$TARN_SOURCE/tests/tools/report_page.py" "$TARN_PROGRAM" "$TARN_TEST_DATA" "$TARN_BUILD/report-pages-firefox" firefox
