/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools: device memory that outlives its process.
 *
 * An *owner*, the program `tarn keep`, holds the file descriptors of a pool's segments and opens no
 * driver. When the process that filled the pool ends, even by a crash, the memory stays, and the
 * next process takes the pool over: the same blocks, at the same addresses where the system allows
 * it, without a copy.
 *
 * A *sealed* block has a name and finished contents. A successor gets the sealed blocks as live
 * blocks; everything else in the pool is free memory to it. One process at a time has the pool. A
 * successor gets it only after the process before it has ended, because kernels may run until then.
 *
 * Other processes may read the pool beside it (`read` of the options), any number of them, before
 * and after its process has ended. tarn_pool_block_find() sees each seal, and each end of one, from
 * the moment at which the call that made it returned. What was found before stays mapped: a process
 * tells its readers before it unseals or frees a block. Otherwise a reader compares `seal` of two
 * finds, one before and one after it has read: if the numbers are equal, the contents did not
 * change. Memory that the pool gives up stays with a reader until tarn_pool_trim() of the reader's
 * pool, which waits for the device, or its release, before which the caller has waited for what
 * reads it; `tarn keep --list` shows the readers, and the bytes that only they have. If the pool
 * has got new memory at such addresses, a find of a block there is TARN_ERROR_BUSY until then. A
 * reader needs the owner when the pool has grown, and keeps nobody from taking the pool over. Its
 * pool has no memory of its own: an allocation, a suspend, a save and a load are
 * TARN_ERROR_NOT_SUPPORTED, a sleep passes over it, and limits and statistics do not count what it
 * maps.
 *
 * A kept pool is a private pool (pool.h) of plain segments: limits, statistics, snapshots and trims
 * treat it as such. Its blocks cannot be exported. A suspend with `save` gives its free memory
 * back, and everything else stays with the owner, in place. Without `save` the owner drops the
 * memory, and the seals go; the resume makes new memory at the same addresses. If the driver
 * refuses to unmap a segment, this one and those not yet given up keep their memory until the
 * resume. A release of its last reference gives the memory back and makes the owner forget the
 * pool. So does tarn_shutdown() if the pool has no live blocks; otherwise it does not, nor does the
 * end of the process. A reset of the GPU and a reboot lose everything. Whoever may connect to the
 * owner's socket, which is its user's alone, can read and change the memory.
 *
 * All functions are thread-safe. All except tarn_pool_keep(), tarn_pool_save() and
 * tarn_pool_load() may be called during a capture. Every function may also return
 * TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_CONFIGURATION and, at
 * the first use of tarn, TARN_ERROR_OUT_OF_HOST_MEMORY. */
#ifndef TARN_KEEP_H
#define TARN_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a pool's or block's name, with the terminating 0; and of the caller's data of a
 * block. */
#define TARN_KEEP_NAME_BYTES 64
#define TARN_KEEP_DATA_BYTES 64

/* Options of tarn_pool_keep(). Fields that are 0 have their defaults. */
typedef struct tarn_keep_options {
    size_t size;        /* sizeof(tarn_keep_options) */
    int device;         /* or TARN_CURRENT_DEVICE, as without options */
    const char *socket; /* the owner's; NULL: that of the variable TARN_KEEP */
    tarn_stream stream; /* in whose order adopted blocks are freed and their memory is reused */
    /* Bytes of a segment, a multiple of 2 MiB; 0: 256 MiB. The owner holds one file descriptor for
     * each, and at most 1,024. A larger block has a segment of its own; one of blocks up to 1 MiB
     * has a sixteenth. */
    size_t segment;
    /* How long to wait for the end of the process that has the pool; with `read`, for a process
     * that makes it. */
    unsigned wait_ms;
    bool read; /* beside the process that has it, only to read: see above */
} tarn_keep_options;

/* What tarn_pool_keep() found. */
typedef struct tarn_kept {
    size_t size;   /* sizeof(tarn_kept), set by the caller */
    size_t blocks; /* sealed blocks that are live now; 0 in a new pool */
    size_t bytes;  /* of these */
    size_t mapped; /* bytes of all segments */
    bool adopted;  /* the pool existed */
    /* The addresses of the process before could not be had: pointers that were stored in the memory
     * are wrong, and tarn_pool_block_find() gives the new ones. */
    bool moved;
    /* With `read`: the driver refuses writes to the pool's memory, by an error that ends the
     * context if a kernel writes. */
    bool read_only;
} tarn_kept;

/* Takes over the pool of a name, of 1 to 63 bytes, or creates it. `pool` is then a private pool,
 * with one reference. `options` NULL means the defaults; `kept` may be NULL.
 *   TARN_ERROR_BUSY              the process that has the pool has not ended within `wait_ms`, or a
 *                                child of it has not; the text names it. This process has it: then
 *                                at once. With `read`: no process has made the pool. Children
 *                                count that were forked after the process first used tarn's
 *                                memory, or, without TARN_KEEP, after it called this function
 *   TARN_ERROR_INVALID_ARGUMENT  the name, the segment size, the structure's size; no socket
 *   TARN_ERROR_SYSTEM            the owner cannot be reached, or it refused, for example because
 *                                the pool is memory of another device or driver; the text says why
 *   TARN_ERROR_NOT_SUPPORTED     the device has no virtual memory, or cannot export it
 *   TARN_ERROR_OUT_OF_MEMORY     no addresses are left, or fewer in one piece than the process
 *                                before had; or the device's limit is reached
 *   TARN_ERROR_INVALID_DEVICE, TARN_ERROR_INVALID_STREAM, TARN_ERROR_OUT_OF_HOST_MEMORY,
 *   TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_pool_keep(const char *name, const tarn_keep_options *options,
                                    tarn_pool **pool, tarn_kept *kept);

/* Seals the live block that begins at `pointer`: a successor finds it by `name`. The contents must
 * be complete: the call waits for `event`, which is recorded after the work that writes them; with
 * NULL the caller has waited. `data` is TARN_KEEP_DATA_BYTES bytes for the successor, or NULL. A
 * sealed block is unsealed before it is written again, and by its free.
 *   TARN_ERROR_INVALID_POINTER   no live block begins there, or it is not in a kept pool, or in one
 *                                that this process only reads
 *   TARN_ERROR_INVALID_ARGUMENT  the name is empty, too long or taken; the block is sealed;
 *                                `event` is not an event, or it was destroyed
 *   TARN_ERROR_NO_ROOM           the pool has 32,768 sealed blocks
 *   TARN_ERROR_CAPTURE           the event was recorded in a capture
 *   TARN_ERROR_OUT_OF_HOST_MEMORY, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_pool_block_seal(const void *pointer, const char *name, const void *data,
                                          tarn_event *event);

/* Takes the seal off: if the process ends from now on, the block is free memory to a successor.
 *   TARN_ERROR_INVALID_POINTER   no sealed block begins at `pointer`, or this process only reads it
 */
TARN_API tarn_status tarn_pool_block_unseal(const void *pointer);

/* A sealed block. */
typedef struct tarn_sealed_block {
    size_t size;                        /* sizeof(tarn_sealed_block), set by the caller */
    void *pointer;                      /* where it is in this process */
    size_t bytes;                       /* as requested when it was sealed */
    uint8_t data[TARN_KEEP_DATA_BYTES]; /* as it was sealed with; 0 without */
    uint64_t seal;                      /* the number of the seal: no later one has it */
} tarn_sealed_block;

/* Finds a sealed block of a kept pool by its name. The time does not depend on how many there are;
 * a reader's first find after a change goes through all of them.
 *   TARN_ERROR_INVALID_ARGUMENT  the pool has no sealed block of that name, or is not a kept pool;
 *                                the structure's size
 *   TARN_ERROR_BUSY              of a reader: the block may lie where this process still has memory
 *                                that the pool has given up; tarn_pool_trim() lets it go
 *   TARN_ERROR_SYSTEM, TARN_ERROR_OUT_OF_HOST_MEMORY, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST
 *                                of a reader: the pool has grown and a block was sealed since its
 *                                last find, and the owner cannot be asked, or what it gave cannot
 *                                be mapped. Then blocks that were found before are not found
 *                                either */
TARN_API tarn_status tarn_pool_block_find(tarn_pool *pool, const char *name,
                                          tarn_sealed_block *block);

/* Writes the sealed blocks of a kept pool to a regular file that is open for reading and writing,
 * with their names, data, contents and checksums. What was in the file goes; parts that are zero
 * become holes. The call waits for nothing but its copies and the disk: what is sealed has its
 * contents. A block that is unsealed meanwhile is not in the file. No captures begin on the device
 * meanwhile. When the call returns TARN_OK, the file is complete, and on the disk. Write another
 * file and rename it if the one before is still needed. After a failure the file is empty, or as
 * it was. If the device's copies cannot be waited for, it has no head instead, and a load refuses
 * it.
 *   TARN_ERROR_INVALID_ARGUMENT  the pool is not a kept pool; the descriptor is not such a file's
 *   TARN_ERROR_BUSY              the pool is being saved, loaded, suspended or resumed
 *   TARN_ERROR_NOT_SUPPORTED     this process only reads the pool
 *   TARN_ERROR_CAPTURE           a capture is open on the device
 *   TARN_ERROR_SYSTEM            the file cannot be written; the text says why
 *   TARN_ERROR_OUT_OF_HOST_MEMORY, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST */
TARN_API tarn_status tarn_pool_save(tarn_pool *pool, int file);

/* Allocates the blocks of a file of tarn_pool_save() in a kept pool, in the order of the device's
 * default stream, and seals them. All checksums are checked first. After a failure none of the
 * blocks exists. If the device's copies cannot be waited for, their memory stays in use until the
 * pool is released. The file must not change meanwhile. It may be open for reading only, and come
 * from a machine of the same byte order.
 *   TARN_ERROR_INVALID_ARGUMENT  the pool is not a kept pool, or has a sealed block of a name in
 *                                the file; the descriptor is not a regular file's that is open
 *                                for reading; the file was not finished, is broken or is another
 *                                one; the text says which
 *   TARN_ERROR_OUT_OF_MEMORY     and other failures of an allocation
 *   TARN_ERROR_NO_ROOM           the pool would have more than 32,768 sealed blocks
 *   TARN_ERROR_BUSY, TARN_ERROR_CAPTURE, TARN_ERROR_NOT_SUPPORTED,
 *   TARN_ERROR_OUT_OF_HOST_MEMORY, TARN_ERROR_SYSTEM,
 *   TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST   as tarn_pool_save() */
TARN_API tarn_status tarn_pool_load(tarn_pool *pool, int file);

#ifdef __cplusplus
}
#endif

#endif
