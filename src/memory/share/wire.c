/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a share goes over a unix socket: its head, then its parts in messages of at most MOST files, which the kernel
 * passes on as SCM_RIGHTS (at most 253 a message). Every message has a fixed size, so that a stream and a socket that keeps
 * messages apart are read alike. Files come with a message's first byte. Nothing that arrives is trusted: what is not
 * expected ends the reception, and every file that came is closed. */
#include "base/cancel.h"
#include "base/file.h"
#include "base/process.h"
#include "base/status.h"
#include "memory/share/share.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 128u

struct chunk {
    uint64_t magic;
    uint32_t first, count; /* parts */
    uint64_t sizes[MOST];  /* bytes; 0 beyond count */
};

/* Room for one message's files, aligned as the kernel wants it, and for what it adds where the caller asked for that
 * (SO_PASSCRED). */
union rights {
    struct cmsghdr header;
    char room[CMSG_SPACE(MOST * sizeof(int)) + 128];
};

_Static_assert(sizeof(struct share_head) == 80, "what is sent has no gaps");
_Static_assert(sizeof(struct chunk) == 16 + MOST * 8, "what is sent has no gaps");

static tarn_status refused(const char *call)
{
    int code = errno;
    if (code == EAGAIN || code == EWOULDBLOCK)
        return failed(TARN_ERROR_NOT_READY, "%s: the socket's time limit ended in the middle of a share", call);
    return failed(TARN_ERROR_SYSTEM, "%s of a share: %s", call, strerror(code));
}

/* Whether a share can go over a socket; `packets` says that it keeps messages apart. */
static tarn_status check_socket(int socket, bool *packets)
{
    struct sockaddr_storage name = {0};
    int type = 0;
    socklen_t name_size = sizeof name, type_size = sizeof type;
    if (getsockname(socket, (struct sockaddr *)&name, &name_size) ||
        getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_size))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "descriptor %d is not a socket: %s", socket, strerror(errno));
    if (name.ss_family != AF_UNIX || (type != SOCK_STREAM && type != SOCK_SEQPACKET))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "socket %d is not a unix socket of type SOCK_STREAM or SOCK_SEQPACKET, which sending files needs",
                      socket);
    *packets = type == SOCK_SEQPACKET;
    return TARN_OK;
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

/* Sends a message whole; the files go with its first byte. */
static tarn_status send_all(int socket, const void *bytes, size_t size, const int *files, unsigned count)
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
        ssize_t now = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (now < 0 && errno != EINTR)
            return refused("sendmsg");
        if (now > 0)
            sent += (size_t)now;
    }
    return TARN_OK;
}

static tarn_status send_chunk(int socket, const tarn_share *share, uint32_t first)
{
    struct chunk chunk = {.magic = SHARE_MAGIC, .first = first, .count = share->head.parts - first};
    int files[MOST];
    if (chunk.count > MOST)
        chunk.count = MOST;
    for (uint32_t i = 0; i < chunk.count; i++) {
        chunk.sizes[i] = share->parts[first + i].size;
        files[i] = share->parts[first + i].file;
    }
    return send_all(socket, &chunk, sizeof chunk, files, chunk.count);
}

tarn_status tarn_share_send(int socket, const tarn_share *share)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    bool packets = false;
    tarn_status status = process_check();
    if (!status)
        status = share_known(share);
    if (!status)
        status = check_socket(socket, &packets);
    if (!status)
        status = send_all(socket, &share->head, sizeof share->head, NULL, 0);
    for (uint32_t first = 0; !status && first < share->head.parts; first += MOST)
        status = send_chunk(socket, share, first);
    return status;
}

/* ---- Receiving --------------------------------------------------------------------------------------------------- */

struct received {
    int socket;
    bool packets; /* it keeps messages apart */
    int files[MOST];
    unsigned count;
    bool lost; /* files that came and could not be taken */
};

static void close_all(struct received *received)
{
    while (received->count > 0)
        close(received->files[--received->count]);
}

/* Takes the files of a message over, whatever else is wrong with it. */
static void take_files(struct msghdr *message, struct received *received)
{
    received->lost |= (message->msg_flags & MSG_CTRUNC) != 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int file = -1;
            memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof file);
            if (received->count < MOST && (file = file_apart(file)) >= 0) {
                received->files[received->count++] = file;
            } else {
                if (file >= 0)
                    close(file);
                received->lost = true;
            }
        }
    }
}

/* Receives a message of exactly `size` bytes and its files, which are the caller's also after a failure. */
static tarn_status receive_all(struct received *received, void *bytes, size_t size)
{
    union rights rights;
    for (size_t come = 0; come < size;) {
        struct iovec rest = {(char *)bytes + come, size - come};
        struct msghdr message = {
            .msg_iov = &rest, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
        ssize_t now = recvmsg(received->socket, &message, MSG_CMSG_CLOEXEC);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return refused("recvmsg");
        take_files(&message, received);
        if (now == 0)
            return failed(TARN_ERROR_SYSTEM, "recvmsg of a share: the other side closed the socket%s",
                          come ? " in the middle of it" : "");
        if (received->packets && ((size_t)now != size || message.msg_flags & MSG_TRUNC))
            return failed(TARN_ERROR_INVALID_ARGUMENT,
                          "what was received is not a share as tarn sends it: a message of another size");
        come += (size_t)now;
    }
    if (received->lost)
        return failed(TARN_ERROR_SYSTEM,
                      "recvmsg of a share: files were lost: this process has no file descriptors left "
                      "(ulimit -n), or there were more files than a share has");
    return TARN_OK;
}

static tarn_status receive_chunk(int socket, bool packets, tarn_share *share, uint32_t first)
{
    struct received received = {.socket = socket, .packets = packets};
    struct chunk chunk;
    uint32_t count = share->head.parts - first < MOST ? share->head.parts - first : MOST;
    tarn_status status = receive_all(&received, &chunk, sizeof chunk);
    if (!status && (chunk.magic != SHARE_MAGIC || chunk.first != first || chunk.count != count))
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "what was received is not a share as tarn sends it: its pieces are out of order");
    if (!status && received.count != count)
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "a share came with %u files instead of %u", received.count,
                        (unsigned)count);
    if (status) {
        close_all(&received);
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        share->parts[first + i].size = chunk.sizes[i];
        share->parts[first + i].file = received.files[i];
    }
    return TARN_OK;
}

static tarn_status receive(int socket, bool packets, tarn_share **result)
{
    struct share_head head;
    struct received received = {.socket = socket, .packets = packets};
    tarn_status status = receive_all(&received, &head, sizeof head);
    if (!status && received.count > 0)
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "what was received is not a share as tarn sends it: files came with its head");
    close_all(&received);
    if (status || (status = share_head_check(&head)))
        return status;
    tarn_share *share = share_create(&head);
    if (!share)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t first = 0; !status && first < head.parts; first += MOST)
        status = receive_chunk(socket, packets, share, first);
    if (status || (status = share_check(share))) {
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
    bool packets = false;
    tarn_status status = process_check();
    if (!status)
        status = check_socket(socket, &packets);
    return status ? status : receive(socket, packets, share);
}
