/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Device memory that others use: anchors for code that registered it, exports and imports for other processes. All functions are
 * thread-safe and may be called during a capture. Each may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN and
 * TARN_ERROR_NO_DRIVER. */
#ifndef TARN_SHARE_H
#define TARN_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Anchors the physical memory under `size` bytes of a live block: until the anchor is taken back, it is not unmapped, moved,
 * mapped at a second address or given back, also when the block is freed meanwhile; blocks of the same stream may use it
 * then. Whole pieces are anchored (tarn_range_get() shows one), and counted as reserved. TARN_ERROR_INVALID_POINTER where no
 * live block holds all of the range, TARN_ERROR_INVALID_ARGUMENT for 0 bytes, TARN_ERROR_OUT_OF_HOST_MEMORY. */
TARN_API tarn_status tarn_anchor(const void *pointer, size_t size);

/* Takes one anchor back; `pointer` and `size` are what was given to tarn_anchor(). TARN_ERROR_INVALID_ARGUMENT for what is not
 * anchored so. */
TARN_API tarn_status tarn_unanchor(const void *pointer, size_t size);

/* ---- Memory for other processes ----------------------------------------------------------------------------------
 *
 * The exporter makes a *share* of a block, and sends it over a unix socket; the importer receives it and maps the block.
 * What goes over is the physical pieces that the block lies in, as file descriptors, so neither needs the other's process
 * id nor a right over it, and whoever has a share can map it, whether its maker still runs or not.
 *
 * Both ends then have the same memory, under addresses of their own; nothing orders their work but what they agree on. The
 * exporter keeps the block live until the importers have closed it: memory that is freed serves other blocks of the exporter,
 * while importers still see it. A share shows whole pieces, with what else lies in them: blocks that must not be seen by the
 * importer belong to another device or process. */

/* Creates the device's memory exportable from now on; or let only that of some pools be so (tarn_pool_options). Before it is first used, or
 * when all of it was given back: TARN_ERROR_BUSY while any is reserved. TARN_ERROR_NOT_SUPPORTED where the device cannot;
 * TARN_ERROR_INVALID_DEVICE. */
TARN_API tarn_status tarn_export_enable(int device);

/* A handle on memory that one process exports and others import. Each process closes what it made or received. */
typedef struct tarn_share tarn_share;

/* Makes a share of the live block that begins at `pointer`. Its pieces are anchored until the share is closed; the memory itself
 * lasts as long as anyone has it mapped. TARN_ERROR_INVALID_POINTER; TARN_ERROR_NOT_SUPPORTED, with the remedy, where it
 * was not created exportable; TARN_ERROR_OUT_OF_HOST_MEMORY; TARN_ERROR_DRIVER, also where the process may open no more
 * files: a share has one for each piece. */
TARN_API tarn_status tarn_export(const void *pointer, tarn_share **share);

/* Gives a share up: its files are closed and its anchors taken back. What was imported by it stays. NULL is fine. Also after
 * tarn_shutdown(). */
TARN_API tarn_status tarn_share_close(tarn_share *share);

/* What a share says of its block. */
typedef struct tarn_share_info {
    size_t size;         /* sizeof(tarn_share_info), set by the caller */
    size_t bytes;        /* of the block */
    size_t offset;       /* bytes: where it begins in the first piece */
    size_t mapped;       /* bytes of all its pieces, which an import maps */
    unsigned pieces;     /* count */
    int device;          /* of the exporter, as that counts them */
    uint64_t id[2];      /* the exporting process and the block's place there */
    uint64_t generation; /* of what is mapped there: same id and generation, same memory */
} tarn_share_info;

/* TARN_ERROR_INVALID_ARGUMENT for a NULL or a size that is unknown. */
TARN_API tarn_status tarn_share_info_get(const tarn_share *share, tarn_share_info *info);

/* Sends a share over a connected unix socket (SOCK_STREAM or SOCK_SEQPACKET), or receives the next one; both wait as the
 * socket does, and take no lock meanwhile. A share that was received can be sent on. What arrives is looked at before any of it
 * is used, and imported only if the driver finds what it says: TARN_ERROR_INVALID_ARGUMENT for what is no share, of
 * another version of tarn, or not whole, and for what is no such socket; TARN_ERROR_NOT_READY where the socket's
 * time limit ended; TARN_ERROR_SYSTEM where the other side is gone or the system refuses. After any of these but a
 * TARN_ERROR_OUT_OF_HOST_MEMORY of tarn_share_send() the connection is in the middle of something: close it. */
TARN_API tarn_status tarn_share_send(int socket, const tarn_share *share);
TARN_API tarn_status tarn_share_receive(int socket, tarn_share **share);

/* Maps a shared block for `device`, for reading and writing, and for the devices that reach that one, now and later. Addresses are taken
 * for the block's pieces alone. A share of the same id and generation that is imported on the device already gives the same
 * pointer, counted. The share may be closed then. The memory is not counted as reserved, and no limit is set on it.
 * TARN_ERROR_INVALID_ARGUMENT where the share does not fit the device or what the driver finds; TARN_ERROR_NOT_SUPPORTED for
 * the memory of another driver; TARN_ERROR_OUT_OF_MEMORY when no addresses are left; TARN_ERROR_MAPPING_LIMIT,
 * TARN_ERROR_OUT_OF_HOST_MEMORY, TARN_ERROR_INVALID_DEVICE, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST. */
TARN_API tarn_status tarn_import(const tarn_share *share, int device, void **pointer);

/* Closes an import as often as it was imported; with the last, the memory is unmapped. Work that uses it must have ended.
 * TARN_ERROR_INVALID_POINTER for what tarn_import() did not give; where the driver refuses, it stays imported. */
TARN_API tarn_status tarn_import_close(void *pointer);

#ifdef __cplusplus
}
#endif
#endif
