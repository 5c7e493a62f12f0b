#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The program from outside: `tarn sim`, in the build tree and installed, with a program that uses the driver's own API and
# knows nothing of tarn. TARN_PROGRAM is the program.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
command=() # each run names it
unset LD_LIBRARY_PATH TARN_DRIVER

# The command line.
run 0 "$tarn" --help && says out '  sim  '
run 0 "$tarn" sim --help && says out 'Usage: tarn sim' && silent err
run 0 "$tarn" help sim && says out '--device-memory SIZE'
run 2 "$tarn" sim && says err 'no command was named' && silent out
run 2 "$tarn" sim --nonsense true && says err 'no option --nonsense'
run 2 "$tarn" sim --path=x && says err '--path takes no value'
for bad in 0 65 x ''; do run 2 "$tarn" sim "--devices=$bad" true && says err '--devices wants'; done
for bad in 1M x -1; do run 2 "$tarn" sim "--device-memory=$bad" true && says err '--device-memory wants'; done
for bad in 11 11.x 0.1 11.4x; do run 2 "$tarn" sim "--cuda-version=$bad" true && says err '--cuda-version wants'; done
for bad in a a:1 a:0:2 a:1:0 a:1:2x :1:2 'a,b:1:2' a:1:2+x; do run 2 "$tarn" sim "--fail=$bad" true && says err '--fail wants'; done
for bad in a a:x a:1:2; do run 2 "$tarn" sim "--slow=$bad" true && says err '--slow wants'; done
for rule in --fail=nosuch:1:2 --slow=cuMem:3 --fail=cuMemCreat:1:2; do run 2 "$tarn" sim $rule true && says err 'have no call "[a-zA-Z]*"$'; done
for rule in FAIL=nosuch:1:2 FAIL=cuInit:9:2,nosuch:1:2 SLOW=nosuch:3; do
    run 2 env "TARN_SIM_$rule" "$tarn" sim --fail cuInit:8:1 true && says err 'have no call "nosuch"$'
done
for bad in foo Orin ''; do run 2 "$tarn" sim "--card=$bad" true && says err '--card wants orin, thor'; done
few=() # a sanitizer's own memory lies behind addresses of 39 bits
[ -n "${TARN_SANITIZE:-}" ] || few=(va39)
for card in orin thor gb10 wsl2 mig mps gh200 apu "${few[@]}"; do run 0 "$tarn" sim --card "$card" env && says out "^TARN_SIM_CARD=$card$"; done
run 0 "$tarn" sim --card orin --device-memory 1G -- "$tarn" check
says out '^device 0: Orin, .* integrated: the limit is the machine.s memory, capability 8.7'
card() # NAME TEXT: what tarn check says of the device there
{
    run 0 "$tarn" sim --card "$1" --device-memory 1G -- "$tarn" check
    says out "^device 0: [^,]*, tarn simulated [A-Z]* device, .* free), $2"
}
card thor 'integrated: the limit is the machine.s memory, coherent, capability 11.0'
card wsl2 'paged by the system: the limit is what is free, capability 8.9, .*, no export'
card mig 'a MIG instance, capability 9.0'
card mps 'shared by MPS, capability 9.0'
card gh200 'coherent, capability 9.0'
[ -n "${TARN_SANITIZE:-}" ] || card va39 'addresses of 39 bits, capability 7.5'
for driver in '' --driver=hip; do # which is AMD's own
    # shellcheck disable=SC2086 # no word where there is none
    run 0 "$tarn" sim --card apu $driver --device-memory 1G -- "$tarn" check
    says out '^device 0: AMD Radeon 8060S, .* free), integrated, capability 11.5'
done
run 0 "$tarn" sim --card apu --driver cuda env && says out '^TARN_DRIVER=cuda$'
TARN_DRIVER=host run 0 "$tarn" sim --card apu env && says out '^TARN_DRIVER=host$'
run 0 "$tarn" sim --card apu --card thor env && lacks out '^TARN_DRIVER=' # the last card alone counts
run 0 env -u WSL_DISTRO_NAME "$tarn" sim --card wsl2 --card gh200 env && lacks out '^WSL_DISTRO_NAME='
before=$(ulimit -v)
run 0 "$tarn" sim --card va39 --card gh200 sh -c 'ulimit -v' && says out "^$before$"
run 0 "$tarn" sim --card wsl2 --device-memory 1G -- "$tarn" check --json
says out '"paged": true' && says out '"coherent": false' && says out '"address_bits": 4[78]'
for bad in foo CUDA ''; do run 2 "$tarn" sim "--driver=$bad" true && says err '--driver wants auto, cuda, hip or host'; done
run 127 "$tarn" sim "$work/nothing" && says err 'No such file'
run 126 "$tarn" sim "$work" && says err 'Permission denied'
run 7 "$tarn" sim -- sh -c 'exit 7'
# shellcheck disable=SC2016 # the shell's own
run 153 "$tarn" sim -- sh -c 'ulimit -f 1; exec head -c 4096 /dev/zero >"$0"' "$work/large" # of this signal the program hands nothing on
run 0 "$tarn" sim echo --devices 3 && says out '^--devices 3$' # the command's own option

# The environment.
run 0 "$tarn" sim --path && silent err
folder=$(cat "$work/out")
[ -f "$folder/libcuda.so.1" ] || fail "no libcuda.so.1 in $folder"
run 0 env LD_LIBRARY_PATH=/a:/b "$tarn" sim --devices 3 --device-memory 65M --cuda-version 11.4 --driver cuda \
    --fail cuMemCreate:1:2 --fail hipMalloc:3:4+ --slow any:5 env
says out "^LD_LIBRARY_PATH=$folder:/a:/b$"
says out '^TARN_HOST_DEVICES=3$'
says out '^TARN_HOST_MEMORY=67108864$'
says out '^TARN_SIM_CUDA_VERSION=11040$'
says out '^TARN_SIM_FAIL=cuMemCreate:1:2,hipMalloc:3:4+$'
says out '^TARN_SIM_SLOW=any:5$'
says out '^TARN_DRIVER=cuda$'
run 0 env TARN_DRIVER=host "$tarn" sim --driver cuda env && says out '^TARN_DRIVER=host$'

# A place that the loader's list cannot name: without a word the program would run on the machine's own driver.
mkdir -p "$work/a:b/sim" && cp "$tarn" "$work/a:b/tarn"
run 1 "$work/a:b/tarn" sim true && says err 'a:b/sim: the loader takes no path with ":"'

# A program: the driver is opened by name, as everyone does.
cat >"$work/program.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return puts(dlerror()), 1;
    int (*init)(unsigned) = 0, (*count)(int *) = 0, (*retain)(void **, int) = 0, (*set)(void *) = 0;
    int (*alloc)(unsigned long long *, size_t) = 0, (*fill)(unsigned long long, unsigned char, size_t) = 0;
    int (*read)(void *, unsigned long long, size_t) = 0, (*version)(int *) = 0;
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&count = dlsym(library, "cuDeviceGetCount");
    *(void **)&version = dlsym(library, "cuDriverGetVersion");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    *(void **)&fill = dlsym(library, "cuMemsetD8_v2");
    *(void **)&read = dlsym(library, "cuMemcpyDtoH_v2");
    int devices = 0, claimed = 0;
    void *context;
    unsigned long long address;
    unsigned char bytes[4] = {0};
    printf("before init: %d\n", count(&devices));
    printf("init: %d\n", init(0));
    printf("count: %d\n", count(&devices));
    printf("version: %d\n", version(&claimed));
    printf("devices %d version %d\n", devices, claimed);
    printf("no context: %d\n", alloc(&address, 1));
    printf("retain: %d\n", retain(&context, 0));
    printf("set: %d\n", set(context));
    printf("alloc: %d\n", alloc(&address, 1 << 20));
    printf("fill: %d\n", fill(address, 42, 4));
    printf("read: %d\n", read(bytes, address, 4));
    printf("byte: %d\n", bytes[3]);
    printf("too much: %d\n", alloc(&address, (size_t)1 << 30));
    return 0;
}
END
if [ -z "${TARN_SANITIZE:-}" ]; then
    "$CC" -o "$work/program" "$work/program.c" -ldl
    run 0 "$tarn" sim --devices 2 --device-memory 64M --cuda-version 12.4 "$work/program"
    for line in 'before init: 3' 'init: 0' 'count: 0' 'version: 0' 'devices 2 version 12040' 'no context: 201' 'retain: 0' \
        'set: 0' 'alloc: 0' 'fill: 0' 'read: 0' 'byte: 42' 'too much: 2'; do
        says out "^$line$"
    done
    run 0 "$tarn" sim --fail cuMemAlloc:1:2 "$work/program" && says out '^alloc: 2$'

    # With a malformed variable no driver starts, and standard error names it. Empty is not set, and the other vendor's card is none.
    begin() { run 0 env "TARN_SIM_$1" "$tarn" sim python3 -c "import ctypes; print(ctypes.CDLL('$2').$3(0))"; }
    for bad in CARD=gh2000 CUDA_VERSION=abc HIP_VERSION=6.1 STRICT=2 NVML_MEMORY=1 "PROCESSES=1:2,"; do
        begin "$bad" libcuda.so.1 cuInit && says out '^100$' && says err "^tarn sim: libcuda.so.1: TARN_SIM_$bad: it wants "
        begin "$bad" libamdhip64.so.6 hipInit && says out '^3$' && says err "^tarn sim: libamdhip64: TARN_SIM_$bad: it wants "
    done
    for bad in FAIL=cuInit:1 SLOW=cuInit SLOW=hipInit:1,hipInit:x; do
        begin "$bad" libcuda.so.1 cuInit && says out '^100$' && says err "TARN_SIM_$bad: it wants up to 16 rules as CALL:"
    done
    begin CARD=gh2000 libcuda.so.1 cuInit && says err ' orin .* gh200 .* apu$'
    for good in CARD= CARD=apu CARD=gh200 FAIL= STRICT=0 PROCESSES= "PROCESSES=1:2,3:?" NVML_MEMORY=4:3; do
        begin "$good" libcuda.so.1 cuInit && says out '^0$' && silent err
    done

    # After which codes each later call gives the same: those of which cuda.h says so, and no others.
    cat >"$work/codes.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*alloc)(unsigned long long *, size_t);
    unsigned long long address;
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    if (init(0) || retain(&context, 0) || set(context))
        return 1;
    int first = alloc(&address, 4096), second = alloc(&address, 4096);
    printf("%d %d\n", first, second);
    return 0;
}
END
    "$CC" -o "$work/codes" "$work/codes.c" -ldl
    for code in 1 2 {700..721} 999; do
        case $code in 700 | 702 | 710 | 71[4-9] | 721 | 999) after=$code ;; *) after=0 ;; esac
        run 0 "$tarn" sim --fail "cuMemAlloc:1:$code" "$work/codes" && says out "^$code $after$"
    done

    # Each rule counts every call, also one that another has failed; of two that mean the same call the first counts.
    run 0 "$tarn" sim --fail cuMemAlloc:1:2 --fail cuMemAlloc:2:1 "$work/codes" && says out '^2 1$'
    run 0 "$tarn" sim --fail cuMemAlloc:1:2+ --fail cuMemAlloc:2:1 "$work/codes" && says out '^2 2$'

    # Installed, and moved.
    cmake --install "$TARN_BUILD" --prefix "$work/first" >/dev/null
    mv "$work/first" "$work/prefix"
    run 0 "$work/prefix/bin/tarn" sim --path
    folder=$(cat "$work/out")
    case $folder in "$(cd "$work/prefix" && pwd -P)"/lib*/tarn/sim) ;; *) fail "$folder is not in the moved installation" ;; esac
    run 0 "$work/prefix/bin/tarn" sim "$work/program" && says out '^byte: 42$'
    rm -r "$folder"
    run 1 "$work/prefix/bin/tarn" sim "$work/program" && says err 'neither beside this program nor in'
fi
