#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run --pool`: what a program can observe of its memory is as it was. One command of tests/run/pool_probe.c per contract, on the driver
# of tests/run; a random model on the simulated one (tests/run/pool_model.c); and the programs of the other tests of `tarn run` once more.
# Faults of other interposers that must not be ours: a single and a plural query that disagree (HAMi-core#281: tell); NULL outputs
# (HAMi-core#333: tell); memory of others that cannot be freed (HAMi-core#321: places); an export that gives another address than the block's
# (ipc); a free that returns before the work has ended (waits).
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_POOL
unset OMPI_COMM_WORLD_SIZE PMI_RANK PMIX_RANK MPI_LOCALRANKID MV2_COMM_WORLD_SIZE
folder=$TARN_BUILD/tests/run
probe=$folder/probe
pooled=$folder/pool_probe
[ -x "$pooled" ] || fail "no $pooled"
export TMPDIR=$work TARN_LIVE=0
with=(env "LD_LIBRARY_PATH=$folder" "$tarn" run --pool)
row() { grep -qE "$1" "$work/err" || fail "the summary has no line: $1"; }

# The command line; HIP is refused, in words that say which option.
command=("$tarn" run)
for bad in '' 0 1 511 2G x '1M,'; do run 2 "--pool=$bad" true && says err '--pool wants a size from 512 to 1G'; done
hip=$(find "$TARN_BUILD/sim" -name 'libamdhip64.so.[67]' | head -1)
[ -n "$hip" ] || fail "no simulated HIP"
run 1 --driver "$hip" --pool true && says err '--pool is for CUDA'

# What the driver answers is the same, of whatever address.
command=()
env "LD_LIBRARY_PATH=$folder" "$pooled" tell >"$work/expected" || fail "the probe fails by itself"
command=("${with[@]}")
run 0 "$pooled" tell
diff "$work/expected" "$work/out" >&2 || fail "answers differ"
for contract in ids sync_memops waits ordered capture contexts other_first kinds alone; do run 0 "$pooled" "$contract"; done
run 0 "$pooled" forks && row '^tarn run: process'
run 0 env FAKE_DRIVER_OLD=1 "$pooled" capture # a driver whose captures all have hooks

# Another process: refused with one line, however often it is tried, and nothing is pooled any more.
run 0 "$pooled" ipc && says err 'cannot be shared by cuIpcGetMemHandle: run this program without --pool'
[ "$(grep -c 'cannot be shared' "$work/err")" -eq 1 ] || fail "not one line"
row '^  --pool: nothing was pooled any more after memory was shared by cuIpcGetMemHandle$'
for call in cuIpcOpenMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle cuMemCreate cuMemPoolCreate cuMemGetHandleForAddressRange \
    cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemPoolExportToShareableHandle \
    cuMemPoolImportFromShareableHandle tokens; do
    run 0 "$pooled" ends "$call" && row '^  --pool: nothing was pooled any more after '
done
echo 'int nothing;' >"$work/nothing.c"
for name in libmpi.so.40 libucp.so.0 libuct.so.0 libucm.so.0 libnccl.so.2 libnvshmem_host.so.3 libibverbs.so.1 libfabric.so.1 \
    libgdrapi.so.2 libcufile.so.0; do
    "$CC" -shared -fPIC "$work/nothing.c" -o "$work/$name" -Wl,-soname,$name
    run 0 "$pooled" ends "$work/$name" && row "^  --pool: nothing was pooled any more after $name was loaded$"
    run 0 env "LD_PRELOAD=$work/$name" "$pooled" never
done
cp "$work/libnccl.so.2" "$work/libother.so.2"
run 1 "$pooled" ends "$work/libother.so.2" # not by any library
for variable in OMPI_COMM_WORLD_SIZE PMI_RANK PMIX_RANK MPI_LOCALRANKID MV2_COMM_WORLD_SIZE; do
    run 0 env "$variable=1" "$pooled" never && row "MPI started the process .$variable.$"
done
command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run)
run 0 "$pooled" never && lacks err "tarn's pools"
run 0 --pool=4095 "$pooled" never
run 0 env TARN_RUN_POOL=1048576 "$pooled" never # the shim without pools has none

# Limits count what the process has; a device that is full is no fuller for a pool.
command=("${with[@]}")
run 0 --limit 64M "$pooled" limit
says err 'GPU 0: 63.0 MiB refused to pool_probe: limit 64.0 MiB, in use 2.00 MiB'
run 0 env FAKE_DRIVER_TOTAL=$((9 << 20)) "$pooled" shortage
run 0 --limit 64M --group "pool.$$" "$pooled" limit
run 0 --limit 64M "$probe" threads
run 0 --limit 64M "$probe" neighbours
run 0 --limit 64M,1=32M "$probe" limited
run 0 --limit 64M "$probe" places
run 0 --limit 64M "$probe" beyond

# Threads, and calls of the driver that fail; nothing is lost.
run 0 "$pooled" threads && row '^  pool_probe +0 B '
run 0 "$pooled" refused
run 0 "$pooled" failures && row '^  pool_probe +0 B '

# Who asked for how much is as without pools; beside it one line for what these hold more than that, in which all adds up.
run 0 "$probe" kinds
row '^  probe +10.1 MiB +10.1 MiB +11  plain, pitched, stream-ordered, array$'
row "^  tarn's pools, beyond that +1.00 MiB"
row '^  all together +11.1 MiB '
run 0 "$probe" desks && row '^  probe +5.00 MiB +[0-9.]+ MiB +8,000  plain'
run 0 -o "$work/run.pickle" "$probe" kinds
run 0 --stacks -o "$work/run.pickle" "$probe" kinds
for pool in 16M ""; do # what a pool served was not returned to the driver
    command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run ${pool:+--pool=$pool} --limit 64M)
    run 0 -o "$work/storm.pickle" "$probe" threads
    command=("$tarn" report --text)
    run 0 "$work/storm.pickle"
    if [ "$pool" ]; then lacks out 'returned to the driver'; else says out 'returned to the driver'; fi
done
command=("${with[@]}")
run 0 --pool=64M "$probe" one && row "^  tarn's pools, beyond that +14.0 MiB" && lacks err 'nothing was pooled'

# The rest of the shim.
env "LD_LIBRARY_PATH=$folder" "$probe" bad >"$work/expected" || fail "the probe fails by itself"
run 0 "$probe" bad && { diff "$work/expected" "$work/out" >&2 || fail "codes differ"; }
run 0 "$probe" triples && says out 'hooked: some'
for name in prologues falls_through forks overtaken exits_busy; do run 0 "$probe" "$name"; done
run 0 "$probe" many 60
run 137 "$probe" killed

# Its tarn is nobody's: it reads no environment, says nothing, and no name of it can be seen.
run 0 --quiet env TARN_STATS=1 TARN_LOG=debug TARN_TRACE=on TARN_DRIVER=nothing TARN_ALLOC_CONF=nonsense TARN_DEBUG=all "$pooled" ids
silent err && silent out
nm -D --defined-only "$TARN_BUILD/run/pool/libcuda.so.1" | awk '{ print $3 }' | grep -vE '^(cu[A-Z]|tarn_run_(driver|slot|takes_over|has_taken_over)$)' >"$work/names" || true
[ ! -s "$work/names" ] || fail "names can be seen: $(head -3 "$work/names")"

# A random model with contents, and tarn in a program beside tarn in the shim.
"$CC" -O1 -g ${TARN_SANITIZE:+-fsanitize=$TARN_SANITIZE} -D_GNU_SOURCE "-I$TARN_SOURCE" "-I$TARN_SOURCE/src" \
    "$TARN_SOURCE/tests/run/pool_model.c" -o "$work/pool_model" -ldl -lpthread
command=("$tarn" sim --device-memory 1G -- "$tarn" run)
for seed in 1 2 3; do run 0 --pool "$work/pool_model" "$seed" && row "^  tarn's pools, beyond that"; done
run 0 --pool --limit 32M "$work/pool_model" 4
run 0 --pool=1G "$work/pool_model" 5
run 0 --pool env TARN_DRIVER=cuda "$TARN_BUILD/tarn" check
find "$work" -maxdepth 1 -name 'tarn-run-*' | grep -q . && fail "a folder was left"
exit 0
