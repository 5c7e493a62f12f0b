/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An order of a device's private pools by the memory they reserve, and an index of unmapped memory
 * left behind. Kept up to date with each change, so that no call has to go through all pools
 * (owners.c). Under the arena's lock. */
#ifndef TARN_MEMORY_OWNERS_H
#define TARN_MEMORY_OWNERS_H

#include "memory/arena/arena.h"

/* The private pool that reserves the most, or NULL. */
struct store *owner_largest_locked(const struct arena *arena);
/* The next one after `store`. */
struct store *owner_next_locked(const struct store *store);
/* Bytes that all private pools reserve. */
size_t owners_reserved_locked(const struct arena *arena);

/* The next store behind `store`, in a fixed order, that is left behind and has unmapped pieces;
 * NULL starts and ends. */
struct store *leftover_next_locked(const struct arena *arena, const struct store *store);

#endif
