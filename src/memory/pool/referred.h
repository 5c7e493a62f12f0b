/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks that remembered graphs refer to (tarn/graph.h). Such a block has a note in its list of
 * uses, so its free takes the slow path, which sees the note. Other blocks are not affected. A note
 * belongs to the live block, and to each list that names it. */
#ifndef TARN_MEMORY_REFERRED_H
#define TARN_MEMORY_REFERRED_H

#include "memory/heap/idle/wait.h"
#include "memory/pool/block.h"
#include "record/site.h"

#include <tarn/memory.h>

struct referred {
    atomic_uint holders;     /* the block, and lists */
    atomic_bool ended;       /* the block is gone, and `freed` is written */
    tarn_block_info block;   /* when it was noted: tarn_extend() may have changed its sizes */
    atomic_size_t requested; /* bytes of the block now, or when it ended; heap lock to change */
    struct site freed;
};

/* Grows with each end of such a block, with each suspend and resume of a pool, and with the begin
 * and end of each import: while it stays, nothing that graphs refer to has changed, except pages of
 * ranges. */
extern atomic_uint_fast64_t referred_changes;

/* The note of the live block around an address, made where there is none yet, with one holder more;
 * NULL: no block is live there. `block` receives the block as it is now.
 * TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status referred_of(uintptr_t address, struct referred **referred, tarn_block_info *block);
void referred_release(struct referred *referred);

static inline size_t referred_bytes(const struct referred *referred)
{
    return atomic_load_explicit(&referred->requested, memory_order_relaxed);
}

static inline bool referred_has_ended(const struct referred *referred)
{
    return atomic_load_explicit(&referred->ended, memory_order_acquire);
}

/* Whether a block has a note. Under its heap's lock, as what follows. */
static inline bool block_is_referred(const struct block *block)
{
    return use_referred(block_uses_of(block));
}
/* A block with these uses has another size. Does nothing if it has no note. */
static inline void referred_resize(const struct use *uses, size_t requested)
{
    struct referred *referred = use_referred(uses);
    if (referred)
        atomic_store_explicit(&referred->requested, requested, memory_order_relaxed);
}
/* A block that graphs refer to ends: by the thread's last site (site_here), or by a thread that is
 * not known. */
void block_end_referred(struct block *block);
void referred_end_remotely(struct use *note);

#endif
