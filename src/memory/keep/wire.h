/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a process that keeps a pool and the owner of the pool's memory say to each other: messages
 * of one size over a unix socket of type SOCK_SEQPACKET, some with files. Both ends run on one
 * machine. Every request is answered. Nothing that arrives is trusted: wire_receive() refuses what
 * is no such message and closes its files. A side that does not answer is given up after a while.
 * Owns no data. */
#ifndef TARN_MEMORY_KEEP_WIRE_H
#define TARN_MEMORY_KEEP_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/keep.h>

#define KEEP_VERSION 1u
#define KEEP_SEGMENTS_MOST 1024u

enum {
    /* Segments, and files, of one message. Few, because a process with threads may wait for some
     * 10 ms when its table of descriptors grows (expand_fdtable() in Linux's fs/file.c). */
    KEEP_BATCH = 8,
    KEEP_SOCKET_BYTES = 108,
    KEEP_TEXT_BYTES = 256,
};

enum keep_verb {
    /* Requests. ADOPT and CREATE make the connection the pool's: it stays open as long as the
     * process lives, and its later requests are about that pool. Their first file is the end for
     * reading of a pipe, whose other end the process holds open, and each child that has its
     * devices. */
    /* Takes a pool over: name, driver, device; text: the path of the process's group of `tarn
     * run`, empty: none. GIVES once, then SEGMENTS. */
    KEEP_ADOPT = 1,
    /* Makes a pool: the same. GIVES. With a second file: the pool of a process whose owner was
     * another one, and its layout. */
    KEEP_CREATE,
    /* The pool's memory, to read it beside the process that has it: name, driver, device. GIVES
     * with a layout that cannot be written, then SEGMENTS. May be asked again, with `from` 1:
     * then the process may have taken the pool over meanwhile. */
    KEEP_READ,
    KEEP_JOIN, /* the pool is this process's, whose connection ended: name. OK, or UNKNOWN */
    /* The process counts the pool's memory in its slot of its group: slot. OK, or REFUSED: then
     * the owner counts it, as before. */
    KEEP_COUNTS,
    /* The pool has these `count` segments from `from` to `to`, and no others. OK with the
     * `count` segments among them of which the owner has no file. Of a reader: it has these
     * mapped. OK. */
    KEEP_HAS,
    KEEP_ADD,    /* a segment: offset, size, and its file. OK */
    KEEP_REMOVE, /* a segment: offset. The owner has no file of it when it answers. OK */
    /* The pool is over; or, if the owner does not have all of it yet, is not to be the owner's.
     * OK. */
    KEEP_END,
    /* The process has nothing of the pool mapped any more, and never used it; a pool that no
     * process has used is over. OK. */
    KEEP_RETURN,
    /* GIVES the first pool that comes behind `name` and, of that name, `slot`; OK if there is
     * none. */
    KEEP_LIST,
    KEEP_DROP, /* a pool that no process has: name. OK */

    /* Answers. */
    KEEP_OK,
    /* A pool: name, driver, device, `count` segments; and to its process a file, the layout. */
    KEEP_GIVES,
    KEEP_SEGMENTS, /* `count` of a pool's segments, with their files */
    KEEP_UNKNOWN,  /* there is no pool of that name */
    KEEP_TAKEN,    /* another process has it, or may have: text */
    KEEP_YOURS,    /* the process that asks has it */
    KEEP_REFUSED,  /* text */
};

struct keep_message {
    uint64_t magic;
    uint32_t version, verb;
    char name[TARN_KEEP_NAME_BYTES];
    char driver[12], device[52]; /* whose memory it is: the driver's name, and the device's */
    uint64_t bytes;              /* GIVES: of its segments */
    uint32_t count;              /* segments; GIVES: of the pool */
    /* GIVES: of the addresses at which its process is to reserve; COUNTS; LIST. */
    uint32_t slot;
    int64_t process;  /* GIVES: that has or had it */
    uint64_t blocks;  /* GIVES to LIST: sealed ones */
    uint64_t readers; /* GIVES to LIST: connections that have read it */
    /* HAS: offsets; READ; GIVES to LIST: bytes that the pool has given up and its readers have,
     * whether it has ended. */
    uint64_t from, to;
    struct keep_segment {
        uint64_t offset, size; /* bytes, from the start of the pool's addresses */
        uint64_t number;       /* no other segment that the pool ever had has it */
    } segments[KEEP_BATCH];
    char text[KEEP_TEXT_BYTES]; /* why not; ADOPT, CREATE: a path; GIVES to LIST: a group's name */
};

/* How long a process waits for each answer of an owner, in ms. */
extern unsigned wire_patience_ms;

/* A message of this version. */
struct keep_message keep_message(enum keep_verb verb);

/* Whether what arrived is a message of this version. */
bool wire_is_message(const struct keep_message *message);

/* Sends a message, with `count` files. False with errno. */
bool wire_send(int socket, const struct keep_message *message, const int *files, unsigned count);

/* Receives a message with its files, which the caller closes. Returns 1; 0 if the other side has
 * closed the connection; or -1 with errno: EPROTO if it is not such a message, EMFILE if files were
 * lost because this process has no descriptors left. */
int wire_receive(int socket, struct keep_message *message, int files[KEEP_BATCH], unsigned *count);

/* Opens a connection to an owner, for requests that wait no longer than wire_patience_ms. -1 with
 * errno: EPERM for an owner of another user. */
int wire_connect(const char *path);

#endif
