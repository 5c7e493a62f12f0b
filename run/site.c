/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Who calls: from a return address to a site in the book. A table by address, which is only ever
 * added to, answers what was asked before without a lock. A library that is closed and another that
 * is loaded at its addresses share sites; programs rarely do that with a library that allocates on
 * a GPU.
 *
 * Programs that link the CUDA runtime as a shared library call the driver from within it, all of
 * them. There the stack is walked. */
#include "shim.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 4 * BOOK_SITES, FRAMES = 24, UNKNOWN_SITE = 0, UNKNOWN_LIBRARY = 0 };
#define IS_RUNTIME UINT32_C(0x80000000) /* with a site: the caller's caller is meant */

static struct {
    _Atomic uintptr_t address; /* 0: empty. Written last */
    uint32_t site;
} known[SLOTS];
/* A leaf, except for calls that take none */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(uintptr_t address)
{
    return (address * UINT64_C(0x9e3779b97f4a7c15)) >> 40 & (SLOTS - 1);
}

static bool find(uintptr_t address, uint32_t *site)
{
    size_t at = slot_of(address);
    for (uintptr_t there;
         (there = atomic_load_explicit(&known[at].address, memory_order_acquire));) {
        if (there == address) {
            *site = known[at].site;
            return true;
        }
        at = (at + 1) & (SLOTS - 1);
    }
    return false;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Its callers are who allocates. The driver is here for what it calls of its own exports. */
static bool is_runtime(const char *path)
{
    static const char *const names[] = RUN_RUNTIMES;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name_of(path), names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Of a path that is too long for the book the end says most. */
static void shorten(char text[static BOOK_PATH], const char *path)
{
    static const char missing[] = "...";
    size_t length = strlen(path), dots = length < BOOK_PATH ? 0 : sizeof missing - 1;
    const char *end = dots ? path + length - (BOOK_PATH - 1 - dots) : path;
    memset(text, 0, BOOK_PATH);
    memcpy(text, missing, dots);
    memcpy(text + dots, end, strlen(end) + 1);
}

static uint32_t library_number(const char *path)
{
    char text[BOOK_PATH];
    uint32_t count = atomic_load(&book->libraries);
    shorten(text, path);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(book->library[i].path, text) == 0)
            return i;
    if (count == BOOK_LIBRARIES)
        return UNKNOWN_LIBRARY;
    memcpy(book->library[count].path, text, sizeof text);
    atomic_store(&book->libraries, count + 1);
    return count;
}

struct found {
    char path[PATH_MAX];
    const char *symbol;
    uintptr_t offset;
};

/* The file that an address lies in. No lock of ours is held: the loader's may be taken. */
static bool locate(uintptr_t address, struct found *found)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1((void *)address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    found->offset = address - map->l_addr;
    found->symbol = info.dli_sname;
    if (map->l_name && map->l_name[0]) {
        strncpy(found->path, map->l_name, sizeof found->path - 1);
        return true;
    }
    return readlink("/proc/self/exe", found->path, sizeof found->path - 1) > 0;
}

static uint32_t add_site(const struct found *found)
{
    uint32_t count = atomic_load(&book->sites);
    if (count == BOOK_SITES)
        return UNKNOWN_SITE;
    struct book_site *site = &book->site[count];
    site->library = library_number(found->path);
    site->offset = found->offset;
    if (found->symbol)
        strncpy(site->symbol, found->symbol, sizeof site->symbol - 1);
    atomic_store(&book->sites, count + 1);
    return count;
}

static void add(uintptr_t address, uint32_t site)
{
    size_t at = slot_of(address);
    while (atomic_load(&known[at].address))
        at = (at + 1) & (SLOTS - 1);
    known[at].site = site;
    atomic_store_explicit(&known[at].address, address, memory_order_release);
}

/* Apart from lookup(), as clearing `found` takes longer than finding what is known. */
__attribute__((noinline)) static uint32_t enter(uintptr_t address)
{
    static uint32_t entries; /* under `adding`; the table is never more than half full */
    struct found found = {.path = ""};
    uint32_t site = UNKNOWN_SITE;
    bool located = locate(address, &found);
    pthread_mutex_lock(&adding);
    if (!find(address, &site)) {
        if (located)
            site = add_site(&found) | (is_runtime(found.path) ? IS_RUNTIME : 0);
        if (entries < SLOTS / 2) {
            add(address, site);
            entries++;
        }
    }
    pthread_mutex_unlock(&adding);
    return site;
}

/* The site of an address, with IS_RUNTIME; entered where it was not known and there is place. */
static uint32_t lookup(uintptr_t address)
{
    uint32_t site = UNKNOWN_SITE;
    return find(address, &site) ? site : enter(address);
}

static uint32_t site_above(uintptr_t address)
{
    void *frames[FRAMES];
    int count = backtrace(frames, FRAMES);
    int at = 0;
    while (at < count && (uintptr_t)frames[at] != address)
        at++;
    for (at++; at < count; at++) {
        uint32_t site = lookup((uintptr_t)frames[at]);
        if (!(site & IS_RUNTIME))
            return site;
    }
    return UNKNOWN_SITE;
}

uint32_t site_of(void *return_address)
{
    uint32_t site = lookup((uintptr_t)return_address);
    return site & IS_RUNTIME ? site_above((uintptr_t)return_address) : site;
}

uint32_t site_of_frame(void *return_address)
{
    return lookup((uintptr_t)return_address) & ~IS_RUNTIME;
}
