/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The core: the nineteen calls that nearly every program needs. Read this header first; each of
 * the others has one subject that only some programs need. tarn.h includes them all, and has the
 * rules of threads, forks and exits.
 *
 * A block of memory belongs to a stream. Work queued on that stream may use it from its allocation
 * on. After a free the same stream can reuse the memory at once, because its later work runs after
 * its earlier work. Another stream gets the memory only when the work queued before the free has
 * finished. So a free never waits.
 *
 * Sizes are bytes. All functions are thread-safe, and allowed during a capture unless they say
 * otherwise. A call that fails changes nothing, and writes no result. Every function may also
 * return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER,
 * TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY, and
 * TARN_ERROR_INVALID_ARGUMENT for a NULL that is not allowed. */
#ifndef TARN_CORE_H
#define TARN_CORE_H

#include <tarn/status.h> /* first: it refuses to be compiled for 32 bits */

#include <stddef.h>
#include <stdint.h>
#include <tarn/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Streams -------------------------------------------------------------------------------------- */

/* A stream of a device: a plain value that names it. Copy it freely. stream.h has more. */
typedef uint64_t tarn_stream;

#define TARN_STREAM_LEGACY 0ul /* the legacy default stream of the thread's current device */
/* The thread's per-thread default stream of that device; stream.h says what others may do. */
#define TARN_STREAM_PER_THREAD 1ul
/* The thread's current stream of that device (tarn_stream_set() in stream.h). */
#define TARN_STREAM_CURRENT 2ul
/* No stream in particular. Only calls whose comments name this constant take it. */
#define TARN_STREAM_NONE 3ul
/* The thread's current device. Only calls whose comments name this constant take it. */
#define TARN_CURRENT_DEVICE (-1)

/* Returns the value of a native stream (cudaStream_t, hipStream_t), registering it if it is new.
 * Call it for each use of a native stream whose end you do not learn: the value is for that use,
 * and needs no retirement. NULL and the vendors' constants give the default streams. If a destroyed
 * stream's pointer was reused, tarn notices and gives another value. A stream that captures does
 * not tell its identity: find it before its capture begins. It takes no lock for a registered
 * stream. Where the program learns of the end, adopt the stream instead (stream.h).
 *   TARN_ERROR_NOT_SUPPORTED      the driver has no stream ids (CUDA before 12.0, HIP before 7.1):
 *                                 adopt and retire
 *   TARN_ERROR_CAPTURE            the stream at this pointer was destroyed during a known capture:
 *                                 abort that first
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_STREAM     the driver does not know `native` on this device, or not in its
 *                                 primary context */
TARN_API tarn_status tarn_stream_find(int device, void *native, tarn_stream *stream);

/* Leases a stream that nobody else gets until it is returned. `priority` is 0 or negative; a value
 * below the device's greatest priority counts as the greatest. The lease may have work of an
 * earlier one queued ahead of its own.
 *   TARN_ERROR_INVALID_ARGUMENT   `priority` is above 0
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number */
TARN_API tarn_status tarn_stream_lease(int device, int priority, tarn_stream *stream);

/* Returns a leased stream, without a wait. The value ends: every later use of it is
 * TARN_ERROR_INVALID_STREAM, even as a thread's current stream; after 65,536 more leases of the
 * same stream it repeats. Blocks that were allocated on the stream stay as they are. Its free
 * memory serves the other streams of its pool before new memory is created, and the next lease. A
 * stream that still captures after tarn_capture_abort() is destroyed.
 *   TARN_ERROR_INVALID_ARGUMENT   the stream was not leased
 *   TARN_ERROR_INVALID_STREAM     the lease has ended
 *   TARN_ERROR_CAPTURE            the stream captures, and its capture was not aborted */
TARN_API tarn_status tarn_stream_return(tarn_stream stream);

/* Memory --------------------------------------------------------------------------------------- */

/* Allocates `size` bytes for work on `stream`. The address is a multiple of 512. 0 bytes give NULL.
 * If memory is short, the call waits for queued work whose end frees some. It waits for all work of
 * the device last, and only where memory of a found stream may help; this ends a capture that is
 * not known and does not show (stream.h).
 *   TARN_ERROR_OUT_OF_MEMORY    neither the device nor idle memory of its other streams has room,
 *                               even after waiting
 *   TARN_ERROR_CAPTURE          only a wait for all work of the device could have helped, and a
 *                               capture shows that the wait would end; it survives
 *   TARN_ERROR_SUSPENDED        the pool is suspended
 *   TARN_ERROR_INVALID_STREAM   the stream is unknown or was retired
 *   TARN_ERROR_MAPPING_LIMIT    the process has no mapping left
 *   TARN_ERROR_SYSTEM           a kept pool (keep.h) cannot grow: its owner is gone, or refuses
 *   TARN_ERROR_BUSY             the thread is in a `mapped` or `unmapping` callback (observe.h),
 *                               and no memory at hand has room */
TARN_API tarn_status tarn_alloc_on(tarn_stream stream, size_t size, void **pointer);

/* A small number that names what a block is for (tarn_tag_intern() in memory.h). 0 is "no tag". */
typedef uint16_t tarn_tag;

/* A private pool: memory of one device that serves nobody else. */
typedef struct tarn_pool tarn_pool;

/* Options of tarn_alloc(). */
typedef struct tarn_alloc_options {
    size_t size;        /* sizeof(tarn_alloc_options) */
    int device;         /* whose memory; TARN_CURRENT_DEVICE: that of the stream's device */
    tarn_stream stream; /* of that device; the constants TARN_STREAM_... mean those of `device` */
    size_t alignment;   /* bytes: 0 or a power of two up to TARN_MAX_ALIGNMENT */
    tarn_tag tag;       /* of the block; 0: none */

    /* The pool to allocate from, whatever scopes are open. NULL: the open scopes decide. With a
     * pool, TARN_CURRENT_DEVICE means the pool's device. */
    tarn_pool *pool;

    /* Nanoseconds that the call may wait for work of streams and for other threads, in all; 0: as
     * long as it helps; TARN_NO_WAIT: not at all. A call with a bound may still map memory, but
     * does not compact. The driver's own calls and observers (observe.h) are not bounded: the
     * driver's free of a plain segment waits for the device, and HIP's map and unmap for the legacy
     * stream. A growth that has begun makes all its driver calls, also after the bound. What
     * observers free may have to wait for work, and then serves a later call. */
    uint64_t wait;
} tarn_alloc_options;

#define TARN_NO_WAIT 18446744073709551615ul /* no wait at all */

/* Allocates `size` bytes with options. Otherwise as tarn_alloc_on().
 *   TARN_ERROR_INVALID_ARGUMENT   `options` is NULL, or a bad alignment, tag, pool or structure
 *                                 size
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number, or the pool belongs to
 *                                 another device
 *   TARN_ERROR_INVALID_STREAM     the stream is unknown, was retired, or is of another device
 *   TARN_ERROR_NOT_READY          with `wait`: memory would be there after a longer wait, or other
 *                                 threads are moving memory; this is not counted as a shortage,
 *                                 though observers may have been asked */
TARN_API tarn_status tarn_alloc(const tarn_alloc_options *options, size_t size, void **pointer);

/* Frees a block in the order of the stream that it was allocated for, even if that stream was
 * retired since. A pinned block is free after the work of the streams that were recorded; its free
 * waits for work only under the setting pinned_max_cached_size_mb. NULL is allowed. Any thread may
 * free, whatever its current device. Not every second free is an error: if the memory has been
 * allocated again, it frees the new block. Debug mode finds most of these (debug.h).
 *   TARN_ERROR_INVALID_POINTER   `pointer` is not the start of a tarn block, or is imported memory
 *                                (share.h)
 *   TARN_ERROR_DOUBLE_FREE       `pointer` is in free memory of tarn, where a block may have
 *                                been */
TARN_API tarn_status tarn_free(void *pointer);

/* Frees a block of device memory after the work that is queued on `stream` now, and after the work
 * of the block's own stream. The stream may be of another device. Otherwise as tarn_free().
 *   TARN_ERROR_INVALID_STREAM   the stream is unknown or was retired */
TARN_API tarn_status tarn_free_on(void *pointer, tarn_stream stream);

/* Declares that work on `stream` uses the block, which may be pinned. When the block is freed, its
 * memory is not reused until the work that is queued on `stream` at that moment has finished.
 * `pointer` may point anywhere into the block. With NULL the call does nothing. The stream may be
 * of another device.
 *   TARN_ERROR_INVALID_STREAM    the stream is unknown or was retired
 *   TARN_ERROR_INVALID_POINTER   `pointer` is not in a live block
 *   TARN_ERROR_DOUBLE_FREE       `pointer` is in free memory of tarn, where a block may have
 *                                been */
TARN_API tarn_status tarn_record_stream(void *pointer, tarn_stream stream);

/* Pools, and captures into them ---------------------------------------------------------------- */

struct tarn_pool_options;

/* Creates a pool; the caller gets one reference. `options` (pool.h) may be NULL: the current
 * device, nothing special.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_NOT_SUPPORTED      the device lacks what the options need: virtual memory, or export
 *   TARN_ERROR_OUT_OF_MEMORY      the driver refuses the addresses that virtual memory needs; plain
 *                                 segments need none
 *   TARN_ERROR_INVALID_ARGUMENT   an unknown structure size, an allocator without alloc or free, a
 *                                 segment size that is above 1 EiB or no multiple of 512, or
 *                                 virtual or exportable segments together with an option that makes
 *                                 segments plain */
TARN_API tarn_status tarn_pool_create(const struct tarn_pool_options *options, tarn_pool **pool);

/* Allocates a block from the pool, whatever scopes are open. Otherwise as tarn_alloc_on(). A free
 * needs no pool: the block returns to the one that it came from.
 *   TARN_ERROR_INVALID_STREAM   the stream is not of the pool's device */
TARN_API tarn_status tarn_pool_alloc(tarn_pool *pool, tarn_stream stream, size_t size,
                                     void **pointer);

/* Drops a reference. NULL is allowed. After the last release the pool cannot be used again: its
 * free memory returns to the driver, at once where no work uses it; live blocks stay valid. Graphs
 * and open scopes have their own references.
 *   TARN_ERROR_INVALID_ARGUMENT   not a pool, or one whose last reference was dropped; or all
 *                                 references left are those of scopes, captures and graphs */
TARN_API tarn_status tarn_pool_release(tarn_pool *pool);

/* What the driver refuses while a stream captures. */
typedef enum tarn_capture_mode {
    TARN_CAPTURE_GLOBAL,       /* the driver refuses unsafe calls of every thread during it */
    TARN_CAPTURE_THREAD_LOCAL, /* the driver refuses unsafe calls of this thread */
    TARN_CAPTURE_RELAXED       /* the driver refuses no calls */
} tarn_capture_mode;

/* Begins a capture on a stream, into a pool. Allocations for its streams, and for streams that join
 * it, come from `pool`; NULL makes a pool for this capture. The graph then holds a reference until
 * it and every executable made from it are destroyed and their work has finished. Until then none
 * of the pool's memory is unmapped. Graphs that share a pool must be launched in the order of their
 * captures, and never concurrently. pool.h has more.
 *   TARN_ERROR_INVALID_ARGUMENT   the stream is a default stream, `mode` is unknown, or `pool` is a
 *                                 default pool
 *   TARN_ERROR_CAPTURE            a capture of the stream is open or announced already
 *   TARN_ERROR_BUSY               a pool of the device is being suspended or resumed,
 *                                 tarn_handle_trim() is destroying handles, or a call of another
 *                                 thread is waiting for all work of the device
 *   TARN_ERROR_INVALID_STREAM     the stream is unknown, was retired, or is of another device */
TARN_API tarn_status tarn_pool_capture_begin(tarn_pool *pool, tarn_stream stream,
                                             tarn_capture_mode mode);

/* Ends a capture that tarn began. `graph` receives the vendor's graph (cudaGraph_t), which the
 * caller destroys. If the capture was invalidated or the device is lost, the capture is over too
 * and there is no graph. On HIP the stream of an invalidated capture says for ever that it
 * captures: do with it what tarn_capture_abort() says of such streams.
 *   TARN_ERROR_INVALID_ARGUMENT   `graph` is NULL, or the stream has no known capture, or its
 *                                 capture was announced
 *   TARN_ERROR_INVALID_STREAM     the stream is unknown or was retired
 *   TARN_ERROR_CAPTURE            the capture was invalidated, and is over; or the calling thread
 *                                 did not begin it and it is not relaxed, and it goes on. If the
 *                                 thread that began it has exited, CUDA ends it
 *   TARN_ERROR_NOT_SUPPORTED      the capture has a pool, and the driver cannot report the end of a
 *                                 graph. The capture is over, and its graph was destroyed
 *   TARN_ERROR_DEVICE_LOST        the capture is over */
TARN_API tarn_status tarn_capture_end(tarn_stream stream, void **graph);

/* Library handles ------------------------------------------------------------------------------ */

/* A library: one of TARN_LIBRARY_... (handle.h), or the number of a library that the program
 * registered. */
typedef int tarn_library;

/* Returns the calling thread's handle for the device of `stream`, bound to that stream. It stays
 * tarn's: do not destroy it, nor set its stream. Ask again after each change of device or stream,
 * and when the stream has joined a capture or left it: if nothing changed, the call takes
 * nanoseconds. With TARN_STREAM_NONE tarn sets nothing in the handle (handle.h). tarn/cublas.h,
 * tarn/cudnn.h and others have calls with the vendor's type.
 *   TARN_ERROR_LIBRARY_NOT_FOUND   the library could not be opened; the text lists what was tried
 *   TARN_ERROR_NOT_SUPPORTED       the library needs another driver
 *   TARN_ERROR_LIBRARY             a call of the library failed; the text names the call and its
 *                                  status
 *   TARN_ERROR_OUT_OF_MEMORY       no memory for the handle or its workspace, even after idle
 *                                  memory was released
 *   TARN_ERROR_CAPTURE             a handle would have to be created while a capture is open:
 *                                  prewarm it
 *   TARN_ERROR_SUSPENDED           a workspace would have to be created in the capture's pool,
 *                                  which is suspended
 *   TARN_ERROR_SYSTEM              the same, and the pool is a kept pool, as tarn_alloc_on()
 *   TARN_ERROR_BUSY                in a `mapped` or `unmapping` callback (observe.h), or in the
 *                                  library's own create; or another thread creates the first handle
 *                                  (tarn_handle_wait_limit_set())
 *   TARN_ERROR_INVALID_STREAM      the stream is unknown or was retired
 *   TARN_ERROR_INVALID_ARGUMENT    `handle` is NULL, or the library number is unknown */
TARN_API tarn_status tarn_handle_get(tarn_library library, tarn_stream stream, void **handle);

/* Creates handles until `count` are available: they belong to no thread, and a capture can take
 * them. They are for any stream of `device` with TARN_STREAM_NONE; otherwise they are reserved for
 * `stream`, whose device may be given as TARN_CURRENT_DEVICE (handle.h). Fails as tarn_handle_get()
 * does; handles already created stay.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_STREAM     the stream is unknown, was retired, or is of another device
 *   TARN_ERROR_INVALID_ARGUMENT   `count` is above 65,536 */
TARN_API tarn_status tarn_handle_prewarm(tarn_library library, int device, tarn_stream stream,
                                         size_t count);

/* Pinned host memory --------------------------------------------------------------------------- */

/* Allocates a pinned block of `size` bytes, at a multiple of 256. 0 bytes give NULL. Each stream
 * whose work uses it must be recorded (tarn_record_stream()) before its free (tarn_free()): a
 * pinned block has no stream of its own. If `stream` captures into a pool, the block is of that.
 *   TARN_ERROR_OUT_OF_MEMORY   the request is above the limit; or neither the driver nor the limit
 *                              has room, even after all unused memory was released, and the work
 *                              that freed blocks wait for has finished
 *   TARN_ERROR_INVALID_STREAM  the stream is unknown or was retired */
TARN_API tarn_status tarn_pinned_alloc(tarn_stream stream, size_t size, void **pointer);

/* Trim, statistics, errors --------------------------------------------------------------------- */

/* Returns free memory of the default pool, and of pools that are gone, to the driver until at most
 * `keep` bytes are reserved on `device`, counting all pools. Pools in use keep their memory
 * (tarn_pool_trim()). The call waits for work that still uses what it releases, also by all work of
 * the device where that is work of a found stream; this ends a capture that does not show
 * (stream.h). TARN_OK does not promise that `keep` was reached. A device whose memory was never
 * used gets no context.
 *   TARN_ERROR_CAPTURE          a known capture is open on the device, and nothing was released; or
 *                               a wait for all work of the device would end a capture that shows,
 *                               and the rest was released
 *   TARN_ERROR_BUSY             the thread is in a `mapped` or `unmapping` callback (observe.h);
 *                               nothing was released
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_trim(int device, size_t keep);

/* Returns the statistics of a device (stats.h). All counters are 0 for a device whose memory was
 * never used.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `stats` is NULL, or its `size` is unknown */
TARN_API tarn_status tarn_device_stats_get(int device, tarn_stats *stats);

/* Returns the detail of the calling thread's last failure: what was tried, the driver's call, its
 * code and text, and the remedy where one is known. It is empty if nothing has failed yet. Neither
 * a call that succeeds nor the answer TARN_ERROR_NOT_READY of a query changes it. The string is the
 * thread's, and valid until its next failing call or its end. The call works during a capture,
 * after a fork, with the text of the thread that forked, and after a shutdown. */
TARN_API const char *tarn_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
