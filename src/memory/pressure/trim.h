/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Giving idle memory back to the driver. */
#ifndef TARN_MEMORY_TRIM_H
#define TARN_MEMORY_TRIM_H

#include "memory/heap/heap.h"

/* Gives idle memory of a store back to the driver until the store has at most `keep` bytes
 * reserved. With `store` NULL: of the default pool and of what was left behind, until the device
 * has at most `keep`. Waits for work that still uses it. */
tarn_status trim(struct arena *arena, struct store *store, size_t keep);

/* Gives all idle memory of a store back to the driver, without a wait. Does nothing in a callback
 * of an observer of moved memory. */
void trim_without_waiting(struct arena *arena, struct store *store);

/* Frees unused workspaces and idle memory until the device has at most `keep` bytes reserved. */
void trim_make_room(struct arena *arena, size_t keep);

#endif
