/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slot of a device's native stream, by the vendor's pointer. */
#ifndef TARN_DEVICE_NATIVE_H
#define TARN_DEVICE_NATIVE_H

#include "driver/driver.h"

#include <stdatomic.h>
#include <stddef.h>

struct stream;
struct native_list;

struct native_table {
    _Atomic(struct native_list *) list; /* NULL until used */
    size_t used;                        /* the lock of who changes the table */
};

/* Without a lock, beside changes: the slot of `native`, or NULL, also for one that is entered or
 * moved at this moment. Whoever changes the table is never given the wrong answer. */
struct stream *native_find(struct native_table *table, driver_stream native);

/* Enters a slot under its native stream, which has none yet; false where the host has no memory.
 * Takes one out that is in it. One thread at a time. */
bool native_enter(struct native_table *table, struct stream *stream);
void native_leave(struct native_table *table, const struct stream *stream);

#endif
