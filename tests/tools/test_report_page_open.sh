#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The page of `tarn report` in a browser, of several files and of snapshots that it reads itself:
# tests/tools/report_page.py. Debian's Python has Debian's selenium.
set -euo pipefail

for tool in /usr/bin/chromium /usr/bin/chromedriver /usr/bin/python3; do
    [ -x "$tool" ] || { echo "$tool is missing; \`scripts/setup test\` installs it" >&2; exit 1; }
done
/usr/bin/python3 "$TARN_SOURCE/tests/tools/report_page.py" "$TARN_PROGRAM" "$TARN_TEST_DATA" "$TARN_BUILD/report-pages-open" open
