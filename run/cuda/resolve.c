/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuGetProcAddress(). The driver answers first. Its answer is replaced by a hook only if the hook
 * certainly has the prototype that the driver found. That is the row of the name and stream mode
 * with the greatest version that is neither above the one asked for nor missing in this driver.
 *
 * If the version asked for is newer than the list, the driver is asked once more, for the newest
 * version that the list was compared with. If it returns the same function, that has the same
 * prototype. Everything else is passed on as it is: empty names, flags with another meaning,
 * failures. */
#include "shim.h"

#include <string.h>

struct row {
    const char *name;
    int version;
    unsigned modes;
    void (*hook)(void);
    size_t real; /* offset of the driver's function in `real` */
};

static const struct row rows[] = {
#define X(name, version, mode, symbol, parameters, arguments) \
    {#name, version, mode, (void (*)(void))symbol, offsetof(struct real, symbol)},
    RUN_HOOK_LIST(X)
#undef X
};

static bool driver_has(const struct row *row)
{
    void *function;
    memcpy(&function, (const char *)&real + row->real, sizeof function);
    return function != NULL;
}

static const struct row *find(const char *name, int version, uint64_t flags)
{
    const struct row *best = NULL;
    if (flags > RUN_PER_THREAD)
        return NULL;
    unsigned mode = flags == RUN_PER_THREAD ? RUN_PER_THREAD : RUN_LEGACY;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((rows[i].modes & mode) && rows[i].version <= version &&
            strcmp(rows[i].name, name) == 0 && (!best || rows[i].version > best->version) &&
            driver_has(&rows[i]))
            best = &rows[i];
    return best;
}

/* Counts a function that is not hooked although the list has its name. */
static void note_unhooked(const char *name)
{
    if (!book)
        return;
    if (!book->unhooked_name[0])
        strncpy(book->unhooked_name, name, sizeof book->unhooked_name - 1);
    atomic_fetch_add(&book->unhooked, 1);
}

static cu_result ask(const char *name, void **address, int version, uint64_t flags)
{
    cu_lookup_status status;
    if (real.cuGetProcAddress_v2)
        return real.cuGetProcAddress_v2(name, address, version, flags, &status);
    return PASS(cuGetProcAddress, (name, address, version, flags));
}

static void substitute(const char *name, void **address, int version, uint64_t flags)
{
    if (!name || !address || !*address)
        return;
    const struct row *row = find(name, version, flags);
    void *known = NULL;
    if (!row)
        return;
    if (version > RUN_NEWEST && (ask(name, &known, RUN_NEWEST, flags) || known != *address)) {
        note_unhooked(name);
        return;
    }
    memcpy(address, &row->hook, sizeof *address);
}

HOOK cu_result cuGetProcAddress(const char *name, void **address, int version, uint64_t flags)
{
    cu_result code = PASS(cuGetProcAddress, (name, address, version, flags));
    if (!code && !shim_depth)
        substitute(name, address, version, flags);
    return code;
}

HOOK cu_result cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags,
                                   cu_lookup_status *status)
{
    cu_result code = PASS(cuGetProcAddress_v2, (name, address, version, flags, status));
    if (!code && !shim_depth)
        substitute(name, address, version, flags);
    return code;
}
