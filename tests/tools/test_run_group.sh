#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run --group`: processes that share one limit of 64 MiB, on the driver of tests/run. What a process held comes back when it is gone,
# however it went: by kill -9 in the middle of everything, with a child of fork() that lives on, by exec(); and no process waits for one that
# is stopped. Each is a fault that trackers of limiters have (HAMi#2500: locks of killed processes; HAMi#1181 and HAMi-core#200: slots of the
# dead, and 16 EiB free; HAMi-core#252, #259, #243 and HAMi#1662: starts in turn; HAMi-core#21: limits that cannot be changed; HAMi#1055, #320 and #1381: devices by
# their numbers).
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_GROUP
folder=$TARN_BUILD/tests/run
probe=$folder/probe
[ -x "$probe" ] || fail "no $probe"
export TMPDIR=$work TARN_LIVE=0
name=test.$$
group=/dev/shm/tarn-group.$(id -u).$name
[ -w /dev/shm ] || group=/tmp/tarn-group.$(id -u).$name
with=(env "LD_LIBRARY_PATH=$folder" "$tarn" run --quiet --group "$name")
started=()
at_exit()
{
    for process in "${started[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    rm -f "$group" "$group.kept"
}
command=("${with[@]}")
free_is() { run 0 "$probe" tell_free && says out "^$1$"; }
# begin FILE ARGUMENT..: a run in the background; the number of its process is in FILE, and it ends when FILE.in does.
begin()
{
    local file=$1
    shift
    mkfifo "$file.in"
    "${with[@]}" "$@" <"$file.in" >"$file" 2>"$file.err" &
    runner=$!
    started+=("$runner")
    exec {input}>"$file.in"
    for _ in $(seq 600); do [ -s "$file" ] && break; sleep 0.05; done
    [ -s "$file" ] || fail "no process: $(cat "$file.err")"
    process=$(cat "$file")
    started+=("$process")
}
end()
{
    exec {input}>&-
    wait "$1" 2>/dev/null || true
}

# The command line.
command=("$tarn" run)
for bad in '' a/b .x 'a b' "$(printf 'x%.0s' $(seq 64))"; do run 2 "--group=$bad" true && says err '--group wants'; done

# One limit for all, of which the first run says how much it is; and it is there as long as somebody is.
command=("${with[@]}")
begin "$work/keeper" --limit 64M "$probe" hold 1
keeper=$runner keeper_input=$input
[ "$(stat -c %a "$group")" = 600 ] || fail "others may write to the group"
free_is 63
run 0 "$probe" take 63
run 4 "$probe" take 64 && says err "64.0 MiB refused to probe: limit 64.0 MiB, in use 0 B of 1.00 MiB of group $name"
begin "$work/holder" "$probe" hold 40
free_is 23
run 4 -o "$work/refused.pickle" "$probe" take 24
/usr/bin/python3 - "$work/refused.pickle" <<'END' || fail "a refusal does not say what all of the group left"
import pickle, sys
said = [(event["size"], event["device_free"]) for event in pickle.load(open(sys.argv[1], "rb"))["device_traces"][0] if event["action"] == "oom"]
assert said == [(24 << 20, 23 << 20)], said
END
run 0 "$probe" tell_free 1 && says out '^64$'
run 0 env FAKE_DRIVER_SWAPPED=1 "$probe" tell_free 0 && says out '^64$' # a device is one by its UUID, whatever its number
run 0 env FAKE_DRIVER_SWAPPED=1 "$probe" tell_free 1 && says out '^23$'
run 4 "$tarn" run "$probe" take 24 # a run within the run stays in the group
command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run --group "$name")
run 0 "$probe" take 1 && says err "others of group $name, 2 processes  *41.0 MiB"
command=("${with[@]}")

# Killed: what it held comes back, to the first that wants it.
kill -KILL "$process"
run 0 "$probe" take 63
end "$runner"

# The same for one that runs already, and so takes nobody's place; and it sees that the limit changes.
# gives CODE: what its next request gives.
asked=0
gives()
{
    echo >&"$asker_input"
    asked=$((asked + 1))
    for _ in $(seq 600); do [ "$(grep -c gives "$work/asker")" -ge $asked ] && break; sleep 0.05; done
    [ "$(tail -1 "$work/asker")" = "gives $1" ] || fail "a process that runs: $(tail -1 "$work/asker"), not $1"
}
begin "$work/asker" "$probe" take_later 40
asker=$runner asker_input=$input
begin "$work/killed" "$probe" hold 40
gives 2
kill -KILL "$process"
wait "$runner" || true
gives 0
"${with[@]}" --limit 30M true
gives 2
"${with[@]}" --limit 64M true
gives 0
input=$asker_input
end "$asker"

# One that has said that it wants 40 MiB, and has not taken them yet: the others count them, so that all together never pass the limit. When it
# is killed, they count no more.
begin "$work/pending" "$probe" about_to_take 40
run 0 "$probe" take 23
run 4 "$probe" take 24
free_is 63 # it has nothing yet
kill -KILL "$process"
run 0 "$probe" take 63
end "$runner"

# Killed, with a child of fork() that lives on.
begin "$work/child" "$probe" leave_child 40
free_is 63
end "$runner"

# What an earlier program of the process held, which exec() has ended.
begin "$work/become" "$probe" become 40
free_is 63
end "$runner"

# One that is stopped stops nobody, and what it holds is still its own.
begin "$work/stopped" "$probe" hold 40
kill -STOP "$process"
free_is 23
run 4 "$probe" take 30
kill -CONT "$process"
end "$runner"

# One that has closed the group's file, and has another at its number: it takes nobody's place, and keeps its own.
begin "$work/stays" "$probe" hold 30
stays=$runner stays_input=$input
begin "$work/overtaken" "$probe" overtaken 10
free_is 23
run 4 "$probe" take 24
end "$runner"
input=$stays_input
end "$stays"
free_is 63

# Statics that free at exit, and double frees under a limit that is nearly used up.
run 0 "$probe" one
run 0 "$probe" free_twice 10 && says out '^63$'
free_is 63

# Many killed at any moment, in the middle of taking and giving back.
for i in $(seq 12); do
    begin "$work/churn$i" "$probe" churn 20
    churners[i]=$process
    runners[i]=$runner
    eval "exec $input>&-"
done
sleep 0.3
kill -KILL "${churners[@]}"
for i in $(seq 12); do wait "${runners[i]}" 2>/dev/null || true; done
free_is 63

# 300 at once, each of which wants 1 MiB and keeps it: all start, 63 have it, and nobody passes the limit.
"${with[@]}" "$probe" crowd 300 >"$work/crowd" 2>"$work/crowd.err" || fail "the crowd failed: $(cat "$work/crowd.err")"
grep -q '^63 of 300 have it$' "$work/crowd" || fail "the limit does not hold: $(cat "$work/crowd")"
free_is 63

# The limit changes for those that run; one that is below what is in use leaves nothing free, and not 16 EiB.
"${with[@]}" --limit 80M true
free_is 79
begin "$work/holder2" "$probe" hold 40
"${with[@]}" --limit 20M true
free_is 0
run 4 "$probe" take 1
end "$runner"
free_is 19

# More devices than the group has rows for: those beyond have the whole limit for each process, and not none.
"${with[@]}" --limit 64M true
for first in $(seq 10 2 28); do run 0 env "FAKE_DRIVER_UUID=$first" "$probe" take 1; done
for first in 24 40; do
    run 4 env "FAKE_DRIVER_UUID=$first" "$probe" take 65 && says err 'limit 64.0 MiB'
    run 0 env "FAKE_DRIVER_UUID=$first" "$probe" tell_free 0 && says out '^64$'
    run 0 env "FAKE_DRIVER_UUID=$first" "$probe" take 64
done
"${with[@]}" --limit 20M true

# Without its last process it is gone; and so is its limit.
input=$keeper_input
end "$keeper"
[ ! -e "$group" ] || fail "the group was left"
free_is 1024
[ ! -e "$group" ] || fail "the group was left"

# A file that is not a group, or not ours to take.
mkdir "$group" && run 1 true && says err "the group $name" && rmdir "$group"
ln -s /dev/null "$group" && run 1 true && says err "the group $name" && rm "$group"
head -c 600000 /dev/urandom >"$group" && run 1 true && says err 'another version' && rm "$group"
printf 'rtg' >"$group" && run 1 true && says err 'another version' && rm "$group"
kept=$group.kept
printf 'my notes' >"$kept" && ln "$kept" "$group"
run 1 true && says err 'has another name too; remove this one'
[ "$(cat "$kept")" = 'my notes' ] || fail "a file that has two names was written to"
rm "$group" "$kept"
head -c 600000 /dev/zero >"$group" && run 1 true && says err 'not tarn' && rm "$group"
if [ "$(id -u)" -eq 0 ]; then # a name that another user has taken
    setpriv --reuid 65534 --regid 65534 --clear-groups sh -c ": >'$group'"
    run 1 true && says err 'belongs to another user; choose another name'
    [ ! -s "$group" ] || fail "a file of another user was written to"
    rm "$group"
fi
# One that was cut goes on as far as it is there, and rubbish behind the mark of its version stops nobody, and lets nobody pass its limit.
printf 'rtgroup1' >"$group" && run 4 --limit 64M "$probe" take 65
[ ! -e "$group" ] || fail "the group was left"
{ printf 'rtgroup1' && head -c 600000 /dev/urandom; } >"$group"
run 4 --limit 64M "$probe" take 65
run 0 --limit 64M "$probe" take 64
: >"$group" && run 4 --limit 64M "$probe" take 65
rm -f "$group"
