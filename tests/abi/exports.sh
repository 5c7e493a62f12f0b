#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# tests/abi/exports.sh SIMULATED REAL
# A simulated library has the soname of the real one and exports nothing that the real one does not, version for version;
# except for what begins with tarn_sim_: counters, and the machine inside, for tests; and for what is newer than the oldest
# release that it is compared with: cuGraphNodeGetParams of CUDA 13.2.
set -euo pipefail

[ $# -eq 2 ] || { echo "usage: exports.sh SIMULATED REAL" >&2; exit 2; }
# With the version of each symbol, "hipMalloc@@hip_4.2"; the names of the versions themselves are absolute symbols.
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { print $NF }' | LC_ALL=C sort -u; }
soname() { objdump -p "$1" | awk '$1 == "SONAME" { print $2 }'; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
exported "$1" | { grep -vE '^(tarn_sim_|cuGraphNodeGetParams$)' || true; } >"$work/simulated"
exported "$2" >"$work/real"
[ -s "$work/simulated" ] || { echo "$1 exports nothing" >&2; exit 1; }
more=$(LC_ALL=C comm -23 "$work/simulated" "$work/real")
[ -z "$more" ] || { printf 'exported by %s, not by %s:\n%s\n' "$1" "$2" "$more" >&2; exit 1; }
[ "$(soname "$1")" = "$(soname "$2")" ] || { echo "sonames: $(soname "$1") and $(soname "$2")" >&2; exit 1; }
