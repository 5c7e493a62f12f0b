#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn run` and a program that harms what it is observed by: it writes anything into its book, its log and its stacks, cuts them short and
# puts other things in their places, at the end and all the while, also when it has become another user. The observer ends as the program
# ends, shows what there is, and writes no control character.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
unset LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT TARN_RUN_FOLDER TARN_RUN_LIMIT TARN_RUN_LOG TARN_RUN_GROUP TARN_RUN_POOL
folder=$TARN_BUILD/tests/run
[ -e "$folder/libcuda.so.1" ] || fail "no $folder/libcuda.so.1"
export TMPDIR=$work TARN_LIVE_DIRECTORY=$work TARN_METRICS=$work/metrics TARN_METRICS_INTERVAL=1
with=(timeout 60 env "LD_LIBRARY_PATH=$folder" "$tarn" run)
name=trust.$$
at_exit() { rm -f "/dev/shm/tarn-group.$(id -u).$name" "/tmp/tarn-group.$(id -u).$name"; }
cd "$work"

cat >vandal.c <<'END_OF_C'
#include "run/book.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CALL(name, ...) (((int (*)())dlsym(library, name))(__VA_ARGS__) ? (puts(name), _exit(9)) : (void)0)
enum { FILES = 8 };
static struct { char path[400]; int file; unsigned char *bytes; size_t size; } files[FILES];
static int count;

static void find(void)
{
    const char *folder = getenv("TARN_RUN_FOLDER");
    DIR *entries = opendir(folder);
    struct dirent *entry;
    while ((entry = readdir(entries)) && count < FILES) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || (strcmp(end, ".book") && strcmp(end, ".log") && strcmp(end, ".stk")))
            continue;
        struct stat about;
        snprintf(files[count].path, sizeof files[count].path, "%s/%s", folder, entry->d_name);
        files[count].file = open(files[count].path, O_RDWR);
        fstat(files[count].file, &about);
        files[count].size = about.st_size < 1 << 22 ? about.st_size : 1 << 22;
        if (files[count].size)
            files[count].bytes = mmap(NULL, files[count].size, PROT_READ | PROT_WRITE, MAP_SHARED, files[count].file, 0);
        count += files[count].size != 0;
    }
    closedir(entries);
}

/* The mark of a book stays, or it would not be opened any more. */
static void rubbish(int i, int share)
{
    for (size_t at = 16; at < files[i].size; at++)
        if (rand() % share == 0)
            files[i].bytes[at] = (unsigned char)(rand() % 3 ? rand() : rand() % 2 ? 0xff : 0x1b);
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context, *memory;
    srand(argc > 2 ? atoi(argv[2]) : 1);
    CALL("cuInit", 0);
    CALL("cuDevicePrimaryCtxRetain", &context, 0);
    CALL("cuCtxSetCurrent", context);
    for (int i = 0; i < 20; i++)
        CALL("cuMemAlloc_v2", &memory, (size_t)1 << 20);
    find();
    if (strcmp(what, "drops") == 0 && getuid() == 0) {
        if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
            _exit(8);
        what = "rubbish";
    }
    char page[64];
    snprintf(page, sizeof page, "tarn-live.%d", getpid());
    for (int i = 0; i < 1000 && access(page, F_OK); i++) /* it is seen as it was, first */
        usleep(10000);
    for (int i = 0; i < count; i++) {
        if (strcmp(what, "rubbish") == 0 || strcmp(what, "drops") == 0)
            rubbish(i, 1);
        else if (strcmp(what, "bits") == 0)
            rubbish(i, 200);
        else if (strcmp(what, "ones") == 0)
            memset(files[i].bytes + 16, 0xff, files[i].size - 16);
        else if (strcmp(what, "letters") == 0)
            for (size_t at = 16; at < files[i].size; at++)
                files[i].bytes[at] = "\033]0;taken\007\302\233"[at % 12];
        else if (strcmp(what, "cut") == 0)
            (void)!ftruncate(files[i].file, rand() % 3 * 16);
        else if (strcmp(what, "long") == 0)
            (void)!ftruncate(files[i].file, (off_t)1 << 42);
        else if (strcmp(what, "pipes") == 0) {
            unlink(files[i].path);
            mkfifo(files[i].path, 0600);
        }
    }
    if (strcmp(what, "meanwhile") == 0)
        for (time_t end = time(NULL) + 2; time(NULL) < end;)
            for (int i = 0; i < count; i++)
                rubbish(i, 50);
    usleep(300000);
    _exit(5);
}
END_OF_C
"$CC" -w -D_GNU_SOURCE -I"$TARN_SOURCE" vandal.c -o vandal -ldl

# harmed ARGUMENT..: the observer ends with the program's status and has said nothing that a terminal acts upon.
harmed()
{
    local status=0
    "${with[@]}" "$@" >out 2>err || status=$?
    [ "$status" -eq 5 ] || fail "status $status: $*"
    /usr/bin/python3 - err metrics <<'END' || fail "a control character: $*"
import os, sys, unicodedata
for name in sys.argv[1:]:
    text = open(name, encoding="utf-8", errors="replace").read() if os.path.exists(name) else ""
    assert not [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc",)], name
END
    says err '^tarn run: process'
}
for seed in 1 2 3 4 5 6; do
    harmed -o out.pickle --stacks ./vandal rubbish $seed
    harmed -o out.pickle --stacks ./vandal bits $seed
    harmed ./vandal cut $seed
done
harmed -o out.pickle ./vandal ones
harmed -o out.pickle --stacks ./vandal letters
harmed --limit 64M --group "$name" -o out.pickle --stacks ./vandal meanwhile
harmed -o out.pickle ./vandal drops
harmed --stacks -o long.pickle ./vandal long
harmed --stacks -o pipes.pickle ./vandal pipes
says err 'has no log: Invalid argument'
if find "$work" -maxdepth 1 -name 'tarn-run-*' | grep -q .; then fail "a folder was left"; fi

# The folder of a run is held, as systemd-tmpfiles respects it. One that goes all the same takes the limit of later processes along, and that
# is said, with a status.
cat >ager <<'END_OF_SCRIPT'
#!/bin/sh
"$1" take 20 || exit 7
flock -n "$TARN_RUN_FOLDER" true && exit 8
[ "$2" = stays ] || rm -rf "${TARN_RUN_FOLDER:?}${3:-}"
"$1" take 65
END_OF_SCRIPT
chmod +x ager
command=("${with[@]}" --quiet)
run 4 --limit 64M ./ager "$folder/probe" stays && lacks err 'was removed'
run 1 --limit 64M ./ager "$folder/probe" goes && says err 'was removed while the program ran.* had no limit$'
run 1 ./ager "$folder/probe" goes '/libcuda.so.1' && says err 'was removed while the program ran.* were not recorded$'
# shellcheck disable=SC2016 # expanded by sh
run 3 sh -c 'rm -rf "$TARN_RUN_FOLDER"; mkdir "$TARN_RUN_FOLDER"; : >"$TARN_RUN_FOLDER/kept"; exit 3'
says err 'was removed'
[ -e "$(echo "$work"/tarn-run-*/kept)" ] || fail "a folder of somebody else was removed"
