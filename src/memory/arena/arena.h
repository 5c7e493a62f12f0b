/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The arena: one device's address range and physical pieces.
 *
 *   addresses  base                                                        base + size
 *              |  run of heap A  |   unclaimed   |  run of heap B  |   unclaimed   |
 *   pieces     |[ piece ][piece ]|               |[    piece      ]|
 *
 * Addresses are claimed and unclaimed in granules. A claimed range belongs to one heap, which maps
 * pieces there and may read and write the range's entries of `pieces` without the arena's lock. A
 * piece that is not mapped is idle. It is in its store's list of unmapped pieces, and any heap of
 * that store may map it. Lock order: a heap's lock, then the arena's. */
#ifndef TARN_MEMORY_ARENA_H
#define TARN_MEMORY_ARENA_H

#include "base/debug_words.h"
#include "base/thread/lock.h"
#include "base/tree.h"
#include "device/device.h"
#include "memory/arena/kind.h"
#include "memory/arena/rules.h"
#include "memory/settings/caching.h"
#include "memory/settings/hooks.h"
#include "memory/settings/plan_file.h"
#include "record/counters.h"

#include <tarn/pool.h>

#define ARENA_ADDRESS_FACTOR 4 /* of the device's memory: room for runs to grow in place */

struct heap;
struct run;

struct piece {
    driver_piece handle;
    struct store *store;        /* the store that owns it */
    size_t size;                /* bytes, whole granules */
    uintptr_t address;          /* where it is mapped; 0: nowhere */
    atomic_uint anchors;        /* while there are any, it stays mapped there */
    atomic_uint seconds;        /* second addresses: while there are any, the driver keeps its
                                   memory */
    unsigned flags;             /* DRIVER_PIECE_*, from its creation: it serves only stores with the
                                   same flags */
    counters_oversize oversize; /* which counter has it as oversize */
    bool temporary;             /* temporary host memory: counted nowhere. Of a mapped piece: heap's
                                   lock */
    struct piece *next;         /* in its list */
};

/* Whether a piece stays where it is, even if its blocks are freed: a caller has anchored it, or
 * shares it with others. An anchor is added under the lock of the heap that has the piece, by code
 * that knows that no donation (growth.c) has taken the piece, for example because a live block lies
 * in it. Later donations skip the piece. */
static inline bool piece_is_anchored(const struct piece *piece)
{
    return atomic_load(&piece->anchors) != 0;
}

#define PIECE_LEAST_LARGE \
    ((size_t)20 << 20) /* bytes: the least that a growth for large blocks
                          creates */

struct piece_list {
    struct piece *first;
    size_t bytes;
};

/* A set of heaps in the order of their numbers, the newest first (heap/sets.c). The arena's
 * `sets_lock`. */
struct heap_set {
    struct tree heaps;
    unsigned from; /* the number of the heap behind which the next walk over a part of the set
                      begins; 0: with the newest */
};

/* What lies free in heaps, at the last look at each of them (heap/sums.c). The arena's
 * `sets_lock`. */
struct heap_sums {
    size_t free, waiting, tied; /* bytes; `tied`: of the free ones, in pieces that live blocks hold
                                   in place */
};

/* What the indices of a device's stores know of one (owners.c). The arena's lock. */
struct owned {
    size_t reserved, unmapped;    /* bytes, after the last change */
    bool left;                    /* it is among the arena's `leftovers` */
    struct tree_node by_reserved; /* with `reserved`, of a private pool: in the arena's `owners` */
    struct tree_node leftover;
};

/* A pool's share of the arena: its pieces, wherever they are, or plain segments (segment.h). The
 * store of the device's default pool is a member of the arena. The fields that determine how the
 * store gets memory are constant from the moment the store can be reached. */
struct store {
    struct arena *arena;
    struct counters *counters; /* NULL for imported memory, which is not counted */
    struct store_traits kind;  /* what is done with its memory: a copy of its row of the table, for
                                  the fast paths */
    unsigned flags;            /* STORE_*, of those that its kind allows */
    tarn_segment_sizes sizes;  /* of a kind that has rules: its own sizes; 0: those of the
                                  settings */
    tarn_pool_allocator allocator; /* of a kind that has rules: the caller's allocator; all NULL for
                                      the driver */
    atomic_uint_fast64_t searches; /* in segments, for large blocks, while garbage is collected: the
                                      age of segments */
    uint64_t id[2];                /* of the pool */
    struct piece_list unmapped;    /* arena lock: pieces that are mapped nowhere */
    size_t reserved;               /* arena lock: bytes of its pieces and plain segments */
    struct owned owned;            /* arena lock: what the indices of the arena know of both */
    unsigned piece_flags;          /* DRIVER_PIECE_* of pieces that it creates, in addition to the
                                      arena's; constant */
    atomic_size_t limit;           /* arena lock to write: the most that `reserved` may reach */
    uint64_t segments;             /* of a kind whose runs are one piece each; arena lock: runs ever
                                      created */

    /* Arena lock: in the arena's list of pools and in its table; among those that are left
     * behind. */
    struct store *next, *previous;
    struct tree_node by_id;
    struct store *next_left, *previous_left;
    struct store *next_spare, *previous_spare; /* among those of pools with `use_on_oom` */
    struct store *next_ended;                  /* of a pool without references that is not left
                                                  behind yet */

    atomic_uint holds;       /* graphs and open captures that use its addresses, live or free */
    atomic_bool left_behind; /* nothing can be allocated from the pool any more, and its idle memory
                                serves the default pool */
    atomic_bool suspended;   /* its addresses have no memory (suspend.c) */

    mutex lookup;        /* of the table below; a leaf */
    struct heap **heaps; /* by stream slot; NULL in the default pool's cached store, whose heaps the
                            streams name */
    unsigned heap_slots;
    struct heap_set all;     /* its heaps, those of retired streams too */
    struct heap_set lenders; /* of these, the ones in which a whole piece may be free */
    struct heap_set retired; /* and the ones of retired streams that may have memory */
    struct heap_set givers;  /* and the ones that may have something for others: private and not
                                left behind */
    struct tree summed;      /* sets_lock: its heaps with free memory, by their longest free span */
    struct heap_sums sums;   /* sets_lock: over its heaps */
};

struct arena {
    struct device *device;
    size_t granule; /* bytes */
    bool plain;     /* the driver refused addresses, so that the default is plain segments;
                       constant */

    /* The addresses, which virtual memory and imports need (arena_addresses()). `size` is set last,
     * and read first. */
    uintptr_t base;
    atomic_size_t size;     /* bytes; 0: there are none */
    struct piece **pieces;  /* by granule from base: the piece mapped there, or NULL */
    struct piece **seconds; /* by granule: the piece that begins there at a second address, or
                               NULL */
    uint64_t *generations;  /* by granule: of the mapping there (generation.h), or 0 */

    struct counters counters; /* of all pools of the device */
    struct counters own;      /* of the default pool; what it counts is in `counters` too */
    shared_lock mapping;      /* shared to map and unmap; exclusive to give a new peer
                                      access */

    /* Shared by code that moves memory; exclusive for code during which no memory may move
     * (moves.h). Before every other lock. */
    shared_lock moving;
    atomic_uint_fast64_t moves_begun, moves_ended;

    mutex lock;
    uint64_t *claimed;                       /* lock: one bit per granule */
    struct arena_part *parts;                /* lock: a tree of what is unclaimed (addresses.c) */
    _Alignas(CACHE_LINE) struct store store; /* of the default pool */
    struct store uncached;                   /* of the default pool too, while caching is off:
                                                tarn_caching_set() */
    struct store *stores;                    /* lock: of the private pools */
    struct tree pools;                       /* lock: the same, by their ids */
    struct tree owners;                      /* lock: of these, those that reserve memory, by how
                                                much (owners.c) */
    struct tree leftovers;                   /* lock: and those left behind with unmapped pieces */
    size_t unmapped;                         /* lock: bytes of all unmapped pieces */
    struct store *spares;                    /* lock: of these, the ones of pools with
                                                `use_on_oom` */
    struct store *left_first, *left_from;    /* lock: of these, the ones left behind; which to
                                                destroy next */
    _Atomic(struct store *) ended;           /* a stack of those whose last reference was dropped */
    struct store *ended_taken;               /* `collecting` (pool.c): what was taken from it */
    struct store imports;        /* pieces of other processes, in no heap; unmapped: those not
                                    released yet */
    atomic_uint_fast64_t let_go; /* references to private pools that were dropped: a pool may have
                                    ended */
    atomic_uint pools_ended;     /* private pools without references that are not destroyed yet */
    struct piece_list
        stuck; /* lock: still mapped because an unmap failed; in claimed addresses, tried again at a
                  trim */
    struct run *stuck_segments; /* lock: segments that could not be freed, tried again at a trim */
    size_t reserved;            /* lock: bytes of all pieces and segments, except imported and
                                   temporary pieces */
    size_t creating;            /* lock: of these, bytes that the driver has not created yet */
    unsigned piece_flags;       /* lock: DRIVER_PIECE_* of new pieces; constant while anything is
                                   reserved */
    size_t limit;               /* lock: bytes that reserved may reach */
    size_t configured;          /* lock: the limit that the settings gave last */
    unsigned retired;           /* lock: heaps of retired streams, and of stores left behind */
    struct heap *heaps;         /* lock: every heap, those of retired streams too */
    struct heap *unused_first, *unused_last; /* heaps_lock: heaps that are reused when they are
                                                empty, a queue */
    mutex sets_lock;                         /* of all sets of heaps; a leaf */
    struct heap_set common;                  /* the heaps whose idle memory serves every store:
                                                store_serves() */
    struct heap_set givers;                  /* of these, the ones that may have something for
                                                others */
    struct heap_set changed;                 /* heaps that have changed since `sums` */
    struct heap_sums sums;                   /* sets_lock: over all heaps */
    uint64_t looks;                          /* sets_lock: heaps that walks have come to */
    struct heap_set abandoned; /* of these, the ones of pools that are left behind, and that may
                                  have memory */
    /* By arena of the plan: the heap that follows it, or tried to and had no memory. */
    _Atomic(struct heap *) planned[PLAN_ARENAS_MOST];
};

static inline bool store_has(const struct store *store, enum store_flag flag)
{
    return store->flags & flag;
}

/* What contradicts the store's kind in its flags, sizes, allocator or pieces, for heap_verify();
 * NULL if nothing does. */
const char *store_contradiction(const struct store *store);

/* Whether a store belongs to its device's default pool. */
static inline bool store_is_default(const struct store *store)
{
    return store == &store->arena->store || store == &store->arena->uncached;
}

/* The store from which a device's default pool allocates now. */
static inline struct store *store_default(struct arena *arena)
{
    return atomic_load_explicit(&memory_is_uncached, memory_order_relaxed) ? &arena->uncached
                                                                           : &arena->store;
}

/* Whether idle memory of a store may be taken for another store, or the same: that of the default
 * pool, and of pools that are left behind. */
static inline bool store_serves(const struct store *store, const struct store *wanting)
{
    return store == wanting || store_is_default(store) || atomic_load(&store->left_behind);
}

/* Whether the memory of a store is announced: not that of a caller's allocator, and not
 * stream-ordered segments. */
static inline bool announces(const struct store *store)
{
    return announcer && !store->kind.pieces && !store->kind.ordered && !store->allocator.alloc;
}

/* The present rules of a store that has segments. */
static inline struct segment_rules store_rules(const struct store *store)
{
    return rules_of(memory_config(), &store->sizes);
}

/* The size up to which a store's segments are split, for its statistics; -1 if all are. */
int64_t store_max_split(const struct store *store);

/* The device's arena, created at its first use. */
tarn_status arena_of(struct device *device, struct arena **arena);

/* The same without creating it: NULL if the device's memory was not used yet. */
struct arena *arena_if_used(int device);
/* Each arena that is used takes over what the settings say. */
void arenas_configure(void);

/* Reserves an arena's addresses, unless it has them. One whose default pool is virtual has them
 * from the start, unless it is `plain`: so code calls this before memory of another kind comes.
 * TARN_ERROR_OUT_OF_MEMORY with a text that names what needs none. */
tarn_status arena_addresses(struct arena *arena);

/* Whether an address is one of the arena's. */
static inline bool arena_has(const struct arena *arena, uintptr_t address)
{
    size_t size = atomic_load_explicit(&arena->size, memory_order_acquire);
    return size && address - arena->base < size;
}

/* The arena that contains an address, or NULL; and whether any arena contains an address of a
 * range, which does not wrap. */
struct arena *arena_at(uintptr_t address);
bool arena_overlaps(uintptr_t start, size_t size);

/* Addresses. Claiming takes exactly [start, start + size), which the caller has seen unclaimed
 * while it held the lock without a break. `room_above` returns how many bytes are unclaimed from
 * `address` on. `find` returns the start of an unclaimed range of `size` bytes with room to grow,
 * or 0. */
void arena_claim_locked(struct arena *arena, uintptr_t start, size_t size);
void arena_unclaim(struct arena *arena, uintptr_t start, size_t size);
size_t arena_room_above_locked(const struct arena *arena, uintptr_t address);
uintptr_t arena_find_locked(struct arena *arena, size_t size);
/* The same for memory that will not grow: the highest unclaimed range, out of the way of runs. */
uintptr_t arena_find_high_locked(const struct arena *arena, size_t size);
/* Finds it, and claims it. TARN_ERROR_OUT_OF_MEMORY with a text if there is none. */
tarn_status arena_claim_high(struct arena *arena, size_t size, uintptr_t *start);
size_t arena_longest_locked(const struct arena *arena); /* bytes of the longest unclaimed stretch */
size_t arena_parts_bytes(size_t granules);              /* of `parts` */

/* The piece mapped at an address of a claimed range, or NULL. */
static inline struct piece *arena_piece(const struct arena *arena, uintptr_t address)
{
    return arena->pieces[(address - arena->base) / arena->granule];
}

/* The flags (DRIVER_PIECE_*) with which a store's pieces are created. */
static inline unsigned store_flags(const struct store *store)
{
    return store->piece_flags | store->arena->piece_flags;
}

/* What new memory is for. That decides which limits it must respect. */
enum charge {
    CHARGE_GROWTH, /* more memory: the limits of the device and of the pool, and leave_free_mb */
    CHARGE_RESUME, /* what a pool had before it was suspended: the same without the pool's limit */
    CHARGE_RETURN, /* memory that replaces what left within the same call: none */
};

/* Pieces. Creating one fails with TARN_ERROR_OUT_OF_MEMORY, before the driver is asked for it, if a
 * limit would be exceeded, or if less than leave_free_mb would stay free on the device. */
tarn_status piece_create(struct store *store, size_t size, enum charge charge,
                         struct piece **piece);
/* A piece of host memory, which replaces device memory while contents move. It is not counted, and
 * no limit applies. TARN_ERROR_NOT_SUPPORTED if the driver has no such memory. */
tarn_status piece_create_temporary(struct store *store, size_t size, struct piece **piece);
/* A temporary piece must stay, so it is counted from now on. Does nothing to other pieces. */
void piece_join(struct piece *piece);
/* Creates pieces of `size` bytes in total, each of about `largest` at most; none on failure. */
tarn_status pieces_create(struct store *store, size_t size, size_t largest, enum charge charge,
                          struct piece_list *list);
/* Bytes: about the largest piece that is created now. The fuller the device or the limit, the
 * smaller. */
size_t piece_largest_locked(const struct arena *arena);
/* Another process's piece of `size` bytes, by its file descriptor. */
tarn_status piece_import(struct arena *arena, int file, size_t size, struct piece **piece);
/* Gives an unmapped piece back to the driver; if that fails, it stays unmapped. It fails as long as
 * the driver refuses to unmap a second address of the piece. */
tarn_status piece_release(struct piece *piece);

/* Maps a list's pieces in its order from `start` on, into addresses that the caller claimed, and
 * sets access once, for the `before` bytes in front of them too, which the caller has mapped. On
 * failure the list is empty, its pieces are unmapped, with their stores, and the addresses stay
 * claimed. Then `left` is the number of bytes from `start` on that stay mapped because the driver
 * refuses to unmap them; a trim unclaims those. */
tarn_status pieces_map(struct arena *arena, struct piece_list *list, uintptr_t start, size_t before,
                       size_t *left);
/* Maps pieces into addresses of a run, which stay claimed, without access. On failure the pieces
 * are unmapped again, except those that the driver refuses to unmap. */
tarn_status pieces_map_claimed(struct arena *arena, struct piece_list *list, uintptr_t start);
/* Sets access to a range that is mapped without a hole, for the device and its peers. */
tarn_status arena_access(struct arena *arena, uintptr_t start, size_t size);
/* Unmaps the pieces of a range in one call, and adds them to the front of the list. The range
 * consists of whole pieces. */
tarn_status pieces_unmap(struct arena *arena, uintptr_t start, size_t size,
                         struct piece_list *list);

/* Maps the pieces of a range, which consists of whole pieces, a second time from `second` on. The
 * caller has claimed these addresses; access is not set. On failure `left` is the number of bytes
 * from `second` on that stay mapped because the driver refuses to unmap them, otherwise 0. */
tarn_status pieces_alias(struct arena *arena, uintptr_t start, size_t size, uintptr_t second,
                         size_t *left);
/* Exchanges the first and second addresses of the pieces of a range. From now on the pieces are
 * entered where they were mapped the second time. The range stays mapped and claimed, as their
 * second address. */
void pieces_move(struct arena *arena, uintptr_t start, size_t size, uintptr_t second);
/* Unmaps second addresses, which stay claimed. */
tarn_status arena_unmap(struct arena *arena, uintptr_t start, size_t size);

void pieces_push(struct piece_list *list, struct piece *piece);
void pieces_append(struct piece_list *list, struct piece_list *more); /* which is empty then */
struct piece *pieces_pop(struct piece_list *list);
void pieces_to_unmapped(struct arena *arena, struct piece_list *list); /* each of its store */
/* Moves unmapped pieces of one store to another, until at least `wanted` bytes have moved; or, if
 * the stores create pieces in different ways, releases them to the driver to make room for new
 * ones. Returns the bytes. */
size_t store_take(struct store *store, struct store *from, size_t wanted);
/* Releases unmapped pieces of a store until `wanted` bytes have gone back to the driver; returns
 * the bytes. */
size_t store_make_room(struct store *from, size_t wanted);
/* Takes unmapped pieces into `list`: as many as fit into `wanted` bytes, the largest first. If
 * bytes are then still missing, takes the smallest piece that covers them and is at most `most`. */
void pieces_from_unmapped_locked(struct store *store, size_t wanted, size_t most,
                                 struct piece_list *list);

/* What the store reserves, or has unmapped, has changed, or it is left behind now. */
void store_changed_locked(struct store *store);
/* Puts a piece among the unmapped ones of its store, and takes one, or NULL, from there. */
void unmapped_push_locked(struct piece *piece);
struct piece *unmapped_pop_locked(struct store *store);
/* Gives unmapped pieces back to the driver while the store has more than `keep` bytes reserved. */
tarn_status store_release_unmapped(struct store *store, size_t keep);
/* Whether the mappings in the store's addresses must stay as they are. */
static inline bool store_is_held(struct store *store)
{
    return atomic_load(&store->holds) || atomic_load(&store->suspended);
}

/* TARN_ERROR_SUSPENDED if memory of the store cannot be used now.
 *
 * Code that reads the pieces of a heap calls this under the heap's lock, or while it shares
 * `moving`, and reads under the same hold. A suspend writes these pieces with neither lock. This
 * orders the two:
 *   suspend    sets `suspended`, then takes `moving` alone for a moment, and each heap's lock. Code
 *              that read `false` before has let go of its lock by then. Code that takes the lock
 *              later finds `suspended` set, because suspend released the lock after it set that
 *   resume     clears `suspended` with release when the pieces are written; the acquire here that
 *              reads `false` comes after them */
tarn_status store_check(const struct store *store);

/* Charges `size` bytes to the limits of a store and its device, before the driver is asked for
 * them. Returns in `flags` how the memory is to be created. */
tarn_status store_charge(struct store *store, size_t size, enum charge charge, unsigned *flags);
/* Takes `size` charged bytes off again, last: the driver did not create them, or has them back. And
 * `creating` of the charged bytes are no longer about to be created: the driver counts them now, or
 * never will. */
void store_uncharge(struct store *store, size_t size, size_t creating);

/* Initializes a store of a device, without memory: virtual if the device has virtual memory and the
 * settings want it, otherwise plain. */
void store_init(struct store *store, struct arena *arena, struct counters *counters);
/* Makes a store that nothing can reach yet one of a kind, with the flags that the device and the
 * settings give to that kind, and those given. */
void store_is_of(struct store *store, enum store_kind kind, unsigned flags);
/* Notes the pieces of a range as stuck: the driver refused to unmap them. They stay mapped, and the
 * addresses claimed. */
void pieces_leave_stuck(struct arena *arena, uintptr_t start, size_t size);
/* For a trim: tries again to unmap stuck pieces, and to release imported ones. */
tarn_status arena_free_stuck(struct arena *arena);

/* Gives a device that has become a peer access to everything that is mapped on `device` now. */
tarn_status arena_grant(struct device *device, int peer);

/* Gives the address range back if it is empty; false if not. For tarn_shutdown(). */
bool arena_finish(struct arena *arena);

#endif
