#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What a program can tell of `tarn run --pool` is what docs/run.md says (tests/run/contracts.c): the rows that are kept are the same as on the
# driver alone, and the others differ.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_POOL
unset OMPI_COMM_WORLD_SIZE PMI_RANK PMIX_RANK MPI_LOCALRANKID MV2_COMM_WORLD_SIZE
folder=$TARN_BUILD/tests/run
contracts=$folder/contracts
[ -x "$contracts" ] || fail "no $contracts"
export TMPDIR=$work TARN_LIVE=0 FAKE_DRIVER_KEEPS=1

env "LD_LIBRARY_PATH=$folder" "$contracts" >"$work/alone" || fail "not all rows can be observed on the driver alone"
command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run --quiet --pool)
run 0 "$contracts" "$work/alone"
"$contracts" --list >"$work/list"
while read -r name kind; do
    case $kind in
    kept) says out "^$name: the same\$" ;;
    *) says out "^$name: differs\$" ;;
    esac
    grep -q "\`$name\`" "$TARN_SOURCE/docs/run.md" || fail "docs/run.md does not name $name"
done <"$work/list"
[ "$(grep -c . "$work/list")" -eq "$(grep -c . "$work/alone")" ] || fail "a row was not observed"

# A row that is not as it is said to be is an error: here all are the same.
run 0 "$contracts" "$work/alone"
cp "$work/out" "$work/pooled"
env "LD_LIBRARY_PATH=$folder" "$contracts" "$work/alone" >"$work/same" && fail "rows that should differ may be the same"
grep -q ': differs$' "$work/same" && fail "two runs on the driver alone differ"

# Without --pool nothing is other than on the driver, also where each call is counted at once, and where it is logged.
for options in --limit=100G "--stacks -o $work/plain.pickle" --audit; do
    # shellcheck disable=SC2086
    env "LD_LIBRARY_PATH=$folder" "$tarn" run --quiet $options "$contracts" "$work/alone" >"$work/plain" 2>"$work/err" || true
    [ "$(grep -c ': the same$' "$work/plain")" -eq "$(grep -c . "$work/list")" ] || fail "$options changes: $(grep differs "$work/plain")"
done

# On another driver the rows that need no help of its own are observed, and nothing is expected of them. A sanitizer is in that driver, and takes
# the faults by which children of the program end for its own.
[ -z "${TARN_SANITIZE:-}" ] || exit 0
command=("$tarn" sim --)
run 0 "$contracts"
cp "$work/out" "$work/simulated"
run 0 "$tarn" run --quiet --pool "$contracts" "$work/simulated"
says out '^sharing: '
exit 0
