/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which private pools have the most memory of a device, and how much lies unmapped: kept up to date
 * with each change, so that nobody has to go through all pools (owners.c). */
#ifndef TARN_MEMORY_OWNERS_H
#define TARN_MEMORY_OWNERS_H

#include "memory/arena/arena.h"

/* The private pool that reserves the most, or NULL; and the next after `store`. */
struct store *owner_largest_locked(const struct arena *arena);
struct store *owner_next_locked(const struct store *store);
/* Bytes that all of them reserve. */
size_t owners_reserved_locked(const struct arena *arena);

/* Of the stores that are left behind and have unmapped pieces, one behind `store` in a fixed order;
 * NULL starts and ends. */
struct store *leftover_next_locked(const struct arena *arena, const struct store *store);

#endif
