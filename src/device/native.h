/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A device's table from native streams (the vendor's pointers) to their slots. */
#ifndef TARN_DEVICE_NATIVE_H
#define TARN_DEVICE_NATIVE_H

#include "driver/driver.h"

#include <stdatomic.h>
#include <stddef.h>

struct stream;
struct native_list;

struct native_table {
    _Atomic(struct native_list *) list; /* NULL until used */
    size_t used; /* entries; the lock under which the table is changed: stream.c's `entering` */
};

/* Returns the slot of `native`, or NULL. Takes no lock, and may run beside a change of the table.
 * It can then miss a stream that is being entered or moved, but it never returns a wrong slot. For
 * the thread that changes the table the answer is exact. */
struct stream *native_find(struct native_table *table, driver_stream native);

/* native_enter() enters a slot under its native stream, which must have no entry. False: the host
 * has no memory. native_leave() takes out an entry. Both are called by one thread at a time. */
bool native_enter(struct native_table *table, struct stream *stream);
void native_leave(struct native_table *table, const struct stream *stream);

#endif
