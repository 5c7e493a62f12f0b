/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What `tarn keep` consists of. */
#ifndef TOOLS_KEEP_H
#define TOOLS_KEEP_H

#include "memory/keep/layout.h"

#include <stdbool.h>
#include <sys/types.h>

/* A process that is connected. */
struct keep_peer {
    int socket;
    pid_t process;
    struct kept_pool *pool; /* NULL: none yet */

    /* Of a reader (keep_readers.c). */
    struct kept_pool *reads;  /* NULL: it has read none */
    struct keep_peer *next;   /* that reads the same pool */
    struct keep_segment *has; /* of that pool, and mapped, or about to be */
    unsigned has_count;
};

/* A pool, with or without a process. */
struct kept_pool {
    struct kept_pool *next;
    char name[TARN_KEEP_NAME_BYTES];
    char driver[12], device[52];
    uint32_t slot; /* no other pool has it */
    bool is_over;  /* it has no segments and no layout; something of it lingers */
    /* A file with the owner's description of the pool, without its segments; -1: no service
     * manager holds it. */
    int record;
    int file; /* of its layout */
    struct layout *layout;
    struct keep_segment segments[KEEP_SEGMENTS_MOST];
    int files[KEEP_SEGMENTS_MOST]; /* of the segments */
    unsigned count;

    /* Its readers (keep_readers.c). */
    struct keep_peer *readers;
    struct keep_segment *lingering; /* segments of the past that readers have still */
    unsigned lingering_count;

    /* A process hands the pool over again because the owner before has ended. Until it has said of
     * all segments and sent those that lack, nobody else gets the pool. */
    bool arrives;
    bool told;      /* it has said of all */
    uint32_t lacks; /* that it is to send */

    /* Its group of `tarn run` (keep_group.c). */
    struct keep_group *group; /* NULL: it counts in none */
    /* The device's row in the group; BOOK_DEVICES: the group has no row for it. */
    unsigned row;
    /* One more than the slot of the process that counts the pool; 0: the owner does. */
    unsigned claim;
    uint64_t claimed; /* identifies that process in the slot */

    /* The process that has it, or had it last. */
    struct keep_peer *peer; /* the process's connection; NULL: it is closed */
    pid_t process;
    /* Pidfd of the process, which is ready after its end; -1: no process had the pool, or the
     * last one has returned it. */
    int ended;
    /* One end of a pipe; the process and each of its children hold the other end open. The
     * process creates the pipe before it asks for a pool, so a child that it forked earlier
     * holds it too. -1 when `ended` is -1. */
    int held;
};

/* Answers a request. Files that it keeps are set to -1 in `files`. False: the connection is to be
 * closed. */
bool keep_serve(struct keep_peer *peer, const struct keep_message *request, int *files,
                unsigned count);
/* Answers a request whose files were lost, because the owner has no descriptors left. */
bool keep_refuse_files(const struct keep_peer *peer);
/* A connection has ended; the pool stays. */
void keep_part(struct keep_peer *peer);

/* The connection reads a pool, and is about to map all segments that the pool has now. False if
 * there is no memory to know that. */
bool keep_reader_begins(struct keep_peer *peer, struct kept_pool *pool);
/* What a reader says by KEEP_HAS. False if it can have no such segments, or without memory. */
bool keep_reader_has(struct keep_peer *peer, const struct keep_message *said);
/* The connection reads nothing any more, if it did. */
void keep_reader_ends(struct keep_peer *peer);
/* The owner has given up a segment of a pool. */
void keep_reader_segment_ends(struct kept_pool *pool, const struct keep_segment *segment);
/* The number of connections that read a pool, and the bytes that linger with them. */
uint64_t keep_readers(const struct kept_pool *pool);
uint64_t keep_lingering(const struct kept_pool *pool);

/* Takes over the pools that a service manager held for the owner. Before all other calls. */
void keep_restore(void);

/* By name. A pool that has ended is among them while something of it lingers. */
struct kept_pool *keep_pools(void);
uint64_t kept_bytes(const struct kept_pool *pool);
/* Writes down what the owner's next process is to know of a pool. */
void keep_record(const struct kept_pool *pool);

/* Takes over the owner's slots that a service manager held for it. Before all other calls. */
void keep_groups_restore(void);
/* Has a pool count in the group with this file, or, if the path is empty, in the owner's own. */
void keep_group_choose(struct kept_pool *pool, const char *path);
/* "": the pool counts in no group. */
const char *keep_group_path(const struct kept_pool *pool);
const char *keep_group_name(const struct kept_pool *pool);
/* The process in a slot of the group counts the pool. Unless `process` is 0, that must be the
 * process. False if it has ended, or there is no such slot: then the owner counts the pool. */
bool keep_group_claim(struct kept_pool *pool, uint32_t slot, uint64_t process);
/* The owner counts the pool. */
void keep_group_unclaim(struct kept_pool *pool);
/* The same for all restored pools, whose `claim` and `claimed` are those of the record. */
void keep_groups_claim_again(void);
/* Writes to all groups what the owner counts, and leaves those without pools. */
void keep_groups_count(void);
/* Takes over the count of pools whose process has ended. */
void keep_groups_look(void);
/* A process may be about to end. */
void keep_groups_look_often(void);
/* How long to wait for requests before the next look, in ms; -1: as long as it takes. */
int keep_groups_wait_ms(void);
/* The owner ends: leaves the groups, unless a service manager holds its slots. */
void keep_groups_leave(void);

/* Asks a running owner, and receives the answer. False with errno. */
bool keep_ask(int socket, const struct keep_message *request, struct keep_message *answer);
/* Calls `take` for each pool of a running owner, by name, as KEEP_LIST gives it: names have any
 * bytes. False with errno. */
bool keep_each(int socket, void (*take)(void *argument, const struct keep_message *pool),
               void *argument);

/* Listens until a signal. Gives an exit status. */
int keep_listen(const char *path);

#endif
