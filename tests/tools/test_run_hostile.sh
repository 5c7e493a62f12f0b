#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run` where it is badly placed: under parents that leave signals ignored and standard streams closed, with programs that are not
# programs, that become others, that stay in the background or end in the middle of their threads' calls; on disks without room; in an
# environment that is full of other things; and one run within another.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_GROUP TARN_RUN_POOL
folder=$TARN_BUILD/tests/run
probe=$folder/probe
[ -x "$probe" ] || fail "no $probe"
export TMPDIR=$work TARN_LIVE=0
with=(env "LD_LIBRARY_PATH=$folder" "$tarn" run)
command=("${with[@]}")
name=hostile.$$
group=/dev/shm/tarn-group.$(id -u).$name
[ -w /dev/shm ] || group=/tmp/tarn-group.$(id -u).$name
background=()
at_exit()
{
    for process in "${background[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    rm -f "$group"
}
row() { grep -qE "$1" "$work/err" || fail "the summary has no line: $1"; }
left_over() { find "$work" -maxdepth 1 -name 'tarn-run-*' | grep -q .; }
cd "$work"

# Files that are not programs, and names that say little.
printf '#!/bin/sh\nexec "$@"\n' >script
printf '#!%s/nothing\n' "$work" >strange
run 126 ./script && says err './script: Permission denied'
chmod +x script strange
run 127 ./strange && says err './strange: No such file'
run 127 '' && says err 'No such file'
run 2 -- && says err 'no program was named'
run 127 -- --help && says err -- '--help: No such file'
run 7 ./script sh -c 'exit 7'
cp "$probe" relative
run 0 ./relative one && row '^  relative +0 B +13.0 MiB'
run 127 relative one && says err 'relative: No such file'
run 0 env "PATH=$work:$PATH" relative one && row '^  relative +0 B +13.0 MiB'
run 0 ./script sh -c "exec env sh -c 'exec ./relative one'" && row '^  relative +0 B +13.0 MiB' # the last of a chain
# same PROGRAM..: ends as it does by itself, with what it prints.
same()
{
    local alone=0
    env "LD_LIBRARY_PATH=$folder" "$@" >expected 2>/dev/null || alone=$?
    run "$alone" "$@"
    cmp -s expected out || fail "prints something else than without: $*"
}
same env -i "$probe" one # nothing in the environment: the loader does not come by
same env -i "LD_LIBRARY_PATH=$folder" "$probe" one
if [ "$(id -u)" -eq 0 ]; then # nor for one that becomes another user
    cp "$probe" privileged && chown 65534 privileged && chmod 4755 privileged && chmod 711 "$work"
    same ./privileged one
    # One that has become another user cannot write into the folder; its limit holds all the same.
    other=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    if "${other[@]}" test -x "$probe" 2>/dev/null; then # the build lies where others may look
        run 1 --limit 10M "${other[@]}" "$probe" one && says err 'limit 10.0 MiB'
        run 0 --limit 20M "${other[@]}" "$probe" one && says err 'no process used'
    fi
fi

# A parent that ignores the ends of its children: they are waited for all the same, and the program finds it as it was.
command=(timeout 20 env --ignore-signal=CHLD "${with[@]}")
run 3 sh -c 'exit 3'
run 0 grep SigIgn /proc/self/status && cp out ignored
env --ignore-signal=CHLD grep SigIgn /proc/self/status | cmp -s - ignored || fail "the program finds other signals ignored: $(cat ignored)"
command=("${with[@]}")

# Keys of the terminal: the program gets the signal once, from there; the summary is printed when it has ended, whatever it makes of it.
# at_terminal STATUS KEY PROGRAM..: what is said is in err.
at_terminal()
{
    /usr/bin/python3 - "$@" <<'END' >err || fail "at a terminal: $*"
import os, pty, select, sys
wanted, key, program = int(sys.argv[1]), sys.argv[2].encode().decode("unicode_escape").encode(), sys.argv[3:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(program[0], program)
said, pressed = b"", False
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    said += part
    if not pressed and b"\n" in said:
        os.write(terminal, key)
        pressed = True
status = os.WEXITSTATUS(os.waitpid(child, 0)[1])
print(said.decode().replace("\r", ""))
sys.exit(status != wanted)
END
}
at_terminal 130 '\x03' "${with[@]}" "$probe" hold 3 && says err 'without exit' && row '^  probe +3.00 MiB'
at_terminal 131 '\x1c' "${with[@]}" sh -c "ulimit -c 0; exec \"$probe\" hold 3" && says err 'without exit' && row '^  probe +3.00 MiB'
# shellcheck disable=SC2016 # the program is to expand it
at_terminal 2 '\x03' "${with[@]}" bash -c 'got=0; trap "((got++))" INT; echo ready; for _ in 1 2 3 4; do sleep 0.2; done; exit $((got + 1))'
says err 'no process used'

# Control characters of a command stay in its line.
run 0 "$probe" one "a
b$(printf '\t\033[31m')c"
row "^tarn run: process [0-9]+, $probe one a b  \[31mc\$"

# Standard streams that are closed: what is said goes nowhere, and not into a file that has one's number.
"${with[@]}" --quiet --group "$name" --limit 64M sh -c 'echo ready; exec sleep 60' >ready 2>/dev/null &
background+=($!)
keeper=$!
until [ -s ready ]; do sleep 0.05; done
head -c 8 "$group" >magic
"${with[@]}" --group "$name" "$probe" take 20 2>&- || fail "status $? without standard error"
"${with[@]}" --group "$name" "$probe" take 20 <&- >&- 2>&- || fail "status $? without standard streams"
head -c 8 "$group" | cmp -s - magic || fail "the group was written over"
run 0 --group "$name" "$probe" take 20
kill "$keeper"
wait "$keeper" || true
# shellcheck disable=SC2016 # the program is to expand it
"${with[@]}" --quiet sh -c '[ ! -e /proc/$$/fd/2 ]' 2>&- || fail "the program finds standard error open"
for closed in '>&-' '2>&-'; do
    status=0; eval "\"\$tarn\" run --help $closed" >/dev/null || status=$?
    [ "$closed" = '2>&-' ] || [ "$status" -eq 1 ] || fail "status $status where standard output is closed"
done

# A run within a run: the limit and the group stay, unless it has its own.
run 1 --quiet --limit 10M "$tarn" run --quiet "$probe" one && says err 'limit 10.0 MiB'
run 1 --quiet --limit 10M "$tarn" run --quiet --limit 5M "$probe" one && says err 'limit 5.00 MiB'
run 0 --quiet --limit 10M "$tarn" run --quiet --limit 20M "$probe" one
run 0 --quiet --limit 64M,MIG-a0a0=20M "$probe" one
run 1 --quiet --limit 64M,MIG-a0a0=5M "$probe" one && says err 'limit 5.00 MiB'

# A limit of a device that is not there is no limit, and that is said.
for missing in 7 GPU-dead MIG-a1a2; do
    run 0 --limit "$missing=2M" "$probe" one && says err "^  --limit: the process has no device $missing\$"
done
run 0 --limit 64M,1=32M,GPU-a1a1=31M "$probe" one && lacks err 'has no device'

# Nobody reads the summary: the files are there all the same, and nothing is left; the program finds the signal as it was.
(status=0; "${with[@]}" -o unread.pickle sh -c "sleep 0.5; exec \"$probe\" one" 2>&1 || status=$?; echo $status >status) | true
until [ -s status ]; do sleep 0.05; done
[ "$(cat status)" -eq 0 ] || fail "status $(cat status) where nobody reads"
[ -s unread.pickle ] || fail "no snapshot where nobody reads the summary"
left_over && fail "a folder was left where nobody reads"
run 141 sh -c 'kill -PIPE $$'

# A process that stays in the background is not said to have ended; its shim stays where it is.
mkfifo hold
cat >leave <<END
#!/bin/sh
"$probe" hold 5 <"$work/hold" >"$work/left" 2>/dev/null &
until [ -s "$work/left" ]; do sleep 0.05; done
END
chmod +x leave
exec 8<>hold
run 0 ./leave && row '^  probe +5.00 MiB' && says err 'the process runs on' && lacks err 'without exit'
background+=("$(cat left)")
left_over || fail "the folder of a process that lives is gone"
kill -KILL "$(cat left)"
exec 8>&-
rm -rf "$work"/tarn-run-*
# One that is dead and that nobody has waited for has ended.
cat >orphan.c <<'END'
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words)
{
    if (fork() == 0)
        return execv(words[1], words + 1);
    sleep(2); /* and never waits */
    return count > 9;
}
END
"$CC" orphan.c -o orphan
(ulimit -c 0; "${with[@]}" --summary summary ./orphan "$probe" killed) || fail "status $? of one that waits for nobody"
grep -q 'without exit' summary || fail "a process that was not waited for is said to live"
left_over && fail "the folder was left for a process that is dead"

# Threads that allocate while the process ends.
for options in '' '--limit 100M' '--stacks -o busy.pickle' '--pool'; do
    for _ in 1 2 3 4 5; do
        # shellcheck disable=SC2086
        run 0 $options "$probe" exits_busy && says err 'plain'
    done
done
"$tarn" report busy.pickle >/dev/null || fail "the snapshot of a process that ended in the middle cannot be read"

# Long names: of the file whose code allocates, the end counts.
deep=$work/$(printf 'd%.0s' $(seq 120))/$(printf 'e%.0s' $(seq 120))
mkdir -p "$deep"
cp "$probe" "$deep/first" && cp "$probe" "$deep/second"
run 0 sh -c "\"$deep/first\" one; \"$deep/second\" one" && row '^  first +0 B +13.0 MiB' && row '^  second +0 B +13.0 MiB'
run 0 -o deep.pickle "$deep/first" one
grep -qa '/first' deep.pickle || fail "the snapshot lacks the end of a long path"

# A disk without room, as files that may not grow: the program runs on, and what is missing is said.
# no_room KIB STATUS ARGUMENT..: no file of the run is larger.
no_room()
{
    local most=$1 wanted=$2 status=0
    shift 2
    (trap '' XFSZ; ulimit -f "$most"; "${with[@]}" "$@" 2>&1 >/dev/null | cat >err; exit "${PIPESTATUS[0]}") || status=$?
    [ "$status" -eq "$wanted" ] || fail "status $status, not $wanted, with $most KiB: $*"
}
shim=$(($(stat -c %s "$TARN_BUILD/run/libcuda.so.1") / 1024 + 1))
no_room 1 1 "$probe" one && says err 'the shim could not be put in place'
left_over && fail "a folder was left"
no_room "$shim" 0 "$probe" one && says err '1 process used the driver, and could not be recorded'
lacks err 'no process used'
no_room "$shim" 1 --limit 10M "$probe" one && says err 'limit 10.0 MiB' # which holds all the same
no_room 1000 1 -o small.pickle "$probe" one && says err 'no place' && lacks err 'allocated nothing'
[ ! -e small.pickle ] || fail "a snapshot of nothing"

# Events that found no room are missing in the snapshot, and are none at address 0.
(trap '' XFSZ; ulimit -S -f 1000; "${with[@]}" -o holes.pickle "$probe" recovers 2>err) || fail "status $?"
says err 'holes.pickle lacks 6 events, for which there was no place'
/usr/bin/python3 - holes.pickle <<'END' || fail "the snapshot has events that were not written down"
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
assert [segment["total_size"] for segment in snapshot["segments"]] == [7 << 20], snapshot["segments"]
assert [event["size"] for event in snapshot["device_traces"][0]] == [7 << 20] * 2, snapshot["device_traces"]
END

# A driver that does not bear a shim in front of it is left as it is; the other one has its own.
mkdir shy
cat >shy.c <<'END'
#define _GNU_SOURCE
#include <link.h>
#include <string.h>
#include <unistd.h>
int hipMalloc(void **memory, size_t size);
int hipMalloc(void **memory, size_t size)
{
    return memory && size ? 2 : 1;
}
static int is_shim(struct dl_phdr_info *info, size_t size, void *user)
{
    return size && !user && strstr(info->dlpi_name, "/tarn-run-");
}
__attribute__((constructor)) static void look(void)
{
    if (dl_iterate_phdr(is_shim, NULL))
        _exit(42);
}
END
cat >opens.c <<'END'
#include <dlfcn.h>
int main(void)
{
    return !dlopen("libamdhip64.so.6", RTLD_NOW);
}
END
"$CC" -shared -fPIC shy.c -o shy/libamdhip64.so.6 -Wl,-soname,libamdhip64.so.6
"$CC" opens.c -o opens -ldl
command=(env "LD_LIBRARY_PATH=$work/shy:$folder" "$tarn" run)
run 0 ./opens && says err 'libamdhip64.so.6 will not be seen'
run 0 "$probe" one && row '^  probe +0 B +13.0 MiB'
command=("${with[@]}")

# A signal that interrupts the call that gives a file room, as it does in memory, costs no process, record or stack.
cat >signals.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
int posix_fallocate(int file, off_t at, off_t size)
{
    static int calls;
    int (*real)(int, off_t, off_t) = dlsym(RTLD_NEXT, "posix_fallocate");
    return calls++ % 3 ? real(file, at, size) : EINTR;
}
END
"$CC" -shared -fPIC signals.c -o signals.so -ldl
run 0 -o whole.pickle env "LD_PRELOAD=$work/signals.so" "$probe" one && row '^  probe +0 B +13.0 MiB'
python3 - whole.pickle <<'END'
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
events = [event for device in snapshot["device_traces"] for event in device]
assert events and all(event["frames"] for event in events), events
END

# Files of -o and --summary that cannot be there are found before the program runs.
for option in -o --summary; do
    run 1 $option "$work/none/file" touch ran && says err 'none/file cannot be written: .*No such file'
    run 1 $option ready/file touch ran && says err 'ready/file cannot be written: .*Not a directory'
    [ ! -e ran ] || fail "the program ran though its $option cannot be written"
done

# A file that was asked for and not written fails the run, and an old one is not taken for it.
run 1 --quiet -o never.pickle true && says err 'never.pickle was not written: no process used the driver'
run 7 --quiet -o never.pickle sh -c 'exit 7' && says err 'never.pickle was not written'
grep -q older "$work/err" && fail "what is not there is called old"
echo old >never.pickle
run 1 -o never.pickle true && says err 'the file never.pickle is older than this run'
[ "$(cat never.pickle)" = old ] || fail "the old file is gone"
run 0 --quiet --summary summary "$probe" one && silent err
grep -q '^  probe' summary || fail "--quiet has left out the file of --summary"
run 127 --pool 64K "$probe" one && says err 'write --pool=64K$'
run 127 --pool=64K 64K && lacks err '--pool='

# A folder whose name the loader would cut in two or replace is not for the shim.
# shellcheck disable=SC2016 # as it stands
for strange_name in 'a:b' 'a;b' 'a$ORIGIN'; do
    mkdir -p "$work/$strange_name"
    run 1 --quiet --limit 10M env "TMPDIR=$work/$strange_name" "$tarn" run --quiet "$probe" one && says err 'limit 10.0 MiB'
    command=(env "TMPDIR=$work/$strange_name" "${with[@]}")
    run 0 "$probe" one && row '^  probe +0 B +13.0 MiB'
    command=("${with[@]}")
done
mkdir "$work/a b" && run 0 env "TMPDIR=$work/a b" "$tarn" run --quiet printenv LD_LIBRARY_PATH && says out "^$work/a b/"

# Other libraries in the loader's variables: those of the program stay, and what is not there is the loader's to say.
for variable in LD_PRELOAD LD_AUDIT; do
    command=(env "LD_LIBRARY_PATH=$folder" "$variable=$work/nothing.so" "$tarn" run --audit)
    run 0 "$probe" one && row '^  probe +0 B +13.0 MiB'
    # shellcheck disable=SC2016 # the program is to expand it
    run 0 sh -c "echo \$$variable" && says out "$work/nothing.so\$"
done
command=("${with[@]}")
