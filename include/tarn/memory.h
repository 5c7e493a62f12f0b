/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Device memory in the order of streams.
 *
 * A block is allocated for a stream. Work queued on that stream may use it from then on. After tarn_free() the same
 * stream may be given the memory again at once, since its later work runs after its earlier work; another stream is
 * given it only when the work queued before the free has finished. So a free never waits.
 *
 * Sizes are bytes. Addresses are multiples of 512, or of the alignment asked for. All functions are thread-safe; a
 * block may be freed by any thread and on any current device. Every function may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER and TARN_ERROR_DEVICE_LOST. */
#ifndef TARN_MEMORY_H
#define TARN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>
#include <tarn/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_BLOCK_UNIT 512ul          /* bytes: block sizes and addresses are multiples of it */
#define TARN_MAX_ALIGNMENT (2ul << 20) /* bytes */
#define TARN_MAX_SIZE (1ul << 60)      /* bytes: a larger request fails as TARN_ERROR_OUT_OF_MEMORY */
#define TARN_CURRENT_DEVICE (-1)       /* in place of a number: the calling thread's current device */

/* A small number that names what a block is for, in statistics and snapshots; 0 is "no tag". */
typedef uint16_t tarn_tag;

/* The tag of a text, the same for the same text. The text is copied, 63 bytes of it at most.
 * TARN_ERROR_OUT_OF_HOST_MEMORY; TARN_ERROR_INVALID_ARGUMENT for NULL, or for the 65,536th text. */
TARN_API tarn_status tarn_tag_intern(const char *text, tarn_tag *tag);
/* The text of a tag; "" for 0 and for a tag that is unknown. The string is constant. */
TARN_API const char *tarn_tag_text(tarn_tag tag);

/* tarn_alloc_on() for the calling thread's current device and stream. NULL on failure, with the status in tarn_last_status();
 * NULL for 0 bytes, with TARN_OK there. */
TARN_API void *tarn_malloc(size_t size);

/* Allocates `size` bytes for work on `stream`; 0 bytes give a NULL pointer and TARN_OK. TARN_ERROR_OUT_OF_MEMORY when
 * neither the device nor idle memory of its other streams has room, after waiting for work whose end frees some;
 * TARN_ERROR_CAPTURE when it would have to wait for all of the device's work and a capture that tarn does not know is open, which that
 * spoils; TARN_ERROR_SUSPENDED from a pool that is suspended; TARN_ERROR_INVALID_STREAM; TARN_ERROR_OUT_OF_HOST_MEMORY;
 * TARN_ERROR_MAPPING_LIMIT. */
TARN_API tarn_status tarn_alloc_on(tarn_stream stream, size_t size, void **pointer);

struct tarn_pool; /* tarn/pool.h */

/* What tarn_alloc() may be told beside the size. */
typedef struct tarn_alloc_options {
    size_t size;        /* sizeof(tarn_alloc_options) */
    int device;         /* TARN_CURRENT_DEVICE, or a device; must be that of `stream` unless that is a constant */
    tarn_stream stream; /* TARN_STREAM_LEGACY and TARN_STREAM_PER_THREAD mean those of `device` */
    size_t alignment;   /* bytes: 0 or a power of two up to TARN_MAX_ALIGNMENT */
    tarn_tag tag;       /* of the block; 0: none */

    /* Whose block it is, whatever scopes are open; NULL: the scopes say. TARN_CURRENT_DEVICE is the pool's device then. */
    struct tarn_pool *pool;
} tarn_alloc_options;

/* TARN_ERROR_INVALID_ARGUMENT for a bad alignment, tag, pool or structure size; TARN_ERROR_INVALID_DEVICE for a pool of another device;
 * otherwise as tarn_alloc_on(). */
TARN_API tarn_status tarn_alloc(const tarn_alloc_options *options, size_t size, void **pointer);

/* Frees a block, in the order of the stream that it was allocated for. NULL is fine. TARN_ERROR_INVALID_POINTER for
 * what is not the start of a block of tarn's; TARN_ERROR_DOUBLE_FREE. Either leaves everything as it was. */
TARN_API tarn_status tarn_free(void *pointer);

/* Frees a block after the work that is queued on `stream` now, as well as after that of its own stream. TARN_ERROR_INVALID_STREAM;
 * TARN_ERROR_OUT_OF_HOST_MEMORY, and the block is live; otherwise as tarn_free(). */
TARN_API tarn_status tarn_free_on(void *pointer, tarn_stream stream);

/* Frees a block after what `event` has recorded, as well as after the work of its own stream. The event may be recorded
 * anew or destroyed at once. TARN_ERROR_CAPTURE, and the block is live, for an event that was recorded in a capture;
 * TARN_ERROR_OUT_OF_HOST_MEMORY, and the block is live; otherwise as tarn_free(). */
TARN_API tarn_status tarn_free_after(void *pointer, tarn_event *event);

/* Says that work on `stream` uses the block: when it is freed, its memory is not given out before the work that is
 * queued on `stream` at that moment has finished. `pointer` may point into the block. TARN_ERROR_INVALID_STREAM;
 * TARN_ERROR_INVALID_POINTER; TARN_ERROR_OUT_OF_HOST_MEMORY. */
TARN_API tarn_status tarn_record_stream(void *pointer, tarn_stream stream);

/* Grows a block in place to at least `size` bytes; a size that it already has is TARN_OK. TARN_ERROR_NO_ROOM when what
 * follows it is not free; TARN_ERROR_OUT_OF_HOST_MEMORY. Never moves, never shrinks, never maps memory; on failure the block
 * is as it was. */
TARN_API tarn_status tarn_extend(void *pointer, size_t size);

/* The bytes that a block really has, at least what was asked for. TARN_ERROR_INVALID_POINTER for what is not the start of a live
 * block, TARN_ERROR_DOUBLE_FREE where one may have been. */
TARN_API tarn_status tarn_usable_size_get(const void *pointer, size_t *size);

/* Names a pool (pool.h): (0, 0) the device's default pool, (0, n) one that the user made, (n, 0) one made for a graph. */
typedef struct tarn_pool_id {
    uint64_t first;  /* not 0: made for a graph */
    uint64_t second; /* not 0: made by the user */
} tarn_pool_id;

/* A live block. */
typedef struct tarn_block_info {
    size_t size;        /* sizeof(tarn_block_info), set by the caller */
    void *base;         /* start of the block */
    size_t usable_size; /* bytes */
    size_t requested;   /* bytes, as asked for */
    int device;         /* whose memory it is */
    tarn_stream
        stream;        /* that it was allocated for, by its value of now; may be retired since, or have another lease */
    tarn_tag tag;      /* 0: none */
    tarn_pool_id pool; /* which of the device's pools it is from */
    bool imported;     /* tarn_import() gave it: then `base` is what that gave, and `stream` and `tag` are 0 */
} tarn_block_info;

/* What is known of the live block that holds `pointer`, which may point anywhere into it. Takes a lock: not for a hot
 * path. TARN_ERROR_INVALID_POINTER. */
TARN_API tarn_status tarn_pointer_info_get(const void *pointer, tarn_block_info *info);

/* Gives memory of the default pool, and of pools that are gone, back to the driver until at most `keep` bytes stay reserved on
 * `device`, those of all pools. A pool that is in use keeps its own (tarn_pool_trim()). Waits for work that still uses what it gives
 * back. Does nothing, and makes no context, on a device whose memory was not used. TARN_OK also when more than `keep` cannot be given
 * back. TARN_ERROR_CAPTURE while a known capture is open on the device; then nothing was given back. */
TARN_API tarn_status tarn_device_trim(int device, size_t keep);

/* Gives physical memory between live blocks of `device` back to the driver: at least `wanted` bytes, SIZE_MAX for all that there is. Blocks
 * keep their addresses and contents: these are copied into smaller pieces, which are mapped where the old ones were, so that graphs that
 * were captured before go on to find them. Memory that a graph or an open capture holds, that is anchored or exported, plain segments, and
 * registrable pools stay where they are.
 *
 * The caller promises that nothing queues work on the device meanwhile, on any stream, nor on peers that reach its memory; that no graph is
 * launched; and that no other library or device reaches the memory behind the driver's back. Other threads may allocate and free, except in
 * debug mode, which fills blocks. The call waits for the work that is queued already. See docs/compaction.md.
 *
 * The bytes by which less is reserved are stored in `gained`. What was given back before a failure stays given back.
 *
 *   TARN_ERROR_CAPTURE         a capture is open, known on any device or seen on a stream of this one
 *   TARN_ERROR_NOT_READY       work of a stream did not end within 10 s
 *   TARN_ERROR_OUT_OF_MEMORY   there is no free memory to copy the first block into, and the driver has no way through the host's
 *   TARN_ERROR_NOT_SUPPORTED   the device has no virtual memory
 *   TARN_ERROR_BUSY            the thread runs an observer's callback, or the memory was anchored meanwhile
 *   TARN_ERROR_DEVICE_LOST     a failure could not be undone: the blocks concerned have no memory any more */
TARN_API tarn_status tarn_compact(int device, size_t wanted, size_t *gained);

/* Whether tarn caches memory, as it does at first unless the environment has TARN_NO_CACHING=1. While it does not, every block of
 * a default pool is an allocation of the driver's of its own, never used twice: for memory checkers, and to see whether a fault is of
 * the cache's. What is freed goes back at the next allocation for its stream that finds it idle, at a trim, or when caching begins
 * again; never while a known capture is open on the device. Private pools go on caching. TARN_ERROR_CONFIGURATION for true with
 * backend:cudaMallocAsync, where the default pools' memory is never tarn's. */
TARN_API tarn_status tarn_caching_set(bool caches);
/* Whether it does now. TARN_ERROR_INVALID_ARGUMENT for a NULL. */
TARN_API tarn_status tarn_caching_get(bool *caches);

/* The most bytes that tarn reserves on `device`; TARN_NO_LIMIT, the initial value, is none. A limit below what is
 * reserved now only stops growth. TARN_ERROR_INVALID_DEVICE; TARN_ERROR_OUT_OF_HOST_MEMORY. */
TARN_API tarn_status tarn_device_limit_set(int device, size_t bytes);
TARN_API tarn_status tarn_device_limit_get(int device, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
