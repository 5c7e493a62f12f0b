#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run` and the loader: every way in which a program comes by the driver, with the shim on the loader's path alone and with --audit. What
# the path cannot reach must be reached by --audit, and every road to one function must end in the same hook.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_GROUP LD_AUDIT
folder=$TARN_BUILD/tests/run
[ -e "$folder/libcuda.so.1" ] || fail "no $folder/libcuda.so.1"
export TMPDIR=$work TARN_LIVE=0

cat >"$work/program.c" <<'END_OF_PROGRAM'
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
typedef int (*resolver)(const char *, void **, int, unsigned long long, void *);
static void *find(void *library, const char *name)
{
    return dlsym(library, name);
}
static int use(void *library)
{
    int (*init)(unsigned) = (int (*)(unsigned))find(library, "cuInit"), (*set)(void *) = (int (*)(void *))find(library, "cuCtxSetCurrent");
    int (*retain)(void **, int) = (int (*)(void **, int))find(library, "cuDevicePrimaryCtxRetain");
    int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))find(library, "cuMemAlloc_v2");
    resolver resolve = (resolver)find(library, "cuGetProcAddress_v2"), old = (resolver)find(library, "cuGetProcAddress"), again = NULL;
    unsigned long long address;
    void *context, *found = NULL, *newer = NULL, *older = NULL;
    if (!init || init(0) || retain(&context, 0) || set(context) || alloc(&address, 6 << 20))
        return 1;
    if (resolve("cuMemAlloc", &found, 13000, 0, NULL) || found != (void *)alloc)
        return 2;
    if (old("cuMemAlloc", &older, 11030, 0, NULL) || older != (void *)alloc)
        return 3;
    if (resolve("cuGetProcAddress", (void **)&again, 12000, 0, NULL) || again != resolve)
        return 4;
    return again("cuMemAlloc", &newer, 3020, 1, NULL) || newer != (void *)alloc ? 5 : 0;
}
#ifdef LINKED
int cuMemAlloc_v2(unsigned long long *address, size_t size);
int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*volatile bound)(unsigned long long *, size_t) = cuMemAlloc_v2;
    if (!library || (void *)bound != dlsym(library, "cuMemAlloc_v2"))
        return 6;
    return use(library);
}
#else
int main(int argc, char **argv)
{
    void *library = argc > 2 ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) : dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 9;
    }
    return use(library);
}
#endif
END_OF_PROGRAM
sed -i '1i #define _GNU_SOURCE' "$work/program.c"
"$CC" "$work/program.c" -o "$work/opens" -ldl
for way in plain runpath rpath; do
    case $way in
    plain) flags=() ;;
    runpath) flags=("-Wl,--enable-new-dtags,-rpath,$folder") ;;
    rpath) flags=("-Wl,--disable-new-dtags,-rpath,$folder") ;;
    esac
    "$CC" -DLINKED "$work/program.c" -o "$work/$way" "${flags[@]}" "$folder/libcuda.so.1" -ldl
done

# seen BY-PATH BY-AUDIT PROGRAM..: whether each road sees what the program allocates; it must run either way.
seen()
{
    local by_path=$1 by_audit=$2
    shift 2
    for road in path audit; do
        options=()
        wanted=$by_path
        if [ $road = audit ]; then options=(--audit) wanted=$by_audit; fi
        command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run "${options[@]}")
        run 0 "$@"
        found=no
        if grep -qE '^  [a-z]+ +6.00 MiB' "$work/err"; then found=yes; fi
        [ $found = "$wanted" ] || fail "$road: $*: seen: $found, not $wanted"
    done
}
seen yes yes "$work/opens" libcuda.so.1
seen yes yes "$work/opens" libcuda.so
seen no yes "$work/opens" "$folder/libcuda.so.1"
seen yes yes "$work/opens" libcuda.so.1 apart
seen no no "$work/opens" "$folder/libcuda.so.1" apart # glibc asks no audit library for a path that dlmopen() is given
seen yes yes "$work/plain"
seen yes yes "$work/runpath"
seen no yes "$work/rpath"

# Nothing is asked of a driver before cuInit() has succeeded, and nothing after it has failed; of calls for work there is no hook.
mkdir "$work/none"
cat >"$work/none.c" <<'END_OF_PROGRAM'
#include <stdlib.h>
int cuInit(unsigned flags);
int cuMemAlloc_v2(unsigned long long *address, size_t size);
int cuMemFree_v2(unsigned long long address);
int cuInit(unsigned flags)
{
    return flags ? 1 : 100; /* no device */
}
int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    return address && size ? 3 : 1;
}
int cuMemFree_v2(unsigned long long address)
{
    return address ? 3 : 0;
}
#define NEVER(name) int name(void); int name(void) { abort(); }
NEVER(cuDriverGetVersion) NEVER(cuDeviceGetCount) NEVER(cuDeviceGetUuid) NEVER(cuDeviceGetUuid_v2) NEVER(cuDeviceGetName)
NEVER(cuDeviceGetPCIBusId) NEVER(cuDeviceTotalMem_v2) NEVER(cuCtxGetCurrent) NEVER(cuCtxGetDevice) NEVER(cuMemGetInfo_v2)
NEVER(cuDevicePrimaryCtxGetState) NEVER(cuDevicePrimaryCtxRetain) NEVER(cuDevicePrimaryCtxRelease_v2) NEVER(cuStreamGetCtx)
NEVER(cuStreamIsCapturing) NEVER(cuPointerGetAttribute) NEVER(cuGetProcAddress_v2) NEVER(cuDeviceGetMemPool) NEVER(cuGetExportTable)
END_OF_PROGRAM
cat >"$work/asks.c" <<'END_OF_PROGRAM'
#include <dlfcn.h>
#include <stddef.h>
int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(library, "cuMemAlloc_v2");
    int (*give)(unsigned long long) = (int (*)(unsigned long long))dlsym(library, "cuMemFree_v2");
    unsigned long long address;
    if (alloc(&address, 4096) != 3 || give(4096) != 3 || init(1) != 1 || init(0) != 100)
        return 1;
    return alloc(&address, 4096) != 3 || give(4096) != 3 || give(0) != 0;
}
END_OF_PROGRAM
"$CC" -shared -fPIC "$work/none.c" -o "$work/none/libcuda.so.1" -Wl,-soname,libcuda.so.1
"$CC" "$work/asks.c" -o "$work/asks" -ldl
cp "$folder/libnvidia-ml.so.1" "$work/none" # the machine's own may ask the driver by itself when a limit has it opened
for option in --audit --pool --limit=64M --group="loader.$$"; do
    command=(env "LD_LIBRARY_PATH=$work/none" "$tarn" run "$option")
    run 0 "$work/asks" && says err 'no process used'
done
for shim in run/libcuda.so.1 run/pool/libcuda.so.1 run/libamdhip64.so.0; do
    nm -D --defined-only "$TARN_BUILD/$shim" | grep -E ' (cuLaunch|hipLaunch|hipModuleLaunch|cuMemcpy|nvml|dlsym|dlopen)' >"$work/out" || true
    silent out
done

# What a program starts, and what does not use the driver, is none the worse for it.
command=(env "LD_LIBRARY_PATH=$folder" "$tarn" run --audit)
run 0 sh -c 'ls / >/dev/null' && says err 'no process used'
run 0 sh -c "\"$work/opens\" \"$folder/libcuda.so.1\"" && says err 'plain'
run 9 "$work/opens" /nothing/libfoo.so.1

# A driver whose shim is gone is found as it is: a process that outlives the folder.
command=(env "LD_LIBRARY_PATH=$folder:$folder" "TARN_RUN_FOLDER=$work/nothing" "LD_AUDIT=$TARN_BUILD/run/libtarn_run_audit.so")
run 0 "$work/opens" libcuda.so.1

# Where the audit library cannot be named in the loader's list, nothing is left: no folder, and no group.
mkdir -p "$work/a:b/run" && cp "$tarn" "$work/a:b/tarn" && cp "$TARN_BUILD"/run/lib* "$work/a:b/run"
command=(env "LD_LIBRARY_PATH=$folder" "$work/a:b/tarn" run)
run 1 --audit --group "loader.$$" --limit 1G true && says err 'a:b/run: the loader takes no path with ":"'
find "$work" -maxdepth 1 -name 'tarn-run-*' | grep -q . && fail "a folder was left"
find /dev/shm /tmp -maxdepth 1 -name "tarn-group.*.loader.$$" 2>/dev/null | grep -q . && fail "a group was left"
exit 0
