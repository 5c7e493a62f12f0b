/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges: addresses of their own, beside the arena's, whose pages get pieces of a pool one by one.
 *
 *   addresses   | page | page | page | page | page | ...           `page_size` bytes each
 *   chunks      |[      struct chunk       ]|   NULL   |           made when a page is committed
 *
 * A page's `word` has its state, and changes by one atomic exchange, so that a page that is still
 * mapped is committed and decommitted without a lock. Everything that needs the driver happens
 * under the range's lock, by a thread that has taken the page (PAGE_TAKEN) and shares
 * `moving`.
 *
 *   EMPTY -> TAKEN -> COMMITTED -> TAKEN -> DECOMMITTED -> TAKEN -> EMPTY    memory comes, and goes
 *   DECOMMITTED -> COMMITTED        on the same stream
 *   DECOMMITTED -> TAKEN -> LEFT    memory moved to another page
 *
 * A decommit notes the stream and the range's `epoch`. A mark that is recorded on the stream
 * later, when memory is wanted elsewhere, first ends the epoch: so it covers every page that has
 * this epoch or an earlier one. A piece is exactly one page. The piece of a LEFT page is mapped
 * at another page too, or the driver refused to unmap it: it is unmapped when it is idle. */
#ifndef TARN_MEMORY_RANGE_H
#define TARN_MEMORY_RANGE_H

#include "memory/heap/idle/wait.h"
#include "memory/pool/pool.h"

#include <tarn/range.h>

enum page_state {
    PAGE_EMPTY,       /* nothing is mapped; range lock to change */
    PAGE_COMMITTED,   /* the program's */
    PAGE_DECOMMITTED, /* mapped, and free in the order of its stream */
    PAGE_TAKEN,       /* one thread changes it */
    PAGE_LEFT         /* mapped, to be unmapped when idle; range lock to change */
};

#define PAGE_STATE_BITS 3

/* A word is a state, and above it the page's turn: the count of its decommits, and of the commits
 * that were undone. */
static inline enum page_state word_state(uint64_t word)
{
    return (enum page_state)(word & ((1u << PAGE_STATE_BITS) - 1));
}

static inline uint64_t word_with(uint64_t word, enum page_state state)
{
    return (word >> PAGE_STATE_BITS << PAGE_STATE_BITS) | state;
}

/* The word of a page that is decommitted once more. */
static inline uint64_t word_decommitted(uint64_t word)
{
    return word_with(word + (1u << PAGE_STATE_BITS), PAGE_DECOMMITTED);
}

/* The thread that has taken the page changes it; any thread may change `holds`. While the page is
 * committed, `owner` and `stream` are those of the last commit, and afterwards of the last
 * decommit, of which `epoch` always is. */
struct page {
    _Alignas(CACHE_LINE) atomic_uint_fast64_t word;
    atomic_uint_fast64_t owner; /* the stream, as owner_of() says */
    _Atomic(struct stream *) stream;
    atomic_uint_fast64_t epoch;
    atomic_uint holds;

    /* Mapped here; NULL: none. Its changes also need `mapping`. */
    _Alignas(CACHE_LINE) struct piece *piece;
    uint64_t before; /* its word before it was taken */
    /* The next page in a list; or the page from which the piece was mapped here a second time. */
    struct page *link;
    uint64_t generation; /* of its mapping (generation.h) */
    size_t index;        /* in the range; constant */
};

#define CHUNK_PAGES 512

struct chunk {
    _Alignas(CACHE_LINE) atomic_bool some; /* perhaps a page is decommitted */
    struct page pages[CHUNK_PAGES];
};

/* What is known of a stream's work on pages of a range. The range's lock. */
struct order {
    struct order *next;
    struct stream *stream;
    unsigned incarnation;
    bool asked;            /* the driver was asked since the range's lock was taken */
    uint64_t waited;       /* the committing stream waits for the work up to this epoch */
    uint64_t done;         /* the epoch up to which the work has ended */
    uint64_t epochs[2];    /* those that the marks cover */
    struct mark *marks[2]; /* recorded and not seen ended, the older one first; NULL: none */
};

/* Pages that a graph or a caller holds. */
struct range_hold {
    struct range_hold *next; /* range lock */
    struct tarn_range *range;
    size_t first, end; /* pages */
    bool of_graph;
    atomic_bool ended; /* the graph has ended; the next thread that finds the hold removes it */
};

struct tarn_range {
    struct tree_node node; /* range_set_lock: in the set of all, by address */
    struct store *store;
    struct pool *pool; /* with a reference; NULL: a default pool */
    uintptr_t start;
    size_t page_size, pages; /* bytes; number */
    atomic_uint_fast64_t epoch;
    _Atomic(struct chunk *) *chunks;
    size_t chunk_count;
    uint32_t place;  /* in the trace, kept; constant */
    tarn_tag tag;    /* of its pages; constant */
    uint64_t number; /* no other range of the process has it; constant */

    mutex lock;
    struct order *orders;
    struct page *left;        /* a list of the LEFT pages */
    struct range_hold *holds; /* a list */
    size_t hand;              /* the page from which the next search for idle memory begins */
    struct {
        uint64_t looked; /* ns: the last look */
        uint64_t epoch;  /* that the last look ended; 0: there was none */
        uint64_t until;  /* not 0: only pages up to this epoch are collected */
        bool wants_mark; /* pages that have rested need a mark, which the program records */
    } rest;              /* as heap/idle/rest.h */
};

/* A stream with its incarnation. */
static inline uint64_t owner_of(const struct stream *stream)
{
    return (uint64_t)stream->slot << 32 |
           atomic_load_explicit(&stream->incarnation, memory_order_acquire);
}

static inline struct chunk *range_chunk(const struct tarn_range *range, size_t page)
{
    return atomic_load_explicit(&range->chunks[page / CHUNK_PAGES], memory_order_acquire);
}

/* A page; NULL if its chunk does not exist, because no page of it was ever committed. */
static inline struct page *range_page(const struct tarn_range *range, size_t page)
{
    struct chunk *chunk = range_chunk(range, page);
    return chunk ? &chunk->pages[page % CHUNK_PAGES] : NULL;
}

/* A page whose chunk exists. */
static inline struct page *range_known(const struct tarn_range *range, size_t page)
{
    return &range_chunk(range, page)->pages[page % CHUNK_PAGES];
}

static inline uintptr_t page_address(const struct tarn_range *range, const struct page *page)
{
    return range->start + page->index * range->page_size;
}

/* Takes a page whose word is `word`. False if another thread has changed it meanwhile. */
static inline bool page_take(struct page *page, uint64_t word)
{
    uint64_t expected = word;
    if (!atomic_compare_exchange_strong(&page->word, &expected, word_with(word, PAGE_TAKEN)))
        return false;
    page->before = word;
    return true;
}

static inline void page_put_back(struct page *page)
{
    atomic_store(&page->word, page->before);
}

/* ---- set.c: all ranges ---- */

/* Whether a value from a caller is a range. */
tarn_status range_check(struct tarn_range *range);
struct tarn_range *range_new(void); /* NULL without host memory */
void range_free(struct tarn_range *range);
void range_enter(struct tarn_range *range);
/* Called while no other thread moves or maps memory. */
void range_remove(struct tarn_range *range);
/* Frees an empty range that is in the set and has no addresses any more; as range_remove(). */
void range_dispose(struct tarn_range *range);
/* The next range of a device, by address; NULL starts and ends. The caller shares `moving` or
 * `mapping`, so that none is removed. */
struct tarn_range *range_next(const struct arena *arena, struct tarn_range *range);
/* The same for a caller without these locks: ranges_stay() keeps all ranges in the set until
 * ranges_may_go(). */
void ranges_stay(void);
struct tarn_range *range_next_staying(const struct arena *arena, struct tarn_range *range);
void ranges_may_go(void);
/* Whether there is any; one load. */
bool ranges_any(void);
bool range_has(uintptr_t address);

/* The page around an address, at this moment. */
struct range_look {
    uint64_t number; /* of its range */
    uint64_t turn;   /* as in its word */
    uintptr_t end;
    bool committed, mapped;
    int device;
    tarn_pool_id pool;
};
/* False: no range is there. */
bool range_look(uintptr_t address, struct range_look *look);
/* TARN_ERROR_INVALID_POINTER with a text for an address of a range. */
tarn_status range_refuse(uintptr_t address);

/* ---- order.c: when memory is idle. Under the range's lock ---- */

/* Forgets what was asked and waited for before. */
void orders_begin_locked(struct tarn_range *range);
/* Whether the work before a page's decommit has ended. Records a mark if there is none for it, and
 * asks the driver once per stream. A failure counts as no. */
bool page_is_idle_locked(struct tarn_range *range, struct page *page);
/* The mark that covers a page's decommit, retained for the caller; NULL if that work has ended.
 * TARN_ERROR_CAPTURE, with a text, if its stream captures. */
tarn_status page_mark_locked(struct tarn_range *range, struct page *page, struct mark **mark);
/* The same for all work so far of the stream on which the page was last committed or
 * decommitted. */
tarn_status page_mark_now_locked(struct tarn_range *range, struct page *page, struct mark **mark);
/* The order of a page's stream; NULL without host memory. */
struct order *order_of_locked(struct tarn_range *range, const struct page *page);
void orders_destroy(struct tarn_range *range);

/* Whether no mark covers a decommitted page whose work may not have ended. */
bool page_wants_mark_locked(struct tarn_range *range, struct page *page);

/* ---- mapping.c: the driver. Under the range's lock, sharing `moving` ---- */

/* Maps memory at the empty pages among [first, end), which the caller has taken: pieces of the
 * list, and when it is empty, those of pages in the list `aliases`, for the second time. On failure
 * what is mapped is unmapped again, with the pieces in their stores; pages that the driver refuses
 * to unmap are LEFT. */
tarn_status range_map_locked(struct tarn_range *range, size_t first, size_t end,
                             struct piece_list *pieces, struct page **aliases);
/* Unmaps pages [first, end), each with a piece of its own, in one call; adds the pieces to a list.
 * The caller has taken them. */
tarn_status range_unmap_locked(struct tarn_range *range, size_t first, size_t end,
                               struct piece_list *pieces);
/* Makes a taken page without memory EMPTY. */
void range_empty_locked(struct tarn_range *range, struct page *page);
/* Unmaps the LEFT pages that are idle, run by run. Goes on after a failure; returns the first. */
tarn_status range_end_left_locked(struct tarn_range *range);
/* Unmaps idle decommitted pages into a list, until it has `wanted` bytes: run by run, from the
 * range's hand on. */
tarn_status range_collect_locked(struct tarn_range *range, size_t wanted,
                                 struct piece_list *pieces);
/* Gives a device that has become a peer access to all pages that are mapped. */
tarn_status range_grant(struct tarn_range *range, int peer);

/* ---- commit.c ---- */

/* Commits pages that need a lock, the driver or a wait. No lock held. */
tarn_status range_commit_slowly(struct tarn_range *range, size_t first, size_t end,
                                struct stream *stream);

/* ---- giving.c: what others need of ranges ---- */

/* Unmaps idle decommitted pages of a store's ranges, with NULL of those that serve the default
 * pool, until `wanted` bytes are unmapped. The caller has `moving`. */
tarn_status ranges_trim(struct arena *arena, struct store *store, size_t wanted);
/* Releases idle decommitted pages of all ranges of a device to the driver, until `wanted` bytes are
 * released; returns the bytes. Takes `moving` by `until` (base/thread/clock.h), or does nothing. */
size_t ranges_relieve(struct arena *arena, size_t wanted, uint64_t until);
/* Releases pages that nobody has committed since the last look and that are idle, of ranges whose
 * look is due. Returns whether pages wait for a mark. The caller shares `moving`. */
bool ranges_rest(struct arena *arena, uint64_t now);
/* Records the marks that were wanted. False if memory is on the move: then later. */
bool ranges_rest_mark(struct arena *arena);
/* Adds the marks that decommitted pages wait for: in the store's ranges, or with `all` in every
 * range of the device. Takes `moving` by `until`, or adds nothing. */
void ranges_wait_add(struct wait_any *any, struct arena *arena, struct store *store, bool all,
                     uint64_t until);
/* After at most this many waits, all pages that are decommitted now are idle. Takes `moving` by
 * `until`, or counts none. */
size_t ranges_waits(struct arena *arena, uint64_t until);
/* For a suspend: waits for decommitted pages of the store and unmaps them. TARN_ERROR_BUSY if pages
 * are committed. */
tarn_status ranges_leave(struct store *store);
/* Whether a page of the store's ranges has memory. */
bool ranges_have_memory(struct store *store);
/* Bytes of pieces in ranges of a device, each counted once; and bytes of second mappings. */
size_t ranges_bytes(struct arena *arena, size_t *seconds);
/* For debug mode: unmaps the idle pages of a range at once. */
void range_settle(struct tarn_range *range);
/* Gives a device that has become a peer access to the ranges of a device. */
tarn_status ranges_grant(struct device *device, int peer);
/* For tarn_shutdown(): gives up the ranges of a device that have no memory. */
void ranges_finish(struct arena *arena);

#endif
