/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Call sites: from a return address to a site in the book. A table by address, to which entries are
 * only ever added, answers repeated questions without a lock. If a library is closed and another is
 * loaded at its addresses, both share sites; a program rarely does that with a library that
 * allocates on a GPU.
 *
 * In a program that links the CUDA runtime as a shared library, every call of the driver comes from
 * the runtime. There the stack is walked to find the caller. */
#include "shim.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 4 * BOOK_SITES, FRAMES = 24, UNKNOWN_SITE = 0, UNKNOWN_LIBRARY = 0 };
/* flag of a site: it is in the runtime, so the caller's caller counts */
#define IS_RUNTIME UINT32_C(0x80000000)

static struct {
    _Atomic uintptr_t address; /* 0: the entry is empty. Written last */
    uint32_t site;
} known[SLOTS];
/* A leaf. It is not held over a call that takes a lock. */
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

/* True for libraries whose callers count as call sites. The driver is one of them, because it calls
 * its own exports. */
static bool is_runtime(const char *path)
{
    static const char *const names[] = RUN_RUNTIMES;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name_of(path), names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* If a path is too long for the book, its end is kept. */
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

/* Finds the file that an address lies in. The caller holds no lock, since this may take the
 * loader's. */
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

/* Not inlined into lookup(): clearing `found` takes longer than finding a known address. */
__attribute__((noinline)) static uint32_t enter(uintptr_t address)
{
    static uint32_t entries; /* under `adding`; at most half of the table, so that searches end */
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

/* The site of an address, with its flag IS_RUNTIME. An unknown address is entered, if there is
 * room. */
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
