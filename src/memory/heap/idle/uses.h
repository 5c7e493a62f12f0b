/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks that were freed while other streams still use them. Only wait.c accesses these lists,
 * under the heap's lock. */
#ifndef TARN_MEMORY_USES_H
#define TARN_MEMORY_USES_H

#include "base/tree.h"
#include "device/stream.h"
#include "memory/heap/idle/awaited.h"

struct capture_order;
struct debug_block;
struct point;
struct referred;
struct span;

/* One stream's use of one block. It belongs to the block, from tarn_record_stream() until the block
 * is free. The use of a freed block is *pending* until the stream's work has ended. A pending use
 * is in its queue, and is counted in the first use of its block. */
struct use {
    struct use *next;           /* of the same block; the block's span or slab has the first one */
    struct tree_node by_stream; /* in the tree of the block's uses; not for a caller's event */
    struct stream *stream;      /* NULL: the use is a caller's event, already in `mark` */
    unsigned incarnation;
    /* Recorded when the block is freed; NULL before, and while recording fails. */
    struct mark *mark;
    /* `mark` is recorded, or NULL because it has finished. The mark of the stream's retirement
     * may replace it. */
    bool marked;
    /* The one capture in which the stream used the block; 0: none, or it used the block
     * elsewhere too. */
    uint64_t capture;
    /* The stream's position in the capture when the block was freed; NULL: unknown. */
    struct point *point;
    /* First use: debug mode checks the block before it is free; otherwise NULL. */
    struct debug_block *watch;
    /* Not NULL: no stream's use, but the note that graphs refer to the block (pool/referred.h).
     * It leaves the list when the block ends. */
    struct referred *referred;

    struct use_queue *queue;     /* NULL: the use belongs to no heap (uses_sum_locked()) */
    struct use *earlier, *later; /* pending: neighbours in the queue */
    struct use *first;           /* pending: the first use of the block; otherwise NULL */
    /* Pending: the block's number, in the order in which the heap's blocks began to wait. */
    uint64_t number;

    /* Only in the first use of a block. */
    struct tree streams; /* the block's uses by stream */
    unsigned pending;    /* pending uses of the block */
    struct span *span;
    unsigned slot;            /* of the slab in `span` */
    struct use *next_watched; /* in the heap's list `watched` */
};

/* Whether a block's list has a use by a stream. */
static inline bool uses_any(const struct use *uses)
{
    while (uses && uses->referred)
        uses = uses->next;
    return uses;
}

/* Pending uses, linked by `earlier` and `later`. */
struct use_list {
    struct use *first, *last;
};

/* One stream's pending uses of the freed blocks of one heap. The heap owns it while a use refers to
 * it. The marks of one stream end in their order, so a check begins with the first use and
 * continues while uses have ended. */
struct use_queue {
    struct use_queue *next;     /* in the heap's list */
    struct tree_node by_stream; /* in the heap's tree */
    struct stream *stream;
    unsigned incarnation;
    /* Its uses are callers' events, recorded before the free; in the order of recording. */
    bool events;
    struct waiting *waiting;  /* of the heap */
    size_t users;             /* uses that refer to it, including those of live blocks */
    struct use_list marked;   /* in the order of their marks */
    struct use_list unmarked; /* no mark could be recorded yet */
    struct awaited awaited;   /* the mark of the first marked use, while the heap awaits it */
};

/* The blocks of one heap that wait. A member of the heap, under its lock. A live block's uses are
 * not counted here before its free. */
struct waiting {
    struct use_queue *queues; /* of the streams that use blocks, live or freed */
    struct tree by_stream;    /* the same queues */
    size_t unused;            /* queues without uses */
    size_t blocks;            /* freed blocks that wait */
    size_t uses;              /* pending uses of these blocks */
    size_t bytes;             /* of these blocks */
    uint64_t ever;            /* the number of the last block that began to wait */
    struct use *watched;      /* first uses of blocks that wait only for debug mode */
    /* What the captured work of the heap's stream comes after; NULL: not needed now. */
    struct capture_order *order;
};

#endif
