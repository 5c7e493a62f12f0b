/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges: addresses that get and lose memory page by page.
 *
 * A range reserves addresses, and no memory. A commit gives pages of it memory, and a decommit
 * takes the memory away, both in the order of a stream. For key-value caches that grow by pages,
 * embedding tables, and the arenas of other runtimes. The memory belongs to a pool, which counts it
 * as reserved, limits it, and may give decommitted pages back when memory is short.
 *
 * Order. A decommit does not unmap: the page stays mapped. A commit of the page on the same stream
 * has it back at once. On another stream it waits, by an event, for the work that was queued before
 * the decommit, unless that work has ended. A page serves other addresses when its work has ended;
 * on the same stream before that too, mapped a second time, where the driver can do that
 * (tarn_device_properties) and the pool allows it (`no_remap`).
 *
 * Addresses of a range are not blocks: tarn_free(), tarn_record_stream(), tarn_anchor(),
 * tarn_export(), tarn_extend(), tarn_mapping_get() and tarn_pointer_info_get() refuse them with
 * TARN_ERROR_INVALID_POINTER. tarn_pool_restore() and compaction do not touch ranges.
 * tarn_pool_suspend() returns TARN_ERROR_BUSY while a page of a range is committed.
 *
 * All functions are thread-safe. Every function may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST,
 * TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_INVALID_ARGUMENT for a
 * NULL that is not allowed, a range that was destroyed, and an offset or a size that is 0, not a
 * multiple of the page, or not inside the range. */
#ifndef TARN_RANGE_H
#define TARN_RANGE_H

#include <tarn/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range of addresses. */
typedef struct tarn_range tarn_range;

/* The properties of a range. They are fixed when it is created. */
typedef struct tarn_range_options {
    size_t size; /* sizeof(tarn_range_options) */
    /* Whose memory it is; NULL: the default pool of the current device. The range holds a reference
     * to it. */
    tarn_pool *pool;
    /* Bytes that are committed and returned as one, a multiple of the device's granule; 0: the
     * granule. */
    size_t page;
    /* Of its pages in traces, snapshots and lists of memory (tarn_tag_intern()); 0: none. */
    tarn_tag tag;
} tarn_range_options;

/* A range at the time of the call. */
typedef struct tarn_range_info {
    size_t size;        /* sizeof(tarn_range_info), set by the caller */
    void *address;      /* its start; constant */
    size_t bytes;       /* of addresses; constant */
    size_t page;        /* bytes; constant */
    int device;         /* whose memory it is */
    tarn_pool_id pool;  /* (0, 0) is the default pool */
    size_t committed;   /* bytes of committed pages */
    size_t decommitted; /* bytes of decommitted pages that still have memory */
} tarn_range_info;

/* Reserves addresses for a range; `bytes` is rounded up to whole pages. NULL options mean the
 * defaults.
 *   TARN_ERROR_NOT_SUPPORTED   the pool has plain segments or is registrable, or the device has no
 *                              virtual memory
 *   TARN_ERROR_OUT_OF_MEMORY   the driver has no range of addresses that is long enough */
TARN_API tarn_status tarn_range_create(const tarn_range_options *options, size_t bytes,
                                       tarn_range **range);

/* Gives pages memory. Work queued on `stream` from now on may use them; the contents are undefined.
 * Other streams must be ordered after `stream`, as for every block. All pages are committed, or on
 * failure none. The call waits for work if a page is still in use at its address: by another
 * stream, if no event can order the two, or by any stream, if the page's memory went to another
 * page before the work had ended.
 *   TARN_ERROR_INVALID_ARGUMENT   a page is committed already
 *   TARN_ERROR_INVALID_STREAM     the stream is unknown, was retired, or is of another device
 *   TARN_ERROR_CAPTURE            the stream captures, or the call would have to wait for a stream
 *                                 that does: commit before the capture begins. An unknown capture
 *                                 may go unseen
 *   TARN_ERROR_OUT_OF_MEMORY      the device or a limit has no room
 *   TARN_ERROR_SUSPENDED          the pool is suspended
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback (observe.h),
 *                                 and not every page still has memory decommitted on `stream` */
TARN_API tarn_status tarn_range_commit(tarn_range *range, size_t offset, size_t bytes,
                                       tarn_stream stream);

/* Takes committed pages back, when the work that was queued on `stream` until now has ended. Work
 * of other streams on the pages must come before that work: let `stream` wait for it. All pages are
 * decommitted, or on failure none.
 *
 * The call needs the driver only in these cases. While any known capture is open, it asks whether
 * `stream` captures. If idle memory is to go back by itself (idle_release in pool.h), it may
 * record events that such memory waits for. With redzone, poison, quarantine, sites, check or leaks
 * in TARN_DEBUG, pages are unmapped as soon as they are idle, so that late work faults. With
 * context there, it asks for the current device.
 *   TARN_ERROR_INVALID_ARGUMENT   a page is not committed
 *   TARN_ERROR_INVALID_STREAM     as for tarn_range_commit()
 *   TARN_ERROR_CAPTURE            the stream captures: decommit when the capture has ended. An
 *                                 unknown capture goes unseen while no known one is open
 *   TARN_ERROR_BUSY               a page is held (tarn_range_hold()) */
TARN_API tarn_status tarn_range_decommit(tarn_range *range, size_t offset, size_t bytes,
                                         tarn_stream stream);

/* Holds committed pages for a graph that uses them: until it is released, a decommit of them
 * returns TARN_ERROR_BUSY. With a vendor's graph (cudaGraph_t, not an executable), until the graph
 * and every executable made from it later are destroyed and their work has ended. With NULL, until
 * tarn_range_unhold() of the same pages, once per hold.
 *   TARN_ERROR_INVALID_ARGUMENT   a page is not committed; unhold: these pages are not held
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback
 *   TARN_ERROR_NOT_SUPPORTED      the driver cannot report the end of a graph */
TARN_API tarn_status tarn_range_hold(tarn_range *range, size_t offset, size_t bytes, void *graph);
TARN_API tarn_status tarn_range_unhold(tarn_range *range, size_t offset, size_t bytes);

/* Reads a range's properties and how much memory it has. Makes no driver call. */
TARN_API tarn_status tarn_range_info_get(tarn_range *range, tarn_range_info *info);

/* Ends a range: waits for the work behind its decommits and for that of the streams on which its
 * pages were committed, and returns memory and addresses. Nothing else may use the range during the
 * call. Destroying NULL is allowed. On failure the range lives on; memory that was returned before
 * the failure is gone from it.
 *   TARN_ERROR_BUSY      a page is held, or the thread is in a `mapped` or `unmapping` callback
 *   TARN_ERROR_CAPTURE   a stream captures whose work would be waited for */
TARN_API tarn_status tarn_range_destroy(tarn_range *range);

#ifdef __cplusplus
}
#endif
#endif
