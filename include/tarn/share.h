/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Device memory that others use: anchors for code that registered it, and exports and imports for
 * other processes. All functions are thread-safe and may be called during a capture. Every function
 * may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_CONFIGURATION and, at the first use of tarn, TARN_ERROR_OUT_OF_HOST_MEMORY. */
#ifndef TARN_SHARE_H
#define TARN_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Anchors the physical memory under `size` bytes of a live block. Until the anchor is removed, this
 * memory is not unmapped, moved, mapped at a second address or returned to the driver, even if the
 * block is freed meanwhile; blocks of the same stream may then reuse it. Whole pieces are anchored
 * (tarn_mapping_get() shows one), and they count as reserved. A range may be anchored several
 * times: each anchor is removed by a call of its own. The call waits for a compaction that has the
 * block in host memory at that moment, except in an observer's callback.
 *   TARN_ERROR_INVALID_POINTER    no live block contains the whole range, or it is imported memory
 *   TARN_ERROR_INVALID_ARGUMENT   `size` is 0
 *   TARN_ERROR_SUSPENDED          the block's pool is suspended
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_anchor(const void *pointer, size_t size);

/* Removes one anchor. `pointer` and `size` are those given to tarn_anchor().
 *   TARN_ERROR_INVALID_ARGUMENT   there is no such anchor */
TARN_API tarn_status tarn_unanchor(const void *pointer, size_t size);

/* ---- Memory for other processes -----------------------------------------------------------------
 *
 * The exporter creates a *share* of a block and sends it over a unix socket. The importer receives
 * the share and maps the block. A share carries the physical pieces under the block as file
 * descriptors. So neither process needs the other's process id or a right over it, and whoever has
 * a share can map it, even after the exporter has ended.
 *
 * Both processes then see the same memory at their own addresses. Nothing orders their work except
 * what they agree on. The exporter keeps the block live until the importers have closed it: freed
 * memory serves the exporter's other blocks while importers still see it. A share shows whole
 * pieces, with whatever else lies in them: keep blocks that the importer must not see on another
 * device or in another process. */

/* Makes all memory of a device exportable from now on. To export memory of some pools only, see
 * tarn_pool_options. Call it before the device's memory is first used, or when all of it has been
 * returned to the driver. A second call for the device does nothing.
 *   TARN_ERROR_BUSY             memory of the device is reserved, and was not created exportable
 *   TARN_ERROR_NOT_SUPPORTED    the device cannot export memory
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_export_enable(int device);

/* Memory that one process exports and others import. Each process closes the shares that it created
 * or received. */
typedef struct tarn_share tarn_share;

/* Creates a share of the live block that begins at `pointer`. The block's pieces are anchored until
 * the share is closed, and the call waits as tarn_anchor() does. The memory lasts as long as any
 * process has it mapped.
 *   TARN_ERROR_INVALID_POINTER   `pointer` is not the start of a live block, or is imported memory
 *   TARN_ERROR_NOT_SUPPORTED     the memory was not created exportable, or the block has more than
 *                                65,536 pieces; the text names the remedy
 *   TARN_ERROR_SUSPENDED         the block's pool is suspended
 *   TARN_ERROR_DRIVER            the driver refused, or the process has no file descriptors left: a
 *                                share takes one per piece
 *   TARN_ERROR_SYSTEM            the process has no file descriptors left
 *   TARN_ERROR_DEVICE_LOST
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_export(const void *pointer, tarn_share **share);

/* Closes a share: closes its files and removes its anchors. Imports made from it stay. NULL is
 * allowed. It also works after tarn_shutdown().
 *   TARN_ERROR_INVALID_ARGUMENT   `share` is not a share, or was closed before */
TARN_API tarn_status tarn_share_close(tarn_share *share);

/* What a share says about its block, or about its pool (tarn_pool_export()). */
typedef struct tarn_share_info {
    size_t size;     /* sizeof(tarn_share_info), set by the caller */
    size_t bytes;    /* of the block; of a pool: of all segments */
    size_t offset;   /* bytes: start of the block in the first piece; of a pool: 0 */
    size_t mapped;   /* bytes of all pieces, which an import maps */
    unsigned pieces; /* count; of a pool: segments */
    int device;      /* the exporter's number of it */
    uint64_t id[2];  /* identifies the exporting process and the block, or the pool, in it */
    /* Of a block's mapping: the same id and generation are the same memory. Of a pool's layout: a
     * newer layout has a higher one. */
    uint64_t generation;

    /* Of a pool that this process has exported: how many processes import it now, through any of
     * its shares since the last revocation. The kernel keeps this count: an importer that is killed
     * no longer counts. A share that was received and not imported does not count either. 0 only if
     * there is no importer. An importer that means harm can count more than once: at most 1,024 are
     * counted, in at most 0.1 s. */
    size_t importers;
} tarn_share_info;

/* Describes a share.
 *   TARN_ERROR_INVALID_ARGUMENT   an argument is NULL, the share was closed, or the size of the
 *                                 structure is unknown
 *   TARN_ERROR_SYSTEM             the system refused to tell the importers */
TARN_API tarn_status tarn_share_info_get(const tarn_share *share, tarn_share_info *info);

/* Send a share over a connected unix socket (SOCK_STREAM or SOCK_SEQPACKET), or receive the next
 * one. Both wait as the socket does, with no lock held. A time limit of the socket (SO_SNDTIMEO,
 * SO_RCVTIMEO) is for the whole call. A received share can be sent on. The receiver checks
 * everything that arrives before using it; an import also compares it with what the driver reports.
 * Who is at the other end is the caller's to check (SO_PEERCRED). After an error the connection is
 * out of step: close it. The exception is an error about the call's own arguments. A closed
 * connection raises no SIGPIPE.
 *   TARN_ERROR_INVALID_ARGUMENT   what arrived is not a share, is incomplete, or is of another
 *                                 version of tarn; or `socket` is not such a socket, or `share` is
 *                                 NULL or was closed
 *   TARN_ERROR_NOT_READY          the socket's time limit ended
 *   TARN_ERROR_SYSTEM             the other side is gone, the system refused, or no file
 *                                 descriptors are left
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   receive */
TARN_API tarn_status tarn_share_send(int socket, const tarn_share *share);
TARN_API tarn_status tarn_share_receive(int socket, tarn_share **share);

/* Maps a shared block for `device`, for reading and writing, and for the devices that can access
 * that one, now and later. It takes addresses for the block's pieces only. Importing the same share
 * (same id and generation) on the same device again returns the same pointer and counts it once
 * more. The share may be closed afterwards. Imported memory does not count as reserved and is
 * subject to no limit. It is not a block: tarn_free() and most calls on blocks return
 * TARN_ERROR_INVALID_POINTER for it, and tarn_pointer_info_get() describes it.
 *   TARN_ERROR_INVALID_ARGUMENT   the share was closed, is of a pool, does not fit the device, or
 *                                 disagrees with the driver
 *   TARN_ERROR_NOT_SUPPORTED      the memory is another driver's, or the device cannot import
 *                                 memory
 *   TARN_ERROR_OUT_OF_MEMORY      no addresses are left
 *   TARN_ERROR_MAPPING_LIMIT      the process has no mapping left
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_OUT_OF_HOST_MEMORY
 *   TARN_ERROR_DRIVER
 *   TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_import(const tarn_share *share, int device, void **pointer);

/* Closes an import. Call it once per tarn_import(); the last close unmaps the memory. Work that
 * uses the memory must have finished. If the driver refuses, the memory stays imported.
 *   TARN_ERROR_INVALID_POINTER   `pointer` did not come from tarn_import(), or all imports of it
 *                                were closed
 *   TARN_ERROR_DRIVER
 *   TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_import_close(void *pointer);

/* ---- Pools for other processes ------------------------------------------------------------------
 *
 * A share of a pool describes all segments of a registrable pool (tarn_pool_options): where the
 * exporter has them, and the generation of this layout. The importer maps them, at addresses of its
 * own, and asks for the local address of what the exporter names. When the pool has grown, the
 * exporter sends a share of what is new, and the importer updates.
 *
 * As with blocks, nothing orders the work of the two processes, the importer sees everything in the
 * segments, and physical memory lasts as long as any process has it mapped. */

/* Creates a share of all segments that a pool has now. The segments are anchored until the share is
 * closed, whether blocks live in them or not: no trim returns them, and the pool cannot be
 * suspended. A pool without segments can be exported.
 *
 * `before` may be NULL: the share is whole. Otherwise it is an earlier share of the same pool, made
 * by this call and not closed: only files of segments that `before` does not describe are sent
 * along, for importers that have imported it. Close `before` when the next one exists.
 *
 * The layout's generation (tarn_share_info) stays the same if no segment has come, gone or been
 * mapped anew since the pool's last export; otherwise it is higher. Importers of lower generations
 * then learn that they are outdated.
 *   TARN_ERROR_INVALID_ARGUMENT   not a pool, or one that is not registrable; `before` is not such
 *                                 a share, or was revoked
 *   TARN_ERROR_SUSPENDED          the pool is suspended
 *   TARN_ERROR_NOT_SUPPORTED      the pool has more than 65,536 segments
 *   TARN_ERROR_DRIVER             the driver refused
 *   TARN_ERROR_SYSTEM             the process has no file descriptors left, of which a share takes
 *                                 one per segment; or /proc is missing
 *   TARN_ERROR_DEVICE_LOST
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_pool_export(tarn_pool *pool, const tarn_share *before,
                                      tarn_share **share);

/* Tells all importers of a pool that the exporter wants its memory back: their state is
 * TARN_IMPORT_REVOKED from now on. Nothing is unmapped, and the segments stay anchored until the
 * shares are closed. So: revoke, wait until tarn_share_info_get() says 0 importers, or for as long
 * as the importers may take, then close the shares. Closing the pool's last share revokes too. Any
 * share of the pool that this process made may be given; a second call does nothing. Exports made
 * later have another id, and are imported anew.
 *   TARN_ERROR_INVALID_ARGUMENT   `share` was not made by tarn_pool_export(), or was closed */
TARN_API tarn_status tarn_share_revoke(const tarn_share *share);

/* A pool of another process, mapped into this one. */
typedef struct tarn_imported_pool tarn_imported_pool;

/* Maps all segments that a share of a pool describes for `device`, for reading and writing, and for
 * the devices that can access that one. Each import is one of its own, which the caller closes; the
 * share may be closed afterwards. Imported segments do not count as reserved, and are not blocks:
 * tarn_pointer_info_get() describes the segment. On failure nothing is mapped.
 *   TARN_ERROR_INVALID_ARGUMENT   the share was closed, is of a block, has only what is new since
 *                                 an earlier one, does not fit the device, or disagrees with the
 *                                 driver
 *   TARN_ERROR_NOT_SUPPORTED      the memory is another driver's, or the device cannot import
 *                                 memory
 *   TARN_ERROR_OUT_OF_MEMORY      no addresses are left
 *   TARN_ERROR_MAPPING_LIMIT      the process has no mapping left
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_SYSTEM             no file descriptors are left, or /proc is missing
 *   TARN_ERROR_OUT_OF_HOST_MEMORY
 *   TARN_ERROR_DRIVER
 *   TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_pool_import(const tarn_share *share, int device,
                                      tarn_imported_pool **imported);

/* Makes an import what a later share of the same export describes. Segments that are new are
 * mapped; segments that both have keep their local addresses; segments that are gone are unmapped,
 * so work that uses those must have finished. On failure the import is as it was.
 *   TARN_ERROR_INVALID_ARGUMENT   as tarn_pool_import(); or the share is of another pool, was made
 *                                 after a revocation, is older than the import, or lacks files of
 *                                 segments that this import does not have; or `imported` was closed
 *   TARN_ERROR_BUSY               another thread updates or closes it
 *   TARN_ERROR_NOT_SUPPORTED      the memory is another driver's
 *   TARN_ERROR_OUT_OF_MEMORY      no addresses are left
 *   TARN_ERROR_MAPPING_LIMIT      the process has no mapping left
 *   TARN_ERROR_OUT_OF_HOST_MEMORY
 *   TARN_ERROR_DRIVER
 *   TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_imported_pool_update(tarn_imported_pool *imported,
                                               const tarn_share *share);

/* Returns where `size` bytes that the exporter has at `address` are in this process. The result is
 * valid until an update drops the segment, or the import is closed. Blocks of the pool lie in one
 * segment each. Takes one lock for a moment; no system call.
 *   TARN_ERROR_INVALID_POINTER    the bytes are not in one segment of the layout that was imported:
 *                                 an update may be due
 *   TARN_ERROR_INVALID_ARGUMENT   `pointer` is NULL, or `imported` is not an imported pool, or was
 *                                 closed */
TARN_API tarn_status tarn_imported_pool_find(tarn_imported_pool *imported, const void *address,
                                             size_t size, void **pointer);

/* What has become of an imported pool. */
typedef enum tarn_import_state {
    TARN_IMPORT_CURRENT, /* it is what the exporter has exported last */
    /* The exporter has exported a newer layout: get a share of it, and update. */
    TARN_IMPORT_OUTDATED,
    /* The exporter wants its memory back: end what uses it, and close the import. */
    TARN_IMPORT_REVOKED,
    /* The exporter has ended, or was killed: the memory lasts as long as it is imported. */
    TARN_IMPORT_ORPHANED
} tarn_import_state;

/* Returns the state of an imported pool. A revocation is seen at once, in memory that both
 * processes map, without a system call; otherwise one system call asks whether the exporter is
 * there. Never waits.
 *   TARN_ERROR_INVALID_ARGUMENT   an argument is NULL, or `imported` was closed */
TARN_API tarn_status tarn_imported_pool_state_get(tarn_imported_pool *imported,
                                                  tarn_import_state *state);

/* Closes an import: unmaps its segments, and leaves the exporter's count. Work that uses the memory
 * must have finished, and no other thread may use the import during the call. NULL is allowed. If
 * the driver refuses, what is still mapped stays imported, and the call can be repeated.
 *   TARN_ERROR_INVALID_ARGUMENT   `imported` is not an imported pool, or was closed before
 *   TARN_ERROR_BUSY               another thread updates or closes it
 *   TARN_ERROR_DRIVER
 *   TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_imported_pool_close(tarn_imported_pool *imported);

#ifdef __cplusplus
}
#endif
#endif
