#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The program where its output cannot be written: a full device, a file that may not grow past any of many sizes, a full file system, a
# reader that has gone, a file that must stay. It fails and says why; a file of its own is there whole or not at all, and what was there before
# stays.
# TARN_PROGRAM is the program, TARN_TEST_DATA the folder of generated snapshots; with TARN_FAILURES=all every KiB is tried.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
injections=0
snapshot=$data/small-4.pickle
log=$work/few.csv # what a plan is made for in no time
{
    echo 'Thread,Time,Action,Pointer,Size,Stream'
    for i in {1..8}; do echo "1,00:00:0$i,allocate,0x${i}0000000,${i}00000,0x0"; done
} >"$log"
instance=$work/instance.csv
printf '%s\n' id,lower,upper,size a,0,4,100 b,2,6,200 >"$instance"

# Commands that print, and those that write a file, each without what names it.
printing=(
    "--help" "--version" "help replay" "check" "check --json" "report $snapshot" "report --json $snapshot" "diff $snapshot $snapshot"
    "diff --json $snapshot $snapshot" "plan $log" "plan --json $log" "replay $snapshot" "replay --json $snapshot" "report -o - $snapshot"
)
writing=("report $snapshot -o" "plan $log -o" "plan $instance -o")

# fails REASON COMMAND...: of the last run.
fails()
{
    [ "$status" -eq 1 ] || fail "status $status, not 1, where $1: ${*:2}"
    grep -q "$1" "$work/err" || fail "does not say $1: ${*:2}"
    injections=$((injections + 1))
}

for line in "${printing[@]}"; do
    read -ra arguments <<<"$line"
    # shellcheck disable=SC2069 # the standard output alone
    status=0 && "$tarn" "${arguments[@]}" >/dev/full 2>"$work/err" </dev/null || status=$?
    fails 'No space left on device' "$line"

    # A reader that goes ends it quietly, as it ends others; where the signal is ignored, it is an error.
    status=0
    "$tarn" "${arguments[@]}" 2>"$work/err" </dev/null | true || status=$?
    case $status in
    0 | 141) injections=$((injections + 1)) ;;
    *) fail "status $status where the reader has gone: $line" ;;
    esac
    ( # The pipe has no reader from the start.
        trap '' PIPE
        exec 3> >(true)
        wait $! || true
        status=0 && "$tarn" "${arguments[@]}" >&3 2>"$work/err" </dev/null || status=$?
        fails 'Broken pipe' "$line"
    )
    injections=$((injections + 1))
done

# An owner of kept pools, whose socket has no place.
for place in "$work: something that is no socket" "$log: something that is no socket" "$work/none/socket: the socket cannot be made"; do
    status=0 && "$tarn" keep --socket "${place%%: *}" >"$work/out" 2>"$work/err" </dev/null || status=$?
    fails "$place" "keep --socket ${place%%: *}"
done

# Each size at which a file may end: in short some of them.
sizes()
{
    local size=$1 step=1
    [ "${TARN_FAILURES:-}" = all ] || step=$((size / 6 + 1))
    seq 0 "$step" $((size - 1))
}

# The limit is one of the host device's memory too, on which info, plan and replay run.
for line in "${printing[@]}"; do
    read -ra arguments <<<"$line"
    [[ $line =~ ^(info|plan|replay) ]] && continue
    "$tarn" "${arguments[@]}" >"$work/whole" </dev/null
    for kib in $(sizes $((($(stat -c %s "$work/whole") + 1023) / 1024))); do
        status=0 && text=$(ulimit -f "$kib" && exec "$tarn" "${arguments[@]}" 2>&1 >"$work/part" </dev/null) || status=$?
        echo "$text" >"$work/err"
        fails 'File too large' "$kib KiB: $line"
    done
done

for line in "${writing[@]}"; do
    read -ra arguments <<<"$line"
    mkdir "$work/files"
    "$tarn" "${arguments[@]}" "$work/files/made" >"$work/out" </dev/null
    size=$((($(stat -c %s "$work/files/made") + 1023) / 1024))
    [[ $line =~ ^plan ]] && size=0
    echo before >"$work/files/made"
    for kib in $(sizes "$size"); do
        status=0 && text=$(ulimit -f "$kib" && exec "$tarn" "${arguments[@]}" "$work/files/made" 2>&1 >/dev/null </dev/null) || status=$?
        echo "$text" >"$work/err"
        fails 'made.*File too large' "$kib KiB: $line"
        [ "$(cat "$work/files/made")" = before ] || fail "half a file, or none, after $kib KiB: $line"
        [ "$(ls -A "$work/files")" = made ] || fail "$(ls -A "$work/files") is left after $kib KiB: $line"
    done
    rm -r "$work/files"
    mkfifo "$work/pipe" # as a device, it must not give way to a file
    status=0 && "$tarn" "${arguments[@]}" "$work/pipe" >"$work/out" 2>"$work/err" </dev/null || status=$?
    fails 'pipe cannot be written: it exists and is not a regular file' "$line"
    [ -p "$work/pipe" ] || fail "the pipe is gone: $line"
    rm "$work/pipe"
    ln -s /proc/self/fd/1 "$work/stdout" # as /dev/stdout, which root could replace for all
    status=0 && "$tarn" "${arguments[@]}" "$work/stdout" >"$work/out" 2>"$work/err" </dev/null || status=$?
    fails 'stdout cannot be written: it exists and is not a regular file' "$line"
    [ -L "$work/stdout" ] || fail "the link is gone: $line"
    rm "$work/stdout"
    for begins in '\x80\x02}q' '\x1f\x8b\x08\x00' '\x28\xb5\x2f\xfd'; do # as where -o has lost its file, and takes that of a pattern
        printf '%b' "$begins" >"$work/recording"
        status=0 && "$tarn" "${arguments[@]}" "$work/recording" >"$work/out" 2>"$work/err" </dev/null || status=$?
        fails 'recording cannot be written: a recording is there' "$line"
        cmp -s "$work/recording" <(printf '%b' "$begins") || fail "the recording is gone: $line"
    done
done

# A file system that is full, where one can be made: each number of free pages.
at_exit() { ! mountpoint -q "$work/small" || umount "$work/small"; }
mkdir "$work/small"
if mount -t tmpfs -o size=256k none "$work/small" 2>"$work/shell"; then
    for line in "${printing[@]}" "${writing[@]}"; do
        read -ra arguments <<<"$line"
        prints=true && [[ $line =~ -o$ ]] && prints=false
        $prints || arguments+=("$work/small/made")
        for kib in $(sizes 256); do
            rm -f "$work/small/made" && head -c $((262144 - kib * 1024)) /dev/zero >"$work/small/rest"
            if $prints; then
                status=0 && "$tarn" "${arguments[@]}" >"$work/small/made" 2>"$work/err" </dev/null || status=$?
                [ $status -ne 0 ] || break # it fits
            else
                status=0 && "$tarn" "${arguments[@]}" >"$work/out" 2>"$work/err" </dev/null || status=$?
                [ $status -ne 0 ] || break
                [ "$(ls -A "$work/small")" = rest ] || fail "$(ls -A "$work/small") is left: $line"
            fi
            fails 'No space left on device' "$line"
        done
    done
fi
echo "the program's outputs: $injections injections"
