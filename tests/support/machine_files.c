/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Files that the kernel would have, in a temporary folder. */
#include "support/machine_files.h"
#include "base/machine.h"
#include "support/host.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/tarn-machine-XXXXXX";

static int remove_one(const char *path, const struct stat *known, int kind, struct FTW *at)
{
    (void)known, (void)kind, (void)at;
    return remove(path);
}

void machine_files_begin(void)
{
    CHECK(mkdtemp(folder) != NULL);
    machine_root = folder;
}

void machine_files_end(void)
{
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void machine_file(const char *path, const char *text)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    for (char *at = whole + sizeof folder; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        (void)mkdir(whole, 0700);
    }
    FILE *file = fopen(whole, "we");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

bool machine_file_remove(const char *path)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    return unlink(whole) == 0;
}

void machine_has(size_t available, size_t total)
{
    char text[128];
    snprintf(text, sizeof text, "MemTotal: %zu kB\nMemFree: 1 kB\nMemAvailable: %zu kB\n",
             total * 1024, available * 1024);
    machine_file("proc/meminfo", text);
}
