/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Opens the vendors' libraries. Owns only the list of names that a test wants to be missing. */
#include "driver/loader.h"
#include "base/thread/cancel.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic(const char *) missing;

void loader_fail(const char *names)
{
    atomic_store(&missing, names);
}

bool loader_is_missing(const char *name)
{
    const char *at = atomic_load_explicit(&missing, memory_order_relaxed);
    size_t length = strlen(name);
    while (at && *at) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, name, length) == 0)
            return true;
        at += word;
        at += strspn(at, " ");
    }
    return false;
}

void loader_say(char *text, size_t size, const char *format, ...)
{
    if (!size)
        return;
    size_t used = strnlen(text, size - 1);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* Adds one reason, after the soname. dlerror() names the file that failed, which may be a
 * dependency. */
static void say_why(char *why, size_t size, const char *soname, const char *reason)
{
    const char *between = size && why[0] ? "; " : "";
    size_t length = strlen(soname);
    if (reason && strncmp(reason, soname, length) == 0 && reason[length] == ':')
        loader_say(why, size, "%s%s", between, reason);
    else
        loader_say(why, size, "%s%s: %s", between, soname, reason ? reason : "not found");
}

/* A library that the process has loaded comes first: a program that uses one major version must not
 * get another beside it. */
static void *find_loaded(const char *const *sonames, const char **soname)
{
    for (; *sonames; sonames++) {
        void *library = loader_is_missing(*sonames)
                            ? NULL
                            : dlopen(*sonames, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        *soname = *sonames;
        if (library)
            return library;
    }
    return NULL;
}

tarn_status loader_open(const char *const *sonames, struct loaded *loaded, char *why, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    const char *soname = NULL;
    void *library = find_loaded(sonames, &soname);
    if (size)
        why[0] = '\0';
    for (; !library && *sonames; sonames++) {
        soname = *sonames;
        if (loader_is_missing(soname)) {
            say_why(why, size, soname, "missing, as a test asked for");
            continue;
        }
        library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            say_why(why, size, soname, dlerror());
    }
    if (!library)
        return TARN_ERROR_LIBRARY_NOT_FOUND;
    if (size)
        why[0] = '\0';
    *loaded = (struct loaded){.library = library, .soname = soname};
    return TARN_OK;
}

bool loader_is_loaded(const char *soname)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    void *library =
        loader_is_missing(soname) ? NULL : dlopen(soname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library)
        (void)dlclose(library); /* it was loaded before, and stays loaded */
    return library;
}

void *loader_symbol(const struct loaded *loaded, const char *symbol)
{
    return loader_is_missing(symbol) ? NULL : dlsym(loaded->library, symbol);
}

const char *loader_path(const struct loaded *loaded)
{
    struct link_map *map = NULL;
    if (dlinfo(loaded->library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0])
        return map->l_name;
    return loaded->soname;
}

void loader_store(void *function, void *address)
{
    memcpy(function, &address, sizeof address);
}
