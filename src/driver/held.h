/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Notification of the end of a vendor's graph, through a user object that the driver gives to the
 * graph. Thread-safe. */
#ifndef TARN_DRIVER_HELD_H
#define TARN_DRIVER_HELD_H

#include <stdbool.h>

struct held;

/* NULL where the host is out of memory. */
struct held *held_create(void (*end)(void *), void *argument);

/* The vendor's destructor: notifies, and frees the object. Any thread. */
void held_end(void *held);

/* Frees the object without notifying. If the vendor has it already, its destructor will free it,
 * and not notify. */
void held_cancel(struct held *held, bool vendor_has_it);

#endif
