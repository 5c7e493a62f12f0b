/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page map: from an address to the span that holds it, for every device at once.
 *
 * A page is 64 KiB. The entry of a page is the block that begins in it, or the slab that it lies in; a block is never
 * shorter than a page, so at most one begins in each. Free memory has no entry. */
#ifndef TARN_MEMORY_MAP_H
#define TARN_MEMORY_MAP_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#define MAP_PAGE_SHIFT 16
#define MAP_PAGE ((size_t)1 << MAP_PAGE_SHIFT)
#define MAP_ADDRESS_BITS 48

struct span;

/* Makes room for entries of a range. May fail; afterwards map_set() in it cannot. */
tarn_status map_prepare(uintptr_t start, size_t size);

/* The entry of the page of an address; NULL for any address that was never prepared. Lock-free. */
struct span *map_get(uintptr_t address);
void map_set(uintptr_t address, struct span *span);

#endif
