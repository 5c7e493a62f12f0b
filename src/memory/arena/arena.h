/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The arena: one device's address range and physical pieces.
 *
 *   addresses  base                                                        base + size
 *              |  run of heap A  |   unclaimed   |  run of heap B  |   unclaimed   |
 *   pieces     |[ piece ][piece ]|               |[    piece      ]|
 *
 * Addresses are claimed and unclaimed in granules. A claimed range belongs to one heap, which maps pieces there; who
 * claimed a range may read and write its entries of `pieces` without the arena's lock. A piece that is mapped nowhere
 * is idle and lies with the unmapped ones of its store, for any heap of that to map. Lock order: a heap's lock, then the arena's. */
#ifndef TARN_MEMORY_ARENA_H
#define TARN_MEMORY_ARENA_H

#include "base/debug_words.h"
#include "base/lock.h"
#include "device/device.h"
#include "memory/arena/rules.h"
#include "memory/settings/announce.h"
#include "memory/settings/caching.h"
#include "record/counters.h"

#include <tarn/pool.h>

struct heap;
struct run;

struct piece {
    driver_piece handle;
    struct store *store;        /* whose it is */
    size_t size;                /* bytes, whole granules */
    uintptr_t address;          /* where it is mapped; 0: nowhere */
    atomic_uint anchors;        /* while there are any it stays there */
    unsigned flags;             /* that it was created with, DRIVER_PIECE_*: it serves who wants the same */
    counters_oversize oversize; /* who counts it so */
    bool apart;                 /* of the host's memory, for a moment: counted nowhere */
    struct piece *next;         /* of the list that it is in */
};

/* Whether it stays where it is, whoever frees what lies in it: a caller has pinned it, or shares it with others. An anchor is added under
 * the lock of the heap in which a live block lies in the piece, and so never in a donor's hands; later donors pass it over. */
static inline bool piece_is_anchored(const struct piece *piece)
{
    return atomic_load(&piece->anchors) != 0;
}

#define PIECE_LEAST_LARGE ((size_t)20 << 20) /* bytes: that a growth for large blocks creates */

struct piece_list {
    struct piece *first;
    size_t bytes;
};

/* What a pool has of the arena: its pieces, wherever they are, or plain segments (segment.h). The device's default pool is the
 * arena's own store. What says how it comes by memory is constant once the store can be reached. */
struct store {
    struct arena *arena;
    struct counters *counters; /* NULL for what is imported, and no memory of the device's */
    bool of_pool;              /* the first member of a private pool (pool.h); the arena's own stores are not */
    bool plain;                /* segments that come from the driver, or an allocator, as a whole */
    bool no_split;             /* plain: a segment is one block */
    bool no_slabs;             /* plain: small blocks are spans too */
    bool uncached;             /* plain: nothing is used twice */
    bool ordered;              /* raw: segments come and go in the order of their stream, by the driver's own pools */
    tarn_segment_sizes sizes;  /* plain: of its own; 0 where the settings count */
    tarn_pool_allocator allocator; /* plain: whose segments they are; all NULL for the driver's */
    atomic_uint_fast64_t searches; /* plain: for large blocks, while garbage is collected: the age of segments */
    uint64_t id[2];                /* of the pool */
    struct piece_list unmapped;    /* arena lock: pieces that are mapped nowhere */
    size_t reserved;               /* arena lock: bytes of its pieces */
    unsigned piece_flags;          /* DRIVER_PIECE_* of what it creates, beside the arena's; constant */
    size_t limit;                  /* arena lock: bytes that they may reach */
    bool remaps;                   /* memory that is free in order may be mapped a second time */
    bool registrable;              /* each run is a segment, of one piece (registrable.h); constant */
    uint64_t segments;             /* registrable, arena lock: how many there have been */
    struct store *next;            /* arena lock: in the arena's list */

    /* How many graphs and open captures use its addresses, live or not. Nobody can allocate from it any more: its idle memory serves
     * the default pool. Its addresses have no memory (suspend.c). */
    atomic_uint holds;
    atomic_bool left_behind, suspended;

    mutex lookup;        /* of the table below; a leaf */
    struct heap **heaps; /* by stream slot; not of the default pool, whose heaps the streams name */
    unsigned heap_slots;
};

struct arena {
    struct device *device;
    uintptr_t base;
    size_t size, granule;          /* bytes */
    struct piece **pieces;         /* by granule from base: the piece mapped there, or NULL */
    uint64_t *generations;         /* by granule: of the mapping there (generation.h), or 0 */
    struct counters counters, own; /* of all pools of the device; of the default pool alone, whose parent that is */
    shared_lock mapping; /* shared by code that maps or unmaps; alone is code that grants a new peer what is mapped */

    /* Shared by code that moves memory; alone is code that must know that nobody does: moves.h. Before every other lock. */
    shared_lock moving;
    atomic_uint_fast64_t moves_begun, moves_ended;

    mutex lock;
    uint64_t *claimed;                       /* lock: a bit a granule */
    _Alignas(CACHE_LINE) struct store store; /* of the default pool */
    struct store uncached;                   /* the same pool's while nothing is cached: tarn_caching_set() */
    struct store *stores;                    /* lock: of the private pools */
    struct store
        imports; /* pieces of other processes, in no heap; the unmapped ones are what the driver did not take back yet */
    atomic_uint_fast64_t
        let_go;              /* how often a count of a private pool was given back: a sign that one may have ended */
    atomic_uint pools_ended; /* private pools that nobody counts, and that are not gone yet */
    struct piece_list
        stuck; /* lock: still mapped because an unmap failed; in claimed addresses, tried again at a trim */
    struct run *stuck_segments; /* lock: that could not be given back, tried again at a trim */
    size_t reserved;            /* lock: bytes of all pieces and segments that exist */
    size_t creating;            /* lock: of these, bytes that the driver has not made yet */
    unsigned piece_flags; /* lock: DRIVER_PIECE_* of all that is created; changes only while nothing is reserved */
    size_t limit;         /* lock: bytes that reserved may reach */
    size_t configured;    /* lock: what the settings last made of the limit */
    unsigned retired;     /* lock: heaps of retired streams, and of stores left behind */
    struct heap *heaps;   /* lock: every heap, those of retired streams too */
    _Atomic(struct heap *) planned; /* that follows a plan, or tried to and had no memory */
};

/* Whether a store is its device's default pool's. */
static inline bool store_is_default(const struct store *store)
{
    return store == &store->arena->store || store == &store->arena->uncached;
}

/* Where a device's default pool allocates. */
static inline struct store *store_default(struct arena *arena)
{
    return atomic_load_explicit(&memory_is_uncached, memory_order_relaxed) ? &arena->uncached : &arena->store;
}

/* Whether idle memory of a store may be taken for another, or the same: of the default pool, and of what is left behind. */
static inline bool store_serves(const struct store *store, const struct store *wanting)
{
    return store == wanting || store_is_default(store) || atomic_load(&store->left_behind);
}

/* Whether what a store has is announced: not what a caller's allocator gave, nor what comes in the order of a stream. */
static inline bool announces(const struct store *store)
{
    return announcer && store->plain && !store->ordered && !store->allocator.alloc;
}

/* The rules of a plain store now. */
static inline struct segment_rules store_rules(const struct store *store)
{
    return rules_of(memory_config(), &store->sizes);
}

/* The largest segments of a store that are cut, for its statistics; -1 where all are. */
int64_t store_max_split(const struct store *store);

/* The device's arena, made at its first use. */
tarn_status arena_of(struct device *device, struct arena **arena);

/* The same without making it: NULL where the device's memory was not used. */
struct arena *arena_if_used(int device);

/* The arena that an address lies in, or NULL; and whether any has an address of a range, which does not wrap. */
struct arena *arena_at(uintptr_t address);
bool arena_overlaps(uintptr_t start, size_t size);

/* Addresses. Claiming takes exactly [start, start + size), which the caller has seen unclaimed under the same hold of
 * the lock. `room_above` gives how many bytes are unclaimed from `address` on. `find` gives the start of an unclaimed
 * stretch of `size` bytes with room to grow, or 0. */
void arena_claim_locked(struct arena *arena, uintptr_t start, size_t size);
void arena_unclaim(struct arena *arena, uintptr_t start, size_t size);
size_t arena_room_above_locked(const struct arena *arena, uintptr_t address);
uintptr_t arena_find_locked(struct arena *arena, size_t size);
/* The same for what will not grow: the highest that there is, out of the way of runs. */
uintptr_t arena_find_high_locked(const struct arena *arena, size_t size);
size_t arena_longest_locked(const struct arena *arena); /* bytes of the longest unclaimed stretch */

/* The piece mapped at an address of a claimed range, or NULL. */
static inline struct piece *arena_piece(const struct arena *arena, uintptr_t address)
{
    return arena->pieces[(address - arena->base) / arena->granule];
}

/* How pieces of a store are created: it takes over no others. */
static inline unsigned store_flags(const struct store *store)
{
    return store->piece_flags | store->arena->piece_flags;
}

/* Pieces. Creating fails with TARN_ERROR_OUT_OF_MEMORY at a limit, and where less than leave_free_mb would stay free on the
 * device, without asking the driver for any. */
tarn_status piece_create(struct store *store, size_t size, struct piece **piece);
/* A piece of the host's memory, which stands in for the device's while contents move: it is counted nowhere and no limit bars it, unless it
 * has to stay: then it joins the counts. TARN_ERROR_NOT_SUPPORTED where the driver has none. */
tarn_status piece_create_apart(struct store *store, size_t size, struct piece **piece);
void piece_join(struct piece *piece);
/* Pieces of `size` bytes in all, each of about `largest` at most; none on failure. */
tarn_status pieces_create(struct store *store, size_t size, size_t largest, struct piece_list *list);
/* Bytes: about as large is a piece at most that is created now; the nearer the device or the limit is to being full, the smaller. */
size_t piece_largest_locked(const struct arena *arena);
/* Another process's piece of `size` bytes, by its file descriptor. */
tarn_status piece_import(struct arena *arena, int file, size_t size, struct piece **piece);
/* Gives a piece that is mapped nowhere back to the driver; where that fails it stays, unmapped. */
tarn_status piece_release(struct piece *piece);

/* Maps a list's pieces in its order from `start` on, into addresses that the caller claimed, and sets access once, for the
 * `before` bytes in front of them too, which the caller has mapped. On
 * failure the list is empty, its pieces are unmapped, with their stores, and the addresses unclaimed. */
tarn_status pieces_map(struct arena *arena, struct piece_list *list, uintptr_t start, size_t before);
/* The same into addresses of a run, which stay claimed, without access: on failure the pieces are unmapped, except those that
 * the driver does not unmap again. And access to a range that is mapped without a hole. */
tarn_status pieces_map_claimed(struct arena *arena, struct piece_list *list, uintptr_t start);
tarn_status arena_access(struct arena *arena, uintptr_t start, size_t size);
/* Unmaps the pieces of a range, which whole pieces fill, in one call, and puts them in front of the list. */
tarn_status pieces_unmap(struct arena *arena, uintptr_t start, size_t size, struct piece_list *list);

/* Maps the pieces of a range, which whole pieces fill, a second time from `second` on, which the caller claimed; access is not
 * set. On failure `left` is the bytes from `second` on that stay mapped because the driver does not undo it, else 0. */
tarn_status pieces_alias(struct arena *arena, uintptr_t start, size_t size, uintptr_t second, size_t *left);
/* Says that the pieces of a range now are where they were mapped second; the range stays mapped and claimed. */
void pieces_move(struct arena *arena, uintptr_t start, size_t size, uintptr_t second);
/* Unmaps and unclaims addresses at which no piece is any more. */
tarn_status arena_unmap(struct arena *arena, uintptr_t start, size_t size);

void pieces_push(struct piece_list *list, struct piece *piece);
void pieces_append(struct piece_list *list, struct piece_list *more); /* which is empty then */
struct piece *pieces_pop(struct piece_list *list);
void pieces_to_unmapped(struct arena *arena, struct piece_list *list); /* each of its store */
/* Makes unmapped pieces of one store another's, until at least `wanted` bytes came; or where they are not created alike, gives
 * them back to the driver for new ones. Gives how many bytes came so. */
size_t store_take(struct store *store, struct store *from, size_t wanted);
/* Takes unmapped pieces into `list`: as many as fit in `wanted` bytes, largest first, and if bytes are missing
 * then, the smallest that covers them and is at most `most`. */
void pieces_from_unmapped_locked(struct store *store, size_t wanted, size_t most, struct piece_list *list);

/* Gives unmapped pieces back to the driver while the store has more than `keep` bytes reserved. */
tarn_status store_release_unmapped(struct store *store, size_t keep);
/* Whether what is mapped in its addresses stays as it is. */
static inline bool store_is_held(struct store *store)
{
    return atomic_load(&store->holds) || atomic_load(&store->suspended);
}

/* TARN_ERROR_SUSPENDED where memory of the store cannot be used now.
 *
 * Whoever is to look at the pieces of a heap calls it under the heap's lock, or while it shares `moving`, and looks under the same hold.
 * A suspend writes these pieces with neither. What orders the two:
 *   suspend    sets `suspended`, then takes `moving` alone for a moment, and each heap's lock: who has looked before has ended before
 *              that hold, and who comes after it finds `suspended` set, because the lock that it took was released after the store
 *   resume     clears `suspended` with release when the pieces are written; the acquire here that reads `false` comes after them */
tarn_status store_check(const struct store *store);

/* Takes `size` bytes of the limits of a store and its device, before they are asked for; and gives them back, at last. `flags` say how
 * what is reserved then is created; `creating` bytes
 * are in the driver's count from then on, or never will be. */
tarn_status store_charge(struct store *store, size_t size, unsigned *flags);
void store_uncharge(struct store *store, size_t size, size_t creating);

/* A store of a device, without memory; of pieces where the device has virtual memory, and they are wanted. */
void store_init(struct store *store, struct arena *arena, struct counters *counters);
/* Leaves mapped pieces of claimed addresses, which the driver would not unmap, to a trim; which tries again, and gives back what
 * was imported. */
void pieces_leave_stuck(struct arena *arena, uintptr_t start, size_t size);
tarn_status arena_free_stuck(struct arena *arena);

/* Lets a device that has become a peer reach what is mapped on `device` now. */
tarn_status arena_grant(struct device *device, int peer);

/* Gives the address range back, if nothing is left in it; false where something is. For tarn_shutdown(). */
bool arena_finish(struct arena *arena);

#endif
