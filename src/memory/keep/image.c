/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A kept pool as a file: tarn_pool_save() and tarn_pool_load(). The file has a head, a table of the
 * sealed blocks, and the contents of each block from a multiple of 4 KiB on. The head is written
 * last, so a file that was not finished is none. A load believes nothing of a file before its
 * checksums are right.
 *
 * The file is mapped, and contents_copy() copies between the mapping and the device as it does for
 * a suspended pool. No lock is held meanwhile. A save holds the pool's memory as a graph does, so
 * that what others free meanwhile stays mapped; what is unsealed meanwhile is not in the file. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/quiet.h"
#include "device/capture.h"
#include "memory/keep/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* "tarnpool" as a machine of the same byte order has it. */
#define MAGIC UINT64_C(0x6c6f6f706e726174)
/* Contents begin at multiples of it. Units of zeros become holes. */
#define IMAGE_UNIT 4096u

/* Bytes of the disk that a call asks for, and the fewest after signals have interrupted it. */
enum { ROOM_MOST = 256 << 20, ROOM_LEAST = 64 << 10 };

struct image_block {
    char name[TARN_KEEP_NAME_BYTES];
    unsigned char data[TARN_KEEP_DATA_BYTES];
    uint64_t offset, bytes; /* in the file; as requested */
    uint64_t sum;           /* of the contents */
};

struct image {
    uint64_t magic;
    uint64_t version, count;
    uint64_t size; /* bytes of the file */
    uint64_t sum;  /* of the head, as it is with 0 here, and the table */
    struct image_block blocks[];
};

/* A mapped file, and what is copied between it and a pool. */
struct transfer {
    struct keep *keep;
    char *memory; /* of the file; NULL: it is not mapped */
    size_t size;  /* bytes of it */
    int file;
};

/* Checksums ------------------------------------------------------------------------------------ */

/* Four lanes of FNV-1a over words of 64 bits, because one lane is slower than memory. What is
 * behind the last whole word counts as a word with zeros. */
static uint64_t sum_of(const void *memory, size_t size)
{
    static const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t lanes[4] = {UINT64_C(0xcbf29ce484222325), 1, 2, 3}, word;
    const char *at = memory;
    size_t left = size;
    for (; left >= sizeof lanes; left -= sizeof lanes, at += sizeof lanes)
        for (int i = 0; i < 4; i++) {
            memcpy(&word, at + i * (int)sizeof word, sizeof word);
            lanes[i] = (lanes[i] ^ word) * prime;
        }
    for (size_t part; left > 0; left -= part, at += part) {
        part = left < sizeof word ? left : sizeof word;
        word = 0;
        memcpy(&word, at, part);
        lanes[0] = (lanes[0] ^ word) * prime;
    }
    uint64_t sum = size;
    for (int i = 0; i < 4; i++)
        sum = (sum ^ lanes[i] ^ lanes[i] >> 32) * prime;
    return sum;
}

static size_t head_bytes(uint64_t count)
{
    return sizeof(struct image) + count * sizeof(struct image_block);
}

static uint64_t sum_of_head(const struct image *image)
{
    struct image head = *image;
    head.sum = 0;
    uint64_t sum = sum_of(&head, sizeof head);
    return sum ^ sum_of(image->blocks, image->count * sizeof *image->blocks);
}

/* Files ---------------------------------------------------------------------------------------- */

static uint64_t unit_up(uint64_t bytes)
{
    return (bytes + IMAGE_UNIT - 1) / IMAGE_UNIT * IMAGE_UNIT;
}

static tarn_status refuse_file(const char *what)
{
    return failed(TARN_ERROR_INVALID_ARGUMENT, "the file is no image of a pool: %s", what);
}

static tarn_status file_failed(const char *call)
{
    return failed(TARN_ERROR_SYSTEM, "the file of a pool: %s: %s", call, strerror(errno));
}

static tarn_status check_file(int file, bool writes, size_t *size)
{
    struct stat about;
    int mode = fcntl(file, F_GETFL);
    if (mode < 0 || fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "descriptor %d is not one of a regular file",
                      file);
    mode &= O_ACCMODE | O_PATH; /* with O_PATH a file is neither read nor written */
    if (mode != O_RDWR && (writes || mode != O_RDONLY))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the file of a pool is not open for %s",
                      writes ? "reading and writing" : "reading");
    *size = (size_t)about.st_size;
    return TARN_OK;
}

static tarn_status map_file(struct transfer *transfer, size_t size, int protection)
{
    void *memory = mmap(NULL, size, protection, MAP_SHARED, transfer->file, 0);
    if (memory == MAP_FAILED)
        return file_failed("mmap");
    (void)madvise(memory, size, MADV_SEQUENTIAL);
    transfer->memory = memory;
    transfer->size = size;
    return TARN_OK;
}

/* Copies that may be in progress use the mapping still: then it stays until they are known to have
 * ended, and the result is false. */
static bool unmap_file(struct transfer *transfer)
{
    struct keep *keep = transfer->keep;
    if (keep->contents.copies) {
        keep->left = transfer->memory;
        keep->left_bytes = transfer->size;
        return false;
    }
    contents_drop(&keep->contents);
    if (transfer->memory)
        (void)munmap(transfer->memory, transfer->size);
    return true;
}

/* Drops what an earlier save or load has left, whose copies have ended. */
void keep_leave_nothing(struct keep *keep)
{
    contents_drop(&keep->contents);
    if (keep->left)
        (void)munmap(keep->left, keep->left_bytes);
    keep->left = NULL;
}

/* One save or load of a pool at a time. Known captures begin again when it has ended. */
static tarn_status begin(struct keep *keep, const char *what)
{
    if (atomic_exchange(&keep->transfers, true))
        return failed(TARN_ERROR_BUSY, "another save or load of pool %s is in progress",
                      keep->name);
    tarn_status status = device_check(keep->device);
    /* A suspend changes the state first, and then looks at `transfers`. */
    if (!status && atomic_load(&keep->pool->state) == TARN_POOL_CHANGES)
        status =
            failed(TARN_ERROR_BUSY, "%s: pool %s is being suspended or resumed", what, keep->name);
    if (!status)
        status = captures_bar(keep->device, what);
    if (!status) {
        status = contents_settle(&keep->contents, keep->device);
        if (status)
            captures_unbar(keep->device);
        else
            keep_leave_nothing(keep);
    }
    if (status)
        atomic_store(&keep->transfers, false);
    return status;
}

static void end(struct keep *keep)
{
    captures_unbar(keep->device);
    atomic_store(&keep->transfers, false);
}

static tarn_status place(struct transfer *transfer, const struct image_block *block,
                         uintptr_t address)
{
    return contents_place(&transfer->keep->contents, address, block->bytes,
                          transfer->memory + block->offset);
}

/* Save ----------------------------------------------------------------------------------------- */

/* Gives a part of the file memory of the disk. 0, or a code of errno. A signal interrupts the call,
 * which some file systems then take back, so it is made for shorter parts after that. */
static int give_room(int file, size_t size)
{
    size_t part = ROOM_MOST;
    for (size_t at = 0; at < size;) {
        size_t next = part < size - at ? part : size - at;
        int code = posix_fallocate(file, (off_t)at, (off_t)next);
        if (code == EINTR)
            part = part / 2 > ROOM_LEAST ? part / 2 : ROOM_LEAST;
        else if (code)
            return code;
        else
            at += next;
    }
    return 0;
}

static int empty_file(int file)
{
    while (ftruncate(file, 0) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

/* Makes the file as large as it is to be, with memory of the disk, so that no write to the mapping
 * fails. What was in it goes. */
static tarn_status make_room(struct transfer *transfer, size_t size)
{
    struct quiet quiet;
    quiet_begin(&quiet);
    int code = empty_file(transfer->file);
    if (!code)
        code = give_room(transfer->file, size);
    quiet_end(&quiet);
    if (!code)
        return map_file(transfer, size, PROT_READ | PROT_WRITE);
    return failed(TARN_ERROR_SYSTEM, "the file of a pool cannot have %zu bytes: %s%s", size,
                  strerror(code), code == EFBIG ? " (ulimit -f)" : "");
}

/* Makes holes of what is zero. A file system that has none keeps the zeros. */
static void make_holes(const struct transfer *transfer, uint64_t from, uint64_t to)
{
    static const char zero[IMAGE_UNIT];
    for (uint64_t at = from, start; at < to;) {
        for (start = at; at < to && memcmp(transfer->memory + at, zero, IMAGE_UNIT) == 0;)
            at += IMAGE_UNIT;
        if (at > start && fallocate(transfer->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    (off_t)start, (off_t)(at - start)) != 0)
            return;
        at += IMAGE_UNIT;
    }
}

/* Writes the table: of the blocks that are sealed still. */
static void write_table(const struct transfer *transfer, const struct keep_sealed *list,
                        size_t count)
{
    struct image *image = (struct image *)transfer->memory;
    uint64_t at = unit_up(head_bytes(count));
    for (size_t i = 0; i < count; i++) {
        const struct keep_sealed *sealed = &list[i];
        struct image_block *block = &image->blocks[image->count];
        if (keep_is_sealed(transfer->keep, sealed)) {
            memcpy(block->name, sealed->name, sizeof block->name);
            memcpy(block->data, sealed->data, sizeof block->data);
            block->offset = at;
            block->bytes = sealed->bytes;
            block->sum = sum_of(transfer->memory + at, sealed->bytes);
            image->count++;
        }
        at += unit_up(sealed->bytes);
    }
    make_holes(transfer, unit_up(head_bytes(count)), at);
}

/* A head that is not written whole has a wrong checksum. */
static tarn_status write_head(const struct transfer *transfer)
{
    struct image *image = (struct image *)transfer->memory;
    if (msync(image, transfer->size, MS_SYNC) != 0)
        return file_failed("msync");
    image->version = KEEP_VERSION;
    image->size = transfer->size;
    image->magic = MAGIC;
    image->sum = sum_of_head(image);
    return msync(image, transfer->size, MS_SYNC) == 0 ? TARN_OK : file_failed("msync");
}

static tarn_status save_blocks(struct transfer *transfer, const struct keep_sealed *list,
                               size_t count)
{
    struct keep *keep = transfer->keep;
    uint64_t size = unit_up(head_bytes(count)), at = size;
    for (size_t i = 0; i < count; i++)
        size += unit_up(list[i].bytes);
    tarn_status status = make_room(transfer, size);
    for (size_t i = 0; !status && i < count; i++) {
        struct image_block block = {.offset = at, .bytes = list[i].bytes};
        status = place(transfer, &block, keep->base + list[i].offset);
        at += unit_up(list[i].bytes);
    }
    if (!status)
        status = contents_copy(&keep->contents, keep->device, false);
    if (status)
        return status;
    write_table(transfer, list, count);
    return write_head(transfer);
}

static tarn_status save(struct keep *keep, int file)
{
    struct transfer transfer = {.keep = keep, .file = file};
    size_t bytes = LAYOUT_BLOCKS * sizeof(struct keep_sealed);
    struct keep_sealed *list = pages_map(bytes);
    if (!list)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a list of sealed blocks");
    tarn_status status = save_blocks(&transfer, list, keep_list(keep, list));
    if (unmap_file(&transfer) && status)
        (void)empty_file(file);
    pages_unmap(list, bytes);
    return status;
}

static tarn_status keep_of(tarn_pool *pool, const char *what, struct keep **keep)
{
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    *keep = keep_of_store(store_of_public(pool));
    if (!*keep)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the pool is not one of tarn_pool_keep()");
    return keep_refuse_reader(*keep, what);
}

tarn_status tarn_pool_save(tarn_pool *pool, int file)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct keep *keep = NULL;
    size_t size;
    tarn_status status = keep_of(pool, "a save of a pool", &keep);
    if (!status)
        status = check_file(file, true, &size);
    if (!status)
        status = begin(keep, "a save of a pool");
    if (status)
        return status;
    if (pool_hold(keep->pool)) {
        status = save(keep, file);
        end(keep);
        pool_hold_end(keep->pool);
        return status;
    }
    end(keep);
    return failed(TARN_ERROR_INVALID_ARGUMENT, "the pool ends");
}

/* Load ----------------------------------------------------------------------------------------- */

static tarn_status check_block(const struct transfer *transfer, const struct image_block *block)
{
    if (!block->name[0] || !memchr(block->name, 0, sizeof block->name))
        return refuse_file("a block has no name");
    if (!block->bytes || block->offset % IMAGE_UNIT || block->offset > transfer->size ||
        block->bytes > transfer->size - block->offset)
        return refuse_file("a block lies outside of it");
    if (sum_of(transfer->memory + block->offset, block->bytes) == block->sum)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  "the contents of block \"%s\" have another checksum than the file says",
                  block->name);
}

/* Checks the head and the table on a copy, so that a later change of the file has no effect. The
 * caller frees `*table`. */
static tarn_status read_table(const struct transfer *transfer, struct image **table)
{
    struct image head;
    memcpy(&head, transfer->memory, sizeof head);
    if (head.magic != MAGIC)
        return refuse_file("it begins otherwise");
    if (head.version != KEEP_VERSION)
        return refuse_file("it has another version");
    if (head.size != transfer->size)
        return refuse_file("it has another size than it says");
    if (head.count > LAYOUT_BLOCKS || head_bytes(head.count) > transfer->size)
        return refuse_file("its table is broken");
    *table = pages_map(head_bytes(head.count));
    if (!*table)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the table of a file");
    memcpy(*table, transfer->memory, head_bytes(head.count));
    (*table)->count = head.count;
    return sum_of_head(*table) == head.sum ? TARN_OK : refuse_file("its table is broken");
}

/* Allocates the blocks, and copies their contents. `count` blocks were allocated, also after a
 * failure. */
static tarn_status load_blocks(struct transfer *transfer, const struct image *table, void **blocks,
                               size_t *count)
{
    struct keep *keep = transfer->keep;
    tarn_status status = TARN_OK;
    while (!status && *count < table->count) {
        const struct image_block *block = &table->blocks[*count];
        status = tarn_pool_alloc((tarn_pool *)keep->pool, 0, block->bytes, &blocks[*count]);
        if (status)
            break;
        status = place(transfer, block, (uintptr_t)blocks[(*count)++]);
    }
    return status ? status : contents_copy(&keep->contents, keep->device, true);
}

static tarn_status seal_blocks(const struct image *table, void **blocks)
{
    tarn_status status = TARN_OK;
    for (uint64_t i = 0; !status && i < table->count; i++)
        status =
            tarn_pool_block_seal(blocks[i], table->blocks[i].name, table->blocks[i].data, NULL);
    return status;
}

/* Blocks to which the driver may copy still stay live. */
static tarn_status load(struct transfer *transfer, const struct image *table)
{
    size_t bytes = (table->count + 1) * sizeof(void *), count = 0;
    void **blocks = pages_map(bytes);
    if (!blocks)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a list of blocks");
    tarn_status status = load_blocks(transfer, table, blocks, &count);
    if (!status)
        status = seal_blocks(table, blocks);
    struct error_before before;
    error_attempt_begin(&before);
    while (status && !transfer->keep->contents.copies && count > 0)
        (void)tarn_free(blocks[--count]);
    error_attempt_end(&before, TARN_OK);
    pages_unmap(blocks, bytes);
    return status;
}

static tarn_status load_file(struct transfer *transfer, size_t size)
{
    struct image *table = NULL;
    tarn_status status = map_file(transfer, size, PROT_READ);
    if (!status)
        status = read_table(transfer, &table);
    for (uint64_t i = 0; !status && i < table->count; i++)
        status = check_block(transfer, &table->blocks[i]);
    if (!status)
        status = load(transfer, table);
    unmap_file(transfer);
    if (table)
        pages_unmap(table, head_bytes(table->count));
    return status;
}

tarn_status tarn_pool_load(tarn_pool *pool, int file)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct transfer transfer = {.file = file};
    size_t size = 0;
    tarn_status status = keep_of(pool, "a load of a pool", &transfer.keep);
    if (!status)
        status = check_file(file, false, &size);
    if (!status && size < sizeof(struct image))
        status = refuse_file("it is too short");
    if (!status)
        status = begin(transfer.keep, "a load of a pool");
    if (status)
        return status;
    status = load_file(&transfer, size);
    end(transfer.keep);
    return status;
}
