/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Generations of processes that have a kept pool, change it at random, and are killed. Each checks
 * what it finds. */
#ifndef TESTS_MEMORY_KEEP_GENERATIONS_H
#define TESTS_MEMORY_KEEP_GENERATIONS_H

#include "keep_test.h"

#include <sys/syscall.h>
#include <time.h>

enum { NAMES = 24 };

static unsigned random_state = 1;

static inline unsigned pick(unsigned below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)random_state * below) >> 32);
}

struct live {
    char *pointer; /* NULL: none */
    size_t size;
    int seed;
    bool sealed;
};

/* How many generations are killed: a few, or as many as TARN_TEST_KILLS says, or many a night. They
 * begin at random then. */
static inline int count_of_kills(int few, int nightly)
{
    const char *count = getenv("TARN_TEST_KILLS");
    bool many = count || getenv("TARN_NIGHTLY");
    random_state = many ? (unsigned)(time(NULL) * 1000 + getpid()) : 1;
    if (many)
        printf("random_state %u\n", random_state);
    return count ? atoi(count) : many ? nightly : few;
}

static inline void name_of(unsigned i, char name[16])
{
    snprintf(name, 16, "layer.%u", i);
}

/* Finds the sealed blocks of a pool: each has the contents that its data says. Returns how many
 * there are. */
static inline size_t check_sealed(tarn_pool *pool, struct live *live)
{
    size_t blocks = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        char name[16];
        int seed;
        tarn_sealed_block block = {.size = sizeof block};
        name_of(i, name);
        if (tarn_pool_block_find(pool, name, &block))
            continue;
        memcpy(&seed, block.data, sizeof seed);
        CHECK(holds(block.pointer, block.bytes, seed));
        live[i] = (struct live){block.pointer, block.bytes, seed, true};
        blocks++;
    }
    return blocks;
}

/* What a generation finds is what it was told. */
static inline void check_all(tarn_pool *pool, const tarn_kept *kept, struct live *live)
{
    size_t blocks = check_sealed(pool, live), bytes = 0;
    for (unsigned i = 0; i < NAMES; i++)
        bytes += live[i].size;
    CHECK(blocks == kept->blocks && bytes == kept->bytes);
    CHECK((size_t)stats_of(0).allocation[0].current == blocks);
}

static inline void change_one(tarn_pool *pool, struct live *live, unsigned i)
{
    char name[16];
    unsigned char data[TARN_KEEP_DATA_BYTES] = {0};
    name_of(i, name);
    if (!live->pointer) {
        live->size = (pick(8) ? pick(300) : pick(3000)) * 4096 + 4096;
        live->seed = (int)pick(100000);
        if (tarn_pool_alloc(pool, 0, live->size, (void **)&live->pointer)) {
            live->pointer = NULL;
            OK(tarn_pool_trim(pool, 0));
            return;
        }
        fill(live->pointer, live->size, live->seed);
    } else if (!live->sealed) {
        memcpy(data, &live->seed, sizeof live->seed);
        OK(tarn_pool_block_seal(live->pointer, name, data, NULL));
        live->sealed = true;
    } else if (pick(2)) {
        OK(tarn_pool_block_unseal(live->pointer));
        live->sealed = false;
        live->seed = (int)pick(100000);
        fill(live->pointer, live->size, live->seed);
    } else {
        OK(tarn_free(live->pointer));
        *live = (struct live){0};
    }
}

/* The pool becomes a file, and gets its sealed blocks from it again, at any addresses. */
static inline void save_and_load(tarn_pool *pool, struct live *live)
{
    struct live again[NAMES] = {{0}};
    size_t sealed = 0;
    int file = (int)syscall(SYS_memfd_create, "weights", 0);
    CHECK(file >= 0);
    OK(tarn_pool_save(pool, file));
    for (unsigned i = 0; i < NAMES; i++)
        if (live[i].sealed) {
            OK(tarn_free(live[i].pointer));
            live[i] = (struct live){0};
            sealed++;
        }
    if (tarn_pool_load(pool, file) == TARN_OK) /* otherwise the segments do not fit any more */
        CHECK(check_sealed(pool, again) == sealed);
    for (unsigned i = 0; i < NAMES; i++)
        if (again[i].pointer)
            live[i] = again[i];
    close(file);
}

/* The pool is suspended, and frees a block meanwhile. Without their contents no block is sealed. */
static inline void suspend_and_resume(tarn_pool *pool, struct live *live)
{
    bool save = pick(2);
    unsigned i = pick(NAMES);
    OK(tarn_pool_suspend(pool, save));
    OK(tarn_free(live[i].pointer));
    live[i] = (struct live){0};
    if (tarn_pool_resume(pool)) {
        CHECK(!save && tarn_last_status() == TARN_ERROR_OUT_OF_MEMORY);
        raise(SIGKILL);
    }
    for (i = 0; !save && i < NAMES; i++) {
        live[i].sealed = false;
        if (live[i].pointer)
            fill(live[i].pointer, live[i].size, live[i].seed);
    }
    CHECK(save || !stats_of(0).allocation[0].current ||
          stats_of(0).reserved_bytes[0].current >= stats_of(0).allocated_bytes[0].current);
}

/* One generation: until it is killed. */
static inline void live_on(int socket)
{
    struct live live[NAMES] = {{0}};
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    receive_all(socket, &random_state, sizeof random_state);
    options.wait_ms = 20000;
    OK(tarn_pool_keep("weights", &options, &pool, &kept));
    check_all(pool, &kept, live);
    say(socket, 'w');
    for (;;) {
        unsigned i = pick(NAMES);
        change_one(pool, &live[i], i);
        if (!pick(20))
            OK(tarn_pool_trim(pool, pick(2) ? 0 : SEGMENT));
        if (!pick(50))
            suspend_and_resume(pool, live);
        if (!pick(100))
            save_and_load(pool, live);
    }
}

/* The roles that several tests have. */
#define KEEP_ROLES                                                      \
    {"fill and wait", fill_and_wait}, {"fill and fork", fill_and_fork}, \
    {                                                                   \
        "live on", live_on                                              \
    }

/* Starts a generation, which has checked the pool and changes it. */
static inline struct side next_generation(void)
{
    struct side side = start_side("live on", SOCK_STREAM);
    unsigned seed = pick(1u << 30) + 1;
    send_all(side.socket, &seed, sizeof seed);
    hear(side.socket, 'w');
    return side;
}

/* This process is the last: it checks the pool, and ends it. */
static inline void last_generation(void)
{
    struct live live[NAMES] = {{0}};
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    check_all(pool, &kept, live);
    for (unsigned i = 0; i < NAMES; i++)
        OK(tarn_free(live[i].pointer));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

#endif
