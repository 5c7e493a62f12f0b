/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* This process in its group. The process has one slot from cuInit() to its end. A child of fork()
 * has no slot. The child closes the file, because an open copy would keep its parent's lock. */
#include "group.h"
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 40, REAP_NS = 100000000 };

static struct {
    struct group *group; /* NULL: the process is in no group */
    struct own_file file;
    unsigned slot;
    unsigned rows[BOOK_DEVICES]; /* the group's row for each of this process's devices */
    _Atomic uint64_t generation; /* the generation of the limits that the book has */
    _Atomic uint64_t reaped_ns;
} own = {.file = {.number = -1}};

static pthread_mutex_t reaping =
    PTHREAD_MUTEX_INITIALIZER; /* of this process alone; never held over a call that waits */

bool group_joined(void)
{
    return own.group != NULL;
}

static struct group *map(int file)
{
    struct stat about;
    struct group *group = MAP_FAILED;
    if (fstat(file, &about) == 0 && (size_t)about.st_size >= sizeof *group)
        group = mmap(NULL, sizeof *group, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (group == MAP_FAILED)
        return NULL;
    if (atomic_load(&group->magic) == GROUP_MAGIC) {
        /* the mapping in a child would keep the lock, as the file would */
        (void)madvise(group, sizeof *group, MADV_DONTFORK);
        return group;
    }
    munmap(group, sizeof *group);
    return NULL;
}

static bool take_slot(struct group *group, int file)
{
    for (unsigned i = 0; i < GROUP_SLOTS; i++) {
        if (!group_take(file, i))
            continue;
        /* the slot may still have the figures of a process that has ended */
        group_empty(&group->slot[i]);
        uint32_t slots = atomic_load(&group->slots);
        while (slots <= i && !atomic_compare_exchange_weak(&group->slots, &slots, i + 1))
            ;
        atomic_store(&group->slot[i].process, (uint64_t)getpid());
        own.slot = i;
        return true;
    }
    return false;
}

void group_join(void)
{
    const char *path = getenv(RUN_GROUP_VARIABLE);
    int file = path && *path ? own_file_open(&own.file, path, O_RDWR) : -1;
    struct group *group = file < 0 ? NULL : map(file);
    if (group && take_slot(group, file)) {
        for (unsigned i = 0; i < book->devices; i++)
            own.rows[i] = group_row(group, group_device(book->device[i].uuid), true);
        own.group = group;
        memcpy(book->group, group->name, sizeof book->group - 1);
        return;
    }
    if (group) { /* every slot is taken: the limit holds for this process alone */
        char limits[GROUP_LIMITS];
        memcpy(limits, group->limits, sizeof limits); /* other processes may be writing them */
        limits[sizeof limits - 1] = '\0';
        if (limits[0])
            limits_read(limits);
        munmap(group, sizeof *group);
    }
    own_file_close(&own.file);
}

void group_forked(void)
{
    own_file_close(&own.file);
    own.group = NULL;
}

/* Limits --------------------------------------------------------------------------------------- */

/* The limits may be changed while processes run. If two threads see a change, both read it. */
void group_limits(void)
{
    char text[GROUP_LIMITS];
    if (!own.group)
        return;
    uint64_t generation = atomic_load(&own.group->generation);
    if (generation % 2 || generation == atomic_load_explicit(&own.generation, memory_order_relaxed))
        return;
    memcpy(text, own.group->limits, sizeof text);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load(&own.group->generation) != generation)
        return; /* the limits are being written; the next call reads them */
    text[sizeof text - 1] = '\0';
    limits_read(text);
    atomic_store(&own.generation, generation);
}

/* Memory --------------------------------------------------------------------------------------- */

static struct group_amount *amount_of(unsigned device)
{
    unsigned row = own.group && device < BOOK_DEVICES ? own.rows[device] : BOOK_DEVICES;
    return row < BOOK_DEVICES ? &own.group->slot[own.slot].device[row] : NULL;
}

int group_slot(void)
{
    return own.group ? (int)own.slot : -1;
}

bool group_has(unsigned device)
{
    return amount_of(device) != NULL;
}

static void subtract(_Atomic uint64_t *from, uint64_t value)
{
    uint64_t before = atomic_load_explicit(from, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(from, &before, before > value ? before - value : 0))
        ;
}

void group_add(unsigned device, uint64_t size)
{
    struct group_amount *amount = amount_of(device);
    if (amount)
        atomic_fetch_add(&amount->used, size);
}

void group_subtract(unsigned device, uint64_t size)
{
    struct group_amount *amount = amount_of(device);
    if (amount)
        subtract(&amount->used, size);
}

void group_expect(unsigned device, uint64_t size)
{
    struct group_amount *amount = amount_of(device);
    if (amount)
        atomic_fetch_add(&amount->pending, size);
}

void group_expected(unsigned device, uint64_t size)
{
    struct group_amount *amount = amount_of(device);
    if (!amount)
        return;
    atomic_fetch_add(&amount->used, size);
    subtract(&amount->pending, size);
}

/* The mapping keeps the file's description open, so this process's lock lasts even if the program
 * has closed the file. */
static void reap(void)
{
    pthread_mutex_lock(&reaping);
    int file = own_file(&own.file);
    if (file >= 0)
        group_reap(own.group, file, own.slot);
    pthread_mutex_unlock(&reaping);
}

static void pause_for(int attempt)
{
    struct timespec now, pause = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    pause.tv_nsec = 20000 + (now.tv_nsec ^ (long)own.slot * 7919) % (50000L * (attempt + 1));
    (void)nanosleep(&pause, NULL);
}

bool group_reserve(unsigned device, uint64_t size, uint64_t unseen, uint64_t limit, uint64_t *left)
{
    struct group_amount *amount = amount_of(device);
    if (!amount)
        return true;
    atomic_store(&amount->unseen, unseen);
    for (int attempt = 0; attempt < TRIES; attempt++) {
        atomic_fetch_add(&amount->pending, size);
        struct group_sum sum = group_sum(own.group, own.rows[device]);
        uint64_t others = sum.used + sum.pending - size;
        *left = others < limit ? limit - others : 0;
        bool fits = size <= *left;
        if (fits)
            atomic_fetch_add(&amount->used, size);
        subtract(&amount->pending, size);
        if (fits)
            return true;
        if (attempt == 0)
            reap();
        else if (size > limit || sum.used > limit - size)
            return false; /* what others have in `pending` may still come back, `used` does not */
        else
            pause_for(attempt);
    }
    return false;
}

/* Looks for processes that have ended at most ten times per second, so that a query stays cheap. */
uint64_t group_used(unsigned device, uint64_t unseen)
{
    struct group_amount *amount = amount_of(device);
    struct timespec now;
    if (!amount)
        return 0;
    atomic_store(&amount->unseen, unseen);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    if (ns - atomic_load_explicit(&own.reaped_ns, memory_order_relaxed) > REAP_NS) {
        atomic_store(&own.reaped_ns, ns);
        reap();
    }
    return group_sum(own.group, own.rows[device]).used;
}
