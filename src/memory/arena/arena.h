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
#include "base/inbox.h"
#include "base/thread/lock.h"
#include "base/tree.h"
#include "device/device.h"
#include "memory/arena/kind.h"
#include "memory/arena/moves.h"
#include "memory/arena/rules.h"
#include "memory/settings/caching.h"
#include "memory/settings/hooks.h"
#include "memory/settings/plan_file.h"
#include "record/counters.h"

#include <tarn/pool.h>

#define ARENA_ADDRESS_FACTOR 4 /* of the device's memory, so that runs have room to grow in place */
#define ARENA_LEAST_PART 16    /* at least one part in so many of the device's memory */

struct heap;
struct run;

struct piece {
    driver_piece handle;
    struct store *store; /* the store that owns it */
    size_t size;         /* bytes, whole granules */
    uintptr_t address;   /* where it is mapped; 0: nowhere */
    atomic_uint anchors; /* while not 0, the piece stays mapped there */
    /* Second addresses; while not 0, the driver keeps the piece's memory. */
    atomic_uint seconds;
    /* DRIVER_PIECE_*, from its creation. The piece serves only stores with the same flags. */
    unsigned flags;
    counters_oversize oversize; /* which oversize counter has it */
    /* Temporary host memory, counted nowhere; of a mapped piece: heap's lock. */
    bool temporary;
    struct piece *next; /* in its list */
};

/* Whether a piece stays where it is, even if its blocks are freed, because a caller anchored or
 * shares it. An anchor is added under the lock of the heap that has the piece, by code that knows
 * that no donation (growth.c) has taken the piece, for example because a live block is in it. Later
 * donations skip the piece. */
static inline bool piece_is_anchored(const struct piece *piece)
{
    return atomic_load(&piece->anchors) != 0;
}

/* Bytes: the least that a growth for large blocks creates. */
#define PIECE_LEAST_LARGE ((size_t)20 << 20)

struct piece_list {
    struct piece *first;
    size_t bytes;
};

/* Marks that heaps await (heap/idle/awaited.c). Under the arena's `sets.lock`. */
struct awaited_tree {
    struct tree marks; /* by stream, then in the order of recording */
    size_t waits;      /* the most waits until all that these heaps wait for has ended */
};

/* A set of heaps by number, the newest first (heap/sets.c). Under the arena's `sets.lock`. */
struct heap_set {
    struct tree heaps;
    /* The next walk over a part of the set begins behind the heap with this number. 0: at the
     * newest. */
    unsigned from;
};

/* Sums over heaps, each as it was when last looked at (heap/sums.c). Under the arena's
 * `sets.lock`. */
struct heap_sums {
    /* Bytes; `tied`: free bytes in pieces that live blocks hold in place. */
    size_t free, waiting, tied;
    size_t holes;      /* bytes of whole granules that are free, where compaction may be */
    size_t segments;   /* large plain segments that are entirely free */
    uint64_t freed_at; /* the sum of `freed_at` (span.h) of those segments, for their mean age */
};

/* What the arena's indices of stores contain of one store (owners.c). Under the arena's lock. */
struct owned {
    size_t reserved, unmapped; /* bytes, at the last change */
    uint64_t changes;          /* how often the bytes of unmapped pieces have changed */
    bool left;                 /* it is among the arena's `pools.unmapped` */
    /* In the arena's `pools.by_reserved`, if it is a private pool that reserves memory. */
    struct tree_node by_reserved;
    struct tree_node leftover;
};

/* A store's places among the arena's pools (arena_pools, below). Under the arena's lock. */
struct store_lists {
    struct store *next, *previous; /* all pools */
    struct tree_node by_id;
    struct store *next_left, *previous_left; /* those left behind */
    struct inbox_item ended;                 /* in `pools.ended`, then in `pools.ended_taken` */
};

/* The heaps of a store by stream (heap/heaps.c). That of the default pool is empty, because its
 * heaps are in `struct stream`. */
struct heap_table {
    /* A leaf. A change of `of` or `slots` needs heaps_lock too; either is enough to read them. */
    mutex lookup;
    struct heap **of; /* by the stream's slot */
    unsigned slots;
};

/* The sets of a store's heaps, and what its heaps contain in all, as `arena_sets` has it of a
 * device. What is not atomic is under the arena's `sets.lock`. */
struct store_sets {
    struct heap_set all;     /* also those of retired streams */
    struct heap_set lenders; /* heaps in which a whole piece may be free */
    struct heap_set retired; /* heaps of retired streams that may have memory */
    /* Heaps that may have something for others; empty if the store serves every store. */
    struct heap_set givers;
    struct awaited_tree awaited; /* of heaps that would be among `givers`, and await work */
    /* Heaps whose offers a search has set aside, because the store was held (heap/help.c). */
    struct heap_set aside;
    atomic_bool is_aside; /* `aside` may have heaps */
    atomic_bool is_told;  /* the store is in the arena's `sets.told` */
    struct inbox_item told;
    struct tree summed; /* heaps with free memory, by their longest free span */
    /* Heaps with free large segments, by the one that has been free the longest. */
    struct tree aged;
    struct heap_sums sums; /* over all its heaps */
};

/* A pool's share of the arena: its pieces, wherever they are, or its plain segments (segment.h).
 * The store of the device's default pool is a member of the arena. Fields without a lock are
 * constant from the moment the store can be reached. */
struct store {
    struct arena *arena;
    struct counters *counters; /* NULL: imported memory, which is not counted */
    struct store_traits kind;  /* a copy of its kind's row of the table, for the fast paths */
    unsigned flags;            /* STORE_*; only those that its kind allows */
    /* Only for kinds with rules: its own sizes; 0: those of the settings. */
    tarn_segment_sizes sizes;
    /* Only for kinds with rules: the caller's allocator; all NULL: the driver. */
    tarn_pool_allocator allocator;
    /* Searches for large blocks in segments, while garbage is collected: the clock for the age
     * of segments. */
    atomic_uint_fast64_t searches;
    uint64_t id[2];             /* of the pool */
    struct piece_list unmapped; /* arena lock: pieces that are mapped nowhere */
    size_t reserved;            /* arena lock: bytes of its pieces and plain segments */
    struct owned owned;         /* arena lock: what the arena's indices contain of it */
    struct {
        uint64_t changes; /* those of `owned` when a pass last found new ones */
        uint64_t from;    /* ns: the time of that pass */
    } still;              /* only the thread that gives idle memory back (pressure/release.c) */
    /* DRIVER_PIECE_* of pieces that it creates, in addition to the arena's. */
    unsigned piece_flags;
    /* Bytes: the most that `reserved` may reach; changes under the arena lock. */
    atomic_size_t limit;
    /* Arena lock; only if runs are one piece each: how many were ever created. */
    uint64_t segments;

    struct store_lists lists; /* its places among the arena's pools */

    unsigned idle_release; /* ms, as tarn_pool_options has it */
    atomic_uint holds;     /* graphs and open captures that use its addresses */
    /* Nothing can be allocated from it any more; its idle memory serves the default pool. */
    atomic_bool left_behind;
    atomic_bool suspended; /* its addresses have no memory (suspend.c) */

    struct heap_table heaps; /* by stream */
    struct store_sets sets;  /* its heaps by what they have, and what all of them have */
};

/* The private pools of a device. What is not atomic is under the arena's lock. */
struct arena_pools {
    struct store *list;
    struct tree by_id;
    struct tree by_reserved;  /* the pools that reserve memory, by how much (owners.c) */
    struct tree unmapped;     /* stores left behind that have unmapped pieces (owners.c) */
    struct store *left_first; /* the pools left behind */
    struct store *left_from;  /* where the next attempt to destroy some of them begins */
    atomic_uint helpers;      /* the number of pools with `use_on_oom` */

    /* `ended`: pools whose last reference was dropped. `ended_taken`: those that were taken from
     * there under `collecting` (pool.c). */
    struct inbox ended;
    struct inbox_item *ended_taken;
    atomic_uint waiting; /* pools without references that are not destroyed yet */
    /* How often a reference to a private pool was dropped: a change means that a pool may have
     * ended. */
    atomic_uint_fast64_t let_go;
};

/* The heaps of a device (heap/heaps.c). None is ever destroyed. */
struct arena_heaps {
    struct heap *all; /* arena lock: also those of retired streams */
    unsigned retired; /* arena lock: how many are of retired streams or of stores left behind */
    /* heaps_lock: queue of heaps to be reused when they are empty. */
    struct heap *unused_first, *unused_last;
};

/* The sets of a device's heaps, and what their heaps contain in all. What is not atomic is under
 * `lock`, and so are the sets of each store. */
struct arena_sets {
    mutex lock;                  /* a leaf */
    struct heap_set common;      /* heaps whose idle memory serves every store (store_serves()) */
    struct heap_set givers;      /* heaps of `common` that may have something to give */
    struct awaited_tree awaited; /* of heaps that would be among `givers`, and await work */
    struct heap_set anchored;    /* heaps that await the end of an anchor */
    atomic_bool unanchored;      /* one has ended since a search looked at them */
    /* Heaps that have changed since `sums`; those of pools with `use_on_oom` are in the second. */
    struct heap_set changed, changed_helpers;
    struct heap_set abandoned;    /* heaps of pools left behind that may have memory */
    struct heap_sums sums;        /* over all heaps */
    struct heap_sums common_sums; /* over those of `common` */
    struct tree offers;           /* what heaps of helping pools could give (heap/help.c) */
    /* Stores whose last hold has ended. The next search offers their heaps in `aside` again
     * (heap/help.c). */
    struct inbox told;
    uint64_t looks; /* heaps that walks have looked at, for tests */
};

struct arena {
    struct device *device;
    size_t granule; /* bytes */
    /* The driver reserved no addresses, so the default is plain segments; constant. */
    bool plain;

    /* The addresses, for virtual memory and imports (arena_addresses()). `size` is set last and
     * read first. */
    uintptr_t base;
    atomic_size_t size;     /* bytes; 0: there are none */
    struct piece **pieces;  /* by granule from base: the piece mapped there, or NULL */
    struct piece **seconds; /* by granule: the piece whose second address begins there, or NULL */
    /* By granule: the generation of the mapping there (generation.h), or 0. */
    uint64_t *generations;

    struct counters counters; /* of all pools of the device */
    struct counters own;      /* of the default pool; also included in `counters` */
    /* Shared to map and unmap; exclusive to give a new peer access. */
    shared_lock mapping;
    struct moves moves; /* of its memory; its lock is taken before every other */

    mutex lock;
    uint64_t *claimed;                       /* lock: one bit per granule */
    struct arena_part *parts;                /* lock: a tree of unclaimed ranges (addresses.c) */
    _Alignas(CACHE_LINE) struct store store; /* of the default pool */
    /* Of the default pool while caching is off (tarn_caching_set()). */
    struct store uncached;
    /* Pieces of other processes, in no heap; `unmapped`: those not released yet. */
    struct store imports;
    struct arena_pools pools;

    /* lock: bytes of all pieces and segments, without imported and temporary pieces. */
    size_t reserved;
    size_t unmapped; /* lock: bytes of all unmapped pieces */
    size_t creating; /* lock: bytes of `reserved` that the driver has not created yet */
    /* lock: DRIVER_PIECE_* of new pieces. Constant while anything is reserved. */
    unsigned piece_flags;
    size_t limit;      /* lock: the most that `reserved` may reach */
    size_t configured; /* lock: the limit that the settings last gave */
    /* lock: what the driver did not take back, which a trim tries again: pieces still mapped, in
     * claimed addresses, and segments. */
    struct piece_list stuck;
    struct run *stuck_segments;

    struct arena_heaps heaps;
    struct arena_sets sets;
    /* For each arena of the plan: the heap that follows it, or the heap that tried to and got no
     * addresses or no host memory for that. Such a heap follows nothing, and tries no other arena.
     * plan_end_locked() takes the heap out; NULL: no heap has the arena. */
    _Atomic(struct heap *) planned[PLAN_ARENAS_MOST];
};

static inline bool store_has(const struct store *store, enum store_flag flag)
{
    return store->flags & flag;
}

/* For heap_verify(): what in the store contradicts its kind; NULL: nothing. */
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

/* Whether idle memory of `store` may be taken for every store: it is the default pool's, or of a
 * pool left behind. */
static inline bool store_is_common(const struct store *store)
{
    return store_is_default(store) || atomic_load(&store->left_behind);
}
/* Whether idle memory of `store` may be taken for `wanting`. */
static inline bool store_serves(const struct store *store, const struct store *wanting)
{
    return store == wanting || store_is_common(store);
}

/* Whether the store's memory is announced to tools: not that of a caller's allocator, and not
 * stream-ordered segments. */
static inline bool announces(const struct store *store)
{
    return announcer && !store->kind.pieces && !store->kind.ordered && !store->allocator.alloc;
}

/* The rules of a store with segments, from the settings now. */
static inline struct segment_rules store_rules(const struct store *store)
{
    return rules_of(memory_config(), &store->sizes);
}

/* Bytes: the size up to which a store's segments are split, for its statistics; -1: all are. */
int64_t store_max_split(const struct store *store);

/* After how many ns without a use a store's idle memory goes back by itself; 0: never. */
uint64_t store_idle_release(const struct store *store);
/* The same; 0 also if it must not go now. */
uint64_t store_rests(struct store *store);

/* The device's arena, created at its first use. */
tarn_status arena_of(struct device *device, struct arena **arena);

/* The device's arena; NULL if its memory was not used yet. */
struct arena *arena_if_used(int device);
/* Applies the settings to every arena. `named`: a limit also counts if it has not changed. */
void arenas_configure(bool named);

/* Reserves an arena's addresses if it has none. The arena of a virtual default pool has them from
 * the start, unless it is `plain`. So this is called before memory of another kind needs addresses.
 * TARN_ERROR_OUT_OF_MEMORY with a text that names what needs no addresses. */
tarn_status arena_addresses(struct arena *arena);

/* Whether an address is one of the arena's. */
static inline bool arena_has(const struct arena *arena, uintptr_t address)
{
    size_t size = atomic_load_explicit(&arena->size, memory_order_acquire);
    return size && address - arena->base < size;
}

/* The arena that contains an address, or NULL. */
struct arena *arena_at(uintptr_t address);
/* Whether any address of a range, which does not wrap, is in an arena. */
bool arena_overlaps(uintptr_t start, size_t size);

/* Claims exactly [start, start + size). The caller has held the lock since it saw the range
 * unclaimed. */
void arena_claim_locked(struct arena *arena, uintptr_t start, size_t size);
void arena_unclaim(struct arena *arena, uintptr_t start, size_t size);
/* Bytes that are unclaimed from `address` on. */
size_t arena_room_above_locked(const struct arena *arena, uintptr_t address);
/* The start of an unclaimed range of `size` bytes with room to grow; 0: none. */
uintptr_t arena_find_locked(struct arena *arena, size_t size);
/* The same for memory that will not grow: the highest range, away from runs. */
uintptr_t arena_find_high_locked(const struct arena *arena, size_t size);
/* Finds such a range and claims it. TARN_ERROR_OUT_OF_MEMORY with a text if there is none. */
tarn_status arena_claim_high(struct arena *arena, size_t size, uintptr_t *start);
size_t arena_longest_locked(const struct arena *arena); /* bytes of the longest unclaimed range */
size_t arena_parts_bytes(size_t granules);              /* host bytes of `parts` */

/* The piece mapped at an address of a claimed range, or NULL. */
static inline struct piece *arena_piece(const struct arena *arena, uintptr_t address)
{
    return arena->pieces[(address - arena->base) / arena->granule];
}

/* DRIVER_PIECE_* of pieces that the store creates. */
static inline unsigned store_flags(const struct store *store)
{
    return store->piece_flags | store->arena->piece_flags;
}

/* The purpose of new memory. It decides which limits the memory must respect. */
enum charge {
    CHARGE_GROWTH, /* more memory: the limits of the device and of the pool, and leave_free_mb */
    CHARGE_RESUME, /* what a pool had before it was suspended: the same without the pool's limit */
    CHARGE_ADOPT,  /* what exists already: the device's limit */
    CHARGE_RETURN, /* what replaces memory that left within the same call: no limit */
};

/* Creates a piece. TARN_ERROR_OUT_OF_MEMORY, before the driver is asked, if a limit would be
 * exceeded or less than leave_free_mb would stay free on the device. */
tarn_status piece_create(struct store *store, size_t size, enum charge charge,
                         struct piece **piece);
/* A piece of host memory, which replaces device memory while contents move. It is not counted, and
 * no limit applies. TARN_ERROR_NOT_SUPPORTED if the driver has no such memory. */
tarn_status piece_create_temporary(struct store *store, size_t size, struct piece **piece);
/* Counts a temporary piece from now on, because it must stay. Does nothing to other pieces. */
void piece_join(struct piece *piece);
/* Creates pieces of `size` bytes in total, each of at most about `largest`. On failure creates
 * none. */
tarn_status pieces_create(struct store *store, size_t size, size_t largest, enum charge charge,
                          struct piece_list *list);
/* Bytes: about the largest piece to create now. The fuller the device or the limit, the smaller. */
size_t piece_largest_locked(const struct arena *arena);
/* Whether little is left of the device or the limit: of 80 GiB less than 28 GiB. Of at most 10 GiB,
 * always. */
bool memory_is_short_locked(const struct arena *arena);
/* Opens another process's piece of `size` bytes by its file descriptor. */
tarn_status piece_import(struct arena *arena, int file, size_t size, struct piece **piece);
/* Gives an unmapped piece back to the driver. On failure it stays unmapped. Fails while the driver
 * refuses to unmap a second address of the piece. */
tarn_status piece_release(struct piece *piece);

/* Maps the pieces of a list one behind the other from `start` on, into addresses that the caller
 * claimed. Then sets access once, also for the `before` bytes in front, which the caller has
 * mapped. On failure the list is empty, its pieces are unmapped and with their stores, and the
 * addresses stay claimed. Then `left` is the number of bytes from `start` on that the driver
 * refuses to unmap; a trim unclaims those. */
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
/* Moves all of `more` to the end of the list; `more` is empty then. */
void pieces_append(struct piece_list *list, struct piece_list *more);
struct piece *pieces_pop(struct piece_list *list);
/* Puts each piece into its store's list of unmapped pieces. */
void pieces_to_unmapped(struct arena *arena, struct piece_list *list);
/* Moves unmapped pieces from one store to another until at least `wanted` bytes have moved. If the
 * stores create pieces in different ways, releases them to the driver instead, to make room for new
 * ones. Returns the bytes. */
size_t store_take(struct store *store, struct store *from, size_t wanted);
/* Releases unmapped pieces of a store to the driver until `wanted` bytes are released. Returns the
 * bytes. */
size_t store_make_room(struct store *from, size_t wanted);
/* Takes unmapped pieces into `list`, the largest first, as many as fit into `wanted` bytes. If
 * bytes are still missing, adds the smallest piece that covers them and has at most `most`
 * bytes. */
void pieces_from_unmapped_locked(struct store *store, size_t wanted, size_t most,
                                 struct piece_list *list);

/* Takes unmapped pieces of exactly `size` bytes into `list`, until it has `wanted` bytes. */
void pieces_of_size_locked(struct store *store, size_t size, size_t wanted,
                           struct piece_list *list);

/* Updates the arena's indices after a change of what the store reserves or has unmapped, or after
 * it was left behind. */
void store_changed_locked(struct store *store);
/* Adds a piece to its store's list of unmapped pieces. */
void unmapped_push_locked(struct piece *piece);
/* Takes a piece from that list; NULL if it is empty. */
struct piece *unmapped_pop_locked(struct store *store);
/* Gives unmapped pieces back to the driver while the store has more than `keep` bytes reserved. */
tarn_status store_release_unmapped(struct store *store, size_t keep);
/* Whether the mappings in the store's addresses must stay: a capture or a graph uses them, or the
 * store is suspended. */
static inline bool store_is_held(const struct store *store)
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
 * them. Returns in `flags` the DRIVER_PIECE_* with which to create them. */
tarn_status store_charge(struct store *store, size_t size, enum charge charge, unsigned *flags);
/* Takes `size` charged bytes off again: the driver did not create them, or has them back.
 * `creating` of the charged bytes are no longer being created: the driver counts them now, or never
 * will. Called last. */
void store_uncharge(struct store *store, size_t size, size_t creating);

/* Initializes a store without memory. It is virtual if the device has virtual memory and the
 * settings want it, otherwise plain. */
void store_init(struct store *store, struct arena *arena, struct counters *counters);
/* Gives a kind and flags to a store that nothing can reach yet. Adds the flags that the device and
 * the settings give to that kind. */
void store_is_of(struct store *store, enum store_kind kind, unsigned flags);
/* Notes the pieces of a range, which the driver refused to unmap, as stuck. They stay mapped, and
 * the addresses claimed. */
void pieces_leave_stuck(struct arena *arena, uintptr_t start, size_t size);
/* For a trim: tries again to unmap stuck pieces, and to release imported ones. */
tarn_status arena_free_stuck(struct arena *arena);

/* Gives the new peer `peer` access to everything that is mapped on `device` now. */
tarn_status arena_grant(struct device *device, int peer);

/* Gives the address range back if it is empty; returns whether it was. For tarn_shutdown(). */
bool arena_finish(struct arena *arena);

#endif
