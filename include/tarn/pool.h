/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Private pools: memory of one device that serves nobody else.
 *
 * A pool is entered by a scope, which routes allocations to it: those of a thread, of a stream, of a capture, or all of its
 * device. Free needs no scope: a block goes back to the pool that it came from. A pool is counted: it belongs to its creator, to
 * each open scope and each graph that uses it. When the last of them lets go, its live blocks stay valid, its other memory is
 * given back, and what is freed later serves the device's default pool.
 *
 * All functions are thread-safe, and allowed while a stream captures where nothing else is said. Every function may also return
 * TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST,
 * TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_INVALID_ARGUMENT for a NULL that is not said to be allowed. */
#ifndef TARN_POOL_H
#define TARN_POOL_H

#include <stdbool.h>
#include <tarn/memory.h>
#include <tarn/observe.h>
#include <tarn/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A private pool. */
typedef struct tarn_pool tarn_pool;

/* Where a pool's segments come from: the caller's own allocator. tarn caches, cuts and counts its memory as it does its own.
 *   alloc   at least `size` bytes on `device`, for work on `stream` (the vendor's), at a multiple of 512 that no memory of tarn's
 *           has; or NULL where it has none: then other memory of the device's is given back, and it is asked again. What
 *           has other addresses goes to `free` at once, and the request gives TARN_ERROR_DRIVER; from 2^48 on
 *           TARN_ERROR_NOT_SUPPORTED
 *   free    exactly such memory, with the same arguments, when no work of the pool's streams uses it any more
 *   gone    may be NULL: the pool is released and its last segment freed; nothing of this is called any more, `user` may go
 *   user    what they are given as their last argument
 * They are called by any thread that allocates, frees, trims or releases, with no lock of tarn's held; so they may call tarn, but
 * for memory of the same pool, and no pool whose scope is open unless they name another. They must not throw. */
typedef struct tarn_pool_allocator {
    size_t size; /* sizeof(tarn_pool_allocator) */
    void *(*alloc)(size_t size, int device, void *stream, void *user);
    void (*free)(void *pointer, size_t size, int device, void *stream, void *user);
    void (*gone)(void *user);
    void *user;
} tarn_pool_allocator;

/* How a pool comes by memory. */
typedef enum tarn_segments {
    TARN_SEGMENTS_DEFAULT, /* as the device's default pool */
    TARN_SEGMENTS_VIRTUAL, /* pieces of virtual memory, which are mapped where they are wanted */
    TARN_SEGMENTS_PLAIN,   /* segments that come from the driver as a whole, of PyTorch's sizes, with fixed addresses */
    TARN_SEGMENTS_EXACT /* the same, and cut as PyTorch cuts them for small blocks too: its numbers to the byte, but slower */
} tarn_segments;

/* The sizes of plain segments in bytes, each a multiple of 512; 0 is what the settings say. */
typedef struct tarn_segment_sizes {
    size_t size;                   /* sizeof(tarn_segment_sizes) */
    size_t small_segment;          /* for requests of up to 1 MiB: 2 MiB */
    size_t large_segment;          /* for larger ones below own_segment: 20 MiB */
    size_t own_segment;            /* from here on a request has a segment of its own size: 10 MiB */
    size_t rounding;               /* a multiple of this: 2 MiB */
    size_t max_split;              /* segments from this size on are not cut, and serve no smaller request: none */
    size_t max_non_split_rounding; /* a request from max_split on takes no segment that is larger by as much: 20 MiB */
} tarn_segment_sizes;

/* What a pool is, from its creation on. */
typedef struct tarn_pool_options {
    size_t size; /* sizeof(tarn_pool_options) */
    int device;  /* TARN_CURRENT_DEVICE, or a device */

    /* A request to the default pool that would fail is served from what lies free in this one, on the same stream. The block is
     * this pool's: freed, it goes back there. Not while a capture or a graph counts the pool: its work writes to what is free. */
    bool use_on_oom;

    /* Memory that is free in the order of its stream is never mapped at a second address. For work that stays on a device and
     * keeps addresses: persistent kernels, communication libraries. */
    bool no_remap;

    /* What the pool creates can be given to other processes (share.h): TARN_ERROR_NOT_SUPPORTED where the device cannot. */
    bool exportable;

    tarn_segments segments;          /* how it comes by memory */
    const tarn_segment_sizes *sizes; /* of plain segments; NULL for what the settings say; copied */

    /* A block has a segment for itself, which is plain then, however much larger it is. For memory that is registered elsewhere
     * segment by segment. */
    bool no_split;

    /* NULL for the driver's memory; copied. Segments of an allocator are plain. */
    const tarn_pool_allocator *allocator;

    /* For memory that communication libraries register, on several ranks alike. What the pool creates is exportable, and
     * within reach of RDMA where the device has that. It is in *segments* of at least 32 MiB; each is one allocation of the
     * driver's, at a multiple of the granularity that the driver recommends, and open to every enabled peer.
     * tarn_pool_segments_get() lists them. Blocks have 64 KiB at least.
     *
     * A request is served by the smallest free stretch that is large enough, among equals by the oldest segment, and there
     * by the lowest place; else by a new segment. So the same calls in the same order give blocks in the same places of the
     * same segments in each process, whatever addresses these have, for alignments up to the granularity. What ranks do not
     * have in common must not decide: free blocks by their own stream, since a tarn_record_stream(), or a free on another
     * stream, takes effect when work has ended. Segments go back to the driver only by tarn_pool_trim(),
     * tarn_pool_suspend() and the end of the pool, never in a shortage.
     *
     * Anchor each segment that is registered, by a byte of a live block in it (tarn_anchor()), until it is registered no
     * more. TARN_ERROR_NOT_SUPPORTED where the device cannot export; TARN_ERROR_INVALID_ARGUMENT beside use_on_oom. */
    bool registrable;
} tarn_pool_options;

/* Makes a pool, counted once for the caller. `options` may be NULL: the current device, nothing special. TARN_ERROR_INVALID_DEVICE;
 * TARN_ERROR_NOT_SUPPORTED for virtual segments where the device has no virtual memory; TARN_ERROR_INVALID_ARGUMENT for an unknown
 * structure size, an allocator without alloc or free, sizes that are no multiples of 512 or above 1 EiB, and for virtual or
 * exportable segments with what makes them plain. */
TARN_API tarn_status tarn_pool_create(const tarn_pool_options *options, tarn_pool **pool);

/* The allocator that the pool was made with; where it has none, one with NULL in all but its size. `allocator->size` must be set. */
TARN_API tarn_status tarn_pool_allocator_get(tarn_pool *pool, tarn_pool_allocator *allocator);

/* The default pool of `device`, or of TARN_CURRENT_DEVICE: what everybody allocates from who names no other. It is there for as long as the
 * process uses tarn, and counts nothing: tarn_pool_retain() and tarn_pool_release() do nothing to it, its use count is 1, its id (0, 0).
 * It has no allocator, and always runs. TARN_ERROR_INVALID_ARGUMENT, for what serves everybody cannot be that: to suspend, resume,
 * checkpoint or restore it, to capture into it or to keep it for a graph. TARN_ERROR_INVALID_DEVICE. */
TARN_API tarn_status tarn_pool_default(int device, tarn_pool **pool);

/* Counts the pool once more; and gives one count back. NULL is fine for a release. With the last count the pool is left behind:
 * what is not live goes back to the driver, at once where nothing uses it any more. It cannot be had again. */
TARN_API tarn_status tarn_pool_retain(tarn_pool *pool);
TARN_API tarn_status tarn_pool_release(tarn_pool *pool);

/* The pool of an id, counted once more for the caller. TARN_ERROR_INVALID_ARGUMENT when there is none: it is left behind, or never
 * was, or is (0, 0), which each device's default pool has. */
TARN_API tarn_status tarn_pool_find(tarn_pool_id id, tarn_pool **pool);

/* How often the pool is counted: by users, open scopes, captures and graphs. Its id: (0, n) for one that was created, (n, 0) for
 * one that a capture made for itself; never given twice in a process. Its device. */
TARN_API tarn_status tarn_pool_use_count_get(tarn_pool *pool, unsigned *count);
TARN_API tarn_status tarn_pool_id_get(tarn_pool *pool, tarn_pool_id *id);
TARN_API tarn_status tarn_pool_device_get(tarn_pool *pool, int *device);

/* The pool's own statistics, with the meaning of the device's (stats.h), where they are counted too; the default pool's are without those of
 * the others. */
TARN_API tarn_status tarn_pool_stats_get(tarn_pool *pool, tarn_stats *stats);
TARN_API tarn_status tarn_pool_stats_reset(tarn_pool *pool, tarn_stats_what what);

/* The segments of a registrable pool in the order of their making: as many as `room` into `segments`, which may be NULL for
 * 0, and in `count` how many there are. While threads allocate or trim, what they make or give back is in it or not.
 *   TARN_ERROR_INVALID_ARGUMENT   the pool is not registrable
 *   TARN_ERROR_SUSPENDED          it has no memory now */
TARN_API tarn_status tarn_pool_segments_get(tarn_pool *pool, tarn_range *segments, size_t room, size_t *count);

/* Gives memory of the pool that is not live back to the driver until it reserves at most `keep` bytes: what lies idle in its cache first,
 * then, waiting for work that still uses it, more. With the default pool goes what ended pools and retired streams have left. What a
 * graph or a capture holds stays. TARN_ERROR_CAPTURE while a known capture is open on the device; then nothing was given back. */
TARN_API tarn_status tarn_pool_trim(tarn_pool *pool, size_t keep);

/* The most bytes that the pool reserves; TARN_NO_LIMIT, the initial value, is none. A limit below what is reserved now only stops growth. */
TARN_API tarn_status tarn_pool_limit_set(tarn_pool *pool, size_t bytes);
TARN_API tarn_status tarn_pool_limit_get(tarn_pool *pool, size_t *bytes);

/* A block of the pool, whatever scopes are open; otherwise as tarn_alloc_on(). */
TARN_API tarn_status tarn_pool_alloc(tarn_pool *pool, tarn_stream stream, size_t size, void **pointer);

/* One live block of a pool. */
typedef struct tarn_pool_block {
    void *address;                 /* its start */
    size_t usable_size, requested; /* bytes */
    tarn_stream stream;            /* that it was allocated for */
    uint64_t reserved[2];          /* 0; for what there is more to say one day */
} tarn_pool_block;

/* The live blocks of the pool in the order of their addresses: as many as `room` into `blocks`, which may be NULL for 0, and in
 * `count` how many there are. Blocks that threads allocate and free meanwhile are in it or not. Blocks that are tarn's own, such as
 * the workspaces of captures, are never in it; the statistics count them. */
TARN_API tarn_status tarn_pool_blocks_get(tarn_pool *pool, tarn_pool_block *blocks, size_t room, size_t *count);

/* Whether the live blocks of the pool, less those that are tarn's own, are exactly those that begin at these addresses, in any order,
 * without repetition. */
TARN_API tarn_status tarn_pool_check_live(tarn_pool *pool, void *const *pointers, size_t count, bool *same);

/* Pause and resume. A suspended pool has its addresses and no memory: what it reserved serves others. Live blocks stay live, at their
 * addresses, and graphs that use them stay valid; only nothing may use either until the pool is resumed. */
typedef enum tarn_pool_state {
    TARN_POOL_RUNS,     /* it is not suspended */
    TARN_POOL_CHANGES,  /* a suspend or a resume is at it in another thread */
    TARN_POOL_KEPT,     /* suspended; the contents of live blocks are in host memory */
    TARN_POOL_DISCARDED /* suspended; live blocks will have undefined contents */
} tarn_pool_state;

/* Whether the pool is suspended now. */
TARN_API tarn_status tarn_pool_state_get(tarn_pool *pool, tarn_pool_state *state);

/* Gives all memory of a running pool back to the driver, after waiting for the work that its streams have queued, and those recorded
 * for its blocks, and, where a graph counts the pool, for all work of the device. With `keep` the contents of live blocks are copied to
 * host memory first, as many bytes as the pool's live blocks and slabs of small blocks have. Blocks may be freed while it is suspended; an
 * allocation from it gives TARN_ERROR_SUSPENDED. All or nothing: on failure it runs, with its contents; tarn_pool_state_get() says so, or,
 * where the driver refused to undo or to release, that it is suspended all the same. TARN_ERROR_NOT_SUPPORTED for one of plain segments;
 * TARN_ERROR_SUSPENDED for a pool that does not run; TARN_ERROR_BUSY while any of its memory is anchored or exported (share.h);
 * TARN_ERROR_CAPTURE while a known capture is open on the device; TARN_ERROR_OUT_OF_HOST_MEMORY where the contents do not fit. Where copies
 * were begun and the driver does not say whether they have ended, the call fails and the pool is suspended in part, its memory where it
 * was: tarn_pool_resume() waits for them. Nothing else may use the pool's memory meanwhile, or be queued that does. */
TARN_API tarn_status tarn_pool_suspend(tarn_pool *pool, bool keep);

/* Gives a suspended pool memory again, at the same addresses, with the contents if they were kept. All or nothing: on failure it
 * stays suspended, and nothing is lost. TARN_ERROR_OUT_OF_MEMORY when the device, or a limit, has no room, after idle memory of the
 * default pool was given back, and workspaces that nobody uses (tarn/handle.h); TARN_ERROR_SUSPENDED for a pool that is not suspended;
 * TARN_ERROR_CAPTURE as above. A suspended pool that is released for the last time cannot be resumed: its live blocks can only be
 * freed. */
TARN_API tarn_status tarn_pool_resume(tarn_pool *pool);

/* Checkpoints: which blocks of a pool are live, to be made so again later. For programs that capture many graphs into one pool and must
 * find its memory, before each, as the graphs before it left it. */
typedef struct tarn_checkpoint tarn_checkpoint;

/* Remembers the live blocks of the pool that tarn_pool_blocks_get() lists, without their contents. The caller destroys it, after
 * tarn_shutdown() too; NULL is fine there. */
TARN_API tarn_status tarn_pool_checkpoint(tarn_pool *pool, tarn_checkpoint **checkpoint);
TARN_API tarn_status tarn_checkpoint_destroy(tarn_checkpoint *checkpoint);

/* Makes exactly those blocks live that were so at the checkpoint, at the same addresses, of the same streams, with the same tags, and with
 * whatever contents are there; device memory is not touched. Blocks that are tarn's own stay as they are now, whatever they were then.
 * A block that was made since is free afterwards, also one that a live graph uses: its memory stays mapped, the next capture may have
 * it, and the graph's launches write to it as ever, so they must come in the order of the captures.
 *
 * `changed`, which may be NULL, is called afterwards for each block that was live and is not any more, and for each that
 * was not and is, which is then the caller's to free; no lock is held, and it may call tarn. On failure nothing has changed.
 * TARN_ERROR_INVALID_ARGUMENT for a checkpoint of another pool; TARN_ERROR_BUSY while a block waits for other streams, or a live one is
 * used by any; TARN_ERROR_NO_ROOM where memory of that time is not the pool's any more (hold it by a graph, or do not trim), where the
 * stream of a block was retired, and where tarn's own memory lies in its place (tarn_workspace_clear() frees that, when no
 * graph uses the pool). No other thread may use the pool meanwhile. */
TARN_API tarn_status tarn_pool_restore(tarn_pool *pool, const tarn_checkpoint *checkpoint,
                                       void (*changed)(const tarn_pool_block *block, bool live, void *user),
                                       void *user);

/* Scopes. While one is open, allocations that it is for come from its pool. Where several are, the newest wins. A scope changes
 * nothing else: neither trims, nor events, nor other threads' allocations. */
typedef uint64_t tarn_scope; /* never given twice; 0 is none */

/* What a scope is for. */
typedef enum tarn_scope_kind {
    TARN_SCOPE_THREAD, /* of the threads that are in it: the one that begins it, and those that join */
    TARN_SCOPE_STREAM, /* for one stream, by any thread */
    TARN_SCOPE_ALWAYS  /* on the pool's device, by any thread */
} tarn_scope_kind;

/* Begins a scope. `stream` counts for TARN_SCOPE_STREAM only, and must be of the pool's device (TARN_ERROR_INVALID_STREAM);
 * for TARN_SCOPE_THREAD the thread's current device must be the pool's (TARN_ERROR_INVALID_DEVICE). TARN_ERROR_SCOPE where the
 * same is open already: of this pool by this thread, of this pool for this stream, of this pool for all. */
TARN_API tarn_status tarn_scope_begin(tarn_pool *pool, tarn_scope_kind kind, tarn_stream stream, tarn_scope *scope);

/* Ends a scope. One of threads ends by the thread that began it, which must have ended or left every newer one that it is in;
 * workers that are still in it allocate elsewhere from then on. The others may end by any thread in any order. TARN_ERROR_SCOPE
 * for a wrong order, another thread, or a scope that has ended. */
TARN_API tarn_status tarn_scope_end(tarn_scope scope);

/* Enters a scope of threads from a worker, where it is the newest then; and leaves it. A thread that ends leaves its scopes,
 * also one that it began, which then goes on for its workers and ends when the last of them has left.
 * TARN_ERROR_SCOPE for a scope that has ended or is of another kind, for one that the thread is in already, and for leaving one
 * that is not the newest of the thread, or that it began. */
TARN_API tarn_status tarn_scope_join(tarn_scope scope);
TARN_API tarn_status tarn_scope_leave(tarn_scope scope);

/* Captures. Graphs that share a pool must be launched in the order of their captures and never at once: each reuses what the one before it
 * freed. tarn_pool_capture_begin() begins a capture as tarn_capture_begin() does and routes what is allocated for its streams,
 * those that join it too, to a pool: `pool`, or where that is NULL one of its own. tarn_capture_end() ends it: the graph then counts
 * the pool until it is destroyed, with every executable made of it, and their work has finished. tarn_capture_abort() leaves
 * nothing. While a capture or a graph counts a pool none of its memory is unmapped, live or not: the graph's work uses it at every
 * launch. What is freed inside is reused inside, in the order of the streams.
 *
 * tarn_pool_capture_announce() does the same for a capture that the caller is about to begin by the vendor's call. After ending the
 * capture by the vendor's call, give its graph to tarn_capture_end_announced(). That moves what the announcement counted and held to the
 * graph; with NULL in place of a graph nothing holds the pool's memory any more. */
TARN_API tarn_status tarn_pool_capture_begin(tarn_pool *pool, tarn_stream stream, tarn_capture_mode mode);
TARN_API tarn_status tarn_pool_capture_announce(tarn_pool *pool, tarn_stream stream);

/* Makes a graph of the vendor's (cudaGraph_t, not an executable) count the pool until it is destroyed, with every executable that is
 * made of it later, and their work has finished: for a graph that uses the pool and came of no known capture of it. TARN_ERROR_NOT_SUPPORTED where the driver cannot tell that end. */
TARN_API tarn_status tarn_pool_keep_for_graph(tarn_pool *pool, void *graph);

/* Holds the pool as a graph does, and ends that: none of its memory is unmapped in between. For frameworks that know when their graphs
 * end, and do not show them to tarn. Each hold is ended by one unhold, and counts the pool until then.
 *   TARN_ERROR_INVALID_ARGUMENT   not a pool, a default pool, or one that was released for the last time; unhold: not held */
TARN_API tarn_status tarn_pool_hold(tarn_pool *pool);
TARN_API tarn_status tarn_pool_unhold(tarn_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
