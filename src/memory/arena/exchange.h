/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Exchanging the physical memory under addresses that stay: the contents of a piece are copied into
 * others, and these are mapped where it was. The caller has `moving` alone, and makes sure
 * that no work uses the addresses until the end. */
#ifndef TARN_MEMORY_EXCHANGE_H
#define TARN_MEMORY_EXCHANGE_H

#include "memory/arena/arena.h"

/* A stretch of a piece whose contents stay, and what is to lie there instead of it. */
struct exchange_part {
    struct exchange_part *next;
    uintptr_t start;
    size_t size;         /* bytes, whole granules */
    struct piece *piece; /* new, of `size` */
};

/* Maps the parts' pieces at scratch addresses, copies the contents of the parts there, waits, and
 * unmaps them again. On failure pieces that cannot be unmapped are stuck (arena.h), and NULL in
 * their parts. With no lock but `moving`. */
tarn_status exchange_fill(struct arena *arena, struct exchange_part *parts);

/* Unmaps a piece and maps the parts' pieces; what no part covers stays without memory. On failure
 * the piece is where it was. Where not even that succeeds the device counts as lost, and the tables
 * say that it is. Under the lock of the heap, and sharing `mapping`, so that who looks at pieces of
 * live blocks sees the one or the other. Observers are to be told before, and after. */
tarn_status exchange_swap_locked(struct arena *arena, struct piece *piece,
                                 struct exchange_part *parts);

#endif
