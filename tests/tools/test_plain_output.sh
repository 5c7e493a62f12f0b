#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Names that somebody chose for files, functions, libraries, commands and processes, with everything in them that a terminal acts upon: no
# command of the program prints it, to a file or to a terminal.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_GROUP TARN_RUN_POOL NO_COLOR
folder=$TARN_BUILD/tests/run
export TMPDIR=$work TARN_LIVE=0 TERM=xterm LC_ALL=C.UTF-8
evil=$(printf 'x\033]0;taken\007\033[2J\302\233H\342\200\256\177\rend')
cd "$work"

/usr/bin/python3 - "$evil" <<'END'
import pickle, sys
evil = sys.argv[1]
frames = [{"name": evil, "filename": "/" + evil, "line": 1}]
event = lambda action, address, size: {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames,
                                       "user_metadata": evil, "category": evil}
trace = [event("segment_alloc", 4096, 2 << 20), event("alloc", 4096, 1 << 20), event("alloc", 4096 + (1 << 20), 1 << 20),
         event("free_requested", 4096, 1 << 20), event("free_completed", 4096, 1 << 20)]
with open(evil + ".pickle", "wb") as file:
    pickle.dump({"segments": [], "device_traces": [trace], "allocator_settings": {}}, file)
with open(evil + ".broken", "wb") as file:
    file.write(b"\x80\x04]\x8c\x03\033[m")
END
cat >shown.py <<'END'
"""Runs a command at a terminal, or not, and wants nothing that a terminal acts upon, except for bold, red and plain type at one that is
not dumb."""
import os, pty, re, subprocess, sys, unicodedata
for terminal in ("", "dumb", "xterm"):
    if terminal:
        main, side = pty.openpty()
        ended = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=side, stderr=side, env={**os.environ, "TERM": terminal})
        os.close(side)
        said = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:
                break
            if not part:
                break
            said += part
        ended.wait()
        text = said.decode("utf-8", "replace").replace("\r\n", "\n")
        if terminal != "dumb":
            text = re.sub(r"\033\[(0|1|1;31)m|\r(\033\[K|(?=  [0-9]))", "", text)
    else:
        ended = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = ended.stdout.decode("utf-8", "replace")
    assert ended.returncode < 128, (ended.returncode, text[-500:])
    bad = [c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf")]
    assert not bad, (sys.argv[1:4], terminal, bad[:3], text[:300])
    assert "taken" in text, (sys.argv[1:4], text[:300])
END
shown() { /usr/bin/python3 shown.py "$@" || fail "$*"; }
for command in 'report --text' 'report --json' replay 'replay --least' 'plan --steps 10 -o out.plan'; do
    # shellcheck disable=SC2086 # words
    shown "$tarn" $command "$evil.pickle"
    # shellcheck disable=SC2086
    shown "$tarn" $command "$evil.broken"
    # shellcheck disable=SC2086
    shown "$tarn" $command "none$evil"
done
cp "$TARN_SOURCE/tests/tools/recordings/cnn-sgd.pickle.zst" "$evil.zst" # one that takes long enough to show how far it is
shown "$tarn" plan --seconds 1 -o out.plan "$evil.zst"
shown "$tarn" diff "$evil.pickle" "$evil.pickle"
shown "$tarn" report --text "$evil.pickle" "$evil.pickle"
shown "$tarn" "$evil"
shown "$tarn" report "--$evil"
shown "$tarn" top "$evil"
shown "$tarn" metrics --listen "$evil"
if [ -x "$folder/probe" ]; then
    cp "$folder/probe" "./$evil"
    export LD_LIBRARY_PATH=$folder
    shown "$tarn" run --limit 10M "./$evil" one
    shown "$tarn" run -o "out$evil" "./$evil" one
    shown "$tarn" run --driver "$evil" true
    shown "$tarn" run "./none$evil"
fi
