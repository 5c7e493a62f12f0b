/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Exchanges the physical memory under addresses that stay: copies the contents of a piece into
 * others, and maps these where it was. The caller holds `moving` alone, and makes sure that no work
 * uses the addresses until the end. */
#ifndef TARN_MEMORY_EXCHANGE_H
#define TARN_MEMORY_EXCHANGE_H

#include "memory/arena/arena.h"

/* A part of a piece whose contents stay, and the new piece for it. */
struct exchange_part {
    struct exchange_part *next;
    uintptr_t start;
    size_t size;         /* bytes, whole granules */
    struct piece *piece; /* the new piece, of `size` bytes */
};

/* Maps the parts' pieces at scratch addresses, copies the contents into them, waits, and unmaps
 * them. On failure, pieces that cannot be unmapped are stuck (arena.h), and their parts' `piece` is
 * NULL. The caller holds no lock but `moving`. */
tarn_status exchange_fill(struct arena *arena, struct exchange_part *parts);

/* Unmaps a piece and maps the parts' pieces in its place. What no part covers has no memory
 * afterwards. On failure the piece is where it was. If even that fails, the device counts as lost,
 * and the tables say that the piece is there. The caller holds the heap's lock and shares
 * `mapping`, so that code that looks at pieces of live blocks sees either state whole. It calls
 * observers before and after. */
tarn_status exchange_swap_locked(struct arena *arena, struct piece *piece,
                                 struct exchange_part *parts);

#endif
