/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks that wait: their owner has freed them, and work of other streams still uses them. wait.c owns all of it, under the heap's lock. */
#ifndef TARN_MEMORY_USES_H
#define TARN_MEMORY_USES_H

#include "base/tree.h"
#include "device/stream.h"

struct debug_block;
struct point;
struct span;

/* One stream's use of a block. A use of a freed block is *pending* until it has ended: it is in its queue, and is counted in the first use
 * of its block. */
struct use {
    struct use *next;           /* of the same block */
    struct tree_node by_stream; /* among them, unless it is a caller's event */
    struct stream *stream;      /* NULL: the caller's event, already in `mark` */
    unsigned incarnation;
    struct mark *mark; /* recorded when the block is freed; NULL before, and while recording fails */
    bool marked;       /* `mark` is final: NULL then means finished */
    uint64_t
        capture; /* that the stream used the block in, and nowhere else; 0: none, or blocks are not given back early */
    struct point *point;       /* the stream's position in the capture when the block was freed; NULL: unknown */
    struct debug_block *watch; /* first use: debug mode checks the block before it is free; otherwise NULL */

    struct use_queue *queue;     /* NULL for a use in no heap */
    struct use *earlier, *later; /* in it, while pending */
    struct use *first;           /* of the block, while pending; otherwise NULL */
    uint64_t number;             /* of the block, counted over the heap's waiting blocks */

    /* First use only. */
    struct tree streams; /* the block's uses by stream */
    unsigned pending;    /* of the block's uses */
    struct span *span;
    unsigned slot;            /* of a slab */
    struct use *next_watched; /* of the heap's list */
};

struct use_list {
    struct use *first, *last;
};

/* One stream's pending uses of freed blocks of a heap. The marks of one stream end in their order, so a check begins with the first use and
 * continues while uses have ended. */
struct use_queue {
    struct use_queue *next;     /* of the heap */
    struct tree_node by_stream; /* among them */
    struct stream *stream;
    unsigned incarnation;
    bool events;              /* marks of callers, from before the free, in the order of recording */
    size_t users;             /* uses that refer to it, including those of live blocks */
    struct use_list marked;   /* in the order of their marks */
    struct use_list unmarked; /* no mark could be recorded yet */
};

/* The blocks of one heap that wait. A member of the heap, under its lock. A live block's uses are not counted here before its free. */
struct waiting {
    struct use_queue *queues; /* of the streams that use blocks, live or freed */
    struct tree by_stream;    /* the same queues */
    size_t blocks;            /* that are freed and wait */
    size_t uses;              /* of these blocks, pending */
    size_t bytes;             /* of these blocks */
    uint64_t ever;            /* blocks that have ever waited: the number of the last one */
    struct use *watched;      /* first uses of blocks that only debug mode still holds */
};

#endif
