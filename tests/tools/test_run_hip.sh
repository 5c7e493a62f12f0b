#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run` under a program for HIP, on the simulated libamdhip64 in each of its versions: a program that is linked with it, and so wants its
# symbols by their versions, and one that opens it by name.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_GROUP
export TMPDIR=$work TARN_LIVE_DIRECTORY=$work
name=test.hip.$$
sim=$TARN_BUILD/sim
[ -e "$sim/libamdhip64.so.6" ] || { echo "no simulated HIP here"; exit 77; }
row() { grep -qE "$1" "$work/err" || fail "the summary has no line: $1"; }

cat >"$work/program.c" <<'END_OF_PROGRAM'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MIB ((size_t)1 << 20)
#define CHECK(it) do { if (!(it)) { fprintf(stderr, "line %d: %s\n", __LINE__, #it); exit(1); } } while (0)
struct properties { unsigned type, handles; unsigned location, id; void *win32; unsigned char flags[8]; };
#define CALLS(X) X(hipGetDeviceCount, (int *)) X(hipSetDevice, (int)) X(hipMalloc, (void **, size_t)) X(hipFree, (void *)) \
    X(hipMallocAsync, (void **, size_t, void *)) X(hipFreeAsync, (void *, void *)) X(hipHostMalloc, (void **, size_t, unsigned)) \
    X(hipHostFree, (void *)) X(hipHostRegister, (void *, size_t, unsigned)) X(hipHostUnregister, (void *)) \
    X(hipMemGetInfo, (size_t *, size_t *)) X(hipDeviceTotalMem, (size_t *, int)) X(hipGetLastError, (void)) \
    X(hipGetDeviceProperties, (void *, int)) X(hipMemCreate, (void **, size_t, const struct properties *, unsigned long long)) \
    X(hipMemRelease, (void *)) X(hipMemAddressReserve, (void **, size_t, size_t, void *, unsigned long long)) \
    X(hipMemMap, (void *, size_t, size_t, void *, unsigned long long)) X(hipMemUnmap, (void *, size_t))
#ifdef OPEN
#include <dlfcn.h>
#define X(call, parameters) static int (*call) parameters;
CALLS(X)
#undef X
static void begin(void)
{
    void *library = dlopen("libamdhip64.so." OPEN, RTLD_NOW), *found;
    CHECK(library && !dlsym(library, "hipMallocArray")); /* which the simulated one lacks, so it must be missing */
#define X(call, parameters) CHECK(found = dlsym(library, #call)); memcpy(&call, &found, sizeof found);
    CALLS(X)
#undef X
}
#else
#define X(call, parameters) int call parameters;
CALLS(X)
#undef X
static void begin(void) {}
#endif

static size_t free_now(void)
{
    size_t bytes = 0;
    CHECK(hipMemGetInfo(&bytes, NULL) == 0 || hipMemGetInfo(&bytes, &(size_t){0}) == 0);
    return bytes / MIB;
}

static void kinds(void)
{
    static char registered[8192] __attribute__((aligned(4096)));
    void *memory[2], *host, *piece, *place;
    const struct properties properties = {.type = 1, .location = 1};
    for (int i = 0; i < 2; i++)
        CHECK(hipMalloc(&memory[i], 4 * MIB) == 0);
    CHECK(hipFree(memory[0]) == 0 && hipFree(NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(hipMallocAsync(&memory[i], 6 * MIB, NULL) == 0);
    CHECK(hipFreeAsync(memory[0], NULL) == 0 && hipFree(memory[1]) == 0);
    CHECK(hipHostMalloc(&host, MIB, 0) == 0 && hipHostFree(host) == 0 && hipHostMalloc(&host, MIB, 0) == 0);
    CHECK(hipHostRegister(registered, sizeof registered, 0) == 0 && hipHostUnregister(registered) == 0);
    if (hipMemCreate(&piece, 2 * MIB, &properties, 0) == 0) { /* from HIP 6.1 on */
        CHECK(hipMemAddressReserve(&place, 2 * MIB, 0, NULL, 0) == 0 && hipMemMap(place, 2 * MIB, 0, piece, 0) == 0);
        CHECK(hipMemRelease(piece) == 0); /* the mapping holds it */
        puts("virtual");
    }
    CHECK(hipSetDevice(1) == 0 && hipMalloc(&memory[0], 3 * MIB) == 0);
}

static void limited(void)
{
    void *memory, *other;
    size_t bytes;
    static char properties[4096];
    CHECK(hipDeviceTotalMem(&bytes, 0) == 0 && bytes == 64 * MIB);
    CHECK(hipDeviceTotalMem(&bytes, 1) == 0 && bytes == 32 * MIB);
    CHECK(hipGetDeviceProperties(properties, 0) == 0);
    memcpy(&bytes, properties + 256, sizeof bytes);
    CHECK(bytes == 64 * MIB && free_now() == 64);
    CHECK(hipMalloc(&memory, 40 * MIB) == 0 && free_now() == 24);
    CHECK(hipMalloc(&other, 25 * MIB) == 2 && hipGetLastError() == 2 && hipGetLastError() == 0 && free_now() == 24);
    CHECK(hipFree(memory) == 0 && free_now() == 64 && hipFree(memory) != 0 && free_now() == 64);
    CHECK(hipMallocAsync(&memory, 65 * MIB, NULL) == 2);
    CHECK(hipMalloc(&memory, 64 * MIB) == 0);
}

static void hold(void)
{
    void *memory;
    CHECK(hipMalloc(&memory, 40 * MIB) == 0);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

int main(int argc, char **argv)
{
    begin();
    if (argc > 1 && strcmp(argv[1], "limited") == 0)
        limited();
    else if (argc > 1 && strcmp(argv[1], "hold") == 0)
        hold();
    else if (argc > 1 && strcmp(argv[1], "free") == 0)
        printf("%zu\n", free_now());
    else
        kinds();
    return 0;
}
END_OF_PROGRAM

with=(env -u LD_LIBRARY_PATH "$tarn" sim --devices 2 --device-memory 1G -- "$tarn" run)
command=("${with[@]}")
for major in 5 6 7; do
    [ -e "$sim/libamdhip64.so.$major" ] || continue
    "$CC" ${TARN_SANITIZE:+-fsanitize=$TARN_SANITIZE} "$work/program.c" -o "$work/linked" "$sim/libamdhip64.so.$major"
    "$CC" ${TARN_SANITIZE:+-fsanitize=$TARN_SANITIZE} -DOPEN="\"$major\"" "$work/program.c" -o "$work/opened" -ldl
    for program in linked opened; do
        run 0 "$work/$program" kinds
        grep -q 'version information' "$work/err" && fail "the loader misses versions"
        row 'GPU 0, .*, 1.00 GiB$'
        row 'GPU 1, '
        if grep -q virtual "$work/out"; then row "^  $program +6.00 MiB +16.0 MiB +5  plain, stream-ordered, virtual$"; else row "^  $program +4.00 MiB +16.0 MiB +4  plain, stream-ordered$"; fi
        row "^  $program +1.00 MiB +1.00 MiB +2  host$"
        row "^  $program +0 B +8.00 KiB +1  registered host$"
        row "^  $program +3.00 MiB +3.00 MiB +1  plain$"
        row '^  not seen: what HIP takes for itself'
        run 0 --limit 64M,1=32M "$work/$program" limited
        says err "25.0 MiB refused to $program: limit 64.0 MiB, in use 40.0 MiB"
    done
done
run 0 -o "$work/hip.pickle" "$work/linked" kinds
command=("$tarn")
run 0 report "$work/hip.pickle" && says out 'plain' && says out 'device 1'

# AMD's own library, where it is installed: on a machine without its GPU a program ends as it would without `tarn run`.
for library in /usr/lib/*/libamdhip64.so.[567]; do
    [ -e "$library" ] || continue
    "$CC" "$work/program.c" -o "$work/genuine" "$library"
    status=0; "$work/genuine" kinds >"$work/expected" 2>&1 || status=$?
    command=("$tarn" run --quiet)
    run "$status" "$work/genuine" kinds
    cat "$work/out" "$work/err" | diff "$work/expected" - >&2 || fail "$library ends otherwise"
    break
done

# Of a group, which the killed leave.
command=("${with[@]}" --group "$name")
mkfifo "$work/hold"
"${with[@]}" --quiet --group "$name" --limit 64M "$work/linked" hold <"$work/hold" >"$work/ready" 2>&1 &
holder=$!
exec 9>"$work/hold"
for _ in $(seq 600); do [ -s "$work/ready" ] && break; sleep 0.05; done
run 0 "$work/opened" free && says out '^24$'
for _ in {1..50}; do "$tarn" top --json >"$work/top" && grep -qE '"reserved": ?41943040' "$work/top" && break; done # a page that is being written is passed over
/usr/bin/python3 - "$work/top" <<'END' || fail "tarn top does not show it"
import json, sys
it, = json.load(open(sys.argv[1]))
assert it["driver"] == "hip, run" and it["reserved"] == 40 << 20, it
END
exec 9>&-
wait "$holder" || true
run 0 --limit 64M "$work/opened" free && says out '^64$'
