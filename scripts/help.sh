# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# For scripts to source, right below the comment at their top. If the first argument is --help or -h, prints that comment and exits.
# shellcheck shell=bash
case ${1:-} in
-h | --help)
    awk 'NR <= 4 { next } !/^#/ || /^# shellcheck / { exit } { sub(/^# ?/, ""); print }' "${BASH_SOURCE[1]}"
    exit 0
    ;;
esac
