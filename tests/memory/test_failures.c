/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure that there can be, one at a time: each scenario runs once clean, while its driver
 * calls and the library's own allocations are counted; then once for each of them, with that one
 * failing, and with it and all later ones failing. A call that fails must leave its results, the
 * live blocks, the heaps and the counters as they should be; and once nothing fails any more the
 * same scenario must succeed and leave nothing behind. */
#include "support/failures.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (96 * MIB)
#define BLOCKS 256
#define PAINTED 64 /* bytes at each end of a block */

struct block {
    unsigned char *pointer;
    size_t size;
    unsigned char paint;
};

static struct {
    struct block blocks[BLOCKS];
    int count;
    tarn_stream streams[3]; /* leased before */
    void *natives[4];
    tarn_stream adopted, leased; /* 0: none */
    tarn_event *event;
} t;

static bool asynchronous; /* memory is from the driver's own pools */

static void paint(const struct block *block)
{
    size_t size = block->size < PAINTED ? block->size : PAINTED;
    memset(block->pointer, block->paint, size);
    memset(block->pointer + block->size - size, block->paint, size);
}

static void check_paint(const struct block *block)
{
    size_t size = block->size < PAINTED ? block->size : PAINTED;
    for (size_t i = 0; i < size; i++)
        CHECK(block->pointer[i] == block->paint &&
              block->pointer[block->size - 1 - i] == block->paint);
}

/* Allocates a block that lives until free_block(); its index, or -1. */
static int allocate(int stream, size_t size, bool may_be_full)
{
    void *pointer = &t;
    if (!went_well(tarn_alloc_on(t.streams[stream], size, &pointer), may_be_full,
                   "tarn_alloc_on")) {
        CHECK(pointer == &t);
        return -1;
    }
    CHECK(t.count < BLOCKS);
    t.blocks[t.count] = (struct block){pointer, size, (unsigned char)(size % 250 + 1)};
    paint(&t.blocks[t.count]);
    return t.count++;
}

static void forget(int index)
{
    t.blocks[index] = t.blocks[--t.count];
}

/* A plain free never fails, whatever the driver does. */
static void free_block(int index)
{
    check_paint(&t.blocks[index]);
    OK(tarn_free(t.blocks[index].pointer));
    forget(index);
}

/* Queues work, which may fail for lack of host memory. */
static void use(int stream, const void *address, uint64_t ns)
{
    (void)machine->work(0, t.natives[stream], address, 1, ns);
}

/* Scenarios ------------------------------------------------------------------------------------ */

static void small_blocks(void)
{
    for (size_t i = 0; i < 120; i++)
        allocate((int)(i % 3), i * 397 + 1, false);
    for (int i = t.count - 1; i >= 0; i -= 2)
        free_block(i);
    for (size_t i = 0; i < 60; i++)
        allocate((int)(i % 2), i * 911 + 1, false);
}

static void growth_and_remapping(void)
{
    for (size_t i = 0; i < 8; i++)
        allocate(0, (i % 4 + 1) * 2 * MIB + 5000 * i, false);
    for (int i = t.count - 1; i >= 0; i -= 2)
        free_block(i);
    allocate(0, 13 * MIB, false);
    allocate(0, 500 * 1024, false);
    allocate(0, 22 * MIB, false);
    for (int i = t.count - 1; i >= 0; i -= 3)
        free_block(i);
    allocate(0, 30 * MIB, true);
    if (t.count > 0)
        (void)TRY(tarn_extend(t.blocks[0].pointer, t.blocks[0].size));
}

static void aligned_blocks(void)
{
    for (size_t alignment = 256; alignment <= TARN_MAX_ALIGNMENT; alignment *= 2) {
        void *pointer = &t;
        tarn_alloc_options options = {sizeof options, 0, t.streams[1], alignment, 0, NULL, 0};
        if (!TRY(tarn_alloc(&options, 100000, &pointer))) {
            CHECK(pointer == &t);
            continue;
        }
        CHECK((uintptr_t)pointer % alignment == 0);
        t.blocks[t.count++] = (struct block){pointer, 100000, 9};
        paint(&t.blocks[t.count - 1]);
    }
}

static void out_of_memory_beside_other_streams(void)
{
    int busy = allocate(1, 40 * MIB, true);
    if (busy >= 0) {
        use(1, t.blocks[busy].pointer, 3000);
        free_block(busy);
    }
    int idle = allocate(2, 30 * MIB, true);
    if (idle >= 0)
        free_block(idle);
    allocate(2, 10 * MIB, true);
    allocate(0, 70 * MIB, true);
    allocate(0, 50 * MIB, true); /* does not fit */
    allocate(1, 2000, true);
}

static void blocks_that_other_streams_use(void)
{
    tarn_event *event = NULL;
    if (TRY(tarn_event_create(0, &event)))
        (void)TRY(tarn_event_record(event, t.streams[2]));
    for (size_t i = 0; i < 12; i++) {
        int index = allocate(0, i % 2 ? 700 + i * 5000 : i * MIB + 1, false);
        if (index < 0)
            continue;
        struct block *block = &t.blocks[index];
        use(1, block->pointer, 1000);
        check_paint(block);
        tarn_status status;
        if (i % 3 == 0) {
            (void)TRY(tarn_record_stream(block->pointer + block->size / 2, t.streams[1]));
            (void)TRY(tarn_record_stream(block->pointer, t.streams[2]));
            status = tarn_free(block->pointer);
            OK(status);
        } else if (i % 3 == 1) {
            status = tarn_free_on(block->pointer, t.streams[1]);
        } else {
            status = event ? tarn_free_after(block->pointer, event) : TARN_ERROR_DRIVER;
        }
        if (went_well(status, false, "free"))
            forget(index);
        else
            check_paint(block);
    }
    OK(tarn_event_destroy(event));
    (void)machine->advance(time_now() + 1000);
    allocate(0, 20 * MIB, true);
}

static void trims(void)
{
    for (int i = 0; i < 4; i++)
        allocate(i % 2, (size_t)(i + 1) * 3 * MIB, false);
    for (int i = t.count - 1; i > 0; i -= 2) {
        use(1, t.blocks[i].pointer, 500);
        free_block(i);
    }
    (void)TRY(tarn_device_trim(0, 8 * MIB));
    (void)TRY(tarn_device_trim(0, 0));
}

static void streams_come_and_go(void)
{
    tarn_stream stream = 77, own = 0;
    if (TRY(tarn_stream_lease(0, 0, &stream))) {
        t.leased = stream;
        (void)TRY(tarn_stream_synchronize(stream));
    } else {
        CHECK(stream == 77);
    }
    stream = 77;
    if (!TRY(tarn_stream_shared_get(0, -1, &stream)))
        CHECK(stream == 77);
    void *pointer = NULL;
    if (TRY(tarn_alloc_on(TARN_STREAM_PER_THREAD, 100, &pointer)))
        OK(tarn_free(pointer));
    if (TRY(tarn_stream_get(0, &own)) && t.leased) {
        tarn_guard guard;
        tarn_stream now = 0;
        if (TRY(tarn_stream_guard_set(&guard, t.leased)) && !TRY(tarn_guard_restore(&guard)))
            CHECK(guard.active);
        if (guard.active)
            OK(tarn_stream_set(own));
        OK(tarn_stream_get(0, &now));
        CHECK(now == own);
    }
    if (!TRY(tarn_stream_adopt(0, t.natives[3], &t.adopted)))
        return;
    for (int i = 0; i < 3; i++) {
        if (TRY(tarn_alloc_on(t.adopted, (size_t)i * MIB + 900, &pointer))) {
            (void)machine->work(0, t.natives[3], pointer, 1, 400);
            OK(tarn_free(pointer));
        }
    }
    if (TRY(tarn_stream_retire(t.adopted)))
        t.adopted = 0;
    else
        CHECK(tarn_stream_info_get(t.adopted,
                                   &(tarn_stream_info){.size = sizeof(tarn_stream_info)}) ==
              TARN_OK); /* as it was */
    if (t.leased && TRY(tarn_stream_return(t.leased)))
        t.leased = 0;
}

static void events(void)
{
    tarn_event *event = NULL;
    if (!TRY(tarn_event_create(0, &event)))
        return;
    use(0, NULL, 1000);
    if (TRY(tarn_event_record(event, t.streams[0]))) {
        tarn_status status = tarn_event_query(event);
        CHECK(status == TARN_ERROR_NOT_READY || injecting);
    }
    (void)TRY(tarn_stream_wait(t.streams[1], event));
    (void)TRY(tarn_event_record(event, t.streams[1]));
    (void)TRY(tarn_event_synchronize(event));
    OK(tarn_event_destroy(event));
}

static void devices(void)
{
    int device = -1;
    size_t free_bytes = 0, total_bytes = 0;
    tarn_guard guard;
    (void)TRY(tarn_device_set(0));
    (void)TRY(tarn_device_adopt(&device));
    (void)TRY(tarn_device_memory_get(0, &free_bytes, &total_bytes));
    (void)TRY(tarn_device_synchronize(0));
    if (TRY(tarn_device_guard_set(&guard, 0)) && !TRY(tarn_guard_restore(&guard)))
        CHECK(guard.active);
}

/* The run -------------------------------------------------------------------------------------- */

static void check_blocks(void)
{
    int64_t requested = 0;
    for (int i = 0; i < t.count; i++) {
        check_paint(&t.blocks[i]);
        requested += (int64_t)t.blocks[i].size;
    }
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[0].current == t.count && stats.requested_bytes[0].current == requested);
}

/* What must hold after a scenario, whatever failed in it. Leaves nothing behind. */
static void settle(void)
{
    check_blocks();
    if (asynchronous)
        OK(tarn_device_synchronize(0)); /* until then the driver's pools keep what was freed */
    verify(0);
    while (t.count > 0)
        free_block(t.count - 1);
    if (t.adopted)
        OK(tarn_stream_retire(t.adopted));
    if (t.leased)
        OK(tarn_stream_return(t.leased));
    t.adopted = t.leased = 0;
    nothing_is_left(0);
}

static const struct scenario scenarios[] = {
    {"small blocks", small_blocks},
    {"growth and re-mapping", growth_and_remapping},
    {"aligned blocks", aligned_blocks},
    {"out of memory beside other streams", out_of_memory_beside_other_streams},
    {"blocks that other streams use", blocks_that_other_streams_use},
    {"trims", trims},
    {"streams come and go", streams_come_and_go},
    {"events", events},
    {"devices", devices},
};

static void lost(void)
{
    check_blocks();
    while (t.count > 0)
        free_block(t.count - 1);
    check_blocks();
}

static void set_up(void)
{
    for (int i = 0; i < 4; i++) {
        if (i < 3)
            t.streams[i] = lease(0);
        t.natives[i] = i < 3 ? native_of(t.streams[i]) : native_made(0);
    }
}

static void any_failure_leaves_what_lives_and_passes(void **state)
{
    (void)state;
    static const struct scenarios shared = {.set_up = set_up, .settle = settle, .lost = lost};
    each_failure_of(&shared, scenarios, sizeof scenarios / sizeof *scenarios);
}

/* The first use -------------------------------------------------------------------------------- */

static void use_first(void)
{
    int count = 0;
    void *pointer = &t;
    tarn_device_properties properties = {.size = sizeof properties};
    if (TRY(tarn_device_count_get(&count)))
        (void)TRY(tarn_device_properties_get(0, &properties));
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            pointer = tarn_malloc(700);
        else if (!TRY(tarn_alloc_on(i ? TARN_STREAM_PER_THREAD : TARN_STREAM_LEGACY, 3 * MIB,
                                    &pointer)))
            CHECK(pointer == &t);
        if (i == 1 && !pointer)
            (void)TRY(tarn_last_status());
        if (pointer && pointer != &t)
            OK(tarn_free(pointer));
        pointer = &t;
    }
    tarn_stream stream = 0;
    tarn_tag tag = 0;
    (void)TRY(tarn_tag_intern("first", &tag));
    if (TRY(tarn_stream_shared_get(0, 0, &stream)))
        (void)TRY(tarn_stream_set(stream));
    (void)TRY(tarn_device_trim(0, 0));
}

static void use_again(void)
{
    use_first();
    nothing_is_left(0);
    OK(tarn_shutdown());
}

static void any_failure_of_the_first_use_passes(void **state)
{
    (void)state;
    each_failure_of_once(&(struct once){.name = "first use",
                                        .run = use_first,
                                        .after = use_again,
                                        .most = machine->fail ? 150 : 400});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_failure_of_the_first_use_passes),
        cmocka_unit_test(any_failure_leaves_what_lives_and_passes),
    };
    const char *settings = getenv("TARN_ALLOC_CONF");
    asynchronous = settings && strstr(settings, "backend");
    /* Each block is whole granules there */
    host_start_with(1, asynchronous ? 16 * MEMORY : MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
