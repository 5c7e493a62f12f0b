/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A group: processes that share one limit through a file that each of them maps. A process has one
 * slot in the file. It holds a lock on one byte of the file (F_OFD_SETLK) as long as it lives. The
 * kernel drops the lock however the process ends, and any process that finds a slot without its
 * lock empties the slot. No process ever waits for such a lock.
 *
 * A process that wants memory first adds the size to `pending` of its slot, then sums all slots. If
 * the sum fits the limit, the size moves to `used`. Two processes that ask at once see each other's
 * `pending`, so together they never pass the limit. Both may find that the sum does not fit; then
 * both take their sizes back and try again. A reader loads `pending` before `used`, and a writer
 * adds to `used` before it subtracts from `pending`, so a sum never misses an amount.
 *
 * Memory of kept pools outlives its process. Their owner, `tarn keep`, has a slot too, in which it
 * counts what no process counts. While a process counts memory that the owner keeps, the owner has
 * a claim on the process's slot: nobody empties that slot until the owner has counted the memory
 * itself, and has given up the claim. If the owner is a service, its manager holds the owner's open
 * file too, so the locks of its slot and its claims last until the next owner gets the file. */
#ifndef TARN_RUN_GROUP_H
#define TARN_RUN_GROUP_H

#include "book.h"

#include <fcntl.h>

#define GROUP_MAGIC UINT64_C(0x3170756f72677472)
#define RUN_GROUP_VARIABLE "TARN_RUN_GROUP" /* path of the group's file */

enum {
    GROUP_SLOTS = 1024,
    GROUP_CLAIMS = 2 * GROUP_SLOTS, /* the byte for claims on slot 0; owners lock it to read */
    GROUP_NAME = 64,
    GROUP_LIMITS = 512
};

struct group_amount {
    _Atomic uint64_t pending, used; /* bytes */
    _Atomic uint64_t unseen;        /* bytes that no hook saw, such as contexts */
};

struct group_slot {
    _Atomic uint64_t process; /* the process's number; 0: the slot is free */
    struct group_amount device[BOOK_DEVICES];
    uint64_t padding[7];
};

struct group {
    _Atomic uint64_t magic;
    _Atomic uint64_t generation; /* version of `limits`; odd while they are being written */
    char limits[GROUP_LIMITS];   /* in the language of RUN_LIMIT_VARIABLE; empty: no limits */
    char name[GROUP_NAME];
    _Atomic uint32_t slots; /* one more than the highest slot that was ever used */
    /* the device of each row, as group_device() returns it; 0: the row is free */
    _Atomic uint64_t device[BOOK_DEVICES];
    struct group_slot slot[GROUP_SLOTS];
};

/* Identifies a device by its UUID, since processes may number devices differently. Never 0. */
static inline uint64_t group_device(const char uuid[static 16])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < 16; i++)
        hash = (hash ^ (unsigned char)uuid[i]) * UINT64_C(0x100000001b3);
    return hash ? hash : 1;
}

/* Returns the row of a device. If it has none and `add` is set, a free row becomes its row. Returns
 * BOOK_DEVICES if there is no row. */
static inline unsigned group_row(struct group *group, uint64_t device, bool add)
{
    for (unsigned i = 0; i < BOOK_DEVICES; i++) {
        uint64_t there = atomic_load(&group->device[i]);
        if (there == device ||
            (add && !there &&
             (atomic_compare_exchange_strong(&group->device[i], &there, device) ||
              there == device)))
            return i;
    }
    return BOOK_DEVICES;
}

static inline bool group_lock(int file, long byte, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

/* Whether another open file holds a lock on a byte. */
static inline bool group_is_locked(int file, long byte)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Locks a slot. False if its process lives, or an owner has a claim on it. */
static inline bool group_take(int file, unsigned slot)
{
    if (!group_lock(file, (long)slot, F_WRLCK))
        return false;
    if (!group_is_locked(file, (long)GROUP_CLAIMS + (long)slot))
        return true;
    (void)group_lock(file, (long)slot, F_UNLCK);
    return false;
}

static inline void group_empty(struct group_slot *slot)
{
    for (unsigned i = 0; i < BOOK_DEVICES; i++) {
        atomic_store(&slot->device[i].pending, 0);
        atomic_store(&slot->device[i].used, 0);
        atomic_store(&slot->device[i].unseen, 0);
    }
    atomic_store(&slot->process, 0);
}

/* Empties the slots of processes that have ended. `own` is the caller's slot, which is skipped
 * because the caller could take its own lock again. GROUP_SLOTS: the caller has no slot. */
static inline void group_reap(struct group *group, int file, unsigned own)
{
    uint32_t slots = atomic_load(&group->slots);
    for (unsigned i = 0; i < slots && i < GROUP_SLOTS; i++)
        if (i != own && atomic_load(&group->slot[i].process) && group_take(file, i)) {
            group_empty(&group->slot[i]);
            (void)group_lock(file, (long)i, F_UNLCK);
        }
}

/* The sum of a row over all processes: bytes in use, and bytes that are being asked for. */
struct group_sum {
    uint64_t used, pending;
    unsigned processes;
};

static inline struct group_sum group_sum(struct group *group, unsigned row)
{
    struct group_sum sum = {0};
    uint32_t slots = atomic_load(&group->slots);
    for (unsigned i = 0; i < slots && i < GROUP_SLOTS; i++) {
        struct group_amount *amount = &group->slot[i].device[row];
        sum.processes += atomic_load(&group->slot[i].process) != 0;
        sum.pending += atomic_load(&amount->pending);
        sum.used += atomic_load(&amount->used) + atomic_load(&amount->unseen);
    }
    return sum;
}

#endif
