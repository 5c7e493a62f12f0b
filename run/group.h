/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A group: processes that share one limit, by a file that each maps. A process has a slot, and a
 * lock of one byte of the file (F_OFD_SETLK) as long as it lives: the kernel drops it, however the
 * process ends, and whoever finds a slot without its lock empties it. No lock is ever waited for.
 *
 * Who wants memory writes it into its slot as pending, then sums all slots; what fits becomes used.
 * Two that ask at once both see each other, so they never pass the limit together; both may see too
 * much, take back what they wrote, and try again. A reader takes `pending` before `used`, a writer
 * adds to `used` before it takes from `pending`: nothing is overlooked. */
#ifndef TARN_RUN_GROUP_H
#define TARN_RUN_GROUP_H

#include "book.h"

#include <fcntl.h>

#define GROUP_MAGIC UINT64_C(0x3170756f72677472)
#define RUN_GROUP_VARIABLE "TARN_RUN_GROUP" /* the file */

enum { GROUP_SLOTS = 1024, GROUP_NAME = 64, GROUP_LIMITS = 512 };

struct group_amount {
    _Atomic uint64_t pending, used; /* bytes */
    _Atomic uint64_t unseen;        /* that no hook sees */
};

struct group_slot {
    _Atomic uint64_t process; /* 0: free */
    struct group_amount device[BOOK_DEVICES];
    uint64_t padding[7];
};

struct group {
    _Atomic uint64_t magic;
    _Atomic uint64_t generation; /* of `limits`; odd while they are written */
    char limits[GROUP_LIMITS];   /* as RUN_LIMIT_VARIABLE has them; empty: none */
    char name[GROUP_NAME];
    _Atomic uint32_t slots;                /* above the greatest that was ever in use */
    _Atomic uint64_t device[BOOK_DEVICES]; /* of a row its device: what group_device() gives; 0:
                                              free */
    struct group_slot slot[GROUP_SLOTS];
};

/* A device by its UUID, whatever number a process has for it. Never 0. */
static inline uint64_t group_device(const char uuid[static 16])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < 16; i++)
        hash = (hash ^ (unsigned char)uuid[i]) * UINT64_C(0x100000001b3);
    return hash ? hash : 1;
}

/* The row of a device; BOOK_DEVICES where it has none and, with `add`, none is free. */
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

static inline void group_empty(struct group_slot *slot)
{
    for (unsigned i = 0; i < BOOK_DEVICES; i++) {
        atomic_store(&slot->device[i].pending, 0);
        atomic_store(&slot->device[i].used, 0);
        atomic_store(&slot->device[i].unseen, 0);
    }
    atomic_store(&slot->process, 0);
}

/* Empties the slots of processes that are gone. `own` is the caller's, whose lock it could take
 * again; GROUP_SLOTS: it has none. */
static inline void group_reap(struct group *group, int file, unsigned own)
{
    uint32_t slots = atomic_load(&group->slots);
    for (unsigned i = 0; i < slots && i < GROUP_SLOTS; i++)
        if (i != own && atomic_load(&group->slot[i].process) &&
            group_lock(file, (long)i, F_WRLCK)) {
            group_empty(&group->slot[i]);
            (void)group_lock(file, (long)i, F_UNLCK);
        }
}

/* What all processes have of a row: in use, and what they are about to take. */
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
