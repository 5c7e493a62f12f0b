/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the pinned memory share. heap.c owns segments and the blocks in them; wait.c
 * what freed blocks wait for; growth.c the driver's side: growth, what is tried when it fails,
 * trim; watch.c the background thread; pinned.c the public calls and pools.
 *
 * All of it is under one lock, `pinned.lock`, which is not held over a driver call but to ask about
 * and record events. */
#ifndef TARN_MEMORY_PINNED_HEAP_H
#define TARN_MEMORY_PINNED_HEAP_H

#include "base/thread/lock.h"
#include "base/tree.h"
#include "memory/pinned/pinned.h"
#include "record/counters.h"

#include <tarn/pinned.h>

#define PINNED_UNIT ((size_t)256)        /* bytes: of sizes and addresses */
#define PINNED_PAGE ((size_t)4096)       /* bytes: of segments */
#define PINNED_SMALL ((size_t)256 << 10) /* bytes: blocks up to this share segments ... */
#define PINNED_SMALL_SEGMENT \
    ((size_t)2 << 20)                          /* ... of this size; a larger one begins with a
                                                  segment of its own */
#define PINNED_LARGEST ((size_t)1 << 47)       /* bytes: what is larger is refused */
#define PINNED_THREADS 128                     /* that touch pages, at most */
#define PINNED_LOOSE 32                        /* free blocks that are not joined yet, at most */
#define PINNED_BINS 312                        /* up to PINNED_LARGEST: pinned_bin() */
#define PINNED_WORDS ((PINNED_BINS + 63) / 64) /* of a set of bins */

enum pinned_zone { PINNED_ZONE_SMALL, PINNED_ZONE_LARGE, PINNED_ZONE_RESERVED, PINNED_ZONES };

enum pinned_state {
    PINNED_UNUSED,  /* the object is at hand; so nobody who kept a pointer to it takes it for a
                       block */
    PINNED_FREE,    /* in its pool's bin */
    PINNED_LIVE,    /* a caller's */
    PINNED_PENDING, /* freed: `waits` uses have not ended, in the queues of their streams */
    PINNED_KEPT     /* freed, and recorded on a stream that captured: in its pool's list */
};

/* Work on a stream that uses a block. */
struct pinned_use {
    struct pinned_use *next;         /* of the same block */
    struct tree_node by_stream;      /* among them, until the block is pending */
    struct tree streams;             /* the first one's: the block's uses by stream */
    struct pinned_use *next_pending; /* of the same stream, freed later */
    struct pinned_block *block;      /* once it is pending */
    struct stream *stream;
    unsigned incarnation; /* of the stream */
    struct mark *mark;    /* recorded when the block was freed; NULL before, and while recording
                             fails */
    bool marked;          /* `mark` says all: NULL then means finished */
};

/* The pending uses of one stream's work, oldest first: the first that has not ended ends a look at
 * it. A slot of streams has at most one, for ever. */
struct pinned_queue {
    struct pinned_use *first, **last;
    bool listed;
    struct pinned_queue *next; /* listed: of those that are not empty */
};

struct pinned_block {
    void *first; /* the object pool's, while it has the object */
    uintptr_t address;
    size_t size;      /* bytes, a multiple of PINNED_UNIT */
    size_t requested; /* bytes; not of a free one */
    struct pinned_segment *segment;
    struct tree_node by_address;               /* of the segment's */
    struct pinned_block *previous, *next;      /* neighbours in the segment */
    struct pinned_block *link, *link_previous; /* of its bin; `link` also of the kept and of objects
                                                  at hand */
    struct pinned_use *uses;
    unsigned waits;
    struct pinned_keeper *captured; /* recorded on a stream that captured: who keeps it when it is
                                       freed; else NULL */
    uint8_t state;
    uint8_t loose; /* free, and not yet joined with its neighbours: 1 + its place in the pool's
                      list; else 0 */
};

/* What came from the driver as a whole. */
struct pinned_segment {
    struct tree_node by_address;
    uintptr_t address;
    size_t size;
    size_t used; /* bytes of blocks that are not free */
    int device;  /* whose context served */
    bool registered;
    uint8_t zone;
    struct pinned_pool *pool;
    struct tree blocks;                     /* by address */
    struct pinned_block *whole;             /* while it is in no pool: the object of its one
                                               block */
    struct pinned_segment *next, *previous; /* of the pool's; `next` also of those on their way to
                                               the driver */
};

/* What keeps freed blocks for graphs: for those of a pool, or for that of one capture of it. */
struct pinned_keeper {
    struct pinned_block *kept;
    unsigned captured; /* live blocks of which it is the `captured` */
    unsigned holders;
    struct pinned_keeper *next; /* while `listed` */
    bool listed;                /* in pinned.keepers; the default pool's never is */
    const atomic_uint *holds;   /* captures and graphs that it keeps for; NULL: its owner has ended,
                                   or it has none */

    /* Of a capture. */
    struct pinned_keeper *parent;    /* the pool's; NULL: it is a pool's */
    atomic_uint lasts;               /* 1 until the graph has ended */
    struct pinned_keeper *next_over; /* then: of pinned.over */
};

struct pinned_pool {
    /* First, so that a keeper without a parent is its pool */
    struct pinned_keeper keeper;
    /* Free blocks by size, last in first out */
    struct pinned_block *bins[PINNED_ZONES][PINNED_BINS];
    uint64_t filled[PINNED_ZONES][PINNED_WORDS]; /* a bit for each bin that is not empty */
    struct pinned_block *loose[PINNED_LOOSE];
    unsigned loose_count;
    struct pinned_segment *segments;
};

/* The keys of the configuration, as they are in force. */
struct pinned_settings {
    bool use_register;          /* register pages of the system instead of allocating from the
                                   driver */
    unsigned register_threads;  /* threads that touch pages: a power of two, at most 128 */
    size_t reserve_segment;     /* bytes of a segment allocated at the first growth and kept; 0:
                                   none */
    bool background_threads;    /* a thread checks for finished work while blocks wait for it */
    size_t max_round_threshold; /* bytes: larger requests are rounded up to 256 bytes only */
    size_t max_cached_size;     /* bytes: larger blocks go back to the driver when they are free */
};

struct pinned {
    mutex lock; /* of all here but `used` */
    atomic_bool used;
    struct tree segments;
    struct pinned_pool standard;          /* what is nobody else's */
    struct pinned_queue *queues;          /* that are not empty */
    struct pinned_keeper *keepers;        /* of pools with kept blocks, and of captures whose graph
                                             nobody tells of */
    _Atomic(struct pinned_keeper *) over; /* no lock: of captures whose graph has ended */
    struct pinned_segment *leaving;       /* wholly free, and to go to the driver:
                                             pinned_settle() */
    struct pinned_block *spare;           /* objects at hand, so that cutting and joining need no
                                             other lock */
    struct pinned_settings settings;
    tarn_pinned_stats stats;
    size_t limit;         /* bytes */
    size_t growing;       /* bytes that the driver is being asked for */
    size_t leaving_bytes; /* of segments that are out of their pools and not yet back with the
                             driver */
    unsigned moving;      /* growths and returns that are between lock and lock */
    uint64_t moves;       /* how many there have been */
    pthread_cond_t moved;
    bool reserve_taken;  /* the reserved segment exists, or is being made */
    pthread_cond_t work; /* for the background thread: blocks wait, or it is to end */
};

extern struct pinned pinned;

/* The start of every public call. */
tarn_status pinned_ready(void);

/* ---- heap.c ---- */

struct pinned_request {
    size_t requested, size; /* bytes: as asked for, as rounded */
    enum pinned_zone zone;
    struct pinned_pool *pool;
};

/* The size that a block gets. */
size_t pinned_round(size_t size, size_t max_round_threshold);

/* A live block out of free memory of the pool. TARN_ERROR_NO_ROOM without a text where there is
 * none; TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status pinned_take_locked(const struct pinned_request *request, struct pinned_block **block);
/* Makes a block free. Its segment may be `leaving` then. */
void pinned_give_locked(struct pinned_block *block);

/* The block whose caller has it that holds the address, or NULL; `ours` says whether the address is
 * in a segment at all. */
struct pinned_block *pinned_find_locked(uintptr_t address, bool *ours);

/* The object of a segment, with that of its first block. NULL with TARN_ERROR_OUT_OF_HOST_MEMORY as
 * the last error. */
struct pinned_segment *pinned_segment_create(void);
void pinned_segment_destroy(struct pinned_segment *segment);
/* Puts a segment that is one free block into a pool, and takes a wholly free one out, to
 * `leaving`. */
void pinned_segment_enter_locked(struct pinned_segment *segment, struct pinned_pool *pool);
void pinned_segment_leave_locked(struct pinned_segment *segment);
/* Makes all segments of a pool the default pool's. */
void pinned_absorb_locked(struct pinned_pool *pool);
/* Makes live blocks forget a keeper that ends. */
void pinned_forget_locked(struct pinned_keeper *keeper);
/* Joins the free blocks of a pool with their neighbours. */
void pinned_join_locked(struct pinned_pool *pool);

/* ---- wait.c ---- */

/* Adds a use to a list, once a stream. */
tarn_status pinned_use_add_locked(struct pinned_use **uses, struct stream *stream);
/* What the block waits for when it is freed now: a mark for each use, made without the lock. The
 * block is pending. */
void pinned_uses_mark(struct pinned_use *uses);
/* Enters a pending block in the queues of its streams. */
void pinned_wait_begin_locked(struct pinned_block *block);
/* Makes free what has ended. Never waits. */
void pinned_collect_locked(void);
/* What blocks wait for, kept for the caller: marks for marks_wait_any(), and how many. One that
 * needs a wait for a whole device is given alone. */
size_t pinned_marks_locked(struct mark *marks[MARKS_MOST]);
/* Ends a pool without holders: its kept blocks are free or pending, its segments the default
 * pool's. */
void pinned_pool_die_locked(struct pinned_pool *pool);
/* Enters a keeper in pinned.keepers. */
void pinned_keeper_enter_locked(struct pinned_keeper *keeper);
/* A pool ends: so have the graphs of its captures. */
void pinned_captures_end_locked(const struct pinned_keeper *parent);
/* Whether no capture and no graph can use what the keeper keeps. */
bool pinned_is_unheld_locked(const struct pinned_keeper *keeper);
/* Makes the kept blocks free, or pending where other work uses them. */
void pinned_unkeep_locked(struct pinned_keeper *keeper);

/* ---- growth.c ---- */

/* Something is between two holds of the lock that may be what a request lacks: a growth, a return,
 * a free. */
void pinned_move_begin_locked(void);
void pinned_move_end_locked(void);
/* Serves a request that free memory does not. */
tarn_status pinned_climb(const struct pinned_request *request, struct pinned_block **block);
/* Gives `leaving` segments back; without the lock. The first failure; what could not go is free as
 * before. Counts them in `moves`, where that is not NULL. */
tarn_status pinned_settle(uint64_t *moves);
/* Gives wholly free segments back until `keep` bytes are left, waiting for pending blocks and for
 * what other threads are giving back; `all`: the reserved one too. */
tarn_status pinned_trim(size_t keep, bool all);

/* ---- watch.c ---- */

/* Starts or ends the background thread. Not side by side. TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status pinned_watch(bool on);

#endif
