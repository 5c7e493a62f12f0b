/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The soak: what its parts know of each other. One worker a thread; the main thread opens windows
 * and closes them. */
#ifndef SOAK_SOAK_H
#define SOAK_SOAK_H

#include "latency.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define DEVICES 2
#define SHARED 3 /* streams a device that all workers use */
#define SLOTS 256
#define MAILBOXES 64
#define SMALL (64 * KIB) /* bytes: the largest block that counts as small */

/* An allocator as the mix calls it, tarn or the peer, through pointers alike. */
struct allocator {
    const char *name;
    void *(*alloc)(size_t size);
    bool (*free)(void *block); /* whether that went well */
};
extern const struct allocator tarn;
/* mimalloc, or NULL where it is not installed. */
const struct allocator *mimalloc_open(void);

/* What is done in a window. */
enum kind {
    MIX_ALONE,      /* allocations and frees, of which each allocator is capable: to compare */
    MIX_AND_CHORES, /* and all else */
    OVER            /* the workers end */
};

/* By class of size, small and large. */
struct latencies {
    struct latency alloc[2], free[2];
};

struct worker {
    unsigned number;
    uint64_t random;
    void *slots[SLOTS]; /* the mix's blocks */
    struct latencies latencies;
    uint64_t operations; /* allocations and frees of the mix */
    uint64_t refused;    /* of these, allocations without memory */
    atomic_int chore;    /* what it is doing, for a report of a hang; -1: the mix */
    pthread_t thread;
    bool dies; /* it wants to be replaced */
    /* Of tarn alone: a stream of the worker's own, and the second value that it was adopted as, or
     * 0. */
    tarn_stream lent[DEVICES], adopted[DEVICES];
    void *native[DEVICES];
};

extern unsigned worker_count;
extern tarn_stream shared[DEVICES][SHARED];

/* Whether the window is to be closed: looked at between any two things that take long. */
extern atomic_bool closing;
/* Failures are injected and limits change: calls may fail. */
extern atomic_bool disturbed;

/* Says what is wrong, and the soak has failed. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool is_wrong(void);

static inline uint64_t below(struct worker *worker, uint64_t limit)
{
    uint64_t x = worker->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    worker->random = x;
    return ((x * 0x2545f4914f6cdd1du) >> 32) * limit >> 32; /* a limit has 32 bits */
}

/* Some allocations and frees by an allocator, each timed. */
void mix_run(const struct allocator *allocator, struct worker *worker, int steps);
/* Frees what the worker's slots have; and what lies in the mailboxes. */
void mix_finish(const struct allocator *allocator, struct worker *worker);
void mix_finish_mailboxes(const struct allocator *allocator);

/* All that tarn has beside the mix. `chores_start` once; `chores_run` does one thing at random;
 * `chores_tidy` leaves the worker's streams as a new thread finds them. */
void chores_start(struct worker *workers, unsigned count);
void chores_run(struct worker *worker);
void chores_tidy(struct worker *worker);
/* When all workers wait: no failures, no limits, no trace. And before a window in which all is to
 * get as large as it will: a trace, so that each worker has its ring. */
void chores_rest(void);
void chores_warm(void);
const char *chore_name(int chore);
/* How often each was done, on one line a few. */
void chores_print(void);
uint64_t failures_injected(void);

/* What tarn's bookkeeping is made of: tarn_metadata_list(). */
#define MOST_KINDS 128
struct kinds {
    unsigned count;
    tarn_metadata_kind list[MOST_KINDS];
};
void kinds_look(struct kinds *kinds);
/* All zeros for a kind of which there is nothing. */
tarn_metadata_kind kinds_find(const struct kinds *kinds, const char *name);
/* Complains of more records than may be in use while nothing is, except for `graphs`. */
void kinds_check(const struct kinds *kinds, int64_t graphs);
void kinds_print(const struct kinds *first, const struct kinds *last);

/* What the process has while nothing is in use. */
struct rest {
    int64_t metadata;         /* bytes of tarn's bookkeeping */
    int64_t pages, leaves;    /* bytes of these: whole pages, the page map */
    struct kinds kinds;       /* all of them */
    int64_t resident;         /* bytes, of the process */
    int64_t mappings, files;  /* of the process */
    int64_t events, streams;  /* of the driver */
    int64_t reserved, graphs; /* of the driver: must be 0 */
    int64_t pinned, mapped;   /* ... */
};
/* Gives back all that can be, and looks. */
struct rest rest_look(void);
/* Complains of what must be 0 and is not. */
void rest_check(const struct rest *rest);
/* The larger of each. */
void rest_most(struct rest *most, const struct rest *rest);
/* Complains of what has grown beyond the bounds, while so many threads came. */
void rest_compare(const struct rest *first, struct rest last, uint64_t threads);

#endif
