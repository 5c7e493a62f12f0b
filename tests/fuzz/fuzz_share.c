/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into what arrives on a socket as a share: clang
 * -fsanitize=fuzzer,address,undefined. Seeds: corpus/share. The first byte is the kind of socket
 * and what is done with what arrived, the second how many files come with each message; then a head
 * and any number of chunks, of a block or of a pool. The head of a pool comes with a board. What is
 * refused leaves no file open, and what is imported can be written to its end.
 *
 * Reader: src/memory/share/share.c share_known share_create share_destroy malformed
 * share_head_check share_check tarn_share_info_get Reader: src/memory/share/wire.c
 * Reader: src/memory/share/import.c
 * Reader: src/memory/share/pool_import.c list_make segment_at segment_like import_pool change
 * tarn_imported_pool_find
 */
#include "driver/driver.h"
#include "memory/share/share.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)
#define CHUNK ((size_t)1040) /* bytes of one chunk on the wire */
#define POOL_CHUNK ((size_t)4112)
#define MOST 253 /* files that the kernel passes on with one message */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bits of the first byte. */
enum { IS_STREAM = 1, HAS_FILES_WITH_HEAD = 2, STAYS_OPEN = 4, OTHER_DEVICE = 8 };

static int files[MOST], board;

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    demand(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* A device, and a piece of one granule to send. */
static void start(void)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = 2, .memory = 64 * GRANULE};
    driver_piece piece = 0;
    size_t free_bytes = 0, total = 0;
    demand(tarn_host_configuration_set(&config) == TARN_OK &&
           tarn_device_memory_get(0, &free_bytes, &total) == TARN_OK);
    demand(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &piece) == TARN_OK);
    demand(driver->export(0, piece, &files[0]) == TARN_OK);
    for (int i = 1; i < MOST; i++)
        files[i] = files[0];
    board = memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    demand(board >= 0 && ftruncate(board, 4096) == 0 && pwrite(board, "1trboard", 8, 0) == 8);
    demand(fcntl(board, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
}

static void send_message(int socket, const uint8_t *bytes, size_t size, const int *sent,
                         size_t count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof files)];
    } rights = {0};
    struct iovec all = {(void *)(uintptr_t)bytes, size};
    struct msghdr message = {.msg_iov = &all, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &rights;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), sent, count * sizeof(int));
    }
    (void)sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* what does not fit is cut off */
}

/* An import is not a block of this process, and the same memory a second time is the same
 * address. */
static void use(const tarn_share *share, const tarn_share_info *info, int device)
{
    void *pointer = NULL, *again = NULL;
    tarn_block_info block = {.size = sizeof block};
    if (tarn_import(share, device, &pointer))
        return;
    ((volatile char *)pointer)[info->bytes - 1] = 1;
    *(volatile char *)pointer = 1;
    demand(tarn_import(share, device, &again) == TARN_OK && again == pointer);
    demand(tarn_pointer_info_get((char *)pointer + info->bytes - 1, &block) == TARN_OK &&
           block.base == pointer && block.imported);
    demand(tarn_free(pointer) == TARN_ERROR_INVALID_POINTER);
    demand(tarn_import_close(pointer) == TARN_OK && tarn_import_close(pointer) == TARN_OK);
    demand(tarn_import_close(pointer) == TARN_ERROR_INVALID_POINTER);
}

/* An import is brought up to what it is already; each segment is there to its end, at the
 * exporter's address of it. */
static void use_pool(const tarn_share *share, int device)
{
    tarn_imported_pool *imported = NULL;
    tarn_import_state state = TARN_IMPORT_CURRENT;
    if (tarn_pool_import(share, device, &imported)) {
        demand(!imported);
        return;
    }
    demand(tarn_imported_pool_update(imported, share) == TARN_OK);
    for (uint32_t i = 0; i < share->head.parts; i++) {
        const struct share_part *part = &share->parts[i];
        void *pointer = NULL;
        demand(tarn_imported_pool_find(imported, (void *)(uintptr_t)part->address, part->size,
                                       &pointer) == TARN_OK);
        *(volatile char *)pointer = ((volatile char *)pointer)[part->size - 1];
        demand(tarn_imported_pool_find(imported, (void *)(uintptr_t)part->address, part->size + 1,
                                       &pointer) == TARN_ERROR_INVALID_POINTER);
    }
    demand(tarn_imported_pool_state_get(imported, &state) == TARN_OK &&
           state == TARN_IMPORT_ORPHANED);
    demand(tarn_imported_pool_close(imported) == TARN_OK);
    demand(tarn_imported_pool_close(imported) == TARN_ERROR_INVALID_ARGUMENT);
}

/* What was received goes on as it came. */
static void send_on(const tarn_share *share, const tarn_share_info *info)
{
    int ends[2];
    tarn_share *same = NULL;
    tarn_share_info there = {.size = sizeof there};
    demand(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    demand(tarn_share_send(ends[0], share) == TARN_OK &&
           tarn_share_receive(ends[1], &same) == TARN_OK);
    demand(tarn_share_info_get(same, &there) == TARN_OK && memcmp(&there, info, sizeof there) == 0);
    demand(tarn_share_close(same) == TARN_OK &&
           tarn_share_close(same) == TARN_ERROR_INVALID_ARGUMENT);
    close(ends[0]);
    demand(tarn_share_send(ends[1], share) == TARN_ERROR_SYSTEM);
    close(ends[1]);
    demand(tarn_share_send(ends[1], share) == TARN_ERROR_INVALID_ARGUMENT);
}

static void take(int socket, int device)
{
    tarn_share *share = NULL;
    if (tarn_share_receive(socket, &share)) {
        demand(!share);
        return;
    }
    tarn_share_info info = {.size = sizeof info};
    demand(tarn_share_info_get(share, &info) == TARN_OK && info.offset + info.bytes <= info.mapped);
    if (share_is_of_pool(share))
        use_pool(share, device);
    else
        use(share, &info, device);
    if (info.pieces <= MOST) /* more chunks than the socket holds would wait for a reader */
        send_on(share, &info);
    demand(tarn_share_close(share) == TARN_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t pool_magic = SHARE_MAGIC_POOL;
    int ends[2];
    if (!files[0])
        start();
    if (size < 2)
        return 0;
    int before = open_files();
    uint8_t flags = data[0];
    size_t count = data[1] % (MOST + 1u),
           head = size - 2 < sizeof(struct share_head) ? size - 2 : sizeof(struct share_head);
    demand(socketpair(AF_UNIX, (flags & IS_STREAM ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_NONBLOCK,
                      0, ends) == 0);
    data += 2;
    size -= 2;
    bool pool = head >= 8 && memcmp(data, &pool_magic, 8) == 0;
    if (flags & HAS_FILES_WITH_HEAD)
        send_message(ends[0], data, head, files, count);
    else
        send_message(ends[0], data, head, &board, pool ? 1 : 0);
    size_t chunk = pool ? POOL_CHUNK : CHUNK;
    for (size_t at = head; at < size; at += chunk)
        send_message(ends[0], data + at, size - at < chunk ? size - at : chunk, files, count);
    if (!(flags & STAYS_OPEN))
        close(ends[0]);
    take(ends[1], flags & OTHER_DEVICE ? 1 : 0);
    if (flags & STAYS_OPEN)
        close(ends[0]);
    close(ends[1]);
    demand(open_files() == before);
    return 0;
}
