#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Pages of `tarn report` for files of every kind, and what it says of many of their moments: that each comes to its end, whole. What a page
# shows is tested in a browser, by test_report_page.sh, though not under a sanitizer, which sees nothing of a browser.
# TARN_PROGRAM is the program, TARN_TEST_DATA the folder of generated snapshots, TARN_SOURCE the source tree.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"

# page FILE...: the page of these files, and a copy of what it holds for the last file.
page()
{
    run 0 report -o "$work/page.html" "$@" && silent err
    tail -c 8 "$work/page.html" | grep -q '</html>' || fail "the page has no end: $*"
}

# Texts that would be part of the page, and a stack that is deeper than any.
python3 - "$work" <<'END'
import pickle, sys
evil = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>"
def save(name, *events):
    with open(f"{sys.argv[1]}/{name}.pickle", "wb") as out:
        pickle.dump({"segments": [], "device_traces": [list(events)]}, out, 4)
def event(at, text, frames):
    return {"action": "alloc", "addr": at << 20, "size": 4096, "stream": 0, "time_us": at, "user_metadata": text, "frames": frames}
save("hostile", event(1, evil, [{"name": evil, "filename": "/a/" + evil, "line": 3}]), event(2, "\ud800\x00</", []), event(3, "x" * 100000, []))
save("deep", event(1, "", [{"name": "again", "filename": "/srv/again.py", "line": i + 1} for i in range(20000)]))
END
page "$work/hostile.pickle"
lacks page.html '<script>alert' && lacks page.html '<img src'
page "$work/deep.pickle"

for file in "$data"/*.pickle; do page --no-what-if "$file"; done
for file in "$TARN_SOURCE"/tests/tools/recordings/*.zst; do page --no-what-if --category optimizer=adam "$file"; done
page --least "$data/small-4.pickle"
page --device 0 "$data/tarn.pickle" "$data/oom.pickle"
page --device 0 "$data"/{small-4,tarn,small-5}.pickle
for way in '--at oom' '--at end --by call_site --depth 5' '--fold train --top 3' '--by module,pool,thread,stream,tag_first_part'; do
    # shellcheck disable=SC2086
    page --no-what-if $way "$data/tarn.pickle"
done

# Where the project has a home on the web, each page leads to it; without one it has the name alone.
echo 'var d3;' >"$work/d3.js"
joined() # HOME: the foot of a page
{
    cmake -DPAGES="$TARN_SOURCE/tools/tarn/analysis/page" -DLIBRARY="$work/d3.js" -DVERSION=1.2.3 -DHOME="$1" -DOUTPUT="$work/joined.c" \
        -P "$TARN_SOURCE/tools/join-page.cmake"
    grep -o '<span id="maker">.*</span>' "$work/joined.c.html"
}
[ "$(joined https://tarn.example/)" = '<span id="maker"><a href="https://tarn.example/">tarn</a> 1.2.3</span>' ] || fail "no way home: $(joined https://tarn.example/)"
[ "$(joined '')" = '<span id="maker">tarn 1.2.3</span>' ] || fail "a home that is not there: $(joined '')"

# The command at the foot: what made the page, which a reader can run beside the files. It names no folder, unless files differ in nothing else.
foot() # COMMAND OPTION...: the page of "tarn report OPTION..." names this command
{
    local wanted=$1 found
    shift
    "${command[@]}" report "$@" <"$data/well.pickle" || fail "no page of: $*"
    found=$(grep -ao '<code id="made">.*</code>' "$work/page.html")
    [ "$found" = "<code id=\"made\">$wanted</code>" ] || fail "the foot of a page says $found, not $wanted"
}
mkdir -p "$work/a/same" "$work/b/same"
cp "$data/well.pickle" "$work/a/same/x.pickle"
cp "$data/well.pickle" "$work/b/same/x.pickle"
cp "$data/well.pickle" "$work/a/-x y.pickle"
foot 'tarn report -o page.html - &lt;FILE' -o "$work/page.html" -
foot 'tarn report -opage.html well.pickle' -o"$work/page.html" "$data/well.pickle"
foot "tarn report --output=page.html './-x y.pickle'" --output="$work/page.html" "$work/a/-x y.pickle"
foot 'tarn report -o page.html a/same/x.pickle b/same/x.pickle' -o "$work/page.html" "$work/a/same/x.pickle" "$work/b/same/x.pickle"
grep -q '<title>a/same/x.pickle and b/same/x.pickle ' "$work/page.html" || fail "two files of a page have one name"

# Moments from the first to the last: what is live then is what the groups have in all.
for name in tarn streams expandable wrapped; do
    for at in 0 1 17 300 1000 1500 peak peak-reserved end; do
        run 0 report --json --no-what-if --device 0 --at $at "$data/$name.pickle" && silent err
        json 'all(sum(g["bytes"] for g in d["groups"]["pool"]) == d["at"]["allocated"] <= d["peak"]["allocated"] for d in a)'
    done
done
echo "report pages: all as expected"
