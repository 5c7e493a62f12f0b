/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A random program on pinned memory beside a model of it: which bytes are whose, until when streams
 * use them, which are kept. No request may be given memory that somebody else has or that work
 * still uses; blocks keep their contents; the host device's checker sees no memory go back under
 * work; and the invariants hold throughout. */
#include "memory/settings/hooks.h"
#include "support/pinned.h"

#include <stdio.h>

#define BLOCKS 200
#define STREAMS 5
#define POOLS 3
#define STEPS 6000

struct held {
    unsigned char *pointer; /* NULL: an empty place */
    size_t size, usable;    /* bytes */
    uint64_t until;         /* ns: when it was freed, the end of the work that uses it; UINT64_MAX:
                               live; else 0 */
    unsigned streams;       /* a bit for each that it is recorded on */
    unsigned keepers;    /* of a captured one: a bit for each of POOLS of which one keeps it; bit 0:
                            the default one */
    unsigned kept;       /* the same, of one that was freed; 0: none does */
    bool captured, died; /* recorded in a capture; its pool died since */
    unsigned char paint;
};

static struct {
    uint64_t random;
    struct held held[BLOCKS]; /* live, and freed ones that may not be had yet */
    tarn_stream streams[STREAMS];
    uint64_t ends[STREAMS]; /* ns: of the work that is queued */
    int capturing;          /* the stream that does, or -1 */
    struct pinned_pool *pools[POOLS];
    int route; /* of POOLS: where requests go */
    uint64_t served, full;
} m;

static struct pinned_pool *choose(struct stream *stream)
{
    (void)stream;
    if (m.route)
        pinned_pool_retain(m.pools[m.route]);
    return m.route ? m.pools[m.route] : NULL;
}

static uint64_t pick(uint64_t below)
{
    return (random_next(&m.random) >> 20) % below;
}

static size_t pick_size(void)
{
    switch (pick(4)) {
    case 0:
        return 1 + pick(3000);
    case 1:
        return 1 + pick(300 * KIB);
    case 2:
        return 1 + pick(3 * MIB);
    default:
        return (1 + pick(12)) * 64 * KIB;
    }
}

static void paint(struct held *held)
{
    held->paint = (unsigned char)pick(256);
    size_t edge = held->size < 64 ? held->size : 64;
    memset(held->pointer, held->paint, edge);
    memset(held->pointer + held->size - edge, held->paint, edge);
}

static void check_paint(const struct held *held)
{
    size_t edge = held->size < 64 ? held->size : 64;
    for (size_t i = 0; i < edge; i++)
        CHECK(held->pointer[i] == held->paint && held->pointer[held->size - 1 - i] == held->paint);
}

/* What nothing uses any more may be had by anybody. */
static void forget_ended(void)
{
    uint64_t now = time_now();
    for (int i = 0; i < BLOCKS; i++)
        if (m.held[i].pointer && m.held[i].until <= now && !m.held[i].kept)
            m.held[i].pointer = NULL;
}

static bool overlap(const struct held *a, const struct held *b)
{
    return a->pointer < b->pointer + b->usable && b->pointer < a->pointer + a->usable;
}

static void allocate(void)
{
    int place = 0;
    while (place < BLOCKS && m.held[place].pointer)
        place++;
    if (place == BLOCKS)
        return;
    struct held *held = &m.held[place];
    void *pointer = NULL;
    size_t size = pick_size();
    tarn_status status = tarn_pinned_alloc(TARN_STREAM_CURRENT, size, &pointer);
    forget_ended(); /* it may have waited */
    if (status == TARN_ERROR_OUT_OF_MEMORY) {
        m.full++;
        return;
    }
    OK(status);
    *held = (struct held){.pointer = pointer, .size = size, .until = UINT64_MAX};
    OK(tarn_usable_size_get(pointer, &held->usable));
    CHECK(held->usable >= size && held->usable - size <= (size > 2048 ? size / 8 : 255));
    for (int i = 0; i < BLOCKS; i++)
        CHECK(i == place || !m.held[i].pointer || !overlap(held, &m.held[i]));
    paint(held);
    m.served++;
}

static struct held *pick_live(void)
{
    int start = (int)pick(BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        struct held *held = &m.held[(start + i) % BLOCKS];
        if (held->pointer && held->until == UINT64_MAX)
            return held;
    }
    return NULL;
}

/* The graphs of which pool decide when a captured block is free: of that of the capture, or, of
 * several, those of all. Which others use a block whose pool has died is not followed here. */
static void note_capture(struct held *held, unsigned pool)
{
    if (!held->captured)
        held->keepers = pool;
    else if (held->died)
        held->keepers = pool | 1;
    else if (held->keepers != pool)
        held->keepers = held->keepers & pool ? pool | 1 : 1;
    held->captured = true;
}

static void use(void)
{
    struct held *held = pick_live();
    int stream = (int)pick(STREAMS);
    if (!held)
        return;
    if (stream == m.capturing) {
        OK(tarn_record_stream(held->pointer, m.streams[stream]));
        note_capture(held, 1u << m.route);
        held->died = false;
        return;
    }
    uint64_t now = time_now(), length = pick(pick(8) ? 300 : 20000);
    work_on(m.streams[stream], held->pointer, held->usable, length);
    m.ends[stream] = m.ends[stream] > now + length ? m.ends[stream] : now + length;
    OK(tarn_record_stream(held->pointer + pick(held->usable), m.streams[stream]));
    held->streams |= 1u << stream;
}

static void release(struct held *held)
{
    check_paint(held);
    OK(tarn_free(held->pointer));
    held->until = 0;
    for (int i = 0; i < STREAMS; i++)
        if ((held->streams >> i & 1) && m.ends[i] > held->until)
            held->until = m.ends[i];
    held->kept = held->captured && !held->died ? held->keepers : 0;
    /* Else it may be with the driver again; and the background thread may wait there, which moves
     * the clock. */
    if (held->kept || (held->until > time_now() && !pinned_settings().background_threads))
        GIVES(tarn_free(held->pointer), TARN_ERROR_DOUBLE_FREE);
}

static void capture(void)
{
    if (m.capturing < 0) {
        m.capturing = (int)pick(STREAMS);
        OK(tarn_capture_begin(m.streams[m.capturing], TARN_CAPTURE_GLOBAL));
    } else {
        OK(tarn_capture_abort(m.streams[m.capturing]));
        m.capturing = -1;
    }
}

/* A pool dies, and its memory is everybody's. */
static void let_die(int pool)
{
    pinned_pool_release(m.pools[pool]);
    OK(pinned_pool_create(&m.pools[pool]));
    for (int i = 0; i < BLOCKS; i++) {
        struct held *held = &m.held[i];
        bool may_be_captured = held->until == UINT64_MAX && held->captured && !held->died;
        unsigned keepers = may_be_captured ? held->keepers : held->kept;
        if (!held->pointer || !(keepers >> pool & 1))
            continue;
        if (held->until == UINT64_MAX)
            held->died = true;
        else
            held->kept = 0;
    }
}

static void change(void)
{
    struct pinned_settings settings = pinned_settings();
    switch (pick(8)) {
    case 0:
        settings.use_register = pick(2);
        settings.register_threads = 1u << pick(4);
        break;
    case 1:
        settings.max_cached_size = pick(2) ? SIZE_MAX : pick(3) * MIB;
        break;
    case 2:
        settings.background_threads = pick(2);
        break;
    case 3:
        OK(tarn_pinned_limit_set(pick(3) ? 40 * MIB : 20 * MIB));
        break;
    case 4:
        if (m.capturing < 0)
            OK(tarn_pinned_trim(pick(30) * MIB));
        break;
    case 5:
        OK(tarn_pinned_forget_captures());
        for (int i = 0; i < BLOCKS; i++)
            if (m.held[i].kept & 1)
                m.held[i].kept = 0;
        break;
    case 6:
        let_die(1 + (int)pick(POOLS - 1));
        break;
    default:
        m.route = (int)pick(POOLS);
        break;
    }
    pinned_settings_set(&settings);
}

static void step(void)
{
    uint64_t kind = pick(100);
    if (kind < 35) {
        allocate();
    } else if (kind < 60) {
        struct held *held = pick_live();
        if (held)
            release(held);
    } else if (kind < 85) {
        use();
    } else if (kind < 94) {
        time_pass(pick(500));
    } else if (kind < 97) {
        capture();
    } else {
        change();
    }
    forget_ended();
}

static void report(const char *text, void *user)
{
    (void)user;
    fprintf(stderr, "%s\n", text);
}

static uint64_t seed;

static void run(void)
{
    host_start_with(1, 64 * MIB);
    OK(tarn_host_check_set(true, report, NULL));
    m.random = seed;
    m.capturing = -1;
    for (int i = 0; i < STREAMS; i++)
        m.streams[i] = lease(0);
    for (int i = 1; i < POOLS; i++)
        OK(pinned_pool_create(&m.pools[i]));
    OK(tarn_pinned_limit_set(40 * MIB));
    atomic_store(&upper_hooks.pinned_route, choose);
    for (int i = 0; i < STEPS; i++) {
        step();
        if (i % 50 == 0 && !pinned_settings().background_threads)
            pinned_check(1);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (m.held[i].pointer && m.held[i].until == UINT64_MAX)
            release(&m.held[i]);
    if (m.capturing >= 0)
        capture();
    for (int i = 1; i < POOLS; i++)
        pinned_pool_release(m.pools[i]);
    OK(tarn_pinned_forget_captures());
    time_pass(1000000);
    struct pinned_settings settings = pinned_settings();
    settings.background_threads = false; /* nothing else runs when all is looked at */
    pinned_settings_set(&settings);
    pinned_nothing_is_left(1);
    CHECK(m.served > STEPS / 10 && m.full > 0);
    OK(tarn_shutdown());
}

static void the_model_agrees(void **state)
{
    (void)state;
    for (seed = 1; seed < 25; seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        in_child(run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_model_agrees)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
