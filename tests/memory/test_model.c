/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random operations on two devices and four streams each, against a model in stream order.
 *
 * The model knows every live block, every piece of queued work with the time at which it ends, and which stream is
 * ordered after which (a vector clock a stream). A block that is handed out must not touch a live block, and must carry no
 * unfinished work of an earlier owner that its stream is not ordered after. Live blocks hold a pattern at both ends, which
 * must be there when they are freed. Streams capture now and then, known to tarn or not: what is queued on them is recorded, the blocks
 * that it uses are kept until the graph has been launched some times, and each capture must give its graph. After every few steps the heaps are walked and the counters compared.
 *
 * TARN_SEED chooses the sequence, TARN_MODEL_STEPS its length; a failure prints the seed and the step. */
#include "base/pages.h"
#include "device/capture.h"
#include "memory/verify.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <unistd.h>

#include <cmocka.h>

#define DEVICES 2
#define STREAMS 4 /* a device */
#define ALL_STREAMS (DEVICES * STREAMS)
#define BLOCKS 400 /* the most that are live at once */
#define GHOSTS 4096
#define EVENTS 6
#define MEMORY ((size_t)192 << 20) /* bytes a device: small enough to run full */

struct work {
    int stream;
    uint64_t number, end; /* in its stream, from 1; ns */
};

#define HELD 6 /* the most blocks that a capture uses */
#define WORKS 6
struct block {
    unsigned char *pointer;
    size_t size, usable;
    int stream;
    tarn_tag tag;
    unsigned char pattern;
    struct work works[WORKS]; /* the last on each stream that used it */
    int work_count;
    int held; /* captures and graphs that use it */
};

enum capture_kind { NO_CAPTURE, BY_TARN, ANNOUNCED, UNKNOWN, CAPTURE_KINDS };

/* Memory that was freed while work was queued on it. */
struct ghost {
    uintptr_t start, end;
    struct work work;
};

struct stream_model {
    tarn_stream handle;
    void *native;
    int device;
    uint64_t number, end;        /* of its last work */
    uint64_t after[ALL_STREAMS]; /* it is ordered after these works of the others */
    enum capture_kind capture;   /* that is open on it */
    unsigned char *held[HELD];   /* the blocks that it uses */
    int held_count;
};

struct event_model {
    tarn_event *event;
    int device;
    bool recorded;
    uint64_t end;
    uint64_t after[ALL_STREAMS];
};

static struct {
    uint64_t seed, random, step;
    struct stream_model streams[ALL_STREAMS];
    struct event_model events[EVENTS];
    struct block blocks[BLOCKS];
    int block_count;
    struct ghost ghosts[GHOSTS];
    int ghost_count;
    bool injecting;
    uint64_t allocations, failures, outs, injected, launches;
} m;

static uint64_t next_random(void)
{
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return m.random;
}

static uint64_t below(uint64_t n)
{
    return next_random() % n;
}

#define MUST(condition, ...)                                               \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("seed %" PRIu64 " step %" PRIu64 ": ", m.seed, m.step); \
            printf(__VA_ARGS__);                                           \
            printf(" (last error: %s)\n", tarn_last_error());              \
            fail();                                                        \
        }                                                                  \
    } while (0)

static uint64_t now(void)
{
    uint64_t time = 0;
    MUST(tarn_host_time(&time) == TARN_OK, "no time");
    return time;
}

/* Queues work of `duration` on a stream and gives it. */
static struct work queue_work(int stream, const void *address, size_t size, uint64_t duration)
{
    struct stream_model *s = &m.streams[stream];
    MUST(tarn_host_work(s->device, s->native, address, size, duration) == TARN_OK, "work refused");
    uint64_t end = now() + duration;
    s->end = end > s->end ? end : s->end;
    s->after[stream] = ++s->number;
    return (struct work){stream, s->number, s->end};
}

/* Orders what comes on `to` after what is queued on `from`: a program does so before a second stream uses a block. */
static void order_after(int to, int from)
{
    struct stream_model *t = &m.streams[to], *f = &m.streams[from];
    static tarn_event *event[DEVICES];
    if (!event[f->device])
        MUST(tarn_event_create(f->device, &event[f->device]) == TARN_OK, "event");
    MUST(tarn_event_record(event[f->device], f->handle) == TARN_OK, "record");
    MUST(tarn_stream_wait(t->handle, event[f->device]) == TARN_OK, "wait");
    for (int i = 0; i < ALL_STREAMS; i++)
        if (f->after[i] > t->after[i])
            t->after[i] = f->after[i];
    t->end = f->end > t->end ? f->end : t->end;
}

static void block_used(struct block *block, struct work work)
{
    for (int i = 0; i < block->work_count; i++) {
        if (block->works[i].stream == work.stream) {
            block->works[i] = work;
            return;
        }
    }
    if (block->work_count < WORKS)
        block->works[block->work_count++] = work;
}

/* May a block on `stream` be given memory with this work on it? */
static bool is_ordered(int stream, const struct work *work)
{
    return work->end <= now() || work->number <= m.streams[stream].after[work->stream];
}

static void check_new(const struct block *block)
{
    uintptr_t start = (uintptr_t)block->pointer, end = start + block->usable;
    for (int i = 0; i < m.block_count; i++) {
        uintptr_t other = (uintptr_t)m.blocks[i].pointer;
        MUST(end <= other || other + m.blocks[i].usable <= start, "a new block at %p overlaps a live one at %p",
             (void *)start, (void *)other);
    }
    for (int i = 0; i < m.ghost_count;) {
        struct ghost *ghost = &m.ghosts[i];
        if (ghost->work.end <= now()) {
            *ghost = m.ghosts[--m.ghost_count];
            continue;
        }
        bool apart = end <= ghost->start || ghost->end <= start;
        MUST(apart || is_ordered(block->stream, &ghost->work),
             "a block on stream %d was given memory at %p on which work %" PRIu64 " of stream %d is unfinished",
             block->stream, (void *)start, ghost->work.number, ghost->work.stream);
        i++;
    }
}

/* Addresses alone do not show that memory moved: the work on old memory is also kept by its physical place. */
static uint64_t physical(const void *address)
{
    tarn_host_extent extent;
    MUST(tarn_host_extent_get(m.streams[0].device, address, 1, &extent) == TARN_OK ||
             tarn_host_extent_get(m.streams[STREAMS].device, address, 1, &extent) == TARN_OK,
         "%p is not mapped", address);
    MUST(extent.accessible, "%p has no access", address);
    return extent.piece << 34 | extent.offset;
}

static size_t random_size(void)
{
    switch (below(8)) {
    case 0:
        return 1 + below(2048);
    case 1:
    case 2:
        return 1 + below(100000);
    case 3:
    case 4:
        return 1 + below(1500000);
    case 5:
    case 6:
        return 1 + below(12000000);
    default:
        return 1 + below(60000000);
    }
}

static void paint(struct block *block)
{
    block->pointer[0] = block->pattern;
    block->pointer[block->size / 2] = block->pattern;
    block->pointer[block->size - 1] = block->pattern;
}

static void check_paint(const struct block *block)
{
    MUST(block->pointer[0] == block->pattern && block->pointer[block->size / 2] == block->pattern &&
             block->pointer[block->size - 1] == block->pattern,
         "the contents of the block at %p have changed", (void *)block->pointer);
}

static bool may_fail(tarn_status status)
{
    if (status == TARN_ERROR_OUT_OF_MEMORY) {
        m.outs++;
        return true;
    }
    if (status && m.injecting) {
        m.injected++;
        return true;
    }
    return false;
}

static void do_alloc(void)
{
    if (m.block_count == BLOCKS)
        return;
    int stream = (int)below(ALL_STREAMS);
    struct block block = {.stream = stream, .size = random_size(), .pattern = (unsigned char)next_random()};
    void *pointer = (void *)&block;
    tarn_status status;
    size_t alignment = below(8) ? 0 : (size_t)1 << below(22);
    if (alignment || below(4) == 0) {
        tarn_alloc_options options = {sizeof options, TARN_CURRENT_DEVICE, m.streams[stream].handle, alignment, 0};
        status = tarn_alloc(&options, block.size, &pointer);
    } else {
        status = tarn_alloc_on(m.streams[stream].handle, block.size, &pointer);
    }
    if (status) {
        MUST(may_fail(status), "an allocation of %zu bytes failed: %s", block.size, tarn_status_name(status));
        MUST(pointer == (void *)&block, "a failed allocation wrote its result");
        return;
    }
    m.allocations++;
    block.pointer = pointer;
    MUST((uintptr_t)pointer % (alignment > 512 ? alignment : 512) == 0, "%p is not aligned to %zu", pointer, alignment);
    MUST(tarn_usable_size(pointer, &block.usable) == TARN_OK && block.usable >= block.size, "usable size");
    check_new(&block);
    (void)physical(block.pointer);
    (void)physical(block.pointer + block.size - 1);
    paint(&block);
    m.blocks[m.block_count++] = block;
}

static bool captures(int stream)
{
    return m.streams[stream].capture != NO_CAPTURE;
}

/* Work on a stream that captures: recorded, and the block kept. */
static void use_in_capture(struct block *block)
{
    struct stream_model *s = &m.streams[block->stream];
    if (s->held_count == HELD)
        return;
    MUST(tarn_host_work(s->device, s->native, block->pointer, block->size, below(2000)) == TARN_OK, "work refused");
    s->held[s->held_count++] = block->pointer;
    block->held++;
}

static void do_use(void)
{
    if (m.block_count == 0)
        return;
    struct block *block = &m.blocks[below((uint64_t)m.block_count)];
    int stream = block->stream;
    bool elsewhere = below(3) == 0;
    if (elsewhere)
        stream = (int)(block->stream / STREAMS * STREAMS + (int)below(STREAMS));
    if (elsewhere && (captures(stream) || captures(block->stream))) {
        /* The free of the block must cope with that stream. */
        tarn_status status = tarn_record_stream(block->pointer, m.streams[stream].handle);
        MUST(status == TARN_OK || may_fail(status), "record_stream: %s", tarn_status_name(status));
        return;
    }
    if (captures(stream)) {
        use_in_capture(block);
        return;
    }
    if (elsewhere) {
        order_after(stream, block->stream);
        void *inside = block->pointer + below(block->size);
        tarn_status status = tarn_record_stream(inside, m.streams[stream].handle);
        if (status) {
            MUST(may_fail(status), "record_stream: %s", tarn_status_name(status));
            return;
        }
    }
    block_used(block, queue_work(stream, block->pointer, block->size, below(2000)));
}

static void forget(int index, int also_after_stream, const struct event_model *event)
{
    struct block *block = &m.blocks[index];
    (void)also_after_stream;
    (void)event;
    for (int i = 0; i < block->work_count; i++) {
        if (block->works[i].end <= now() || m.ghost_count == GHOSTS)
            continue;
        m.ghosts[m.ghost_count++] =
            (struct ghost){(uintptr_t)block->pointer, (uintptr_t)block->pointer + block->usable, block->works[i]};
    }
    m.blocks[index] = m.blocks[--m.block_count];
}

static void free_block(int index)
{
    struct block *block = &m.blocks[index];
    check_paint(block);
    tarn_status status;
    int kind = (int)below(4);
    int stream = block->stream / STREAMS * STREAMS + (int)below(STREAMS);
    if (kind == 0 && (captures(stream) || captures(block->stream))) {
        status = tarn_free_on(block->pointer, m.streams[stream].handle);
    } else if (kind == 0) { /* ordered on another stream of the device, which used it */
        order_after(stream, block->stream);
        block_used(block, queue_work(stream, block->pointer, block->size, below(2000)));
        status = tarn_free_on(block->pointer, m.streams[stream].handle);
    } else if (kind == 1) {
        struct event_model *event = &m.events[below(EVENTS)];
        status = tarn_free_after(block->pointer, event->event);
        if (!status && event->recorded && event->end > now() && m.ghost_count < GHOSTS) {
            /* nothing may have the memory before the event, wherever it was recorded: a work on a stream of its own that
             * nobody is ordered after */
            m.ghosts[m.ghost_count++] = (struct ghost){(uintptr_t)block->pointer,
                                                       (uintptr_t)block->pointer + block->usable,
                                                       {block->stream, UINT64_MAX, event->end}};
        }
    } else {
        status = tarn_free(block->pointer);
    }
    if (status) {
        MUST(may_fail(status), "a free failed: %s", tarn_status_name(status));
        check_paint(block);
        return;
    }
    unsigned char *pointer = block->pointer;
    forget(index, 0, NULL);
    if (below(50) == 0) {
        status = tarn_free(pointer);
        MUST(status == TARN_ERROR_DOUBLE_FREE, "a double free gave %s", tarn_status_name(status));
    }
}

static void do_free(void)
{
    if (m.block_count == 0)
        return;
    int index = (int)below((uint64_t)m.block_count);
    if (!m.blocks[index].held)
        free_block(index);
}

static void do_extend(void)
{
    if (m.block_count == 0)
        return;
    struct block *block = &m.blocks[below((uint64_t)m.block_count)];
    size_t size = block->size + below(200000);
    tarn_status status = tarn_extend(block->pointer, size);
    if (status == TARN_ERROR_NO_ROOM)
        return;
    MUST(status == TARN_OK || may_fail(status), "extend: %s", tarn_status_name(status));
    if (status)
        return;
    struct block grown = *block;
    grown.size = size;
    MUST(tarn_usable_size(grown.pointer, &grown.usable) == TARN_OK && grown.usable >= size, "extended size");
    int index = (int)(block - m.blocks);
    m.blocks[index] = m.blocks[--m.block_count];
    check_new(&grown);
    paint(&grown);
    m.blocks[m.block_count++] = grown;
}

static void do_event(void)
{
    struct event_model *event = &m.events[below(EVENTS)];
    int stream = event->device * STREAMS + (int)below(STREAMS);
    struct stream_model *s = &m.streams[stream];
    if (below(2)) {
        if (captures(stream)) /* it would be captured, which tests/device looks at */
            return;
        tarn_status status = tarn_event_record(event->event, s->handle);
        MUST(status == TARN_OK || may_fail(status), "record: %s", tarn_status_name(status));
        if (status)
            return;
        event->recorded = true;
        event->end = s->end;
        memcpy(event->after, s->after, sizeof event->after);
        return;
    }
    stream = (int)below(ALL_STREAMS);
    s = &m.streams[stream];
    tarn_status status = tarn_stream_wait(s->handle, event->event);
    if (captures(stream) && event->recorded) {
        MUST(status == TARN_ERROR_CAPTURE || may_fail(status), "wait in a capture: %s", tarn_status_name(status));
        return;
    }
    MUST(status == TARN_OK || may_fail(status), "wait: %s", tarn_status_name(status));
    if (status || !event->recorded)
        return;
    for (int i = 0; i < ALL_STREAMS; i++)
        if (event->after[i] > s->after[i])
            s->after[i] = event->after[i];
    s->end = event->end > s->end ? event->end : s->end;
}

static void capture_begin(int stream)
{
    struct stream_model *s = &m.streams[stream];
    s->capture = (enum capture_kind)(1 + below(CAPTURE_KINDS - 1));
    int mode = (int)below(3);
    if (s->capture == BY_TARN)
        MUST(tarn_capture_begin(s->handle, (tarn_capture_mode)mode) == TARN_OK, "begin");
    if (s->capture == ANNOUNCED)
        MUST(tarn_capture_announce(s->handle) == TARN_OK, "announce");
    if (s->capture != BY_TARN)
        MUST(driver->capture_begin(s->device, s->native, (enum driver_capture_mode)mode) == TARN_OK, "begin");
}

static void *capture_end(int stream)
{
    struct stream_model *s = &m.streams[stream];
    void *graph = NULL;
    if (s->capture == BY_TARN)
        MUST(tarn_capture_end(s->handle, &graph) == TARN_OK, "the capture of stream %d was lost", stream);
    else
        MUST(driver->capture_end(s->device, s->native, &graph) == TARN_OK, "the capture of stream %d was lost", stream);
    if (s->capture == ANNOUNCED)
        MUST(tarn_capture_end(s->handle, NULL) == TARN_OK, "end");
    s->capture = NO_CAPTURE;
    return graph;
}

static struct block *block_at(const unsigned char *pointer)
{
    struct block *block = m.blocks;
    while (block->pointer != pointer)
        block++;
    return block;
}

/* Launches what stream `from` captured: work on each block that it uses, ordered after that block's own. */
static void launch(void *graph, int from, int stream)
{
    struct stream_model *f = &m.streams[from], *s = &m.streams[stream];
    for (int i = 0; i < f->held_count; i++) {
        struct block *block = block_at(f->held[i]);
        order_after(stream, block->stream);
        MUST(tarn_record_stream(block->pointer, s->handle) == TARN_OK, "record_stream");
    }
    MUST(tarn_host_graph_launch(s->device, graph, s->native) == TARN_OK, "launch");
    m.launches++;
    for (int i = 0; i < f->held_count; i++)
        block_used(block_at(f->held[i]), queue_work(stream, NULL, 0, 2000)); /* no node takes longer */
}

static void capture_over(int stream)
{
    struct stream_model *s = &m.streams[stream];
    void *graph = capture_end(stream);
    for (uint64_t times = below(3); times > 0; times--) {
        int on = stream / STREAMS * STREAMS + (int)below(STREAMS);
        if (!captures(on))
            launch(graph, stream, on);
    }
    for (int i = 0; i < s->held_count; i++)
        block_at(s->held[i])->held--;
    s->held_count = 0;
    MUST(tarn_host_graph_destroy(graph) == TARN_OK, "graph");
}

static void do_capture(void)
{
    int stream = (int)below(ALL_STREAMS);
    if (captures(stream))
        capture_over(stream);
    else if (below(3) == 0)
        capture_begin(stream);
}

static void check_counters(void)
{
    for (int device = 0; device < DEVICES; device++) {
        int64_t blocks = 0, requested = 0, usable = 0;
        for (int i = 0; i < m.block_count; i++) {
            if (m.blocks[i].stream / STREAMS != device)
                continue;
            blocks++;
            requested += (int64_t)m.blocks[i].size;
            usable += (int64_t)m.blocks[i].usable;
        }
        tarn_stats stats = {.size = sizeof stats};
        tarn_host_ledger ledger = {.size = sizeof ledger};
        MUST(tarn_stats_get(device, &stats) == TARN_OK && tarn_host_ledger_get(device, &ledger) == TARN_OK, "stats");
        MUST(stats.allocation[0].current == blocks, "%" PRId64 " blocks counted, %" PRId64 " live",
             stats.allocation[0].current, blocks);
        MUST(stats.requested_bytes[0].current == requested, "requested bytes: counted %" PRId64 ", are %" PRId64,
             stats.requested_bytes[0].current, requested);
        MUST(stats.allocated_bytes[0].current == usable, "allocated bytes");
        MUST(stats.active_bytes[0].current >= usable, "active bytes");
        MUST(stats.reserved_bytes[0].current == (int64_t)ledger.created,
             "reserved: %" PRId64 ", the driver says %" PRIu64, stats.reserved_bytes[0].current, ledger.created);
        MUST(ledger.reports == 0, "the checker reported");
        struct arena *arena = NULL;
        MUST(arena_of(device_at(device), &arena) == TARN_OK && arena_verify(arena) == TARN_OK, "broken");
    }
}

static void inject(void)
{
    m.injecting = true;
    if (below(2))
        MUST(tarn_host_fail(below(3) ? -1 : (int)below((uint64_t)tarn_host_call_kinds()), 1 + below(6), below(3) == 0,
                            below(2) ? TARN_ERROR_DRIVER : TARN_ERROR_OUT_OF_MEMORY) == TARN_OK,
             "fail");
    else
        pages_fail(1 + below(6), below(3) == 0);
}

static void inject_end(void)
{
    MUST(tarn_host_fail(-1, 0, false, TARN_OK) == TARN_OK, "fail");
    pages_fail(0, false);
    m.injecting = false;
}

static void step(void)
{
    bool injecting = below(10) == 0;
    uint64_t choice = below(100);
    /* What the test itself asks of the host device must not fail: only calls of tarn's run under injection. */
    if (injecting && (choice < 60))
        inject();
    if (choice < 30)
        do_alloc();
    else if (choice < 34)
        do_extend();
    else if (choice < 36) {
        int device = (int)below(DEVICES);
        tarn_status status = tarn_trim(device, below(2) ? 0 : below(MEMORY));
        bool barred = captures_open(device_at(device));
        MUST(barred ? status == TARN_ERROR_CAPTURE : status == TARN_OK || may_fail(status), "trim: %s",
             tarn_status_name(status));
    } else if (choice < 60) {
        if (m.injecting)
            inject_end();
        do_free();
    } else if (choice < 80)
        do_use();
    else if (choice < 86)
        do_event();
    else if (choice < 88)
        do_capture();
    else if (choice < 98)
        MUST(tarn_host_advance(now() + below(1000)) == TARN_OK, "advance");
    else if (choice < 99)
        MUST(tarn_limit_set((int)below(DEVICES), below(2) ? SIZE_MAX : below(MEMORY)) == TARN_OK, "limit");
    else
        while (m.block_count > 10 && below(20))
            do_free();
    if (m.injecting)
        inject_end();
}

static void set_up(void)
{
    for (int i = 0; i < ALL_STREAMS; i++) {
        struct stream_model *s = &m.streams[i];
        s->device = i / STREAMS;
        MUST(tarn_stream_lease(s->device, -(i % 2), &s->handle) == TARN_OK, "lease");
        MUST(tarn_stream_native(s->handle, &s->native) == TARN_OK, "native");
    }
    for (int i = 0; i < EVENTS; i++) {
        m.events[i].device = i % DEVICES;
        MUST(tarn_event_create(i % DEVICES, &m.events[i].event) == TARN_OK, "event");
    }
}

static void run(uint64_t seed, uint64_t steps)
{
    m.seed = seed;
    m.random = seed * 0x9e3779b97f4a7c15u + 1;
    for (m.step = 0; m.step < steps; m.step++) {
        step();
        if (m.step % 16 == 0 || steps < 2000)
            check_counters();
    }
    for (int i = 0; i < ALL_STREAMS; i++)
        if (captures(i))
            capture_over(i);
    while (m.block_count > 0)
        do_free();
    for (int device = 0; device < DEVICES; device++) {
        MUST(tarn_limit_set(device, SIZE_MAX) == TARN_OK, "limit");
        MUST(tarn_trim(device, 0) == TARN_OK, "trim");
        tarn_host_ledger ledger = {.size = sizeof ledger};
        MUST(tarn_host_ledger_get(device, &ledger) == TARN_OK, "ledger");
        MUST(ledger.created == 0 && ledger.mapped == 0,
             "%" PRIu64 " bytes are left after everything was freed and trimmed", ledger.created);
    }
    check_counters();
    m.ghost_count = 0;
}

static void random_operations_keep_the_order_of_streams(void **state)
{
    (void)state;
    const char *seed = getenv("TARN_SEED"), *steps = getenv("TARN_MODEL_STEPS");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1, count = steps ? strtoull(steps, NULL, 0) : 20000;
    int rounds = seed ? 1 : 3;
    for (int i = 0; i < rounds; i++)
        run(first + (uint64_t)i, count);
    printf("%" PRIu64 " allocations, %" PRIu64 " out of memory, %" PRIu64 " injected failures, %" PRIu64 " launches\n",
           m.allocations, m.outs, m.injected, m.launches);
    assert_true(m.allocations > count / 20);
    assert_true(seed || (m.outs > 0 && m.injected > 0 && m.launches > 0));
}

static void print_report(void *argument, const char *text)
{
    (void)argument;
    printf("the checker: %s\n", text);
}

/* Once with the checker watching, which takes every block past the caches, and once, in a child, without. */
int main(void)
{
    tarn_host_config config = {.size = sizeof config, .devices = DEVICES, .memory = MEMORY};
    fflush(stdout);
    pid_t child = fork();
    if (child < 0 || tarn_host_configure(&config))
        return 1;
    if (child != 0 && tarn_host_check(true, print_report, NULL))
        return 1;
    set_up();
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_operations_keep_the_order_of_streams)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    if (child == 0)
        return failures != 0;
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        failures++;
    return failures != 0;
}
