/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Private pools: memory of one device that serves nobody else.
 *
 * A scope routes allocations to a pool: those of a thread, of a stream, of a capture, or of the
 * whole device. A free needs no scope: a block returns to the pool that it came from. A pool is
 * reference-counted. Its creator, each open scope and each graph that uses it hold a reference.
 * When the last reference is dropped, live blocks stay valid and the pool's other memory is
 * released. Blocks freed after that serve the device's default pool.
 *
 * All functions are thread-safe, and allowed while a stream captures unless they say otherwise.
 * Every function may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION,
 * TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_INVALID_ARGUMENT for a NULL that is not allowed or
 * a pool that is gone. */
#ifndef TARN_POOL_H
#define TARN_POOL_H

#include <stdbool.h>
#include <tarn/core.h>
#include <tarn/memory.h>
#include <tarn/observe.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The caller's own allocator for a pool's segments. tarn caches, splits and counts this memory like
 * its own.
 *   alloc   Returns at least `size` bytes on `device` for work on `stream` (the vendor's), at a
 *           multiple of 512 where tarn has no other memory. Returns NULL if it has none: tarn then
 *           releases other memory of the device and asks again. Memory at a wrong address goes to
 *           `free` at once. The request then fails with TARN_ERROR_DRIVER, or with
 *           TARN_ERROR_NOT_SUPPORTED if the address is 2^48 or more
 *   free    Takes back exactly such memory, with the same arguments, when no work of the pool's
 *           streams uses it
 *   gone    May be NULL. The pool is released and its last segment is freed: tarn makes no further
 *           call, and `user` may be destroyed
 *   user    Passed as the last argument to all three
 * Any thread that allocates, frees, trims, releases or sleeps may call them, and so may
 * tarn_shutdown(). tarn holds no lock then. They may call tarn, but neither shut it down, nor
 * allocate from this pool, directly or through an open scope. They do not throw. Segments with
 * blocks live at tarn_shutdown() are never freed, and `gone` is not called. */
typedef struct tarn_pool_allocator {
    size_t size; /* sizeof(tarn_pool_allocator) */
    void *(*alloc)(size_t size, int device, void *stream, void *user);
    void (*free)(void *pointer, size_t size, int device, void *stream, void *user);
    void (*gone)(void *user);
    void *user;
} tarn_pool_allocator;

/* How a pool gets memory from the device. */
typedef enum tarn_segments {
    /* Like the device's default pool, whose kind is chosen at first use and never changes. */
    TARN_SEGMENTS_DEFAULT,
    /* Pieces of virtual memory, mapped where they are needed; needs the driver's addresses. */
    TARN_SEGMENTS_VIRTUAL,
    TARN_SEGMENTS_PLAIN, /* whole driver allocations of PyTorch's sizes, at fixed addresses */
    /* Plain, and split exactly as PyTorch splits them: its numbers to the byte, but slower. */
    TARN_SEGMENTS_EXACT
} tarn_segments;

/* The sizes of plain segments in bytes, each a multiple of 512. 0 takes the value of the settings;
 * the defaults are named here. */
typedef struct tarn_segment_sizes {
    size_t size;          /* sizeof(tarn_segment_sizes) */
    size_t small_segment; /* for requests of up to 1 MiB: 2 MiB */
    size_t large_segment; /* for larger requests below own_segment: 20 MiB */
    /* Requests of this size or more get a segment of their own size: 10 MiB. */
    size_t own_segment;
    size_t rounding; /* own segments are multiples of this: 2 MiB */
    /* Segments of this size or more are not split and serve no smaller request: none. */
    size_t max_split;
    /* A request of max_split or more takes no segment larger by this much: 20 MiB. */
    size_t max_non_split_rounding;
} tarn_segment_sizes;

#define TARN_NO_IDLE_RELEASE 4294967295u /* tarn_pool_options.idle_release: never */

/* The properties of a pool. They are fixed when it is created. */
typedef struct tarn_pool_options {
    size_t size; /* sizeof(tarn_pool_options) */
    int device;  /* TARN_CURRENT_DEVICE, or a device */

    /* Lets a request to the default pool that would fail use free memory of this pool, on the same
     * stream. The block belongs to this pool and returns to it. Disabled while a capture or a graph
     * holds a reference, because its work writes to free memory. */
    bool use_on_oom;

    /* Never maps memory that is free in stream order at a second address. For work that stays on a
     * device and keeps addresses: persistent kernels, communication libraries. */
    bool no_remap;

    /* The pool's memory can be exported to other processes (share.h). TARN_ERROR_NOT_SUPPORTED if
     * the device cannot do that. It is virtual, even if the default pool is plain because the
     * driver once refused it addresses. */
    bool exportable;

    tarn_segments segments;          /* how the pool gets memory */
    const tarn_segment_sizes *sizes; /* of plain segments; NULL: as the settings say; copied */

    /* Gives each block a plain segment of its own, however much larger the segment is. For memory
     * that is registered elsewhere segment by segment. */
    bool no_split;

    /* The caller's allocator, which is copied; NULL for the driver's memory. Segments of an
     * allocator are plain. */
    const tarn_pool_allocator *allocator;

    /* For memory that communication libraries register on several ranks alike. The pool's memory is
     * exportable, and usable by RDMA where the device supports it. It comes in *segments* of at
     * least 32 MiB, which tarn_pool_segments_get() lists. Each is one driver allocation, aligned to
     * the granularity that the driver recommends, and open to every enabled peer. A block has at
     * least 64 KiB.
     *
     * A request takes the smallest free range that is large enough; among equals, the one in the
     * oldest segment, at the lowest place there; otherwise a new segment. So the same calls in the
     * same order place blocks alike in each process, whatever the addresses, for alignments up to
     * the granularity. Nothing that differs between ranks may decide: free blocks on their own
     * stream, because tarn_record_stream() and frees on another stream take effect when work ends.
     * Only tarn_pool_trim(), tarn_pool_suspend() and the end of the pool release segments, never a
     * shortage.
     *
     * Anchor each registered segment, by a byte of a live block in it (tarn_anchor()), until it is
     * unregistered. TARN_ERROR_NOT_SUPPORTED if the device cannot export;
     * TARN_ERROR_INVALID_ARGUMENT together with use_on_oom. */
    bool registrable;

    /* Milliseconds after which memory that nobody has used goes back to the driver by itself, in a
     * thread of tarn; 0: as the setting `idle_release` says; TARN_NO_IDLE_RELEASE: never. Only
     * memory of virtual segments, and not that of registrable pools. */
    unsigned idle_release;
} tarn_pool_options;

/* Returns the default pool of `device`, or of TARN_CURRENT_DEVICE. Allocations that name no other
 * pool come from it. It lives as long as the process uses tarn: tarn_pool_retain() and
 * tarn_pool_release() have no effect, its use count is 1, its id is (0, 0). It has no allocator. A
 * scope of it routes allocations back to it. It cannot be suspended, resumed, checkpointed,
 * restored, captured into, held or kept for a graph: these calls return
 * TARN_ERROR_INVALID_ARGUMENT.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_pool_default(int device, tarn_pool **pool);

/* Adds a reference, which tarn_pool_release() drops.
 *   TARN_ERROR_INVALID_ARGUMENT   not a pool, or one whose last reference was dropped */
TARN_API tarn_status tarn_pool_retain(tarn_pool *pool);

/* Finds a pool by its id, and adds a reference for the caller.
 *   TARN_ERROR_INVALID_ARGUMENT   no such pool exists, or its last reference was dropped, or the id
 *                                 is (0, 0), which every default pool has */
TARN_API tarn_status tarn_pool_find(tarn_pool_id id, tarn_pool **pool);

/* The states of a pool: tarn_pool_suspend() takes its memory away, and tarn_pool_resume() gives it
 * back. */
typedef enum tarn_pool_state {
    TARN_POOL_RUNS, /* it is not suspended */
    /* A thread is suspending or resuming it, or a sleep is prepared (sleep.h) and includes it. */
    TARN_POOL_CHANGES,
    TARN_POOL_SAVED,    /* suspended; the contents of live blocks are in host memory */
    TARN_POOL_DISCARDED /* suspended; live blocks will have undefined contents */
} tarn_pool_state;

/* The properties of a pool at the time of the call. */
typedef struct tarn_pool_info {
    size_t size;           /* sizeof(tarn_pool_info), set by the caller */
    tarn_pool_id id;       /* no id but (0, 0) is given twice in a process */
    int device;            /* whose memory it is */
    tarn_pool_state state; /* whether it is suspended */
    unsigned use_count;    /* references, of callers, open scopes, captures and graphs */
    /* By which a sleep chooses it (tarn_pool_tag_set() in sleep.h); 0: none. */
    tarn_tag tag;
    size_t limit; /* bytes: as tarn_pool_limit_set() has it; TARN_NO_LIMIT: none */

    /* tarn's copy of the allocator that the pool was created with; NULL: none. Valid while the pool
     * is. */
    const tarn_pool_allocator *allocator;
} tarn_pool_info;

/* Describes a pool. Takes no lock.
 *   TARN_ERROR_INVALID_ARGUMENT   `info` is NULL, or its `size` is unknown */
TARN_API tarn_status tarn_pool_info_get(tarn_pool *pool, tarn_pool_info *info);

/* Returns the pool's own statistics. They mean what the device's mean (stats.h), and are part of
 * those. The default pool's do not include other pools. They are never reset.
 *   TARN_ERROR_INVALID_ARGUMENT   the size of the structure is unknown */
TARN_API tarn_status tarn_pool_stats_get(tarn_pool *pool, tarn_stats *stats);

/* Lists the segments of a registrable pool, in order of creation, or those that this process has
 * created of a kept pool (tarn_pool_keep()). What was taken over is not listed: a communication
 * library exports what it registers, and drivers do not export memory again that was imported
 * (CUDA_ERROR_INVALID_VALUE of cuMemExportToShareableHandle(); NCCL 2.28 then waits for ever).
 * Writes up to `room` segments to `segments`, which may be NULL if `room` is 0, and the number of
 * all, which may be above `room`, to `count`. A segment that another thread creates or releases
 * meanwhile may or may not be listed.
 *   TARN_ERROR_INVALID_ARGUMENT     the pool is neither registrable nor kept
 *   TARN_ERROR_SUSPENDED            the pool has no memory now
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   none to sort them */
TARN_API tarn_status tarn_pool_segments_get(tarn_pool *pool, tarn_mapping *segments, size_t room,
                                            size_t *count);

/* Returns free memory of the pool to the driver until it reserves at most `keep` bytes. Idle memory
 * goes first; then the call waits for work that uses more, as tarn_device_trim() does. For the
 * default pool this includes what ended pools and retired streams have left. What a graph or a
 * capture holds stays. A suspended pool has nothing to return: TARN_OK.
 *   TARN_ERROR_CAPTURE   as tarn_device_trim()
 *   TARN_ERROR_BUSY      the thread is in a `mapped` or `unmapping` callback (observe.h); nothing
 *                        was released */
TARN_API tarn_status tarn_pool_trim(tarn_pool *pool, size_t keep);

/* Sets the most bytes that the pool may reserve. The initial value, TARN_NO_LIMIT, means no limit.
 * A limit below what is reserved now only stops growth. Neither a compaction nor the resume of a
 * suspended pool is growth of the pool: a resume may exceed this limit, up to what the pool had. */
TARN_API tarn_status tarn_pool_limit_set(tarn_pool *pool, size_t bytes);

/* One live block of a pool. */
typedef struct tarn_pool_block {
    void *address;                 /* its start */
    size_t usable_size, requested; /* bytes */
    tarn_stream stream;            /* the block's stream */
    uint64_t reserved[2];          /* 0; reserved for later versions */
} tarn_pool_block;

/* Lists the live blocks of the pool by address. Writes up to `room` of them to `blocks`, which may
 * be NULL if `room` is 0, and the number of all of them, which may be above `room`, to `count`.
 * Which blocks are left out then is not defined. A block that another thread allocates or frees
 * meanwhile may or may not be listed. tarn's own blocks, such as the workspaces of captures, are
 * never listed; the statistics count them. */
TARN_API tarn_status tarn_pool_blocks_get(tarn_pool *pool, tarn_pool_block *blocks, size_t room,
                                          size_t *count);

/* Suspends a pool: returns all of its memory to the driver. A suspended pool keeps its addresses
 * but has no memory: its memory serves others. Live blocks keep their addresses, and graphs that
 * use them stay valid, but nothing may use either until the pool is resumed.
 *
 * The call first waits for the work queued on the pool's
 * streams and on streams recorded for its blocks, streams of other devices among them. If a graph
 * holds a reference, or one of these streams is a found one (tarn_stream_find()), it waits for all
 * work of the device, which ends a capture that does not show (stream.h). With `save`, the contents
 * of live blocks are first copied to host memory, by the legacy stream: as many bytes as the live
 * blocks and the slabs of small blocks have. Nothing else may use the pool's memory during the
 * call, or be queued to use it.
 *
 * While the pool is suspended, its blocks may be freed. Scopes and captures of it may begin, but
 * allocations from it return TARN_ERROR_SUSPENDED, as do tarn_anchor(), tarn_export(),
 * tarn_mapping_get() and tarn_pool_restore(). Its statistics still count live blocks; its reserved
 * bytes are 0.
 *
 * On failure the pool keeps running with its contents, with two exceptions, which
 * tarn_pool_info_get() reports. If the driver refused to undo or to release, or to unmap memory of
 * a kept pool (keep.h), the pool is suspended, and some of its memory may stay in place until
 * tarn_pool_resume(). If copies were begun and the driver does not say whether they have ended, the
 * pool is partly suspended and its memory stays in place; tarn_pool_resume() waits for the copies.
 *   TARN_ERROR_NOT_SUPPORTED        the pool has plain segments, and is no kept pool (keep.h)
 *   TARN_ERROR_SUSPENDED            the pool is suspended already, or another thread is suspending
 *                                   or resuming it
 *   TARN_ERROR_BUSY                 memory of the pool is anchored or exported (share.h); it is
 *                                   being saved to a file, or loaded (keep.h); or the
 *                                   thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_CAPTURE              a capture on the device is known; the legacy stream, or a
 *                                   stream that uses the pool's memory, captures, also one of
 *                                   another device; or the call would wait for all work of the
 *                                   device, and a capture shows (stream.h). The capture survives
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the contents do not fit into host memory */
TARN_API tarn_status tarn_pool_suspend(tarn_pool *pool, bool save);

/* Resumes a suspended pool: gives it memory at the same addresses, with the contents if they were
 * saved. On failure the pool stays suspended and nothing is lost. If memory is short, idle memory
 * of the default pool and unused workspaces (tarn/handle.h) are released first. A suspended pool
 * whose last reference was dropped cannot be resumed: its live blocks can only be freed. Contents
 * are copied by the legacy stream.
 *
 * The live blocks need memory, in whole granules; free addresses need none. But if a graph or an
 * open capture holds the pool, all that it had mapped comes back, because a replay of the graph
 * also writes to free addresses. Segments of a registrable pool come back whole, unless all of a
 * segment is free. The device's limit and leave_free_mb hold, the pool's own limit does not.
 *   TARN_ERROR_OUT_OF_MEMORY   the device, or its limit, has no room: tarn_last_error() says how
 *                              much the pool needs, how much is missing, and what has it
 *   TARN_ERROR_SUSPENDED       the pool is not suspended, or another thread is suspending or
 *                              resuming it
 *   TARN_ERROR_BUSY            the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_SYSTEM          a kept pool (keep.h) needs new memory, and its owner is gone, or
 *                              refuses
 *   TARN_ERROR_CAPTURE         a capture on the device is known, or one of a blocking stream shows
 *                              (stream.h); it survives */
TARN_API tarn_status tarn_pool_resume(tarn_pool *pool);

/* Checkpoints record which blocks of a pool are live, so that the same blocks can be made live
 * again. For programs that capture many graphs into one pool: before each capture, the pool must be
 * as the graphs before it left it. */
typedef struct tarn_checkpoint tarn_checkpoint;

/* `tarn_pool_checkpoint` records the live blocks that tarn_pool_blocks_get() lists, without their
 * contents. It holds no reference to the pool. The caller destroys the checkpoint, also after
 * tarn_shutdown(); destroying NULL is allowed.
 *   TARN_ERROR_INVALID_ARGUMENT   destroy: not a checkpoint, or one that was destroyed */
TARN_API tarn_status tarn_pool_checkpoint(tarn_pool *pool, tarn_checkpoint **checkpoint);
TARN_API tarn_status tarn_checkpoint_destroy(tarn_checkpoint *checkpoint);

/* Makes exactly those blocks live that were live at the checkpoint, with the same addresses,
 * streams and tags. Device memory is not touched: blocks have whatever contents are there. tarn's
 * own blocks stay as they are now. No other thread may use the pool meanwhile. Waits for memory of
 * the device that another thread moves or gives back. On failure nothing has changed.
 *
 * A block allocated since the checkpoint becomes free, even one that a live graph uses. Its memory
 * stays mapped, and the next capture may reuse it while the graph's launches still write to it. So
 * launch the graphs in the order of their captures.
 *
 * `changed` (may be NULL) is called afterwards for each block that is no longer live, and for each
 * that has become live, which the caller then frees. It is not called for a block allocated since
 * the checkpoint that has the address, the size and the stream of a recorded block: from then on
 * that block is the recorded one, with its tag. tarn holds no lock during the callback, which may
 * call tarn.
 *
 * A recorded block of a leased stream becomes live on that stream again, also if the lease was
 * returned, and whoever has the stream now.
 *   TARN_ERROR_INVALID_ARGUMENT   the checkpoint is of another pool
 *   TARN_ERROR_SUSPENDED          the pool is suspended: resume it first
 *   TARN_ERROR_BUSY               a freed block waits for other streams, or a live block was used
 *                                 on one (tarn_record_stream()); or the thread is in a `mapped` or
 *                                 `unmapping` callback (observe.h)
 *   TARN_ERROR_NO_ROOM            memory of that time has left the pool, or serves another of its
 *                                 streams (hold it by a graph or tarn_pool_hold(), or neither trim
 *                                 nor suspend it); or the stream of a block was retired; or tarn's
 *                                 own memory lies there (tarn_workspace_clear() frees that when no
 *                                 graph uses the pool) */
TARN_API tarn_status tarn_pool_restore(tarn_pool *pool, const tarn_checkpoint *checkpoint,
                                       void (*changed)(const tarn_pool_block *block, bool live,
                                                       void *user),
                                       void *user);

/* Scopes. While a scope is open, the allocations that it covers come from its pool. If several
 * cover an allocation, the newest wins. It covers allocations on its pool's device only. A scope
 * has no other effect: it causes no trim and no event, and other threads' allocations stay as they
 * are. */
typedef uint64_t tarn_scope; /* identifies a scope; never reused; 0 is no scope */

/* Which allocations a scope covers. */
typedef enum tarn_scope_kind {
    TARN_SCOPE_THREAD, /* the thread that begins it, and those that join */
    /* Allocations for one stream, by any thread; none once it is retired or returned. */
    TARN_SCOPE_STREAM,
    TARN_SCOPE_ALWAYS /* all allocations on the pool's device, by any thread */
} tarn_scope_kind;

/* Begins a scope. `stream` matters for TARN_SCOPE_STREAM only.
 *   TARN_ERROR_INVALID_STREAM   TARN_SCOPE_STREAM: the stream is unknown, was retired, or is not of
 *                               the pool's device
 *   TARN_ERROR_INVALID_DEVICE   TARN_SCOPE_THREAD: the thread's current device is not the pool's
 *   TARN_ERROR_SCOPE            a scope of this pool and this kind is open already: begun by this
 *                               thread, for this stream, or for all threads. Scopes of other pools
 *                               or for other streams do not matter
 *   TARN_ERROR_INVALID_ARGUMENT `kind` is unknown */
TARN_API tarn_status tarn_scope_begin(tarn_pool *pool, tarn_scope_kind kind, tarn_stream stream,
                                      tarn_scope *scope);

/* Ends a scope for all that it covers. A TARN_SCOPE_THREAD scope is ended by the thread that began
 * it, and workers still inside it allocate elsewhere from then on. In a thread that has joined it,
 * the call ends it for that thread alone, also after the scope itself has ended. A thread first
 * ends every newer scope that it is in. Any thread may end the other kinds, in any order.
 *   TARN_ERROR_SCOPE   wrong order, a thread that is not in the scope, or a scope that has ended */
TARN_API tarn_status tarn_scope_end(tarn_scope scope);

/* Joins a TARN_SCOPE_THREAD scope from a worker thread, until it calls tarn_scope_end(). The joined
 * scope is the thread's newest. A thread that exits leaves its scopes, including one that it began:
 * that scope continues for its workers and ends when the last one leaves.
 *   TARN_ERROR_SCOPE   the scope has ended or is of another kind, or the thread is in it already */
TARN_API tarn_status tarn_scope_join(tarn_scope scope);

/* Announces a capture into a pool that the caller is about to begin by the vendor's call, as
 * tarn_pool_capture_begin() begins one. After ending the capture by the vendor's call, pass its
 * graph to tarn_capture_end_announced(), which moves the reference to the graph. With NULL instead
 * of a graph, nothing holds the pool's memory any longer; neither does it after
 * tarn_capture_abort().
 *
 * The routing of both is a scope like others: a scope that begins later wins, and the graph does
 * not hold the pool of that scope. For memory from there that the graph uses, the caller adds a
 * reference (tarn_pool_hold()). While a capture or a graph holds a reference, none of the
 * pool's memory is unmapped, because every launch uses it. Memory freed inside a capture is reused
 * inside it in stream order. So graphs that share a pool must be launched in the order of their
 * captures and never concurrently: each reuses what the one before it freed.
 *   TARN_ERROR_INVALID_ARGUMENT   the stream is a default stream, or `pool` is a default pool
 *   TARN_ERROR_CAPTURE            a capture of the stream is open or announced already
 *   TARN_ERROR_BUSY               as tarn_capture_begin()
 *   TARN_ERROR_INVALID_STREAM     the stream is unknown, was retired, or is of another device */
TARN_API tarn_status tarn_pool_capture_announce(tarn_pool *pool, tarn_stream stream);

/* Adds a reference for a graph that uses the pool without a known capture of it. While it lasts,
 * none of the pool's memory is unmapped: the call waits for memory of the device that another
 * thread moves or gives back.
 *   graph   The vendor's graph (cudaGraph_t, not an executable). The reference lasts until the
 *           graph and every executable made from it later are destroyed and their work has
 *           finished. With NULL it lasts until tarn_pool_unhold(), which drops one such reference:
 *           for frameworks that know when their graphs end but do not show the graphs to tarn
 *   TARN_ERROR_INVALID_ARGUMENT   not a pool, a default pool, or one whose last reference was
 *                                 dropped; unhold: not held with NULL
 *   TARN_ERROR_BUSY               hold: the thread is in a `mapped` or `unmapping` callback
 *                                 (observe.h)
 *   TARN_ERROR_NOT_SUPPORTED      with a graph: the driver cannot report the end of a graph */
TARN_API tarn_status tarn_pool_hold(tarn_pool *pool, void *graph);
TARN_API tarn_status tarn_pool_unhold(tarn_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
