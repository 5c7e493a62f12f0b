#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# lab/graph-programs without a GPU and without PyTorch: how it is called, and the table of a file. TARN_SOURCE is the source tree.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_graph_programs: $*" >&2; cat "$work/out" "$work/err" >&2; exit 1; }

# gives STATUS ARGUMENTS...
gives()
{
    local wanted=$1 status=0
    shift
    env PYTHONDONTWRITEBYTECODE=1 "$TARN_SOURCE/lab/graph-programs" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ "$status" -eq "$wanted" ] || fail "$* gave $status, not $wanted"
}
says() { grep -qF -- "$2" "$work/$1" || fail "does not say: $2"; }

gives 0 --help
says out '--table FILE'
gives 2 nonsense
says err 'no program nonsense; programs: resnet vit'
gives 1 --table "$work/nothing"
says err 'graph-programs: '

# A row for each program, with each count that was recorded.
cat >"$work/lines" <<'END'
{"program": "cupy", "graphs": 1, "nodes": 2, "addresses": 5, "unseen": 0, "unproven": 3, "certain": 0, "likely": 0, "perhaps": 4, "freed": "perhaps"}
{"program": "nccl", "what": "NCCL on 4 GPUs", "graphs": 1, "freed": "not found"}
END
gives 0 --table "$work/lines"
[ "$(wc -l <"$work/out")" -eq 10 ] || fail "there are eight programs, and two lines above"
[ "$(tr -cd '|\n' <"$work/out" | sort -u)" = '|||||||||||' ] || fail "a row has another number of cells"
says out '| not seen | unproven | certain | likely | perhaps | its freed input |'
says out '| CuPy, elementwise | 1 | 2 | 5 | 0 | 3 | 0 | 0 | 4 | perhaps |'
says out '| NCCL on 4 GPUs | 1 | - | - | - | - | - | - | - | not found |'
says out '| timm, ConvNeXt, a training step with AdamW | - | - | - | - | - | - | - | - | not measured |'
