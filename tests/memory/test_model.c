/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random operations on two devices and four streams each, against a model in stream order.
 *
 * The model knows every live block, every piece of queued work with the time at which it ends, and
 * which stream is ordered after which (a vector clock a stream). A block that is handed out must
 * not touch a live block, and must carry no unfinished work of an earlier owner that its stream is
 * not ordered after. Live blocks hold a pattern at both ends, which must be there when they are
 * freed. Streams capture now and then, known to tarn or not: what is queued on them is recorded,
 * the blocks that it uses are kept until the graph has been launched some times, and each capture
 * must give its graph. Private pools come and go, with scopes, captures and graphs that count them:
 * the model knows which pool a request must be served from, that its memory is of no other, and
 * that what a graph uses stays mapped. Pools are suspended and resumed, with all that their graphs
 * write to; streams retired. After every few steps the heaps are walked and the counters compared.
 *
 * TARN_SEED chooses the sequence, TARN_MODEL_STEPS its length; a failure prints the seed and the
 * step. */
#include "memory/model/model.h"
#include "memory/plan/plan.h"
#include "memory/pressure/release.h"

#include <sys/wait.h>
#include <unistd.h>

/* Where a plan is followed, half of the requests are of sizes that it has (make_snapshots.py). */
static size_t random_size(void)
{
    if (atomic_load(&plan_now) && below(2))
        return (2 + below(16)) * (256 << 10);
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

static void do_alloc(void)
{
    if (m.block_count == BLOCKS)
        return;
    int stream = (int)below(ALL_STREAMS);
    struct block block = {.stream = stream,
                          .handle = m.streams[stream].handle,
                          .size = random_size(),
                          .pattern = (unsigned char)next_random()};
    void *pointer = (void *)&block;
    tarn_status status;
    size_t alignment = below(8) ? 0 : (size_t)1 << below(22);
    int pool = below(3) ? -1 : pool_any(m.streams[stream].device, false);
    if (pool >= 0) {
        alignment = 0;
        status =
            tarn_pool_alloc(m.pools[pool].pool, m.streams[stream].handle, block.size, &pointer);
    } else if (alignment || below(4) == 0) {
        tarn_alloc_options options = {
            sizeof options, TARN_CURRENT_DEVICE, m.streams[stream].handle, alignment, 0, NULL, 0};
        status = tarn_alloc(&options, block.size, &pointer);
    } else {
        status = tarn_alloc_on(m.streams[stream].handle, block.size, &pointer);
    }
    if (pool < 0)
        pool = pool_routed(stream);
    bool refused = pool >= 0 && m.pools[pool].state != TARN_POOL_RUNS;
    MUST(!refused || is_refused(pool, status), "a suspended pool gives a block: %s",
         tarn_status_name(status));
    if (refused)
        return;
    bool refused_captured = status == TARN_ERROR_CAPTURE && pool < 0 && memory_is_uncached &&
                            m.streams[stream].capture != NO_CAPTURE;
    if (status) {
        MUST(refused_captured || may_fail(status), "an allocation of %zu bytes failed: %s",
             block.size, tarn_status_name(status));
        MUST(pointer == (void *)&block, "a failed allocation wrote its result");
        return;
    }
    m.allocations++;
    block.pointer = pointer;
    MUST((uintptr_t)pointer % (alignment > 512 ? alignment : 512) == 0, "%p is not aligned to %zu",
         pointer, alignment);
    MUST(tarn_usable_size_get(pointer, &block.usable) == TARN_OK && block.usable >= block.size,
         "usable size");
    check_new(&block);
    check_pool(&block, pool);
    (void)physical(block.pointer);
    (void)physical(block.pointer + block.size - 1);
    paint(&block);
    m.blocks[m.block_count++] = block;
}

static void do_use(void)
{
    if (m.block_count == 0)
        return;
    struct block *block = &m.blocks[below((uint64_t)m.block_count)];
    int stream = block->stream;
    bool elsewhere = below(3) == 0;
    if (!is_usable(block))
        return;
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
    if (elsewhere || is_orphan(block)) {
        if (elsewhere)
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

static void forget(int index)
{
    struct block *block = &m.blocks[index];
    for (int i = 0; i < block->work_count; i++) {
        if (block->works[i].end <= now() || m.ghost_count == GHOSTS)
            continue;
        m.ghosts[m.ghost_count++] = (struct ghost){
            (uintptr_t)block->pointer, (uintptr_t)block->pointer + block->usable, block->works[i]};
    }
    m.blocks[index] = m.blocks[--m.block_count];
}

static void free_block(int index)
{
    struct block *block = &m.blocks[index];
    bool usable = is_usable(block);
    if (usable)
        check_paint(block);
    tarn_status status;
    int kind = (int)below(4);
    int stream = block->stream / STREAMS * STREAMS + (int)below(STREAMS);
    if (kind == 0 && (!usable || captures(stream) || captures(block->stream))) {
        status = tarn_free_on(block->pointer, m.streams[stream].handle);
    } else if (kind == 0) { /* ordered on another stream of the device, which used it */
        order_after(stream, block->stream);
        block_used(block, queue_work(stream, block->pointer, block->size, below(2000)));
        status = tarn_free_on(block->pointer, m.streams[stream].handle);
    } else if (kind == 1) {
        struct event_model *event = &m.events[below(EVENTS)];
        status = tarn_free_after(block->pointer, event->event);
        if (!status && event->recorded && event->end > now() && m.ghost_count < GHOSTS) {
            /* nothing may have the memory before the event, wherever it was recorded: a work on a
             * stream of its own that nobody is ordered after */
            m.ghosts[m.ghost_count++] = (struct ghost){(uintptr_t)block->pointer,
                                                       (uintptr_t)block->pointer + block->usable,
                                                       {block->stream, UINT64_MAX, event->end}};
        }
    } else {
        if (captures(block->stream) && usable)
            freed_in_capture(block);
        status = tarn_free(block->pointer);
    }
    if (status) {
        MUST(may_fail(status), "a free failed: %s", tarn_status_name(status));
        if (usable)
            check_paint(block);
        return;
    }
    unsigned char *pointer = block->pointer;
    forget(index);
    if (below(50) == 0) {
        status = tarn_free(pointer);
        MUST(status == TARN_ERROR_DOUBLE_FREE ||
                 (memory_is_uncached && status == TARN_ERROR_INVALID_POINTER),
             "a double free gave %s", tarn_status_name(status));
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

/* Blocks of a pool, about half of those that no capture and no graph uses. */
void free_some_of(int pool)
{
    for (int i = m.block_count - 1; i >= 0; i--)
        if (m.blocks[i].own_pool == pool && !m.blocks[i].held && below(2))
            free_block(i);
}

static void do_extend(void)
{
    if (m.block_count == 0)
        return;
    struct block *block = &m.blocks[below((uint64_t)m.block_count)];
    size_t size = block->size + below(200000);
    if (!is_usable(block))
        return;
    tarn_status status = tarn_extend(block->pointer, size);
    if (status == TARN_ERROR_NO_ROOM)
        return;
    MUST(status == TARN_OK || may_fail(status), "extend: %s", tarn_status_name(status));
    if (status)
        return;
    struct block grown = *block;
    grown.size = size;
    MUST(tarn_usable_size_get(grown.pointer, &grown.usable) == TARN_OK && grown.usable >= size,
         "extended size");
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
        MUST(status == TARN_ERROR_CAPTURE || may_fail(status), "wait in a capture: %s",
             tarn_status_name(status));
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

static tarn_host_ledger ledger_now(int device)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    MUST(tarn_host_ledger_get(device, &ledger) == TARN_OK, "ledger");
    return ledger;
}

/* A pass of the thread that gives idle memory back by itself: it records no mark and waits for
 * nothing. */
static void do_release(void)
{
    static uint64_t time, day = UINT64_C(86400000000000);
    tarn_host_ledger before[DEVICES];
    for (int device = 0; device < DEVICES; device++)
        before[device] = ledger_now(device);
    time += below(3) ? day : day / 2;
    release_pass(time);
    for (int device = 0; device < DEVICES; device++) {
        tarn_host_ledger after = ledger_now(device);
        MUST(after.waited_ns == before[device].waited_ns, "a pass waits");
        for (int kind = 0; tarn_host_call_name(kind); kind++)
            MUST(strcmp(tarn_host_call_name(kind), "event_record") != 0 ||
                     after.calls[kind] == before[device].calls[kind],
                 "a pass records an event");
    }
}

/* The stream goes and its native one comes again under another handle. */
static void do_retire(void)
{
    int stream = (int)below(DEVICES) * STREAMS + STREAMS - 1;
    struct stream_model *s = &m.streams[stream];
    if (captures(stream))
        return;
    tarn_status status = tarn_stream_retire(s->handle);
    MUST(status == TARN_OK || may_fail(status), "retire: %s", tarn_status_name(status));
    if (status)
        return;
    m.retired++;
    while ((status = tarn_stream_adopt(s->device, s->native, &s->handle)))
        MUST(may_fail(status) && m.injecting, "adopt: %s", tarn_status_name(status));
}

static void inject(void)
{
    m.injecting = true;
    if (below(2))
        MUST(tarn_host_fail_set(below(3) ? -1 : (int)below(DRIVER_CALLS), 1 + below(6),
                                below(3) == 0,
                                below(2) ? TARN_ERROR_DRIVER : TARN_ERROR_OUT_OF_MEMORY) == TARN_OK,
             "fail");
    else
        pages_fail(1 + below(6), below(3) == 0);
}

static void inject_end(void)
{
    MUST(tarn_host_fail_set(-1, 0, false, TARN_OK) == TARN_OK, "fail");
    pages_fail(0, false);
    m.injecting = false;
}

static void step(void)
{
    bool injecting = below(10) == 0;
    uint64_t choice = below(116);
    /* What the test itself asks of the host device must not fail: only calls of tarn's run under
     * injection. */
    if (injecting && (choice < 60 || choice >= 102))
        inject();
    if (choice < 30)
        do_alloc();
    else if (choice < 34)
        do_extend();
    else if (choice < 36) {
        int device = (int)below(DEVICES);
        tarn_status status = tarn_device_trim(device, below(2) ? 0 : below(MEMORY));
        bool barred = captures_open(device_at(device));
        MUST(barred ? status == TARN_ERROR_CAPTURE : status == TARN_OK || may_fail(status),
             "trim: %s", tarn_status_name(status));
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
        MUST(tarn_device_limit_set((int)below(DEVICES), below(2) ? TARN_NO_LIMIT : below(MEMORY)) ==
                 TARN_OK,
             "limit");
    else if (choice < 100)
        while (m.block_count > 10 && below(20))
            do_free();
    else if (choice < 102)
        do_graph();
    else if (choice < 107)
        do_pool();
    else if (choice < 109)
        do_scope();
    else if (choice < 111)
        do_suspend();
    else if (choice < 115)
        do_release();
    else
        do_retire();
    if (m.injecting)
        inject_end();
}

static void set_up(void)
{
    MUST(tarn_configuration_set("idle_release:86400000") == TARN_OK, "settings");
    for (int i = 0; i < ALL_STREAMS; i++) {
        struct stream_model *s = &m.streams[i];
        s->device = i / STREAMS;
        s->adopted = i % STREAMS == STREAMS - 1;
        if (s->adopted) {
            MUST(driver->stream_create(s->device, 0, false, &s->native) == TARN_OK, "stream");
            MUST(tarn_stream_adopt(s->device, s->native, &s->handle) == TARN_OK, "adopt");
            continue;
        }
        MUST(tarn_stream_lease(s->device, -(i % 2), &s->handle) == TARN_OK, "lease");
        MUST(tarn_stream_native_get(s->handle, &s->native) == TARN_OK, "native");
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
            check_all();
    }
    captures_end();
    graphs_end();
    pools_end();
    check_all();
    while (m.block_count > 0)
        do_free();
    for (int device = 0; device < DEVICES; device++) {
        MUST(tarn_device_limit_set(device, TARN_NO_LIMIT) == TARN_OK, "limit");
        /* Graphs that run hold their pools */
        MUST(tarn_device_synchronize(device) == TARN_OK, "synchronize");
        MUST(tarn_device_trim(device, 0) == TARN_OK, "trim");
        tarn_host_ledger ledger = {.size = sizeof ledger};
        MUST(tarn_host_ledger_get(device, &ledger) == TARN_OK, "ledger");
        MUST(ledger.created == 0 && ledger.mapped == 0,
             "%" PRIu64 " bytes are left after everything was freed and trimmed", ledger.created);
    }
    check_all();
    m.ghost_count = 0;
}

static void random_operations_keep_the_order_of_streams(void **state)
{
    (void)state;
    const char *seed = getenv("TARN_SEED"), *steps = getenv("TARN_MODEL_STEPS");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1,
             count = steps ? strtoull(steps, NULL, 0) : 20000;
    int rounds = seed ? 1 : 3;
    for (int i = 0; i < rounds; i++)
        run(first + (uint64_t)i, count);
    printf("seed %" PRIu64 ": %" PRIu64 " steps, %" PRIu64 " allocations, %" PRIu64
           " of them in pools and %" PRIu64 " out of spare ones, %" PRIu64
           " out of memory, %" PRIu64 " injected failures, %" PRIu64 " launches, %" PRIu64
           " suspends, %" PRIu64 " granules of graphs resumed, %" PRIu64 " retirements\n",
           first, (uint64_t)rounds * count, m.allocations, m.in_pools, m.spared, m.outs, m.injected,
           m.launches, m.suspended, m.resumed, m.retired);
    assert_true(m.allocations > count / 20);
    struct plan_counts plan = plan_counts();
    printf("%" PRIu64 " as planned, %" PRIu64 " beside the plan, %" PRIu64 " without\n",
           plan.planned, plan.beside, plan.ordinary);
    assert_true(
        !atomic_load(&plan_now) ||
        (plan_counts().planned > 20 && plan_counts().beside > 20 && plan_counts().ordinary > 20));
    assert_true(seed || (m.outs > 0 && m.injected > 0 && m.launches > 0));
    assert_true(seed ||
                (m.in_pools > 0 && m.spared > 0 &&
                 (m.suspended > 0 || !arena_if_used(0)->store.kind.pieces) && m.retired > 0));
}

static void print_report(const char *text, void *user)
{
    (void)user;
    printf("the checker: %s\n", text);
}

/* Once with the checker watching, which takes every block past the caches, and once, in a child,
 * without. */
int main(void)
{
    tarn_host_configuration config = {.size = sizeof config, .devices = DEVICES, .memory = MEMORY};
    fflush(stdout);
    pid_t child = fork();
    if (child < 0 || tarn_host_configuration_set(&config))
        return 1;
    if (child != 0 && tarn_host_check_set(true, print_report, NULL))
        return 1;
    set_up();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_keep_the_order_of_streams)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    if (child == 0)
        return failures != 0;
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        failures++;
    return failures != 0;
}
