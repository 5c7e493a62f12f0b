/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The real driver: the one library that this one needs by a path with a slash, which `tarn run`
 * wrote into this copy. Its functions are looked up in its own symbol table by name, never by
 * cuGetProcAddress() and never through this library. */
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

struct real real;

HOOK const char *tarn_run_driver(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    const char *strings = NULL;
    if (!dladdr1((void *)&real, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return "";
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB) /* glibc has turned it into an address, musl has not */
            strings =
                (const char *)(entry->d_un.d_ptr < map->l_addr ? map->l_addr + entry->d_un.d_ptr
                                                               : entry->d_un.d_ptr);
    for (const ElfW(Dyn) *entry = map->l_ld; strings && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_NEEDED && strings[entry->d_un.d_val] == '/')
            return strings + entry->d_un.d_val;
    return "";
}

static void find(void *library, void *function, const char *symbol)
{
    void *found = dlsym(library, symbol);
    memcpy(function, &found, sizeof found);
}

/* Several threads may do this at once: all of them store the same values. */
void real_find(void)
{
    void *library = dlopen(tarn_run_driver(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library)
        return;
#define X(name, version, mode, symbol, parameters, arguments) find(library, &real.symbol, #symbol);
    RUN_HOOK_LIST(X)
    RUN_ASK_LIST(X)
#undef X
}

__attribute__((constructor)) static void start(void)
{
    real_find();
}
