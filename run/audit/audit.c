/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An audit library of the loader (rtld-audit(7)), for programs that open the driver by an absolute
 * path or find it by their DT_RPATH. It replaces every name of the driver by the run's shim,
 * whoever asks; only the shim itself gets the driver. It binds no symbols, so it costs time only
 * while a library is loaded. It lives in a namespace of its own, with a libc of its own. */
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../book.h"

#define EXPORT __attribute__((visibility("default")))
enum { OTHER, SHIM }; /* values of an object's cookie */

EXPORT unsigned la_version(unsigned version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_ours(const char *path)
{
    const char *folder = getenv(RUN_FOLDER_VARIABLE);
    size_t length = folder ? strlen(folder) : 0;
    return length && strncmp(path, folder, length) == 0 && path[length] == '/';
}

EXPORT unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)space;
    *cookie = map->l_name && is_ours(map->l_name) ? SHIM : OTHER;
    return 0;
}

/* The shim's name for a driver's file name: libcuda.so with any suffix, and libamdhip64.so.N with
 * the same N. NULL for any other name. */
static const char *name_of(const char *base)
{
    static const char hip[] = "libamdhip64.so";
    static char numbered[sizeof hip + 2];
    if (strncmp(base, "libcuda.so", sizeof "libcuda.so" - 1) == 0)
        return "libcuda.so.1";
    if (strncmp(base, hip, sizeof hip - 1) != 0)
        return NULL;
    if (base[sizeof hip - 1] != '.')
        return base[sizeof hip - 1] ? NULL : hip;
    snprintf(numbered, sizeof numbered, "%s.%c", hip, base[sizeof hip]);
    return numbered;
}

/* The loader calls it under its lock, and copies what it gets.
 * NOLINTNEXTLINE(readability-non-const-parameter): as link.h has it */
EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    static char path[4096];
    const char *folder = getenv(RUN_FOLDER_VARIABLE), *wanted = name_of(base_of(name));
    if (flag != LA_SER_ORIG || *cookie == SHIM || !folder || !wanted ||
        (size_t)snprintf(path, sizeof path, "%s/%s", folder, wanted) >= sizeof path ||
        access(path, R_OK))
        return (char *)name;
    return path;
}
