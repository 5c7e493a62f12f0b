#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The program from outside: `tarn top` beside processes that publish, which are replays: a replay runs in a process of its own, with
# tarn in it as in any other. TARN_PROGRAM is the program.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
command=() # each run names it
publishers=()
end_publishers()
{
    for publisher in "${publishers[@]}"; do
        # The replay itself is a child of the program.
        pkill -P "$publisher" 2>/dev/null || true
        kill "$publisher" 2>/dev/null || true
        wait "$publisher" 2>/dev/null || true
    done
    publishers=()
}
at_exit() { end_publishers; }

unset TARN_DRIVER TARN_LIVE TARN_LIVE_NAME XDG_RUNTIME_DIR
export TARN_LIVE_DIRECTORY=$work/pages
mkdir "$work/pages"
here=(--directory "$work/pages") # a list without it has the pages of other tests too

# publish NAME: starts a process that publishes until it is ended, and waits until its page shows memory; `pid` is its number.
publish()
{
    local trace=${TARN_TRACES%%:*}/generate.pickle.zst before
    before=$("$tarn" top --json --directory "$work/pages" | grep -c process || true)
    TARN_LIVE=1 TARN_LIVE_INTERVAL=50 TARN_LIVE_NAME=$1 "$tarn" replay --repeat 10000 "$trace" >/dev/null 2>&1 &
    publishers+=($!)
    for _ in $(seq 1200); do # a minute: a busy machine starts it late
        [ "$("$tarn" top --json --directory "$work/pages" | grep -c process)" -le "$before" ] || break
        sleep 0.05
    done
    pid=$(pgrep -P "${publishers[-1]}" | head -1)
    for _ in $(seq 100); do
        "$tarn" top --interval 0.1 "$pid" 2>/dev/null | grep -c '^POOL ' >/dev/null && break
    done
}

# list ARGUMENT...: all processes; again where one was writing its page, which takes long on a busy machine.
list()
{
    for _ in $(seq 100); do
        run 0 "$tarn" top "${here[@]}" "$@"
        grep -q ' more is writing' "$work/out" || return 0
    done
    fail "a process writes without an end"
}

# The command line.
run 0 "$tarn" --help && says out '  top  '
run 0 "$tarn" top --help && says out 'Usage: tarn top' && silent err
run 0 "$tarn" help top && says out '--directory DIR'
for bad in 0 0.05 x -1 4000 ''; do run 2 "$tarn" top "--interval=$bad" && says err '--interval wants'; done
for bad in -1 64 x ''; do run 2 "$tarn" top "--device=$bad" && says err '--device wants'; done
for bad in x '' Reserved; do run 2 "$tarn" top "--sort=$bad" && says err '--sort wants'; done
run 2 "$tarn" top --directory "$work/none" && says err '--directory wants a folder that is there'
for more in "" --json --once; do run 2 "$tarn" top --device 1 ${more:+"$more"} && says err '--device is a number of PROCESS'; done
run 2 "$tarn" top a b && says err 'not "b" as well'
run 2 "$tarn" top --nonsense && says err 'no option --nonsense'

# Nobody publishes.
run 1 "$tarn" top --directory "$work/pages" && says err 'no process publishes; start one' && silent out
run 1 "$tarn" top --json --directory "$work/pages" && says err 'no process publishes' && says out '^\[\]$'
run 1 "$tarn" top $$ && says err 'does not publish' && says err 'TARN_LIVE=1' && says err '(bash)'
run 1 "$tarn" top 2147483646 && says err 'there is no process 2147483646'
run 1 "$tarn" top nobody && says err 'no process publishes as "nobody"'

# One does.
publish trainer
list && says out "^PROCESS " && says out "$pid  trainer" && silent err
head -1 "$work/out" | grep -qE '^1 process has [0-9.]+ [KMG]iB on 1 device; it is [0-9.]+ % full$' || fail "no verdict: $(head -1 "$work/out")"

# It stops while it writes, which the number behind the head of its page says: it is not counted, and that is said.
kill -STOP "$pid"
python3 - "$work/pages"/* "$tarn" <<'END' || fail "a process that is writing is not told apart"
import os, subprocess, sys
*pages, tarn = sys.argv[1:]
os.chmod(pages[0], 0o600)
with open(pages[0], "r+b") as page:
    page.seek(144)
    sequence = page.read(8)
    page.seek(144)
    page.write(bytes([sequence[0] | 1]) + sequence[1:])
    page.flush()
    listed = subprocess.run([tarn, "top", "--directory", pages[0].rsplit("/", 1)[0]], check=True, capture_output=True, text=True).stdout
    page.seek(144)
    page.write(sequence)
assert listed.splitlines()[0] == "0 processes have 0 B on 0 devices; 1 more is writing", listed
END
kill -CONT "$pid"
for process in trainer "$pid"; do
    run 0 "$tarn" top --interval 0.2 "$process" && says out "^trainer (process $pid)" && says out '^trainer has [0-9.]* [KMG]iB of the .* of device 0, .* in use; ' && says out '^Device 0 ' && silent err
    says out '^POOL ' && says out '^default ' && says out '^STREAM ' && says out 'allocations/s' && says out 'longest piece'
done
run 0 "$tarn" top --device 0 --interval 0.2 trainer && says out '^Device 0 '
run 1 "$tarn" top --device 7 trainer && says err 'no device 7'
run 0 "$tarn" top --json --interval 0.3 trainer && silent err
python3 - "$work/out" "$pid" <<'END' || fail "the JSON is not as documented"
import json, sys
top = json.load(open(sys.argv[1]))
assert top["process"] == int(sys.argv[2]) and top["name"] == "trainer" and top["driver"] == "host"
device, = top["devices"]
assert device["stats"]["reserved_bytes"]["all"]["current"] > 0 and device["rates"]["allocations"] > 1000
assert sum(pool["reserved"] for pool in top["pools"]) > 0 and top["streams"] and top["handles"] == []
assert top["left_out"] == {"pools": 0, "streams": 0, "handles": 0, "libraries": 0, "graphs": 0}
END
for key in reserved allocated peak rate name process age; do list "--sort=$key" && says out 'trainer'; done
says out '^DEVICE ' && says out '^HOST-0 ' && says out ' % '

# A list that is printed once has rates where they were asked for: it takes a second look, an interval later.
rate='trainer.*iB  *[0-9][0-9]*,[0-9,]* '
list && lacks out "$rate"
list --sort rate --interval 0.6 && says out "$rate"
before=$EPOCHREALTIME
list --once --interval 2 && says out "$rate"
[ $((${EPOCHREALTIME/[.,]/} - ${before/[.,]/})) -ge 2000000 ] || fail "it does not wait for its interval"
run 0 "$tarn" top "${here[@]}" --json
python3 -c 'import json, sys
assert [entry["name"] for entry in json.load(open(sys.argv[1]))] == ["trainer"]' "$work/out" || fail "the list's JSON"

# Two of one name, and one that is killed.
first=$pid
publish trainer
[ "$pid" != "$first" ] || fail "no second process"
run 1 "$tarn" top trainer && says err "2 processes publish as trainer; name one by its number:.* $first" && says err " $pid"
run 0 "$tarn" top --interval 0.1 "$first"
kill -KILL "$pid"
for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
run 1 "$tarn" top "$pid" && says err "there is no process $pid"
run 0 "$tarn" top trainer
[ "$(find "$work/pages" -type f | wc -l)" -eq 1 ] || fail "the page of the killed process is still there"

# On a terminal: a screen that is refreshed, takes a new size, and is left by q, or when the process ends.
python3 - "$tarn" "$first" <<'END' || fail "the screen is not as documented"
import fcntl, os, pty, re, select, signal, struct, sys, termios, time

tarn, process = sys.argv[1:]

def watch(act, *arguments):
    """Runs `tarn top` on a terminal of 80 x 24; act(frames, file, child) is called after each piece of output."""
    child, file = pty.fork()
    if child == 0:
        os.environ["LC_ALL"] = "C.UTF-8"
        os.execv(tarn, [tarn, "top", "--interval", "0.1", *arguments])
    fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    out, end = b"", time.time() + 60
    while time.time() < end:
        if not select.select([file], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(file, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
        act(out.split(b"\x1b[H")[1:], file, child)
    else:
        sys.exit("%s: it does not end; so far %r; the last frames: %r" % (act.__name__, seen, out[-3000:]))
    assert os.waitpid(child, 0)[1] == 0
    return out

seen = {}

def resize_and_quit(frames, file, child):
    if len(frames) > 3 and "resized" not in seen:
        seen["resized"] = len(frames)
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
        os.kill(child, signal.SIGWINCH)
    if "resized" in seen and len(frames) > seen["resized"] + 3 and "quit" not in seen:
        seen["quit"] = True
        os.write(file, b"q")

out = watch(resize_and_quit, process)
frames = out.split(b"\x1b[H")[1:]
assert out.startswith(b"\x1b[?1049h") and out.endswith(b"\x1b[?1049l"), out[-200:]
assert "█".encode() in frames[2], frames[2]
assert frames[2].count(b"\n") <= 23 and frames[-1].count(b"\n") <= 9, frames[-1]
plain = re.sub(r"\033\[[0-9;?]*[A-Za-z]|\r", "", frames[-2].decode()) # a longer last line would scroll the first one away
assert "more" in plain and max(map(len, plain.split("\n"))) <= 40, plain

def end_the_process(frames, file, child):
    if len(frames) > 3 and "killed" not in seen:
        seen["killed"] = True
        os.kill(int(process), signal.SIGKILL)

def order_and_quit(frames, file, child):
    """All processes: with the second look there are rates and a history."""
    if len(frames) > 3 and "ordered" not in seen:
        seen["ordered"] = len(frames)
        os.write(file, b"n")
    if "ordered" in seen and len(frames) > seen["ordered"] + 3 and "left" not in seen:
        seen["left"] = True
        os.write(file, b"q")

out = watch(order_and_quit, "--directory", os.environ["TARN_LIVE_DIRECTORY"])
frames = out.split(b"\x1b[H")[1:]
assert out.endswith(b"\x1b[?1049l") and b"trainer" in frames[-1] and b"n name" in frames[-1], frames[-1]
assert any("█".encode() in frame for frame in frames[1:]), frames[-1]

out = watch(end_the_process, process)
after = out.split(b"\x1b[?1049l")[1]
assert b"has ended; this was its last reading" in after and b"Device 0" in after, after
END
run 1 "$tarn" top "${here[@]}" && says err 'no process publishes'

# Another user's: said to be so.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    publish mine
    chmod 755 "$work"
    as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    if "${as_nobody[@]}" test -x "$tarn"; then
        run 1 "${as_nobody[@]}" "$tarn" top "$pid" && says err 'belongs to root: only that user and root'
        run 1 "${as_nobody[@]}" "$tarn" top "${here[@]}" && says out '1 of other users'
    fi
fi
