/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the objects that connect a vendor's destructor with the function to notify. The vendor also
 * calls the destructor when a graph did not take its reference; then no function is notified. */
#include "driver/held.h"
#include "base/pages.h"

#include <stdatomic.h>

struct held {
    void *argument;
    _Atomic(void (*)(void *)) end; /* NULL: there is no function to notify */
};

static struct object_pool all = OBJECT_POOL(struct held);

struct held *held_create(void (*end)(void *), void *argument)
{
    struct held *held = object_alloc(&all);
    if (!held)
        return NULL;
    held->argument = argument;
    atomic_store(&held->end, end);
    return held;
}

void held_end(void *argument)
{
    struct held *held = argument;
    void (*end)(void *) = atomic_load(&held->end);
    if (end)
        end(held->argument);
    object_free(&all, held);
}

void held_cancel(struct held *held, bool vendor_has_it)
{
    atomic_store(&held->end, NULL);
    if (!vendor_has_it)
        object_free(&all, held);
}
