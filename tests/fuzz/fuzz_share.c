/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into what arrives on a socket as a share: clang -fsanitize=fuzzer,address,undefined. Seeds: corpus/share. The first
 * byte is the kind of socket, the second how many files come with each message; then a head and any number of chunks.
 * What is refused leaves no file open, and what is imported can be written to its end. */
#include "driver/driver.h"
#include "memory/share/share.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)
#define CHUNK ((size_t)1040) /* bytes of one chunk on the wire */
#define MOST 253             /* files that the kernel passes on with one message */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int files[MOST];

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
    const tarn_host_config config = {.size = sizeof config, .devices = 1, .memory = 64 * GRANULE};
    driver_piece piece = 0;
    size_t free_bytes = 0, total = 0;
    demand(tarn_host_configure(&config) == TARN_OK && tarn_device_memory(0, &free_bytes, &total) == TARN_OK);
    demand(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &piece) == TARN_OK);
    demand(driver->export(0, piece, &files[0]) == TARN_OK);
    for (int i = 1; i < MOST; i++)
        files[i] = files[0];
}

static void send_message(int socket, const uint8_t *bytes, size_t size, size_t count)
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
        memcpy(CMSG_DATA(header), files, count * sizeof(int));
    }
    (void)sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* what does not fit is cut off */
}

static void take(int socket)
{
    tarn_share *share = NULL;
    void *pointer = NULL;
    if (tarn_share_receive(socket, &share)) {
        demand(!share);
        return;
    }
    tarn_share_info info = {.size = sizeof info};
    demand(tarn_share_info_get(share, &info) == TARN_OK && info.offset + info.bytes <= info.mapped);
    if (tarn_import(share, 0, &pointer) == TARN_OK) {
        ((volatile char *)pointer)[info.bytes - 1] = 1;
        *(volatile char *)pointer = 1;
        demand(tarn_import_close(pointer) == TARN_OK);
    }
    demand(tarn_share_close(share) == TARN_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    if (!files[0])
        start();
    if (size < 2)
        return 0;
    int before = open_files();
    size_t count = data[1] % (MOST + 1u),
           head = size - 2 < sizeof(struct share_head) ? size - 2 : sizeof(struct share_head);
    demand(socketpair(AF_UNIX, data[0] & 1 ? SOCK_STREAM : SOCK_SEQPACKET, 0, ends) == 0);
    data += 2;
    size -= 2;
    send_message(ends[0], data, head, 0);
    for (size_t at = head; at < size; at += CHUNK)
        send_message(ends[0], data + at, size - at < CHUNK ? size - at : CHUNK, count);
    close(ends[0]);
    take(ends[1]);
    close(ends[1]);
    demand(open_files() == before);
    return 0;
}
