#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run` from outside, on a driver without a GPU (tests/run/fake_driver.c) and on the simulated one, under a program that knows nothing of
# it (tests/run/probe.c): what it writes down, what a limit refuses, and that what makes no sense, dies, forks or is many at once ends as it
# would without.
#
# Faults of other limiters that must not be ours: hooks of another prototype than was asked for (HAMi-core#57, #36 and PR#320: triples, newer);
# NULL outputs and what others allocated (#333, #321, #234: bad, places); memory of the host charged to a device, and threads without a
# context (#187, #169, #276: places); a code that does not mean "out of memory" (#55, HAMi#662: limited); more than 2^64 free (#200, HAMi#1181:
# limited); figures that leave out the context (HAMi#446, #409, #1196: residue); a limit below the context's use (HAMi#1370: residue_above); a
# limit above the device (HAMi-core PR#81: tell_free). Those of processes that share a limit are in test_run_group.sh.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG
folder=$TARN_BUILD/tests/run
probe=$folder/probe
[ -x "$probe" ] || fail "no $probe"
export TMPDIR=$work
with=(env "LD_LIBRARY_PATH=$folder" "$tarn" run)
left_over() { find "$work" -maxdepth 1 -name 'tarn-run-*' | grep -q .; }
# row FILE KIND..: the line of the probe in the summary has these columns.
row() { grep -qE "$1" "$work/err" || fail "the summary has no line: $1"; }

# The command line.
command=("$tarn")
run 0 run --help && says out 'Usage: tarn run' && silent err
run 2 run && says err 'no program was named'
for bad in 1 x '20G,' =20G x=20G 20G,y=1G GPU-=1G GPU-z=1G 1=; do run 2 run "--limit=$bad" true && says err '--limit wants'; done
run 2 run --stacks true && says err 'stacks is for'
run 1 run --driver "$work/nothing" true && says err 'nothing'
run 1 run --driver "$TARN_SOURCE/README.md" true && says err 'README.md'

# Without a driver a program finds none, as without `tarn run`; and its status is the command's.
if ! ldconfig -p | grep -q libcuda.so.1; then
    command=()
    run 3 "$probe" one && cp "$work/out" "$work/without"
    run 3 "$tarn" run "$probe" one
    cmp -s "$work/out" "$work/without" || fail "a missing driver looks different"
    ldconfig -p | grep libamdhip64 >"$work/hip" || says err 'no CUDA driver'
fi

# Without a driver no file is written, and the run fails where one was asked for. Files of text hide the machine's drivers.
mkdir "$work/no" && for name in libcuda.so.1 libamdhip64.so.{5,6,7}; do echo none >"$work/no/$name"; done
command=(env "LD_LIBRARY_PATH=$work/no" "$tarn" run)
run 0 true && says err 'no CUDA driver'
touch "$work/old.pickle"
run 1 -o "$work/old.pickle" true && says err 'old.pickle was not written: there is no driver'
says err 'old.pickle is older than this run'
run 5 --quiet --summary "$work/none" sh -c 'exit 5' && says err 'none was not written' && lacks err older

# The status and the signals of the program.
command=("${with[@]}")
run 7 -- sh -c 'exit 7'
run 127 "$work/nothing" && says err 'No such file'
run 126 "$work" && says err 'Permission denied'
run 143 sh -c 'kill -TERM $$'
run 0 --quiet true && silent err
run 0 --summary "$work/summary" true && silent err
grep -q 'no process used the driver' "$work/summary" || fail "no summary in its file"
run 0 --summary /dev/null true && silent err
run 1 --summary /dev/full true && says err '/dev/full could not be written: No space left'
run 1 --summary "$work/none/summary" true && says err 'none/summary cannot be written: .*No such file'
run 7 --summary /dev/full sh -c 'exit 7' && says err 'No space left' # the program's own status comes first
run 0 printenv LD_LIBRARY_PATH && says out "^$work/tarn-run-[^:]*:$folder$"
left_over && fail "a folder was left"
"${with[@]}" sh -c 'echo ready; exec sleep 60' >"$work/ready" 2>"$work/err" & # a signal for `tarn run` alone reaches the program
waiter=$!
until [ -s "$work/ready" ]; do sleep 0.05; done
kill -TERM "$waiter"
status=0; wait "$waiter" || status=$?
[ "$status" -eq 143 ] || fail "status $status after SIGTERM"

# What is written down.
run 0 "$probe" kinds
head -1 "$work/err" | grep -qE '^tarn run: at most 13.0 MiB of 1.00 GiB on GPU 1, 13.0 MiB of it by probe$' || fail "no verdict: $(head -1 "$work/err")"
row 'GPU 0, fake device 0, 1.00 GiB$'
row 'GPU 1, fake device 1, 1.00 GiB$'
row '^  probe +10.1 MiB +10.1 MiB +11  plain, pitched, stream-ordered, array$'
row '^  all together +10.1 MiB +10.1 MiB'
row '^  probe +11.0 MiB +13.0 MiB +5  stream-ordered, virtual$'
row '^  probe +4.00 MiB +4.00 MiB +3  managed$'
row '^  probe +0 B +8.00 MiB +2  graph node$'
row '^  probe +4.00 KiB +8.00 KiB +2  imported$'
row '^  probe +1.00 MiB +2.00 MiB +2  host$'
row '^  probe +4.00 KiB +8.00 KiB +2  registered host$'
run 0 "$probe" unmaps && row '^  probe +0 B +6.00 MiB +3  virtual$'

# What makes no sense has the same codes, and programs that look find what the driver has.
env LD_LIBRARY_PATH="$folder" "$probe" bad >"$work/expected" || fail "the probe fails by itself"
run 0 "$probe" bad
diff "$work/expected" "$work/out" >&2 || fail "codes differ"
row '^  all together +0 B' # what the driver refused is not held
run 0 --limit 100G "$probe" bad # as little under a limit, where each call is counted at once
row '^  all together +0 B'
run 0 "$probe" triples && says out 'hooked: some'
run 0 env FAKE_DRIVER_OLD=1 "$probe" triples && says out 'hooked: some' # the driver of CUDA 13.0
run 0 env FAKE_DRIVER_NEWER=1 "$probe" newer && says err 'newer than CUDA .* cuMemAlloc'
run 0 "$probe" prologues
run 0 "$probe" falls_through && says err 'no process used the driver' # which has not called cuInit()

# Threads count apart, and free what others have made.
run 0 "$probe" desks && row '^  probe +5.00 MiB +[0-9.]+ MiB +8,000  plain' && row '^  all together +5.00 MiB'

# Limits.
run 0 --limit 64M,1=32M "$probe" limited
says err 'tarn run: GPU 0: 25.0 MiB refused to probe: limit 64.0 MiB, in use 40.0 MiB: probe 40.0 MiB'
says err 'requests refused: 2, 25.0 MiB' && says err '^tarn run: at most .* on GPU 0, .* by probe; [0-9]* requests were refused$'
run 0 --limit 64M,GPU-a1a1=32M "$probe" limited
run 0 --limit 100G "$probe" tell_free && says out '^1024$' # a limit above the device changes nothing
run 0 --limit 64M "$probe" places && row '^  probe +240 MiB +240 MiB +6  host$'
run 0 --limit 64M "$probe" beyond && says err 'requests refused: 2'
run 0 --limit 64M "$probe" neighbours && says err 'all together  *0 B'
for _ in 1 2 3 4 5 6; do # a library has no more than all have
    run 0 --limit 64M "$probe" threads && says err 'all together  *0 B'
    awk '$1 == "probe" { library = $4 } $1 == "all" { exit !(library && library <= $5) }' "$work/err" || fail "$(cat "$work/err")"
done
run 1 --limit 2M "$probe" one && says err "requests refused: 1, 13.0 MiB"

# What NVML says that no call names: in the summary, and against a limit from the first allocation on.
touch "$work/nvml"
command=(env "FAKE_NVML=$work/nvml" "FAKE_NVML_USED=$((100 << 20))" "${with[@]}")
run 0 --limit 64M "$probe" residue && row "^  not seen: context, modules, driver's pools +20.0 MiB"
says err 'limit 64.0 MiB, in use 0 B; contexts and modules 20.0 MiB'
run 0 --limit 64M "$probe" taken_over && row "^  not seen: context, modules, driver's pools +20.0 MiB"
run 0 --limit 2M "$probe" residue_above
: >"$work/nvml"
run 0 "$probe" one && row '^  others and residue .* 100 MiB' # the process has ended, and what it had with it
command=("${with[@]}")

# Who calls by way of the CUDA runtime as a shared library is who allocates; and a library in between is not.
cat >"$work/runtime.c" <<'END_OF_PROGRAM'
#include <dlfcn.h>
#include <stddef.h>
int library_alloc(size_t size);
int library_alloc(size_t size)
{
    unsigned long long address;
    int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    volatile int code = alloc(&address, size);
    return code;
}
END_OF_PROGRAM
cat >"$work/caller.c" <<'END_OF_PROGRAM'
#include <dlfcn.h>
#include <stddef.h>
int library_alloc(size_t size);
int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(library, "cuCtxSetCurrent");
    return init(0) || retain(&context, 0) || set(context) || library_alloc(6 << 20);
}
END_OF_PROGRAM
for name in libcudart.so.99 libother.so.1; do
    "$CC" -shared -fPIC -g "$work/runtime.c" -o "$work/$name" -Wl,-soname,$name -ldl
    "$CC" -g "$work/caller.c" -o "$work/caller" "$work/$name" -Wl,-rpath,"$work" -ldl
    run 0 "$work/caller"
    run 0 --stacks -o "$work/stacks.pickle" "$work/caller"
    /usr/bin/python3 - "$work/stacks.pickle" "$name" <<'END' || fail "no stack of $name"
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
for frames in (snapshot["device_traces"][0][1]["frames"], snapshot["segments"][0]["frames"]):
    files = [frame["filename"].rsplit("/", 1)[1] for frame in frames]
    assert frames[0]["name"] == "library_alloc" and files[:2] == [sys.argv[2], "caller"] and "libc.so.6" in files, frames
END
    run 0 "$work/caller"
    if [ $name = libother.so.1 ]; then row '^  libother.so.1 +6.00 MiB'; else row '^  caller +6.00 MiB'; fi
done

# The CUDA runtime itself, static and shared, asks for the same and is answered the same; on this driver it gives up soon.
cuda=${CUDA_HOME:-/usr/local/cuda}
header=$cuda/include/cudaTypedefs.h
if [ -f "$header" ] && [ "$(awk '$2 == "CUDA_VERSION" { print $3; exit }' "$cuda/include/cuda.h")" -le 13050 ]; then
    awk -f "$TARN_SOURCE/tests/run/triples.awk" "$header" | sort >"$work/triples"
    sort "$TARN_SOURCE/tests/run/triples.h" | comm -13 - "$work/triples" >"$work/out"
    silent out # the list of the tests has all that this toolkit has
fi
if [ -f "$cuda/include/cuda_runtime_api.h" ] && [ -z "${TARN_SANITIZE:-}" ]; then
    cat >"$work/runtime_program.c" <<'END_OF_PROGRAM'
#include <cuda_runtime_api.h>
#include <stdio.h>
int main(void)
{
    int count = -1;
    void *memory;
    size_t free_bytes, total;
    printf("%d %d\n", cudaGetDeviceCount(&count), count);
    printf("%d\n", cudaMalloc(&memory, 1 << 20));
    printf("%d\n", cudaMemGetInfo(&free_bytes, &total));
    return 0;
}
END_OF_PROGRAM
    for folder_of in "$cuda"/lib64 "$cuda"/lib; do
        [ -f "$folder_of/libcudart_static.a" ] || continue
        "$CC" -I"$cuda/include" "$work/runtime_program.c" -o "$work/static" "$folder_of/libcudart_static.a" -ldl -lrt -lpthread
        "$CC" -I"$cuda/include" "$work/runtime_program.c" -o "$work/shared" -L"$folder_of" -lcudart -Wl,-rpath,"$folder_of"
        for name in static shared; do
            env "LD_LIBRARY_PATH=$folder" "FAKE_DRIVER_LOG=$work/log.$name" "$work/$name" >"$work/expected"
            run 0 env "FAKE_DRIVER_LOG=$work/log.$name.run" "$work/$name"
            cmp -s "$work/expected" "$work/out" || fail "the CUDA runtime ($name) ends otherwise"
            cmp -s "$work/log.$name" "$work/log.$name.run" || fail "the CUDA runtime ($name) asks otherwise"
            [ "$(wc -l <"$work/log.$name")" -gt 100 ] || fail "the CUDA runtime ($name) asked for little"
        done
        break
    done
fi

# Processes.
run 0 "$probe" forks && row '^  probe +11.0 MiB' && row '^  probe +3.00 MiB'
[ "$(grep -c '^tarn run: process' "$work/err")" -eq 2 ] || fail "not two processes"
run 137 "$probe" killed && says err 'without exit' && row '^  probe +9.00 MiB'
run 0 "$probe" one && row '^  probe +(13.0 MiB|0 B) +13.0 MiB'
run 0 "$probe" many 300 && says err '^and 292 more processes$' # none waits for another
run 0 --limit 64M "$probe" many 300 && says err '^and 292 more processes$'
run 0 "$tarn" run "$probe" one # one within the other
left_over && fail "a folder was left"

# Programs that one process is in turn, by exec(): a file for each, and only the last one holds something.
run 0 -o "$work/turn.pickle" "$probe" successors 3
[ "$(find "$work" -name 'turn.pickle*' | wc -l)" -eq 4 ] || fail "not a snapshot per program: $(ls "$work"/turn.pickle*)"
[ "$(grep -c 'became another program by exec' "$work/err")" -eq 3 ] || fail "the summary does not say which programs were followed by others"

# From outside, while it runs: `tarn top`, one page per process that goes with it; and metrics, of all or one file per process.
# waits_begin ARGUMENT..: `tarn run` with the probe, which waits; its number is $holder.
waits_begin()
{
    mkfifo "$work/hold"
    "${with[@]}" "$@" "$probe" waits <"$work/hold" >"$work/holder" 2>"$work/run_err" &
    waiter=$!
    exec 9>"$work/hold"
    until [ -s "$work/holder" ]; do sleep 0.05; done
    holder=$(cat "$work/holder")
}
waits_end()
{
    exec 9>&-
    status=0; wait "$waiter" || status=$?
    rm "$work/hold" "$work/holder"
    [ "$status" -eq 0 ] || fail "status $status: $(cat "$work/run_err")"
}
mkdir "$work/pages"
export TARN_LIVE_DIRECTORY=$work/pages
with=(env "LD_LIBRARY_PATH=$folder" "TARN_METRICS=$work/of_%p.prom" TARN_METRICS_INTERVAL=1 "$tarn" run)
waits_begin --limit 64M
until "$tarn" top --once "$holder" >"$work/top" 2>/dev/null && grep -q 13.0 "$work/top"; do sleep 0.05; done
grep -qE '^ *probe +0 +13.0 MiB +13.0 MiB +1$' "$work/top" || fail "tarn top does not say who holds it: $(cat "$work/top")"
grep -qE '^ *probe +1 +5.00 MiB' "$work/top" || fail "tarn top lacks the other device"
grep -q 'limit 64.0 MiB' "$work/top" || fail "tarn top does not say the limit"
# A reader passes over a page that is not whole for 100 ms: its writer may be waiting for a processor meanwhile.
for _ in {1..50}; do "$tarn" top --json "$holder" >"$work/top.json" && break; done
/usr/bin/python3 -c 'import json, sys; it = json.load(sys.stdin); assert it["libraries"][0]["held"] == 13 << 20 and it["devices"][0]["stats"]["reserved_bytes"]["all"]["current"] == 13 << 20, it' <"$work/top.json"
for _ in {1..50}; do "$tarn" metrics >"$work/metrics" && ! grep -q '^tarn_exporter_processes 0' "$work/metrics" && break; done
grep -q 'tarn_library_held_bytes{.*library="probe"} 13631488' "$work/metrics" || fail "tarn metrics does not have it: $(cat "$work/metrics")"
until [ -s "$work/of_$holder.prom" ]; do sleep 0.05; done
waits_end
find "$work/pages" -name 'tarn-live.*' | grep -q . && fail "a page was left"
grep -q '^tarn_library_allocations_total{.*library="probe"} 1$' "$work/of_$holder.prom" || fail "no metrics of the process"
/usr/bin/python3 -c 'import sys; from prometheus_client.parser import text_string_to_metric_families as parse; assert len(list(parse(open(sys.argv[1]).read()))) > 10' "$work/of_$holder.prom"
with=(env "LD_LIBRARY_PATH=$folder" "$tarn" run)
mkfifo "$work/hold"
"${with[@]}" --quiet "$probe" successors 2 <"$work/hold" >"$work/holder" &
waiter=$!
exec 9>"$work/hold"
until [ -s "$work/holder" ]; do sleep 0.05; done
until "$tarn" top --once >"$work/top" 2>/dev/null && grep -q '10.0 MiB' "$work/top"; do sleep 0.05; done
grep -q '^1 process has 10.0 MiB' "$work/top" || fail "tarn top counts what exec() has ended: $(cat "$work/top")"
exec 9>&-
wait "$waiter" || fail "the last of the programs failed"
rm "$work/hold" "$work/holder"
command=(env "TARN_METRICS=$work/all.prom" "${with[@]}")
run 0 "$probe" forks
[ "$(grep -c '^tarn_reserved_peak_bytes' "$work/all.prom")" -eq 2 ] || fail "not one line per process"
# shellcheck disable=SC2016 # the program is to expand it
run 0 sh -c '[ -z "$TARN_METRICS" ]' # the run writes it, the program does not
command=(env "TARN_METRICS=$work/%x" "${with[@]}") && run 2 true && says err 'TARN_METRICS'
command=(env TARN_METRICS_INTERVAL=0 "${with[@]}") && run 2 true && says err 'TARN_METRICS_INTERVAL'
command=("${with[@]}")

# Snapshots.
run 0 -o "$work/run.pickle" "$probe" kinds
[ "$(stat -c %a "$work/run.pickle")" = 600 ] || fail "others may read the snapshot"
run 0 -o "$work/streams.pickle" "$probe" streams
/usr/bin/python3 - "$work/streams.pickle" "$(cat "$work/out")" <<'END' || fail "the snapshot does not say which stream, or how long"
import pickle, sys
events = pickle.load(open(sys.argv[1], "rb"))["device_traces"][1]
assert {event["stream"] for event in events} == {int(sys.argv[2])} and {event["user_metadata"] for event in events} == {"stream-ordered"}, events
times = {event["action"]: event["time_us"] for event in reversed(events) if event["size"] == 1 << 20}
assert 30000 <= times["free_completed"] - times["alloc"] < 10000000, times
END
run 0 --stacks -o "$work/overtaken.pickle" "$probe" overtaken # its files are not the shim's
[ "$(stat -c %s "$work/overtaken.pickle")" -gt 3000000 ] || fail "the log ended early: $(stat -c %s "$work/overtaken.pickle")"
lacks err 'lacks '
command=("$tarn")
run 0 report --json "$work/run.pickle"
run 0 report "$work/run.pickle" && says out 'plain' && says out 'device 1'

# The simulated driver, which has less than half of what is hooked: what it lacks must be missing as it was.
command=(env -u LD_LIBRARY_PATH "$tarn" sim --device-memory 1G -- "$tarn" run)
cat >"$work/program.c" <<'END_OF_PROGRAM'
#include <dlfcn.h>
#include <string.h>
int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*alloc)(unsigned long long *, size_t);
    unsigned long long address;
    void *context;
    if (!library || dlsym(library, "cuArrayDestroy"))
        return 1;
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    return init(0) || retain(&context, 0) || set(context) || alloc(&address, 5 << 20);
}
END_OF_PROGRAM
"$CC" ${TARN_SANITIZE:+-fsanitize=$TARN_SANITIZE} "$work/program.c" -o "$work/program" -ldl
run 0 "$work/program" && row '^  program +5.00 MiB'
# Threads that are given each other's addresses at once: no event comes before another that it follows. A limit's refusals are there too.
cat >"$work/churn.c" <<'END_OF_PROGRAM'
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
static int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*alloc)(unsigned long long *, size_t), (*give)(unsigned long long);
static void *context;
static void *churn(void *argument)
{
    unsigned long long blocks[64] = {0};
    unsigned seed = (unsigned)(size_t)argument;
    set(context);
    for (int i = 0; i < 6000; i++) {
        int k = rand_r(&seed) % 64;
        if (blocks[k]) {
            give(blocks[k]);
            blocks[k] = 0;
        } else if (alloc(&blocks[k], (size_t)(1 + rand_r(&seed) % 100) * 4096)) {
            blocks[k] = 0;
        }
    }
    for (int k = 0; k < 64; k++)
        if (blocks[k])
            give(blocks[k]);
    return NULL;
}
int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    pthread_t threads[4];
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    *(void **)&give = dlsym(library, "cuMemFree_v2");
    unsigned long long huge = 0;
    if (init(0) || retain(&context, 0) || set(context) || !alloc(&huge, (size_t)1 << 60) || give(12345) == 0)
        return 1;
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
END_OF_PROGRAM
"$CC" ${TARN_SANITIZE:+-fsanitize=$TARN_SANITIZE} "$work/churn.c" -o "$work/churn" -ldl -lpthread
for limit in none 20M; do
    command=(env -u LD_LIBRARY_PATH "$tarn" sim --device-memory 1G -- "$tarn" run)
    [ $limit = none ] || command+=("--limit=$limit")
    run 0 -o "$work/churn.pickle" "$work/churn"
    /usr/bin/python3 - "$work/churn.pickle" $limit <<'END' || fail "events are out of order, or missing: limit $limit"
import pickle, sys
snapshot, live, peak, sum_, refused = pickle.load(open(sys.argv[1], "rb")), {}, 0, 0, 0
for event in snapshot["device_traces"][0]:
    if event["action"] == "alloc":
        assert event["addr"] not in live, event
        live[event["addr"]] = event["size"]
        sum_ += event["size"]
        peak = max(peak, sum_)
    elif event["action"] == "free_requested":
        assert live.pop(event["addr"]) == event["size"], event
        sum_ -= event["size"]
    elif event["action"] == "oom":
        refused += 1
        assert event["device_free"] < event["size"] and "addr" not in event, event
assert not live and snapshot["segments"] == [] and (peak <= 20 << 20) == (sys.argv[2] == "20M"), peak
assert (refused > 1) == (sys.argv[2] == "20M"), refused
END
    [ $limit = none ] || { says err 'requests refused: '; }
    command=("$tarn")
    run 0 replay --json --device-memory 1G "$work/churn.pickle" && json 'a[0]["lost_events"] == a[0]["trims"] == 0 and a[0]["threads"] >= 4'
    run 0 report --text --no-what-if "$work/churn.pickle" && says out 'recorded by tarn run;' && lacks out 'empty_cache' && lacks out 'PYTORCH'
done
command=(env -u LD_LIBRARY_PATH "$tarn" sim --device-memory 1G -- "$tarn" run)
run 0 --pool "$work/churn" && lacks err 'EiB' && lacks err 'refused' # the driver's refusal, since there is no limit
run 0 env TARN_DRIVER=cuda "$TARN_BUILD/tarn" check # tarn itself opens the driver by name, which is the shim
