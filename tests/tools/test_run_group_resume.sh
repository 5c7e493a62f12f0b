#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# A pool is suspended, and resumed under `tarn run --group`: the limit that several processes share holds for the resume, which says how much
# is missing and that others have it. It works when they are gone, with the contents. On simulated CUDA.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_GROUP
export TMPDIR=$work TARN_LIVE=0 TARN_DRIVER=cuda LD_LIBRARY_PATH=$TARN_BUILD/sim
name=resume.$$
started=()
at_exit()
{
    for process in "${started[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    rm -f "/dev/shm/tarn-group.$(id -u).$name" "/tmp/tarn-group.$(id -u).$name"
}

cat >"$work/program.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>

static void must(tarn_status status)
{
    if (!status)
        return;
    printf("%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

/* hold MIB: has that until its input ends. resume MIB: each line of its input resumes a pool of that, and suspends it again. */
int main(int count, char **arguments)
{
    size_t size = strtoull(arguments[count - 1], NULL, 10) << 20;
    tarn_pool *pool = NULL;
    tarn_stream stream = 0;
    void *block = NULL;
    char line[8];
    int resumes = arguments[1][0] == 'r';
    must(tarn_device_set(0));
    must(tarn_stream_lease(0, 0, &stream));
    must(tarn_pool_create(NULL, &pool));
    must(tarn_pool_alloc(pool, stream, size, &block));
    memset(block, 5, size);
    if (resumes)
        must(tarn_pool_suspend(pool, true));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && resumes) {
        tarn_status status = tarn_pool_resume(pool);
        const unsigned char *bytes = block;
        const char *contents = status                                                       ? ""
                               : bytes[0] == 5 && memcmp(bytes, bytes + 1, size - 1) == 0 ? " with the contents"
                                                                                            : " with others";
        const char *reason = status ? tarn_last_error() : "";
        if (!status)
            must(tarn_pool_suspend(pool, true));
        printf("%s%s: %s\n", tarn_status_name(status), contents, reason); /* last: who reads it may count on the memory */
        fflush(stdout);
    }
    return 0;
}
END
"$CC" ${TARN_SANITIZE:+-fsanitize=$TARN_SANITIZE} -I"$TARN_SOURCE/include" "$work/program.c" -o "$work/program" "$TARN_BUILD/libtarn.so" \
    -Wl,-rpath,"$TARN_BUILD"

# begin FILE ARGUMENT..: a run in the background, whose input is open as $input, and which says in FILE that it is ready.
begin()
{
    local file=$1
    shift
    mkfifo "$file.in"
    "$tarn" run --quiet --group "$name" "$@" <"$file.in" >"$file" 2>"$file.err" &
    runner=$!
    started+=("$runner")
    exec {input}>"$file.in"
    lines "$file" 1
    [ "$(head -1 "$file")" = ready ] || fail "$* says: $(head -1 "$file")"
}
# ends FILE: the newest run ends well when its input does.
ends()
{
    exec {input}>&-
    wait "$runner" || fail "a run ends with $?: $(cat "$1" "$1.err")"
}
lines()
{
    for _ in $(seq 600); do [ "$(wc -l <"$1")" -ge "$2" ] && return; sleep 0.05; done
    fail "no more lines: $(cat "$1" "$1.err")"
}

begin "$work/sleeper" --limit 64M "$work/program" resume 40
sleeper=$runner sleeper_input=$input
begin "$work/holder" "$work/program" hold 30
echo >&"$sleeper_input"
lines "$work/sleeper" 2
for part in 'TARN_ERROR_OUT_OF_MEMORY: a resume of pool (0, 1) lacks 6 MiB. It needs 40 MiB' 'which has 34 MiB of its 64 MiB free' \
    "Not tarn's: 30 MiB (other processes"; do
    tail -1 "$work/sleeper" | grep -qF "$part" || fail "a resume beside others says: $(tail -1 "$work/sleeper"), and not: $part"
done
echo >&"$sleeper_input" # a failed one loses nothing, and takes nothing
lines "$work/sleeper" 3
ends "$work/holder"
echo >&"$sleeper_input"
lines "$work/sleeper" 4
[ "$(tail -1 "$work/sleeper")" = 'TARN_OK with the contents: ' ] || fail "a resume when they are gone: $(tail -1 "$work/sleeper")"
# The memory of a suspended pool serves the others of the group.
begin "$work/second" "$work/program" hold 60
ends "$work/second"
exec {sleeper_input}>&-
wait "$sleeper" || fail "the sleeper ends with $?: $(cat "$work/sleeper" "$work/sleeper.err")"
