/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of pinned memory share. heap.c owns segments and their blocks; wait.c what freed
 * blocks wait for; growth.c the driver's side: growth, what is tried when it fails, trim; watch.c
 * the background thread; pinned.c the public calls and pools.
 *
 * `pinned.lock` protects everything. It is held over no driver calls except those that record and
 * query events. */
#ifndef TARN_MEMORY_PINNED_HEAP_H
#define TARN_MEMORY_PINNED_HEAP_H

#include "base/inbox.h"
#include "base/thread/lock.h"
#include "base/tree.h"
#include "memory/pinned/pinned.h"
#include "record/counters.h"

#include <tarn/pinned.h>

#define PINNED_UNIT ((size_t)256)  /* bytes: sizes and addresses are multiples */
#define PINNED_PAGE ((size_t)4096) /* bytes: sizes of segments are multiples */
/* Blocks of up to PINNED_SMALL bytes share segments of PINNED_SMALL_SEGMENT bytes. A larger block
 * begins with a segment of its own. */
#define PINNED_SMALL ((size_t)256 << 10)
#define PINNED_SMALL_SEGMENT ((size_t)2 << 20)
#define PINNED_LARGEST ((size_t)1 << 47)       /* bytes: larger requests are refused */
#define PINNED_THREADS 128                     /* the most threads that touch pages */
#define PINNED_LOOSE 32                        /* the most loose blocks of a pool (heap.c) */
#define PINNED_BINS 312                        /* for sizes up to PINNED_LARGEST */
#define PINNED_WORDS ((PINNED_BINS + 63) / 64) /* of a bit set of bins */

enum pinned_zone { PINNED_ZONE_SMALL, PINNED_ZONE_LARGE, PINNED_ZONE_RESERVED, PINNED_ZONES };

enum pinned_state {
    PINNED_UNUSED, /* the object is unused; a stale pointer to it finds no block */
    PINNED_FREE,   /* in its pool's bin */
    PINNED_LIVE,   /* the program has it */
    /* Freed; `waits` uses have not ended; they are in the queues of their streams. */
    PINNED_PENDING,
    PINNED_OF_GRAPH /* freed, but recorded on a stream that captured; in its keeper's list */
};

/* One stream's use of one block. */
struct pinned_use {
    struct pinned_use *next; /* of the same block */
    /* In the tree of the block's uses, until the block is pending. */
    struct tree_node by_stream;
    struct tree streams;             /* only in the first use: the block's uses by stream */
    struct pinned_use *next_pending; /* in the stream's queue: the next one freed */
    struct pinned_block *block;      /* set when the block is pending */
    struct stream *stream;
    unsigned incarnation; /* of the stream */
    /* Recorded when the block was freed; NULL before, and while recording fails. */
    struct mark *mark;
    bool marked; /* `mark` is recorded, or NULL because the work has finished */
};

/* The pending uses of one stream, oldest first. A check of it ends at the first use that has not
 * ended. A slot of streams has at most one queue, which is never freed. */
struct pinned_queue {
    struct pinned_use *first, **last;
    bool listed;
    struct pinned_queue *next; /* in the list of queues that are not empty */
};

struct pinned_block {
    void *first; /* used by the object pool while the object is free */
    uintptr_t address;
    size_t size;      /* bytes, a multiple of PINNED_UNIT */
    size_t requested; /* bytes; not of a free block */
    struct pinned_segment *segment;
    struct tree_node by_address;          /* in the segment's tree */
    struct pinned_block *previous, *next; /* neighbours in the segment */
    /* In its bin; `link` also in a keeper's list, and among unused objects. */
    struct pinned_block *link, *link_previous;
    struct pinned_use *uses;
    unsigned waits;
    /* The block was recorded on a stream that captured: who keeps it after its free; otherwise
     * NULL. */
    struct pinned_keeper *captured;
    uint8_t state;
    /* Free and not joined to its neighbours yet: 1 + its index in the pool's list; otherwise 0. */
    uint8_t loose;
};

/* Memory that came from the driver as a whole. */
struct pinned_segment {
    struct tree_node by_address;
    uintptr_t address;
    size_t size;
    size_t used; /* bytes in blocks that are not free */
    int device;  /* in whose context it was allocated */
    bool registered;
    uint8_t zone;
    struct pinned_pool *pool;
    struct tree blocks; /* by address */
    /* While it is in no pool: the object of its one block. */
    struct pinned_block *whole;
    /* In the pool's list; `next` also in the list `leaving`. */
    struct pinned_segment *next, *previous;
};

/* Keeps freed blocks that graphs may use: for all graphs of a pool, or for the graph of one of its
 * captures. */
struct pinned_keeper {
    struct pinned_block *of_graphs;
    unsigned captured; /* live blocks whose `captured` it is */
    unsigned holders;
    struct pinned_keeper *next; /* in pinned.keepers, while `listed` */
    bool listed;                /* in pinned.keepers; the default pool's keeper never is */
    /* Number of captures and graphs that it keeps for; NULL: its owner has ended, or it has
     * none. */
    const atomic_uint *holds;

    /* Only for a capture's keeper. */
    struct pinned_keeper *parent; /* the pool's keeper; NULL: this is a pool's */
    atomic_uint lasts;            /* 1 until the graph has ended */
    struct inbox_item over;       /* after that, in pinned.over */
};

struct pinned_pool {
    /* First member: a keeper without a parent is its pool. */
    struct pinned_keeper keeper;
    /* Free blocks by size, last in first out. */
    struct pinned_block *bins[PINNED_ZONES][PINNED_BINS];
    uint64_t filled[PINNED_ZONES][PINNED_WORDS]; /* a bit for each bin that is not empty */
    struct pinned_block *loose[PINNED_LOOSE];
    unsigned loose_count;
    struct pinned_segment *segments;
};

/* The settings in force. */
struct pinned_settings {
    /* Register pages of the system instead of allocating from the driver. */
    bool use_register;
    unsigned register_threads; /* threads that touch pages: a power of two, at most 128 */
    /* Bytes of a segment allocated at the first growth and kept; 0: none. */
    size_t reserve_segment;
    bool background_threads;    /* a thread checks for finished work while blocks wait for it */
    size_t max_round_threshold; /* bytes: larger requests are rounded up to 256 bytes only */
    size_t max_cached_size;     /* bytes: larger blocks go back to the driver when they are free */
};

struct pinned {
    mutex lock; /* protects everything here except `over` and `used` */
    atomic_bool used;
    struct tree segments;
    struct pinned_pool standard; /* the default pool */
    struct pinned_queue *queues; /* those that are not empty */
    /* Of pools with freed blocks of graphs, and of captures whose graphs' ends are not reported. */
    struct pinned_keeper *keepers;
    /* Without a lock: keepers of captures whose graphs have ended. */
    struct inbox over;
    /* Wholly free segments that go to the driver (pinned_settle()). */
    struct pinned_segment *leaving;
    /* Unused objects, so that cutting and joining need no other lock. */
    struct pinned_block *spare;
    struct pinned_settings settings;
    tarn_pinned_stats stats;
    size_t limit;   /* bytes that `reserved` may reach */
    size_t growing; /* bytes that the driver is being asked for */
    /* Bytes of segments that have left their pools and are not back with the driver yet. */
    size_t leaving_bytes;
    unsigned moving; /* growths, returns and frees in progress that have released the lock */
    uint64_t moves;  /* how many of them have ended */
    pthread_cond_t moved;
    bool reserve_taken;  /* the reserved segment exists, or is being allocated */
    pthread_cond_t work; /* wakes the background thread: blocks wait, or it is to end */
};

extern struct pinned pinned;

/* Begins every public call. */
tarn_status pinned_ready(void);

/* ---- heap.c ---- */

struct pinned_request {
    size_t requested, size; /* bytes: as requested, and rounded */
    enum pinned_zone zone;
    struct pinned_pool *pool;
};

/* The size of the block for a request. */
size_t pinned_round(size_t size, size_t max_round_threshold);

/* Allocates a block from free memory of the pool. TARN_ERROR_NO_ROOM, without a text, if none fits;
 * TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status pinned_take_locked(const struct pinned_request *request, struct pinned_block **block);
/* Makes a block free. Afterwards its segment may be in `leaving`. */
void pinned_give_locked(struct pinned_block *block);

/* The live block that contains an address, or NULL. `ours`: the address is in a segment. */
struct pinned_block *pinned_find_locked(uintptr_t address, bool *ours);

/* Creates a segment object and that of its first block. NULL with TARN_ERROR_OUT_OF_HOST_MEMORY as
 * the last error. */
struct pinned_segment *pinned_segment_create(void);
void pinned_segment_destroy(struct pinned_segment *segment);
/* Puts a segment that is one free block into a pool. */
void pinned_segment_enter_locked(struct pinned_segment *segment, struct pinned_pool *pool);
/* Takes a wholly free segment out of its pool, to `leaving`. */
void pinned_segment_leave_locked(struct pinned_segment *segment);
/* Moves all segments of a pool to the default pool. */
void pinned_absorb_locked(struct pinned_pool *pool);
/* Makes the reserved segment one like others. The next growth reserves another. */
void pinned_unreserve_locked(void);
/* Makes live blocks forget a keeper that is about to end. */
void pinned_forget_locked(struct pinned_keeper *keeper);

/* ---- wait.c ---- */

/* Adds a stream's use to a list; no second one of the same stream. */
tarn_status pinned_use_add_locked(struct pinned_use **uses, struct stream *stream);
/* Records a mark for each use of a block that is about to be pending. Called without the lock. */
void pinned_uses_mark(struct pinned_use *uses);
/* Puts the uses of a pending block into the queues of their streams. */
void pinned_wait_begin_locked(struct pinned_block *block);
/* Frees pending blocks whose uses have ended. Never waits. */
void pinned_collect_locked(void);
/* Returns marks that pending blocks wait for, retained, for marks_wait_any(), and their number. A
 * mark that needs a wait for a whole device is returned alone. */
size_t pinned_marks_locked(struct mark *marks[MARKS_MOST]);
/* Ends a pool without holders: its freed blocks of graphs become free or pending, and its segments
 * the default pool's. */
void pinned_pool_die_locked(struct pinned_pool *pool);
/* Adds a keeper to pinned.keepers. */
void pinned_keeper_enter_locked(struct pinned_keeper *keeper);
/* Ends the keepers of a pool's captures, whose graphs have ended with the pool. */
void pinned_captures_end_locked(const struct pinned_keeper *parent);
/* Whether no capture and no graph can use what the keeper keeps. */
bool pinned_is_unheld_locked(const struct pinned_keeper *keeper);
/* Makes the blocks of a keeper free, or pending if other work uses them. */
void pinned_unkeep_locked(struct pinned_keeper *keeper);

/* ---- growth.c ---- */

/* Begins a move: a growth, a return or a free that releases the lock in between, and that may have
 * what a request lacks. */
void pinned_move_begin_locked(void);
void pinned_move_end_locked(void);
/* Serves a request that free memory does not serve. The caller does not hold the lock. */
tarn_status pinned_climb(const struct pinned_request *request, struct pinned_block **block);
/* Gives the segments in `leaving` back to the driver, without the lock. Returns the first failure;
 * a segment that could not go is free again. Adds their number to `moves`, if that is not NULL. */
tarn_status pinned_settle(uint64_t *moves);
/* Gives wholly free segments back until `keep` bytes are left. Waits for pending blocks, and for
 * segments that other threads give back. `all`: also the reserved segment. */
tarn_status pinned_trim(size_t keep, bool all);

/* ---- watch.c ---- */

/* Starts or ends the background thread. Never called by two threads at once.
 * TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status pinned_watch(bool on);

#endif
