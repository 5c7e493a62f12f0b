#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn report` and `tarn diff` from outside: text, JSON, what they refuse, and what a page is made of. What the page shows is
# tested by test_report_page.sh, what the numbers are by test_analysis.c. TARN_PROGRAM, TARN_TEST_DATA.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"

# The command lines.
run 0 --help && says out ' report  ' && says out ' diff  '
run 0 help report && says out 'Usage: tarn report' && silent err
run 0 report --help && says out '--output' && silent err
run 0 diff --help && says out 'Usage: tarn diff' && silent err
run 2 report && says err 'no file was named' && silent out
run 2 report --at end a b && says err 'leave out --at'
run 2 diff --at end a b c && says err 'leave out --at'
run 2 report -o page --json a && says err 'choose one'
run 2 report --text --json a && says err 'choose one'
for bad in -1 x 4096 1.5 ''; do run 2 report "--device=$bad" a && says err '--device wants'; done
for bad in 0 -1 x 1000001; do run 2 report "--top=$bad" a && says err '--top wants'; done
for bad in 0 -1 x 101; do run 2 report "--depth=$bad" a && says err '--depth wants'; done
for bad in '' ',' 'tag,' 'tag,,pool' tags; do run 2 report "--by=$bad" a && says err '--by wants'; done
run 2 report --fold= a && says err '--fold wants'
for bad in start -1 1.5 '' 3000000000 1.5m; do run 2 report "--at=$bad" a && says err '--at wants'; done
run 2 report --output && says err 'the option --output needs a value'
run 2 diff --least a b && says err 'no option'
run 2 report -x a && says err 'no option -x'
run 2 diff a && says err 'two files'
run 2 diff --text a b && says err 'no option --text'

# Files that cannot be shown.
run 1 report "$work/nothing" && says err "^tarn report: $work/nothing: cannot open" && silent out
run 1 report "$0" && says err 'this is text' && silent out
run 1 report --device 7 "$data/tarn.pickle" && says err 'nothing of device 7; leave out --device'
printf '\200\002}(U\010segments](eu.' >"$work/empty.pickle"
run 1 report "$work/empty.pickle" && says err 'no segments and no trace'
run 1 diff "$data/tarn.pickle" "$work/nothing" && says err "^tarn diff: $work/nothing"

# Text, with and without UTF-8, without control characters.
LC_ALL=C.UTF-8 run 0 report "$data/tarn.pickle" && silent err
says out 'Device 0 runs out of memory first' && lacks out 'clocks' # of one host
says out '^tarn.pickle, device 0 (device é 0): recorded by tarn 9.8.7, driver host; 2,278 events, [0-9]* allocations in'
says out 'before event 17 threads are missing, and 3 events were overwritten'
says out '^peak allocated   1.45 GiB  after event 1,558, 81.7 ms, 126 blocks$'
says out '^reserved then    1.87 GiB  .* free (22.[0-9] %) in 74 holes, the largest 111 MiB$'
says out '^waiting then '
says out '█'
says out 'most free: [0-9.]* [MG]iB after event [0-9,]*, [0-9.]* ms, [0-9.]* % of what was reserved then' && lacks out 'fragmentation [0-9]'
for name in 'first part of the tag' 'tag' 'call site' 'stream' 'pool' 'thread'; do says out "bytes   share   blocks  .*$name\$"; done
says out '%       [0-9]*  step 1/backward$'
says out 'thread 2 loader$'
says out '^         3    1.00 GiB        1             0  pool (0, 1)$' && says out '^         4    1.00 MiB    1,234             0  pool (0, 1)$'
[ "$(grep -c '^Only graphs hold 100 B, in 1 pool\.$' "$work/out")" = 2 ] || fail "the memory that only graphs hold is not there, by device"
says out '^Handles: cublas 4 (1 in use, workspaces 32.0 MiB)$'
says out '^Out of memory 1 time$'
LC_ALL=C run 0 report "$data/tarn.pickle" --top 2 --device 1
lacks out '█' && says out '##' && lacks out 'device 0' && says out ' more$'
# Files whose names differ in a folder, or begin alike, are told apart, and are ranks only where each has a number of its own.
for i in 10 20 30; do
    mkdir -p "$work/iteration_$i" && cp "$data/small-4.pickle" "$work/iteration_$i/rank0_snapshot.pickle"
    cp "$data/small-4.pickle" "$work/workstation_of_the_vision_group_run_Jun_$i.pickle" && cp "$data/small-4.pickle" "$work/rank$i.pickle"
done
run 0 report --json --device 0 "$work"/iteration_*/rank0_snapshot.pickle && json 'a["noun"] == "file" and [r["name"] for r in a["ranks"]] == ["iteration_%d" % i for i in (10, 20, 30)]'
run 0 report --json --device 0 "$work"/workstation*.pickle && json '[r["name"] for r in a["ranks"]] == ["group_run_Jun_%d.pickle" % i for i in (10, 20, 30)]'
run 0 report --device 0 "$work"/workstation*.pickle && says out '^3 files$' && says out '^group_run_Jun_20.pickle ' && lacks out 'rank'
run 0 report --json --device 0 "$work"/rank{30,10,20}.pickle && json 'a["noun"] == "rank" and [r["name"] for r in a["ranks"]] == ["rank 10", "rank 20", "rank 30"]'
run 0 report --json --device 0 "$work"/rank{10,20}.pickle "$work/iteration_10/rank0_snapshot.pickle" && json 'a["noun"] == "rank"'
run 0 report --json --device 0 "$work"/rank10.pickle{,} "$work/rank20.pickle" && json '[r["name"] for r in a["ranks"]] == ["rank10.pickle", "rank10.pickle (2)", "rank20.pickle"]'

# Paths of Windows tell what others do.
python3 - "$work/windows.pickle" <<'END'
import pickle, sys
torch, work = "C:\\Python311\\Lib\\site-packages\\torch\\nn\\modules\\", "D:\\work\\"
def frame(name, file, line):
    return {"name": name, "filename": file, "line": line}
stack = [frame("forward", torch + "linear.py", 5), frame("_call_impl", torch + "module.py", 6), frame("forward", work + "model.py", 39),
         frame("_call_impl", torch + "module.py", 6), frame("main", "\\\\server\\share\\train.py", 7)]
events = [{"action": "alloc", "addr": i << 21, "size": 1 << 20, "stream": 0, "time_us": i, "frames": stack} for i in range(1, 4)]
with open(sys.argv[1], "wb") as out:
    pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
END
run 0 report --json --depth 2 --by call_site,module "$work/windows.pickle"
json 'a[0]["groups"]["call_site"][0]["name"] == "forward  model.py:39 < main  train.py:7" and a[0]["groups"]["module"][0]["name"].startswith("torch.nn linear < forward  model.py:39")'

# The moment of an error that never was is not made up in silence.
run 0 report --at oom "$data/well.pickle" && says err "^tarn report: $data/well.pickle: device 0 has no out-of-memory error; its end is shown$"
python3 - "$work/late.pickle" <<'END_OF_PROGRAM'
import pickle, sys
events = [{"action": "alloc", "addr": 1 << 30, "size": 1 << 20, "stream": 0, "time_us": 10},
          {"action": "oom", "size": 1 << 30, "device_free": 0, "stream": 0, "time_us": 2510}]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
END_OF_PROGRAM
# A state says how a trace is recorded.
run 0 report --device 0 "$data/state-only.pickle" && says out '^  torch.cuda.memory._record_memory_history('
run 0 report --device 0 "$data/well.pickle" && lacks out '_record_memory_history'
# A timeline shows no errors.
run 0 report --device 0 "$TARN_SOURCE/tests/tools/profiles/timeline-cuda.json.zst" && says out '^Out-of-memory errors are not recorded: at most ' && lacks out 'never runs out'
# The time of an error is its own.
run 0 report "$work/late.pickle" && says out '^  requested .*  at event 1, 2\.50 ms$'
run 0 report --json "$work/late.pickle" && json 'a[0]["out_of_memory"][0]["time_us"] == 2500 and a[0]["out_of_memory"][0]["state"]["time_us"] == 0'
run 0 report --json --at oom "$data/oom.pickle" && silent err && json 'a[0]["at"]["event"] == a[0]["out_of_memory"][-1]["state"]["event"]'
run 0 diff --json --at oom "$data/oom.pickle" "$data/well.pickle" && says err '^tarn diff: .*well.pickle: device 0 has no'
run 0 report --at end "$data/oom.pickle" && says out '^allocated  ' && says out '^Out of memory 15 times, the last of them:$'
run 0 report "$data/state-only.pickle" && says out 'a state without a trace' && lacks out 'over time'
python3 - "$work/full.pickle" <<'END'
import pickle, sys
blocks = [{"size": 3 << 20, "requested_size": 3 << 20, "state": "active_allocated"}, {"size": 1 << 20, "state": "inactive"}]
with open(sys.argv[1], "wb") as out:
    pickle.dump({"segments": [{"device": 0, "address": 1 << 40, "total_size": 4 << 20, "stream": 0, "blocks": blocks}]}, out, 4)
END
run 0 report "$work/full.pickle"
[ "$(sed -n 2p "$work/out")" = '75.0 % of what is reserved are allocated.' ] || fail "no verdict on a state: $(sed -n 2p "$work/out")"
run 0 report "$data/old.pickle" && says out ' events$'

# A program that keeps nothing, a trace without segments, and segments without a trace.
small_file() { /usr/bin/python3 -c 'import pickle, sys; pickle.dump(eval(sys.argv[1]), sys.stdout.buffer)' "$1" >"$work/small.pickle"; }
nothing='{"action": "alloc", "addr": 4096, "size": 0, "stream": 0}, {"action": "free_completed", "addr": 4096, "size": 0, "stream": 0}'
small_file "{'segments': [], 'device_traces': [[$nothing]]}" && run 0 report "$work/small.pickle" && says out '^peak allocated        0 B '
small_file "{'device_traces': [[{'action': 'alloc', 'addr': 4096, 'size': 700, 'stream': 0}]]}"
run 0 report "$work/small.pickle" && says out '^peak allocated      700 B  after event 1, 1 block$' && says out '^reserved then   not recorded$'
small_file "{'segments': [{'device': 0, 'address': 4096, 'total_size': 8192, 'stream': 0, 'blocks': [{'size': 8192, 'state': 'active_allocated'}]}]}"
run 0 report "$work/small.pickle" && says out '^allocated        8.00 KiB  1 block$'

# Graphs: the largest, and how many more there are. Only a private pool can sleep.
graphs_file() { small_file "{'segments': [], 'device_traces': [[{'action': 'alloc', 'addr': 4096, 'size': 700, 'stream': 0}]], 'tarn': {'version': 1, 'graphs': [
    {'number': i, 'device': 0, 'pool_id': (0, $1), 'count': 1, 'size': i, 'gone': 0, 'gone_size': 0} for i in range(1, 401)]}}"; }
graphs_file 7
run 0 report "$work/small.pickle" --top 3 && says out '^Graphs and the pools that they refer to: a launch fails while a private pool sleeps$' && says out '^ *397 more$'
[ "$(grep -c 'pool (0, 7)$' "$work/out")" = 3 ] || fail "--top 3 shows another number of graphs"
says out '^       400       400 B        1             0  pool (0, 7)$' && lacks out '^ *397  *397 B'
run 0 report --json --top 3 "$work/small.pickle" && json '[g["number"] for g in a[0]["graphs"]] == [400, 399, 398] and a[0]["graphs_left_out"] == 397'
run 0 report --json --top 1000 "$work/small.pickle" && json 'len(a[0]["graphs"]) == 400 and a[0]["graphs_left_out"] == 0'
graphs_file 0
run 0 report "$work/small.pickle" && says out '^Graphs and the pools that they refer to$' && says out '^ *392 more$' && lacks out 'a launch fails'

# Advice: figures and what to do, in the text and in JSON; none for a recording that is well.
says_on_one_line() { tr -s '\n ' ' ' <"$work/out" | grep -qe "$1" || fail "out does not say: $1"; }
run 0 report "$data/well.pickle" && says out '^It never runs out of memory: at most 1.17 GiB are allocated.$'
LC_ALL=C.UTF-8 run 0 report --device 0 "$data/tarn.pickle"
says_on_one_line '• Memory ran out. The request that failed was for 291 MiB, by step_26 model_5.py:88. The device had 134 MiB free, and 486 MiB of the 1.87 GiB reserved were free: enough'
says_on_one_line '• At the peak of reserved memory, 758 MiB of 1.92 GiB (38.5 %) are free, in 75 holes of at most 212 MiB.'
LC_ALL=C run 0 report "$data/tarn.pickle" && says out '^\* Memory ran out' && lacks out '•'
run 0 report --json "$data/tarn.pickle"
json '[i["kind"] for i in a[0]["advice"]] == ["out_of_memory", "fragmentation", "returns"] and a[0]["advice"][0]["bytes"] == a[0]["out_of_memory"][0]["asked"]'
json 'a[0]["advice"][0]["event"] == a[0]["out_of_memory"][0]["state"]["event"]'
LC_ALL=C.UTF-8 run 0 report "$data/well.pickle" && lacks out '•'
run 0 report --json "$data/well.pickle" && json 'a[0]["advice"] == []'

# Out-of-memory errors, the last ones, a fact a line; what is asked for stands first.
LC_ALL=C.UTF-8 run 0 report --device 0 "$data/tarn.pickle" && says out '^Out of memory 1 time$'
diff -u - <(sed -n '/^Out of memory/,$p' "$work/out" | tail -n +2) >&2 <<'END' || fail "the error looks otherwise"
  requested        291 MiB  at event 1,401, 72.6 ms
  by             step_26  model_5.py:88
  from           thread 1 main
  allocated       1.39 GiB  in 121 blocks
  reserved        1.87 GiB  486 MiB free (25.4 %), at most 130 MiB in one piece
  device free      134 MiB
END
run 0 report "$data/torn.pickle" && tr '\n' ' ' <"$work/out" >"$work/line" && mv "$work/line" "$work/out"
says out 'on a device of that size, tarn *(python -m *tarn.torch *SCRIPT) *serves it; PyTorch.s *default *settings and *expandable *segments *do not\.'
run 0 report --no-what-if "$data/torn.pickle" && tr '\n' ' ' <"$work/out" >"$work/line" && mv "$work/line" "$work/out"
says out 'What may join such holes: ' && lacks out 'In a replay'
run 0 report "$data/oom.pickle" && says out '^Out of memory 15 times, the last of them:$'
[ "$(grep -c '^  requested' "$work/out")" -eq 3 ] || fail "not three errors are shown"

# What is asked for: tables, rows, callers, moments.
run 0 report --by tag,stream --top 3 --device 0 "$data/tarn.pickle"
{ [ "$(grep -c 'bytes   share   blocks' "$work/out")" -eq 2 ] && says out ' 2 more$'; } || fail "--by or --top gives other tables"
run 0 report --by pool --device 1 "$data/streams.pickle" && says out ' 100.0 %  .*default pool$' # one group, since it was asked for
run 0 report --json --by pool --device 0 "$data/tarn.pickle" && json 'list(a[0]["groups"]) == ["pool"]'
run 0 report --json --depth 2 "$data/tarn.pickle" && json 'any(" < " in g["name"] for g in a[0]["groups"]["call_site"])'
run 0 report --json --device 0 --at oom "$data/tarn.pickle" && json 'a[0]["at"] == a[0]["out_of_memory"][-1]["state"]'
run 0 report --json --device 0 --at 50ms "$data/tarn.pickle" && json '49000 < a[0]["at"]["time_us"] <= 50000'
run 0 report --json --device 0 --at 0s "$data/tarn.pickle" && json 'a[0]["at"]["time_us"] == 0'
run 0 report --json --device 0 --at 9s "$data/tarn.pickle" && json 'a[0]["at"]["event"] == a[0]["events"]'
run 0 diff --by thread --top 1 --device 0 "$data/tarn.pickle" "$data/oom.pickle" && says out 'blocks  by thread$' && lacks out 'by tag'
run 0 report --json "$data/tarn.pickle" && cp "$work/out" "$work/unfolded"
run 0 report --json --fold model_2 "$data/tarn.pickle"
! cmp -s "$work/out" "$work/unfolded" || fail "--fold changes nothing"

# Callers that do not fit a line have lines of their own.
long="'filename': '/srv/a_long_name_of_a_file_of_a_program.py'"
small_file "{'device_traces': [[{'action': 'alloc', 'addr': 4096, 'size': 700, 'stream': 0, 'frames': [{'name': 'f%d' % i, 'line': i, $long} for i in (1, 2, 3)]}]]}"
run 0 report --depth 3 --by call_site "$work/small.pickle"
says out '        1  f1  a_long_name_of_a_file_of_a_program.py:1$' && says out '^  *< f2  a_long_name_of_a_file_of_a_program.py:2$' && says out '^  *< f3  '

# What most of the memory is for, when it ran out.
/usr/bin/python3 - "$TARN_SOURCE/tests/tools/recordings/gpt-adamw.pickle.zst" "$work/cut.pickle" <<'END'
import pickle, subprocess, sys
recording = pickle.loads(subprocess.run(["zstd", "-dc", sys.argv[1]], check=True, capture_output=True).stdout)
events = next(trace for trace in recording["device_traces"] if trace)[:1847]
events.append({"action": "oom", "size": 1 << 30, "device_free": 1 << 20, "stream": 0, "time_us": events[-1]["time_us"]})
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[2], "wb"), 4)
END
LC_ALL=C.UTF-8 run 0 report --no-what-if "$work/cut.pickle"
says_on_one_line 'Judging by stacks and lifetimes, 484 MiB of that (45 %) are activations. To reduce them, use a smaller batch, shorter sequences or torch.utils.checkpoint.'
run 0 report --no-what-if --category optimizer=train "$work/cut.pickle" && lacks out 'are activations. To reduce'

# Categories, and the reader's own rules.
truth=$TARN_SOURCE/tests/tools/recordings/gpt-adamw.pickle.zst
run 0 report --by category "$truth" && says out '^   207 MiB  20.[0-9] %      150  optimizer$\|^   207 MiB  19.[0-9] %      150  optimizer$'
run 0 report --json --by category --category caches=layer_norm "$truth" && json '"caches" in [g["name"] for g in a[0]["groups"]["category"]]'
for bad in '' caches caches= cache=x =x; do run 2 report "--category=$bad" a && says err '--category wants'; done
run 0 report --device 0 "$data/streams.pickle" && lacks out 'by category'

# Two files are compared side by side, in text, in JSON and on a page, unless they are ranks.
run 0 diff --device 0 "$data/tarn.pickle" "$data/oom.pickle" && cp "$work/out" "$work/compared"
run 0 report --no-what-if --device 0 "$data/tarn.pickle" "$data/oom.pickle"
cmp -s "$work/out" "$work/compared" || fail "two files are compared otherwise"
run 0 diff --json --device 0 "$data/tarn.pickle" "$data/oom.pickle" && cp "$work/out" "$work/compared"
run 0 report --json --device 0 "$data/tarn.pickle" "$data/oom.pickle"
cmp -s "$work/out" "$work/compared" || fail "two files are compared otherwise in JSON"
run 0 report --no-what-if --device 0 -o "$work/page.html" "$data/tarn.pickle" "$data/oom.pickle"
python3 "$TARN_SOURCE/tests/tools/page_data.py" "$work/page.html" | grep -q '"ranks": null' || fail "two files are ranks on a page"
cp "$data/tarn.pickle" "$work/rank_1.pickle" && cp "$data/oom.pickle" "$work/rank_0.pickle"
run 0 report --device 0 "$work"/rank_{1,0}.pickle && says out '^2 ranks$'
run 0 report --json --device 0 "$work"/rank_{1,0}.pickle && json 'a["noun"] == "rank" and len(a["ranks"]) == 2'
run 0 report --no-what-if --device 0 -o "$work/page.html" "$work"/rank_{1,0}.pickle
python3 "$TARN_SOURCE/tests/tools/page_data.py" "$work/page.html" | grep -q '"noun": "rank"' || fail "two ranks are none on a page"

# A program that goes on after errors may have many: the states at all of them are found at once.
python3 - "$work/denied.pickle" <<'END'
import pickle, sys
trace = []
for i in range(20000):
    trace += [{"action": action, "device_free" if action == "oom" else "addr": 1 << 20, "size": 4096 + i, "stream": 0, "time_us": len(trace)}
              for action in ("alloc", "oom", "free_requested", "free_completed")]
pickle.dump({"segments": [], "device_traces": [trace]}, open(sys.argv[1], "wb"))
END
for output in --json '-o -'; do
    # shellcheck disable=SC2086
    timeout 60 "$tarn" report --no-what-if $output "$work/denied.pickle" >"$work/out" || fail "status $?: many errors, $output"
done

# A signal that ends it leaves no part of a page behind, and of one that is ignored nothing is seen.
mkdir "$work/ended"
for ignored in '' HUP; do
    [ -z "$ignored" ] || trap '' HUP
    "$tarn" report --no-what-if -o "$work/ended/slow.html" "$work/denied.pickle" >"$work/out" 2>&1 &
    writer=$!
    trap - HUP
    while [ -z "$(find "$work/ended" -name '*.tmp')" ] && kill -0 $writer 2>"$work/err"; do :; done
    kill -"${ignored:-TERM}" $writer 2>"$work/err" || continue # it was written too fast
    status=0
    wait $writer || status=$?
    wanted=143
    [ -z "$ignored" ] || wanted=0
    [ $status -eq $wanted ] || fail "status $status after a signal"
    [ -z "$(find "$work/ended" -name '*.tmp')" ] || fail "a part of a page stays"
done
[ -s "$work/ended/slow.html" ] || fail "no page after a signal that is ignored"

# Devices of one file are compared first.
run 0 report --no-what-if "$data/streams.pickle" && says out '^2 devices$' && says out '^device 1 .*- *[0-9]' && says out '^streams.pickle, device 1: '
run 0 report --no-what-if --json "$data/streams.pickle" && json '[o["device"] for o in a] == [0, 1]'

# Modules: by the forward() functions of a stack.
run 0 report --by module "$TARN_SOURCE/tests/tools/recordings/unet-ema.pickle.zst"
says out '  torch.nn normalization < forward  train.py:107 < forward  train.py:130$' && says out '  forward  train.py < forward  train.py:125$' && says out '  no module$'
run 0 report --by module "$TARN_SOURCE/examples/traces/generate.pickle.zst" && says out '  layers.[0-9].attention (Attention)$'

# Ranks: several files, sorted by their numbers; what the numbers are is tested by test_ranks.c.
mkdir "$work/ranks"
for rank in 0 1 2 10; do cp "$data/small-4.pickle.zst" "$work/ranks/rank$rank.pickle"; done
cp "$data/tarn.pickle" "$work/ranks/rank1.pickle"
for command_name in report diff; do
    run 0 "$command_name" --device 0 "$work"/ranks/rank*.pickle && says out '^4 ranks$' && says out ' Rank 1 runs out of memory first'
    [ "$(sed -n 's/^rank \([0-9][0-9]*\) .*/\1/p' "$work/out" | tr '\n' ' ')" = '0 1 2 10 ' ] || fail "the ranks are in another order"
    run 0 "$command_name" --json --device 0 "$work"/ranks/rank*.pickle && json 'a["median"] == a["ranks"][0]["allocated"] < a["ranks"][1]["allocated"]'
done
run 1 report "$work"/ranks/rank*.pickle "$work/nothing" && says err "^tarn report: $work/nothing: cannot open"
# Which rank was first: by any times, and only where all that ran out have one.
python3 - "$work/ranks" <<'END'
import pickle, sys
for rank, time in (3, 1 - 2 ** 63), (4, 2 ** 63 - 1), (5, None):
    event = {"action": "oom", "device_free": 1 << 20, "size": 2 << 20, "stream": 0} | ({} if time is None else {"time_us": time})
    trace = [{"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0} | ({} if time is None else {"time_us": time}), event]
    pickle.dump({"segments": [], "device_traces": [trace]}, open("%s/rank%d.pickle" % (sys.argv[1], rank), "wb"))
END
run 0 report "$work"/ranks/rank[34].pickle && says out ' Rank 3 runs out of memory first, .* 1844674407[0-9]* s before rank 4'
run 0 report "$work"/ranks/rank[345].pickle && says out ' Memory runs out in 3 of 3 ranks. Some files have no times'

# Standard input.
"$tarn" report --device 0 - <"$data/tarn.pickle" >"$work/out" && says out '^standard input, device 0'
"$tarn" report --no-what-if "$data/small-4.pickle.zst" | sed 's/^small-4.pickle.zst,/standard input,/' >"$work/named"
"$tarn" report --no-what-if - <"$data/small-4.pickle.zst" | cmp -s - "$work/named" || fail "standard input is read otherwise"
run 1 report - && says err '^tarn report: -: byte 0'

# JSON. The moment that is looked at is that of --at; the peaks stay.
run 0 report --json "$data/tarn.pickle" && silent err
json 'len(a) == 2 and a[0]["device"] == 0 and a[0]["trace"] and a[0]["by"] == "tarn 9.8.7, driver host"'
json 'all(d["at"] == d["peak"] and d["peak"]["allocated"] <= d["peak"]["reserved"] for d in a)'
json 'sum(g["bytes"] for g in a[0]["groups"]["pool"]) == a[0]["peak"]["allocated"]'
json 'all(sorted(d["blocks"], key=lambda b: (-b["bytes"], b["address"])) == d["blocks"] for d in a)'
json 'max(p["allocated"] for p in a[0]["over_time"]) == a[0]["peak"]["allocated"]'
json 'a[0]["out_of_memory"][0]["asked"] > a[0]["out_of_memory"][0]["state"]["largest_free"]'
run 0 report --json --at 100 --device 1 "$data/tarn.pickle"
json 'len(a) == 1 and a[0]["at"]["event"] == 100 and a[0]["peak"]["event"] == 1099'
run 0 report --json --at 2000000000 "$data/tarn.pickle" && json 'a[0]["at"]["event"] == a[0]["events"]'
run 0 report --json "$data/state-only.pickle" && json 'not a[0]["trace"] and a[0]["events"] == 0 and a[0]["at"]["time_us"] is None'

# Segments that name no device, as some writers leave it out: of the one device that has a trace, or of device 0, with a note.
python3 - "$data/state-only.pickle" "$work" <<'END_OF_PROGRAM'
import pickle, sys
kept = pickle.load(open(sys.argv[1], "rb"))
kept["segments"] = [segment for segment in kept["segments"] if segment["device"] == 0]
pickle.dump(kept, open(sys.argv[2] + "/named.pickle", "wb"))
for segment in kept["segments"]:
    del segment["device"]
pickle.dump(kept, open(sys.argv[2] + "/unnamed.pickle", "wb"))
trace = [{"action": "alloc", "addr": 1 << 40, "size": 512, "stream": 0, "time_us": 1, "frames": []}]
for name, traces in ("one", [[], trace]), ("both", [trace, trace]):
    kept["device_traces"] = traces
    pickle.dump(kept, open(sys.argv[2] + "/unnamed-" + name + ".pickle", "wb"))
END_OF_PROGRAM
note='^Segments without the key "device" are taken for those of device 0\.$'
run 0 report "$work/named.pickle" && lacks out "$note" && sed 1d "$work/out" >"$work/named.txt"
run 0 report "$work/unnamed.pickle" && silent err && says out 'unnamed.pickle, device 0' && says out "$note"
sed "1d; /$note/d" "$work/out" | cmp - "$work/named.txt" || fail "a state without devices says something else"
run 0 report --json "$work/unnamed-one.pickle" && json '[x["device"] for x in a] == [1] and a[0]["at"]["reserved"] > 0'
run 0 report "$work/unnamed-one.pickle" && says out '^Segments without the key "device" are taken for those of device 1\.$'
run 0 report --json "$work/unnamed-both.pickle" && json '[(x["device"], x["at"]["reserved"] > 0) for x in a] == [(0, True), (1, False)]'
run 0 report "$work/unnamed-both.pickle" && says out "$note"

# What RMM logged is not PyTorch's; what was there before a recording has no stack, and is not called that.
printf '%s\n' 'Thread,Time,Action,Pointer,Size,Stream' '1,00:00:01:000001,free,0x1000,5000,0x0' '1,00:00:01:000002,allocate,0x9000,700,0x0' >"$work/few.csv"
run 0 report "$work/few.csv" && says out ': recorded by RMM; 2 events' && says out '^  4.88 KiB 100.0 %        1  from before the recording$'
run 0 report --json "$work/few.csv" && json 'a[0]["blocks"][0]["call_site"] == "from before the recording" and a[0]["by"] == "RMM"'
run 0 report --json --at end "$work/few.csv" && json 'a[0]["blocks"][0]["call_site"] == "no stack"'

# The comparison: of a file with itself nothing, of two what the two reports say.
run 0 diff "$data/tarn.pickle" "$data/tarn.pickle" && lacks out 'growth  .*by'
run 0 diff --device 0 "$data/tarn.pickle" "$data/oom.pickle"
says out '^allocated  *1.45 GiB  *1.72 GiB  *+276 MiB$' && says out 'blocks  by call site$'
run 0 diff --json "$data/tarn.pickle" "$data/oom.pickle"
json 'len(a) == 1 and a[0]["before"]["peak"]["allocated"] < a[0]["after"]["peak"]["allocated"]'
json '(sum(c["after"] - c["before"] for c in a[0]["changes"]["call_site"]) ==
    a[0]["after"]["peak"]["allocated"] - a[0]["before"]["peak"]["allocated"])'
run 0 diff "$data/tarn.pickle" "$data/state-only.pickle" && says out '^device 1 at the peak'

# A page: whole or not at all, nothing of another place, and what the file says is not part of it.
run 0 report -o "$work/page.html" "$data/tarn.pickle" && silent out && silent err
[ "$(find "$work" -name 'page.html*' | wc -l)" -eq 1 ] || fail "more than the page was left"
[ "$(stat -c %a "$work/page.html")" = "$(printf '%o' $((0666 & ~$(umask))))" ] || fail "the page has odd permissions"
head -c 15 "$work/page.html" | grep -q '<!DOCTYPE html>' || fail "the page does not begin as HTML"
! grep -qE '(src|href)="[a-z]*:?//|url\([^#]' "$work/page.html" || fail "the page names something of another place"
python3 - "$work/page.html" <<'END' || fail "the page's policy lets more run than its one script"
import base64, hashlib, re, sys
page = open(sys.argv[1], "rb").read()
(policy,) = re.findall(rb'Content-Security-Policy" content="([^"]*)"', page)
(script,) = re.findall(rb"<script>(.*?)</script>", page, re.S)
digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
assert {part.strip() for part in policy.decode().split(";")} == {
    "default-src 'none'", f"script-src 'sha256-{digest}' 'wasm-unsafe-eval'", "style-src 'unsafe-inline'", "img-src data:", "base-uri 'none'",
    "form-action 'none'"}, policy
assert not re.search(rb"<[^>]* on[a-z]+=", page.split(b"<body>")[1].split(b"<script>")[0])
END
run 0 report -o - "$data/tarn.pickle"
cmp -s "$work/out" <(sed 's/>tarn report -o page.html/>tarn report -o -/' "$work/page.html") || fail "standard output gets another page"
run 1 report -o "$work/nowhere/page.html" "$data/tarn.pickle" && says err 'nowhere/page.html cannot be written: .*No such'
name=$(printf '%0255d' 0) # no file system has a longer one
run 0 report --no-what-if -o "$work/$name" "$data/tarn.pickle" && [ -s "$work/$name" ] && rm "$work/$name"
ln -s "$data/tarn.pickle" "$work/<b>&.pickle"
run 0 report -o - "$work/<b>&.pickle" && lacks out '<b>' && says out '&lt;b>&amp;.pickle'
ln -s "$data/tarn.pickle" "$work/"$'caf\xc3\xa9\xff.pickle'
run 0 report -o "$work/page.html" "$work/"$'caf\xc3\xa9\xff.pickle'
iconv -f UTF-8 "$work/page.html" >"$work/out" || fail "the page is not UTF-8"
says out "café?.pickle'<"

# Without a file the page is the viewer: the same without data.
run 2 report && says err 'no file was named'
run 2 report --json && says err 'no file was named'
run 0 report -o - && says out '<script type="text/plain" id="analysis">H4sI' && lacks out 'id="data">' && says out '<code id="made">tarn report -o -</code>'
echo "report: all as expected"
