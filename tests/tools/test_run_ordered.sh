#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run --pool`: what a program can observe of stream-ordered memory is as it was. One command of tests/run/ordered_probe.c, or of
# tests/run/stores_probe.c, per contract, on the driver of tests/run, whose streams have work for as long as the test wants.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_POOL
unset OMPI_COMM_WORLD_SIZE PMI_RANK PMIX_RANK MPI_LOCALRANKID MV2_COMM_WORLD_SIZE
folder=$TARN_BUILD/tests/run
probe=$folder/ordered_probe
stores=$folder/stores_probe
[ -x "$probe" ] || fail "no $probe"
export TMPDIR=$work TARN_LIVE=0
row() { grep -qE "$1" "$work/err" || fail "the summary has no line: $1"; }

# What the driver answers of blocks and pools is the same.
command=()
env "LD_LIBRARY_PATH=$folder" "$stores" tell >"$work/expected" || fail "the probe fails by itself"
command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run --pool)
run 0 "$stores" tell
diff "$work/expected" "$work/out" >&2 || fail "answers differ"

for contract in reuse late defaults thread_ends destroyed many capture capture_beside peer_frees faults ids ipc forks unnamed; do
    run 0 "$probe" "$contract"
done
for contract in properties pool_destroyed access; do run 0 "$stores" "$contract"; done
# A driver whose captures all have hooks is not asked for them.
run 0 "$probe" calls && says out '^pair 3, large 5; with a wait: pair 7, large 6, kept 4$'
run 0 env FAKE_DRIVER_OLD=1 "$probe" calls && says out '^pair 1, large 3; with a wait: pair 5, large 4, kept 2$'
for contract in reuse late destroyed capture_beside faults; do run 0 env FAKE_DRIVER_OLD=1 "$probe" "$contract"; done
for contract in threshold trim_to; do run 0 env FAKE_DRIVER_KEEPS=1 "$stores" "$contract"; done
run 0 "$stores" contexts
run 0 env FAKE_DRIVER_FORGETS=1 "$stores" contexts
run 0 --limit 64M "$stores" limit
run 0 --limit 64M --group "ordered.$$" "$stores" limit
for contract in shortage shortage_of_threads; do run 0 env FAKE_DRIVER_TOTAL=$((9 << 20)) "$stores" "$contract"; done
run 0 env OMPI_COMM_WORLD_SIZE=1 "$probe" never && row 'MPI started the process'
run 0 --pool=4095 "$probe" never
command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run)
run 0 "$probe" never && lacks err "tarn's pools"

# Threads, and calls of the driver that fail; nothing is lost.
command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run --pool)
for keeps in FAKE_DRIVER_KEEPS NOTHING; do
    run 0 env $keeps=1 "$probe" threads && row '^  ordered_probe +0 B '
    run 0 env $keeps=1 "$probe" failures && row '^  ordered_probe +0 B '
done

# A random model with contents, on streams that run in the background.
"$CC" -O1 -g ${TARN_SANITIZE:+-fsanitize=$TARN_SANITIZE} -D_GNU_SOURCE "-I$TARN_SOURCE" "-I$TARN_SOURCE/src" \
    "$TARN_SOURCE/tests/run/ordered_model.c" -o "$work/ordered_model" -ldl -lpthread
command=("$tarn" sim --device-memory 1G --)
run 0 "$work/ordered_model" 1
command=("$tarn" sim --device-memory 1G -- "$tarn" run)
for seed in 1 2 3 4; do run 0 --pool "$work/ordered_model" "$seed" && row "^  tarn's pools, beyond that"; done
run 0 --pool --limit 128M "$work/ordered_model" 5
run 0 --pool=1G "$work/ordered_model" 6
exit 0
