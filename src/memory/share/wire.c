/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a share goes over a unix socket: its head, then its parts in messages of at most MOST files,
 * which the kernel passes as SCM_RIGHTS (at most 253 per message). Messages have fixed sizes, so
 * that stream and packet sockets are read alike. Parts of a pool have longer descriptions, and the
 * board's file comes with a pool's head. Files come with a message's first byte. Nothing that
 * arrives is trusted: anything unexpected ends the reception, and every file that came is
 * closed. */
#include "base/file.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "memory/share/share.h"
#include "record/ticks.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MOST 128u

struct chunk {
    uint64_t magic;
    uint32_t first, count; /* parts */
    uint64_t sizes[MOST];  /* bytes; 0 beyond count */
};

struct pool_chunk {
    uint64_t magic;
    uint32_t first, count; /* parts */
    struct pool_part {
        uint64_t size, address, generation, has_file; /* 0 beyond count */
    } parts[MOST];
};

union any_chunk {
    struct chunk block;
    struct pool_chunk pool;
};

/* Room for the files of one message, aligned as the kernel wants it, and for what the kernel adds
 * on sockets with SO_PASSCRED. */
union rights {
    struct cmsghdr header;
    char room[CMSG_SPACE(MOST * sizeof(int)) + 128];
};

_Static_assert(sizeof(struct share_head) == 80, "what is sent has no gaps");
_Static_assert(sizeof(struct chunk) == 16 + MOST * 8, "what is sent has no gaps");
_Static_assert(sizeof(struct pool_chunk) == 16 + MOST * 32, "what is sent has no gaps");

static size_t chunk_bytes(const struct tarn_share *share)
{
    return share_is_of_pool(share) ? sizeof(struct pool_chunk) : sizeof(struct chunk);
}

static uint32_t chunk_count(const struct tarn_share *share, uint32_t first)
{
    return share->head.parts - first < MOST ? share->head.parts - first : MOST;
}

/* A socket, and how long the call may wait for it. */
struct way {
    int socket;
    bool packets;      /* it keeps messages apart */
    uint64_t deadline; /* ns, of ticks_of_system(); UINT64_MAX: no deadline */
};

static tarn_status refused(const char *call)
{
    int code = errno;
    if (code == EAGAIN || code == EWOULDBLOCK)
        return failed(TARN_ERROR_NOT_READY,
                      "%s: the socket's time limit ended in the middle of a share", call);
    return failed(TARN_ERROR_SYSTEM, "%s of a share: %s", call, strerror(code));
}

/* The deadline of a call that begins now. The socket's time limit is for the whole share. Otherwise
 * the other side could delay the call without end by sending a byte now and then. */
static uint64_t deadline_of(int socket, int option)
{
    struct timeval limit = {0};
    socklen_t size = sizeof limit;
    if (getsockopt(socket, SOL_SOCKET, option, &limit, &size) || (!limit.tv_sec && !limit.tv_usec))
        return UINT64_MAX;
    return ticks_of_system() + (uint64_t)limit.tv_sec * 1000000000u +
           (uint64_t)limit.tv_usec * 1000u;
}

/* Whether a share can go over a socket. `limit` is the option with its time limit. */
static tarn_status way_find(int socket, int limit, struct way *way)
{
    struct sockaddr_storage name = {0};
    int type = 0;
    socklen_t name_size = sizeof name, type_size = sizeof type;
    if (getsockname(socket, (struct sockaddr *)&name, &name_size) ||
        getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_size))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "descriptor %d is not a socket: %s", socket,
                      strerror(errno));
    if (name.ss_family != AF_UNIX || (type != SOCK_STREAM && type != SOCK_SEQPACKET))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "socket %d is not a unix socket of type SOCK_STREAM or SOCK_SEQPACKET, which "
                      "sending files needs",
                      socket);
    *way = (struct way){socket, type == SOCK_SEQPACKET, deadline_of(socket, limit)};
    return TARN_OK;
}

/* Waits for the socket until the deadline, if there is one. Returns the flag for the next call,
 * which must not wait again; -1 with EAGAIN after the deadline. */
static int way_wait(const struct way *way, short events)
{
    struct pollfd file = {.fd = way->socket, .events = events};
    if (way->deadline == UINT64_MAX)
        return 0;
    for (;;) {
        uint64_t now = ticks_of_system();
        uint64_t left = now < way->deadline ? (way->deadline - now + 999999) / 1000000 : 0;
        int ready = left ? poll(&file, 1, left < INT_MAX ? (int)left : INT_MAX) : 0;
        if (ready > 0)
            return MSG_DONTWAIT;
        if (ready < 0 && errno != EINTR)
            return -1;
        if (!left) {
            errno = EAGAIN;
            return -1;
        }
    }
}

/* Whether a call that does not wait is to be repeated. */
static bool way_again(const struct way *way)
{
    return errno == EINTR || (errno == EAGAIN && way->deadline != UINT64_MAX);
}

/* ---- Sending ---- */

/* Sends a whole message, with the files at its first byte. */
static tarn_status send_all(const struct way *way, const void *bytes, size_t size, const int *files,
                            unsigned count)
{
    union rights rights = {0};
    for (size_t sent = 0; sent < size;) {
        struct iovec rest = {(char *)(uintptr_t)bytes + sent, size - sent};
        struct msghdr message = {.msg_iov = &rest, .msg_iovlen = 1};
        if (sent == 0 && count > 0) {
            message.msg_control = &rights;
            message.msg_controllen = (socklen_t)CMSG_SPACE(count * sizeof(int));
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = (socklen_t)CMSG_LEN(count * sizeof(int));
            memcpy(CMSG_DATA(header), files, count * sizeof(int));
        }
        int flag = way_wait(way, POLLOUT);
        ssize_t now = flag < 0 ? -1 : sendmsg(way->socket, &message, MSG_NOSIGNAL | flag);
        if (now < 0 && (flag < 0 || !way_again(way)))
            return refused("sendmsg");
        if (now > 0)
            sent += (size_t)now;
    }
    return TARN_OK;
}

/* Describes the parts from `first` on in a chunk. Returns the number of their files, and the
 * files. */
static unsigned describe(const tarn_share *share, uint32_t first, union any_chunk *chunk,
                         int *files)
{
    unsigned sent = 0;
    bool pool = share_is_of_pool(share);
    memset(chunk, 0, sizeof *chunk);
    chunk->block.magic = share->head.magic; /* both kinds begin alike */
    chunk->block.first = first;
    chunk->block.count = chunk_count(share, first);
    for (uint32_t i = 0; i < chunk->block.count; i++) {
        const struct share_part *part = &share->parts[first + i];
        if (pool)
            chunk->pool.parts[i] = (struct pool_part){part->size, part->address, part->generation,
                                                      part->file >= 0 ? 1 : 0};
        else
            chunk->block.sizes[i] = part->size;
        if (part->file >= 0)
            files[sent++] = part->file;
    }
    return sent;
}

static tarn_status send_head(const struct way *way, const tarn_share *share)
{
    int board = share_is_of_pool(share) ? share_board(share) : -1;
    return send_all(way, &share->head, sizeof share->head, &board, board >= 0 ? 1 : 0);
}

static tarn_status send_chunk(const struct way *way, const tarn_share *share, uint32_t first)
{
    union any_chunk chunk;
    int files[MOST];
    unsigned count = describe(share, first, &chunk, files);
    return send_all(way, &chunk, chunk_bytes(share), files, count);
}

tarn_status tarn_share_send(int socket, const tarn_share *share)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct way way;
    tarn_status status = process_check();
    if (!status)
        status = share_known(share);
    if (!status)
        status = way_find(socket, SO_SNDTIMEO, &way);
    if (!status)
        status = send_head(&way, share);
    for (uint32_t first = 0; !status && first < share->head.parts; first += MOST)
        status = send_chunk(&way, share, first);
    return status;
}

/* ---- Receiving ---- */

struct received {
    const struct way *way;
    int files[MOST];
    unsigned count;
    bool lost; /* files came that could not be taken */
};

static void close_all(struct received *received)
{
    while (received->count > 0)
        file_close(received->files[--received->count]);
}

/* Takes the files of a message, whatever else is wrong with it. */
static void take_files(struct msghdr *message, struct received *received)
{
    received->lost |= (message->msg_flags & MSG_CTRUNC) != 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int file = -1;
            memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof file);
            bool fits = received->count < MOST;
            if (fits)
                file = file_renumber(file);
            if (fits && file >= 0) {
                received->files[received->count++] = file;
                file_keep_from_children(file);
            } else {
                if (file >= 0)
                    close(file);
                received->lost = true;
            }
        }
    }
}

/* Receives a message of exactly `size` bytes, and its files. The caller owns the files, also after
 * a failure. */
static tarn_status receive_all(struct received *received, void *bytes, size_t size)
{
    union rights rights;
    for (size_t come = 0; come < size;) {
        struct iovec rest = {(char *)bytes + come, size - come};
        struct msghdr message = {.msg_iov = &rest,
                                 .msg_iovlen = 1,
                                 .msg_control = &rights,
                                 .msg_controllen = sizeof rights};
        int flag = way_wait(received->way, POLLIN);
        ssize_t now =
            flag < 0 ? -1 : recvmsg(received->way->socket, &message, MSG_CMSG_CLOEXEC | flag);
        if (now < 0 && flag >= 0 && way_again(received->way))
            continue;
        if (now < 0)
            return refused("recvmsg");
        take_files(&message, received);
        if (now == 0)
            return failed(TARN_ERROR_SYSTEM,
                          "recvmsg of a share: the other side closed the socket%s",
                          come ? " in the middle of it" : "");
        if (received->way->packets && ((size_t)now != size || message.msg_flags & MSG_TRUNC))
            return failed(
                TARN_ERROR_INVALID_ARGUMENT,
                "what was received is not a share as tarn sends it: a message of another size");
        come += (size_t)now;
    }
    if (received->lost)
        return failed(
            TARN_ERROR_SYSTEM,
            "recvmsg of a share: files were lost: this process has no file descriptors left "
            "(ulimit -n), or there were more files than a share has");
    return TARN_OK;
}

/* How many files must come with a chunk. If the chunk is malformed, more than can come. */
static unsigned files_wanted(const tarn_share *share, const union any_chunk *chunk)
{
    unsigned wanted = 0;
    if (!share_is_of_pool(share))
        return chunk->block.count;
    for (uint32_t i = 0; i < chunk->pool.count; i++) {
        if (chunk->pool.parts[i].has_file > 1)
            return MOST + 1;
        wanted += (unsigned)chunk->pool.parts[i].has_file;
    }
    return wanted;
}

/* Fills parts from a chunk that has the right number of files. */
static void fill_parts(tarn_share *share, const union any_chunk *chunk, const int *files)
{
    bool pool = share_is_of_pool(share);
    for (uint32_t i = 0; i < chunk->block.count; i++) {
        struct share_part *part = &share->parts[chunk->block.first + i];
        const struct pool_part *described = &chunk->pool.parts[i];
        part->size = pool ? described->size : chunk->block.sizes[i];
        part->address = pool ? described->address : 0;
        part->generation = pool ? described->generation : 0;
        if (!pool || described->has_file)
            part->file = *files++;
    }
}

static tarn_status receive_chunk(const struct way *way, tarn_share *share, uint32_t first)
{
    struct received received = {.way = way};
    union any_chunk chunk;
    tarn_status status = receive_all(&received, &chunk, chunk_bytes(share));
    if (!status && (chunk.block.magic != share->head.magic || chunk.block.first != first ||
                    chunk.block.count != chunk_count(share, first)))
        status = failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "what was received is not a share as tarn sends it: its pieces are out of order");
    unsigned wanted = status ? 0 : files_wanted(share, &chunk);
    if (!status && received.count != wanted)
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "a share came with %u files instead of %u",
                        received.count, wanted);
    if (status) {
        close_all(&received);
        return status;
    }
    fill_parts(share, &chunk, received.files);
    return TARN_OK;
}

/* Receives a head, and the board's file of a pool's share; otherwise `board` is -1. */
static tarn_status receive_head(const struct way *way, struct share_head *head, int *board)
{
    struct received received = {.way = way};
    tarn_status status = receive_all(&received, head, sizeof *head);
    unsigned wanted = !status && head->magic == SHARE_MAGIC_POOL ? 1 : 0;
    if (!status && received.count != wanted)
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "what was received is not a share as tarn sends it: %u files came with its "
                        "head, not %u",
                        received.count, wanted);
    if (!status)
        status = share_head_check(head);
    *board = -1;
    if (!status && wanted)
        *board = received.files[--received.count];
    close_all(&received);
    return status;
}

static tarn_status receive(const struct way *way, tarn_share **result)
{
    struct share_head head;
    int board = -1;
    tarn_status status = receive_head(way, &head, &board);
    if (status)
        return status;
    tarn_share *share = share_create(&head);
    if (!share) {
        if (board >= 0)
            file_close(board);
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    share->board = board;
    for (uint32_t first = 0; !status && first < head.parts; first += MOST)
        status = receive_chunk(way, share, first);
    if (!status)
        status = share_check(share);
    if (status) {
        share_destroy(share);
        return status;
    }
    *result = share;
    return TARN_OK;
}

tarn_status tarn_share_receive(int socket, tarn_share **share)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (!share)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "share is NULL");
    struct way way;
    tarn_status status = process_check();
    if (!status)
        status = way_find(socket, SO_RCVTIMEO, &way);
    return status ? status : receive(&way, share);
}
