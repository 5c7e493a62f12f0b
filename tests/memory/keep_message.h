/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Messages between a process and an owner of kept pools, good ones and others. */
#ifndef TESTS_MEMORY_KEEP_MESSAGE_H
#define TESTS_MEMORY_KEEP_MESSAGE_H

#include "keep_test.h"
#include "memory/keep/wire.h"

enum { FILES = 48, BYTES = 2048, PATIENCE_MS = 250 };

static uint64_t random_state = 1;

static inline unsigned pick(unsigned below)
{
    return (unsigned)(random_next(&random_state) % below);
}

/* ---- A message with its files ---- */

struct message {
    union {
        struct keep_message said;
        unsigned char bytes[BYTES];
    };
    size_t size;
    int files[FILES];
    unsigned count;
    bool hangs_up;
    unsigned late_ms;
};

static inline bool get(int socket, struct message *message)
{
    char room[CMSG_SPACE(FILES * sizeof(int))];
    struct iovec whole = {message->bytes, BYTES};
    struct msghdr header = {
        .msg_iov = &whole, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t came = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    message->count = 0;
    message->hangs_up = false;
    message->late_ms = 0;
    if (came <= 0)
        return false;
    message->size = (size_t)came;
    struct cmsghdr *control = CMSG_FIRSTHDR(&header);
    if (control) {
        message->count = (unsigned)((control->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(message->files, CMSG_DATA(control), message->count * sizeof(int));
    }
    return true;
}

static inline bool put(int socket, const struct message *message, int flags)
{
    char room[CMSG_SPACE(FILES * sizeof(int))] = {0};
    struct iovec whole = {(void *)(uintptr_t)message->bytes, message->size};
    struct msghdr header = {.msg_iov = &whole, .msg_iovlen = 1};
    if (message->count) {
        header.msg_control = room;
        header.msg_controllen = CMSG_SPACE(message->count * sizeof(int));
        struct cmsghdr *control = CMSG_FIRSTHDR(&header);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(message->count * sizeof(int));
        memcpy(CMSG_DATA(control), message->files, message->count * sizeof(int));
    }
    return sendmsg(socket, &header, MSG_NOSIGNAL | flags) >= 0;
}

static inline void close_files(struct message *message)
{
    while (message->count > 0)
        close(message->files[--message->count]);
}

static inline void be_noise(struct message *message)
{
    for (size_t i = 0; i < message->size; i++)
        message->bytes[i] = (unsigned char)pick(256);
}

static inline void flip_bits(struct message *message)
{
    for (unsigned i = pick(4) + 1; i > 0; i--)
        message->bytes[pick(3) ? pick(400) : pick((unsigned)message->size)] ^=
            (unsigned char)(1u << pick(8));
}

static inline void add_file(struct message *message)
{
    message->files[message->count++] = open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* Adds the end for reading of a pipe, which a process sends that asks for a pool. Returns the other
 * one. */
static inline int add_pipe(struct message *message)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    message->files[message->count++] = ends[0];
    return ends[1];
}

#endif
