/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Stream-ordered device memory, behind what core.h has: the short form, growth in place, what a
 * pointer is; tags, compaction, caching and limits.
 *
 * Sizes are bytes. All functions are thread-safe. During a capture all calls are allowed unless
 * they say otherwise. Every function may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN,
 * TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION,
 * TARN_ERROR_OUT_OF_HOST_MEMORY at the first use of tarn, and TARN_ERROR_INVALID_ARGUMENT for a
 * NULL out-parameter. */
#ifndef TARN_MEMORY_H
#define TARN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>
#include <tarn/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_BLOCK_UNIT 512ul          /* bytes: block sizes and addresses are multiples of this */
#define TARN_MAX_ALIGNMENT (2ul << 20) /* bytes */
/* Bytes: a larger request fails as TARN_ERROR_OUT_OF_MEMORY. */
#define TARN_MAX_SIZE (1ul << 60)

/* Allocation ----------------------------------------------------------------------------------- */

/* Allocates `size` bytes for the calling thread's current device and stream, as tarn_alloc_on()
 * does. Returns NULL on failure; tarn_last_status() then gives the status. Returns NULL with
 * TARN_OK for 0 bytes. */
TARN_API void *tarn_malloc(size_t size);

/* Frees a block after the work that `event` has recorded, and after the work of the block's own
 * stream. Otherwise as tarn_free(). The event may be of another device, and may be recorded again
 * or destroyed at once. On failure the block stays live.
 *   TARN_ERROR_CAPTURE            the event was recorded in a capture
 *   TARN_ERROR_INVALID_ARGUMENT   `event` is not an event, or was destroyed
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_free_after(void *pointer, tarn_event *event);

/* Grows a block in place to at least `size` bytes. If the block has that size already, the call
 * does nothing and returns TARN_OK. It never moves or shrinks a block, and never maps memory. On
 * failure the block is as it was.
 *   TARN_ERROR_NO_ROOM           the memory behind the block is not free, or the block cannot grow
 *   TARN_ERROR_INVALID_POINTER   `pointer` is not the start of a live block
 *   TARN_ERROR_DOUBLE_FREE       `pointer` is in free memory of tarn, where a block may have been
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_extend(void *pointer, size_t size);

/* Returns the usable bytes of a block, at least what was requested. The block may be of pinned
 * memory (pinned.h).
 *   TARN_ERROR_INVALID_POINTER   `pointer` is not the start of a live block
 *   TARN_ERROR_DOUBLE_FREE       `pointer` is in free memory of tarn, where a block may have
 *                                been */
TARN_API tarn_status tarn_usable_size_get(const void *pointer, size_t *size);

/* What a pointer is ---------------------------------------------------------------------------- */

/* The id of a pool (pool.h). (0, 0) is the device's default pool, (0, n) a pool that the caller
 * created, (n, 0) one made for a graph. */
typedef struct tarn_pool_id {
    uint64_t first;  /* not 0: made for a graph */
    uint64_t second; /* not 0: created by the caller */
} tarn_pool_id;

/* A live block. */
typedef struct tarn_block_info {
    size_t size;        /* sizeof(tarn_block_info), set by the caller */
    void *base;         /* start of the block */
    size_t usable_size; /* bytes */
    size_t requested;   /* bytes that were requested */
    int device;         /* whose memory it is */
    tarn_stream stream; /* the block's stream, as named now; may have been retired or leased anew */
    tarn_tag tag;       /* 0: none */
    tarn_pool_id pool;  /* the pool that it belongs to */
    bool imported;      /* by tarn_import(), which returned `base`; `stream` and `tag` are 0 */
} tarn_block_info;

/* Describes the live block that contains `pointer`, which may point anywhere into it. Takes a lock,
 * so it is not for a hot path.
 *   TARN_ERROR_INVALID_POINTER    `pointer` is not in a live block
 *   TARN_ERROR_INVALID_ARGUMENT   `info->size` is unknown */
TARN_API tarn_status tarn_pointer_info_get(const void *pointer, tarn_block_info *info);

/* Tags ----------------------------------------------------------------------------------------- */

/* Returns the tag of a text. The same text always gives the same tag. Only its first 63 bytes
 * count.
 *   TARN_ERROR_INVALID_ARGUMENT   `text` is NULL, or 65,535 texts have a tag already
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_tag_intern(const char *text, tarn_tag *tag);
/* Returns the text of a tag, or "" for 0 and for an unknown tag. The string is constant. */
TARN_API const char *tarn_tag_text(tarn_tag tag);

/* Compaction ----------------------------------------------------------------------------------- */

/* Releases at least `wanted` bytes of physical memory between live blocks of `device`; SIZE_MAX
 * asks for all there is. Blocks keep their addresses and contents: their contents are copied into
 * smaller pieces, which are mapped at the old addresses. Graphs captured earlier stay valid. Some
 * memory never moves: what a graph or an open capture holds, anchored or exported memory, plain
 * segments, and registrable pools. See docs/compaction.md.
 *
 * The caller promises three things until the call returns. Nothing queues work on the device, or on
 * a peer that can reach its memory. No graph is launched. No other library or device accesses the
 * memory without going through the driver. Work that is queued already is waited for. Other threads
 * may allocate and free, except in debug mode, which fills blocks. The wait ends a capture that is
 * not known and does not show (stream.h).
 *
 * `gained` receives the bytes by which the reserved memory shrank, also if the call fails after it
 * has begun to move memory: what was released before a failure stays released. A call that fails
 * before that leaves `gained` as it is.
 *
 * If the device, or a limit, has no room for the copies, contents move through host memory. They
 * come back to the device in the same call, also if a limit is below what is reserved: that is not
 * growth.
 *
 *   TARN_ERROR_CAPTURE         a capture on any device is known or shows; it survives
 *   TARN_ERROR_NOT_READY       work of a stream did not end within 10 s
 *   TARN_ERROR_OUT_OF_MEMORY   no memory is free for the first copy, and the driver cannot copy
 *                              through host memory; or another process took the memory meanwhile,
 *                              and contents stay in host memory until the next compaction
 *   TARN_ERROR_NOT_SUPPORTED   the device has no virtual memory
 *   TARN_ERROR_INVALID_DEVICE  there is no device with that number
 *   TARN_ERROR_BUSY            the thread is in a `mapped` or `unmapping` callback (observe.h), or
 *                              the memory was anchored meanwhile
 *   TARN_ERROR_OUT_OF_HOST_MEMORY
 *   TARN_ERROR_DEVICE_LOST     a failure could not be undone: the blocks concerned have lost their
 *                              memory */
TARN_API tarn_status tarn_compact(int device, size_t wanted, size_t *gained);

/* Caching -------------------------------------------------------------------------------------- */

/* Turns caching on or off. Caching is on at first, unless TARN_NO_CACHING=1 is set in the
 * environment. While it is off, each block of a default pool is a driver allocation of its own, and
 * is never reused. This is for memory checkers, and to see whether the cache causes a fault. A
 * freed block then returns to the driver when it is idle: at the next allocation for its stream, at
 * a trim, or when caching is turned on again, but never while a known capture is open on the
 * device. Private pools keep caching. Turning caching off releases nothing: tarn_device_trim()
 * releases what is cached. `previous` (may be NULL) receives whether caching was on.
 *   TARN_ERROR_CONFIGURATION   `caches` is true and backend:cudaMallocAsync is set, where tarn
 *                              never caches the default pools */
TARN_API tarn_status tarn_caching_set(bool caches, bool *previous);

/* Limits --------------------------------------------------------------------------------------- */

/* Sets or returns the most bytes that tarn may reserve on `device`. The initial value,
 * TARN_NO_LIMIT, means no limit. A limit below what is reserved now only stops growth. A compaction
 * is not growth. The resume of a suspended pool needs room below this limit.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_device_limit_set(int device, size_t bytes);
TARN_API tarn_status tarn_device_limit_get(int device, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
