/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The picture says of every byte of a heap what it is, whatever way a block came and went, and
 * changes nothing; and the fast paths with the trace on do what those without it do. Each test is a
 * process of its own. */
#include "base/pages.h"
#include "memory/arena/arena.h"
#include "memory/heap/heap.h"
#include "memory/watch/picture.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)

static struct picture picture;

static const struct trace_place *place_of_run(const struct picture_run *run)
{
    const struct trace_place *place = trace_place_value(run->place);
    CHECK(place);
    return place;
}

/* Takes a picture, and checks what holds of each: no gap, no overlap, sums. */
static void look(void)
{
    picture_finish(&picture);
    OK(picture_take(&picture));
    uintptr_t end = 0;
    for (size_t i = 0; i < picture.runs.count; i++) {
        const struct picture_run *run = &picture_runs(&picture)[i];
        const struct picture_block *before = NULL;
        uintptr_t at = run->address;
        CHECK(run->address >= end && run->size > 0 && run->block_count > 0);
        end = run->address + run->size;
        for (size_t j = 0; j < run->block_count; j++) {
            const struct picture_block *block = &picture_blocks(&picture)[run->first_block + j];
            CHECK(block->address == at && block->size > 0 && block->requested <= block->size);
            CHECK((block->state == PICTURE_FREE) == (block->requested == 0));
            CHECK(!before || before->state != PICTURE_FREE || block->state != PICTURE_FREE ||
                  before->address + before->size == block->address);
            at += block->size;
            before = block;
        }
        CHECK(at == end);
    }
}

/* One segment of the public list, beside that of the picture that was taken last. */
static void compare(const tarn_memory_segment *shown, void *user)
{
    size_t *seen = user;
    CHECK(*seen < picture.runs.count);
    const struct picture_run *run = &picture_runs(&picture)[(*seen)++];
    const struct trace_place *place = place_of_run(run);
    CHECK(shown->size == sizeof *shown && (uintptr_t)shown->address == run->address &&
          shown->bytes == run->size);
    CHECK(shown->device == place->device && shown->stream == place->stream &&
          (uintptr_t)shown->native == place->native);
    CHECK(shown->pool.first == place->pool[0] && shown->pool.second == place->pool[1]);
    CHECK(shown->large == run->large && shown->is_virtual == run->virtual &&
          shown->part_count == run->block_count);
    for (size_t i = 0; i < shown->part_count; i++) {
        const struct picture_block *block = &picture_blocks(&picture)[run->first_block + i];
        const tarn_memory_part *part = &shown->parts[i];
        CHECK((uintptr_t)part->address == block->address && part->bytes == block->size &&
              part->requested == block->requested);
        CHECK((unsigned)part->state == block->state && part->tag == block->tag);
    }
}

static void count_segment(const tarn_memory_segment *shown, void *user)
{
    *(size_t *)user += shown->bytes > 0;
}

/* The same while nothing happens: the public list says what the picture does. */
static void look_and_list(void)
{
    size_t seen = 0;
    look();
    OK(tarn_memory_list(compare, &seen));
    CHECK(seen == picture.runs.count);
    GIVES(tarn_memory_list(NULL, &seen), TARN_ERROR_INVALID_ARGUMENT);
}

static const struct picture_run *run_at(const void *pointer)
{
    for (size_t i = 0; i < picture.runs.count; i++) {
        const struct picture_run *run = &picture_runs(&picture)[i];
        if ((uintptr_t)pointer - run->address < run->size)
            return run;
    }
    return NULL;
}

/* The block that holds an address, or NULL. */
static const struct picture_block *block_at(const void *pointer)
{
    const struct picture_run *run = run_at(pointer);
    for (size_t j = 0; run && j < run->block_count; j++) {
        const struct picture_block *block = &picture_blocks(&picture)[run->first_block + j];
        if ((uintptr_t)pointer - block->address < block->size)
            return block;
    }
    return NULL;
}

static enum picture_state state_of(const void *pointer)
{
    const struct picture_block *block = block_at(pointer);
    CHECK(block);
    return (enum picture_state)block->state;
}

static bool is_live(const void *pointer, size_t requested)
{
    const struct picture_block *block = block_at(pointer);
    return block && block->state == PICTURE_LIVE && block->address == (uintptr_t)pointer &&
           block->requested == requested && block->size == usable_size(pointer);
}

static void *take(size_t size)
{
    void *pointer = tarn_malloc(size);
    CHECK(pointer);
    return pointer;
}

/* Blocks --------------------------------------------------------------------------------------- */

static void a_device_that_was_not_used_has_nothing(void)
{
    OK(tarn_device_set(0));
    look();
    CHECK(picture.device_count == 1 && picture.runs.count == 0 && picture.pools.count == 0);
    CHECK(picture.devices[0].total == 64 * MIB && picture.devices[0].limit == SIZE_MAX);
    CHECK(picture.devices[0].reserved == 0 && strlen(picture.devices[0].name) > 0);
}

static void blocks_of_all_sizes(void)
{
    static const size_t sizes[] = {1, 511, 512, 513, 4000, 60000, 900 * KIB, MIB, MIB + 1, 5 * MIB};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    void *pointers[COUNT];
    for (int i = 0; i < COUNT; i++)
        pointers[i] = take(sizes[i]);
    look_and_list();
    for (int i = 0; i < COUNT; i++)
        CHECK(is_live(pointers[i], sizes[i]));
    for (int i = 0; i < COUNT; i += 2)
        OK(tarn_free(pointers[i]));
    look_and_list();
    for (int i = 0; i < COUNT; i++)
        CHECK(i % 2 ? is_live(pointers[i], sizes[i]) : state_of(pointers[i]) == PICTURE_FREE);
    CHECK(picture.devices[0].reserved == (size_t)stats_of(0).reserved_bytes[0].current);
    for (int i = 1; i < COUNT; i += 2)
        OK(tarn_free(pointers[i]));
    look_and_list();
    for (size_t i = 0; i < picture.blocks.count; i++)
        CHECK(picture_blocks(&picture)[i].state == PICTURE_FREE);
    OK(tarn_device_trim(0, 0));
    look_and_list();
    CHECK(picture.runs.count == 0);
}

static void tags_and_what_was_extended(void)
{
    tarn_tag tag = 0;
    void *small = NULL, *large = NULL;
    OK(tarn_tag_intern("weights", &tag));
    tarn_alloc_options options = {
        sizeof options, TARN_CURRENT_DEVICE, TARN_STREAM_LEGACY, 0, tag, NULL, 0};
    OK(tarn_alloc(&options, 700, &small));
    OK(tarn_alloc(&options, 3 * MIB, &large));
    CHECK(tarn_extend(large, 3 * MIB + 100000) == TARN_OK);
    look_and_list();
    CHECK(block_at(small)->tag == tag && block_at(large)->tag == tag);
    CHECK(is_live(large, 3 * MIB + 100000));
    OK(tarn_free(small));
    OK(tarn_free(large));
}

static void *free_it(void *pointer)
{
    OK(tarn_free(pointer));
    return NULL;
}

static void in_a_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void frees_by_other_threads(void)
{
    void *small[200], *large = take(2 * MIB);
    for (int i = 0; i < 200; i++)
        small[i] = take(1000);
    for (int i = 0; i < 200; i += 3)
        in_a_thread(free_it, small[i]);
    in_a_thread(free_it, large);
    look(); /* this thread has not found them yet */
    CHECK(state_of(large) == PICTURE_FREE);
    for (int i = 0; i < 200; i++)
        CHECK(i % 3 ? is_live(small[i], 1000) : state_of(small[i]) == PICTURE_FREE);
    for (int i = 0; i < 200; i++)
        if (i % 3)
            OK(tarn_free(small[i]));
}

static void blocks_that_wait(void)
{
    tarn_stream other = lease(0);
    void *small = take(1000), *large = take(2 * MIB), *both[] = {small, large};
    for (int i = 0; i < 2; i++) {
        work_on(other, both[i], 1000, 1000000);
        OK(tarn_record_stream(both[i], other));
    }
    look_and_list();
    CHECK(is_live(small, 1000) && is_live(large, 2 * MIB));
    OK(tarn_free(small));
    OK(tarn_free(large));
    look_and_list();
    CHECK(state_of(small) == PICTURE_WAITING && block_at(small)->requested == 1000);
    CHECK(state_of(large) == PICTURE_WAITING && block_at(large)->requested == 2 * MIB);
    OK(tarn_stream_synchronize(other));
    OK(tarn_device_trim(0, SIZE_MAX - 1));
    OK(tarn_free(take(1500 * KIB)));
    OK(tarn_free(take(1000)));
    nothing_is_left(0);
    look_and_list();
    CHECK(picture.runs.count == 0);
}

static void streams_have_segments_of_their_own(void)
{
    tarn_stream one = lease(0), two = lease(0);
    void *first = alloc_on(one, 3000), *second = alloc_on(two, 3000);
    look_and_list();
    CHECK(run_at(first) != run_at(second));
    CHECK(place_of_run(run_at(first))->native == (uint64_t)(uintptr_t)native_of(one));
    CHECK(place_of_run(run_at(second))->native == (uint64_t)(uintptr_t)native_of(two));
    CHECK(!run_at(first)->large && run_at(first)->virtual);
    OK(tarn_free(first));
    OK(tarn_free(second));
}

/* Pools ---------------------------------------------------------------------------------------- */

static const struct picture_pool *pool_in_picture(tarn_pool *pool)
{
    tarn_pool_id id = pool_info_of(pool).id;
    const struct picture_pool *pools = picture.pools.items;
    for (size_t i = 0; i < picture.pools.count; i++)
        if (pools[i].id[0] == id.first && pools[i].id[1] == id.second)
            return &pools[i];
    return NULL;
}

struct sought {
    const void *block;
    int device;
};

static void seek(const tarn_memory_segment *segment, void *user)
{
    struct sought *sought = user;
    if ((uintptr_t)sought->block - (uintptr_t)segment->address < segment->bytes)
        sought->device = segment->device;
}

/* Its slot has a stream of another device now. */
static void memory_of_a_retired_stream_is_its_devices(void)
{
    tarn_stream gone = 0, next = 0;
    host_start_with(2, 64 * MIB);
    OK(tarn_stream_adopt(0, native_made(0), &gone));
    struct sought sought = {.block = alloc_on(gone, 3 * MIB), .device = -1};
    OK(tarn_stream_retire(gone));
    for (int i = 0; i < 64 && (uint32_t)next != (uint32_t)gone; i++)
        OK(tarn_stream_adopt(1, native_made(1), &next));
    CHECK((uint32_t)next == (uint32_t)gone);
    OK(tarn_memory_list(seek, &sought));
    CHECK(sought.device == 0);
}

static void pools_and_what_they_have(void)
{
    tarn_pool *pool = NULL;
    void *small = NULL, *large = NULL;
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 1000, &small));
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 3 * MIB, &large));
    void *elsewhere = take(1000);
    look_and_list();
    const struct picture_pool *seen = pool_in_picture(pool);
    CHECK(seen && !seen->suspended && seen->device == 0);
    CHECK(seen->allocated == usable_size(small) + usable_size(large));
    CHECK(seen->active == seen->allocated && seen->waiting == 0 && seen->reserved >= seen->active);
    CHECK(memcmp(place_of_run(run_at(small))->pool, seen->id, sizeof seen->id) == 0);
    CHECK(place_of_run(run_at(elsewhere))->pool[1] == 0);

    OK(tarn_pool_suspend(pool, true));
    look_and_list();
    CHECK(pool_in_picture(pool)->suspended && pool_in_picture(pool)->reserved == 0);
    CHECK(pool_in_picture(pool)->allocated == usable_size(small) + usable_size(large));
    OK(tarn_pool_resume(pool));
    look_and_list();
    CHECK(!pool_in_picture(pool)->suspended && is_live(small, 1000) && is_live(large, 3 * MIB));
    OK(tarn_pool_release(pool));
    OK(tarn_free(small));
    look_and_list();
    CHECK(is_live(large, 3 * MIB));
    OK(tarn_free(large));
    OK(tarn_free(elsewhere));
    nothing_is_left(0);
    look_and_list();
    CHECK(picture.pools.count == 0 && picture.runs.count == 0);
}

static void plain_segments(void)
{
    setenv("TARN_ALLOC_CONF", "segments:plain", true);
    void *small = take(1000), *middle = take(2 * MIB), *large = take(30 * MIB);
    look_and_list();
    CHECK(is_live(small, 1000) && is_live(middle, 2 * MIB) && is_live(large, 30 * MIB));
    CHECK(run_at(small)->size == 2 * MIB && !run_at(small)->large && !run_at(small)->virtual);
    CHECK(run_at(middle)->size == 20 * MIB && run_at(middle)->large);
    CHECK(run_at(large)->size == 30 * MIB && run_at(large)->block_count == 1);
    OK(tarn_free(small));
    OK(tarn_free(middle));
    OK(tarn_free(large));
}

static void debug_mode(void)
{
    setenv("TARN_DEBUG", "redzone,quarantine", true);
    unsigned char *small = take(1000), *large = take(2 * MIB);
    look();
    CHECK(state_of(small) == PICTURE_LIVE && block_at(small)->requested == 1000);
    CHECK(block_at(small)->address < (uintptr_t)small); /* its red zone is part of it */
    CHECK(state_of(large) == PICTURE_LIVE && block_at(large)->requested == 2 * MIB);
    OK(tarn_free(small));
    OK(tarn_free(large));
    look();
    CHECK(state_of(small) == PICTURE_WAITING); /* in quarantine */
}

/* With the trace ------------------------------------------------------------------------------- */

static const struct trace_record *record_of(const void *pointer)
{
    const struct picture_block *block = block_at(pointer);
    CHECK(block);
    return block->record ? &picture.trace.records[block->record - 1] : NULL;
}

static void blocks_know_their_records(void)
{
    void *before = take(1000), *before_large = take(3 * MIB);
    OK(tarn_trace_start(NULL));
    OK(tarn_region_push("here"));
    void *small = take(1000), *large = take(2 * MIB);
    OK(tarn_region_pop());
    look();
    CHECK(!record_of(before) && !record_of(before_large));
    void *both[] = {small, large};
    for (int i = 0; i < 2; i++) {
        const struct trace_record *record = record_of(both[i]);
        CHECK(record && record->address == (uintptr_t)both[i] &&
              trace_kind_of(record) == TRACE_alloc);
        CHECK(strcmp(
                  ((const struct trace_region *)intern_value(&trace_regions, record->region))->name,
                  "here") == 0);
    }
    OK(tarn_free(small));
    OK(tarn_free(before));
    CHECK(take(1000) == before || take(1000) == before);
    look();
    CHECK(record_of(before) && record_of(before)->region == 0);
}

/* What was remotely freed while the trace was on may be another block since. */
static void a_block_of_after_the_trace_is_not_taken_for_one_that_was_freed(void)
{
    void *blocks[64];
    OK(tarn_trace_start(NULL));
    for (int i = 0; i < 64; i++)
        blocks[i] = take(1000);
    for (int i = 0; i < 64; i++)
        in_a_thread(free_it, blocks[i]);
    OK(tarn_trace_stop());
    for (int i = 0; i < 64; i++)
        blocks[i] = take(900);
    look();
    for (int i = 0; i < 64; i++)
        CHECK(is_live(blocks[i], 900) && !record_of(blocks[i]));
    OK(tarn_trace_start(NULL));
    look();
    for (int i = 0; i < 64; i++)
        CHECK(is_live(blocks[i], 900) && !record_of(blocks[i]));
    for (int i = 0; i < 64; i++)
        in_a_thread(free_it, blocks[i]);
    look();
    for (int i = 0; i < 64; i++)
        CHECK(state_of(blocks[i]) == PICTURE_FREE);
}

/* A free is in the trace before its block is free: as if it were seen in between. */
static void a_free_on_its_way_is_over(void)
{
    OK(tarn_trace_start(NULL));
    void *block = take(1000), *other = take(1000);
    struct trace_copy copy;
    CHECK(trace_read(&copy));
    struct trace_record alloc = copy.records[copy.count - 2];
    CHECK(alloc.address == (uintptr_t)block);
    trace_copy_finish(&copy);
    trace_put(trace_ring_take(0), TRACE_free_remote, alloc.address, alloc.size,
              trace_place_of(&alloc), 0, 0, 0);
    look();
    CHECK(state_of(block) == PICTURE_FREE && is_live(other, 1000));
}

static void what_came_after_it_is_not_in_it(void)
{
    OK(tarn_trace_start(NULL));
    OK(tarn_free(take(1000)));
    look();
    uint64_t moment = picture.devices[0].moment;
    for (size_t i = 0; i < picture.trace.count; i++)
        CHECK(picture.trace.records[i].time <= moment);
    CHECK(picture.trace.count >= 2 && picture.trace.exact_from == 0);
}

/* Beside threads that work --------------------------------------------------------------------- */

#define WORKERS 3

static atomic_bool over;

static void *work_on_small_blocks(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed * 88172645463325252u + 1;
    void *slots[100] = {NULL};
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        void **slot = &slots[random_next(&random) % 100];
        if (*slot)
            OK(tarn_free(*slot));
        *slot = *slot ? NULL : take(1 + random_next(&random) % 3000);
    }
    for (int i = 0; i < 100; i++)
        if (slots[i])
            OK(tarn_free(slots[i]));
    return NULL;
}

struct last {
    uint64_t address;
    size_t index;
};

static int by_address_and_index(const void *a, const void *b)
{
    const struct last *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* What the trace says last of each block is what the picture has of it. */
static void check_against_trace(void)
{
    const struct trace_copy *trace = &picture.trace;
    struct last *lasts = malloc((trace->count + 1) * sizeof *lasts);
    size_t count = 0, live = 0;
    CHECK(lasts);
    for (size_t i = trace->exact_from; i < trace->count; i++) {
        enum trace_kind kind = trace_kind_of(&trace->records[i]);
        if (kind == TRACE_alloc || kind == TRACE_free || kind == TRACE_free_remote)
            lasts[count++] = (struct last){trace->records[i].address, i};
    }
    qsort(lasts, count, sizeof *lasts, by_address_and_index);
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && lasts[i + 1].address == lasts[i].address)
            continue;
        const struct trace_record *record = &trace->records[lasts[i].index];
        const struct picture_block *block = block_at((const void *)(uintptr_t)record->address);
        bool there = block && block->state == PICTURE_LIVE && block->address == record->address;
        CHECK(there == (trace_kind_of(record) == TRACE_alloc));
        CHECK(!there || block->requested == record->size);
        live += there;
    }
    CHECK(trace->exact_from == trace->count || live > 0);
    free(lasts);
}

static void pictures_while_threads_work(void)
{
    pthread_t threads[WORKERS];
    tarn_trace_options options = {.size = sizeof options, .records = 4096};
    OK(tarn_trace_start(&options));
    for (uintptr_t i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&threads[i], NULL, work_on_small_blocks, (void *)(i + 1)) == 0);
    while (stats_of(0).allocation[0].allocated < 2000)
        ;
    for (int i = 0; i < 200; i++) {
        look();
        check_against_trace();
    }
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    nothing_is_left(0);
}

/* A picture changes nothing -------------------------------------------------------------------- */

static void the_fast_paths_go_on_after_it(void)
{
    void *small = take(1000), *large = take(2 * MIB);
    OK(tarn_free(small));
    OK(tarn_free(large));
    uint64_t calls = all_calls(0);
    for (int i = 0; i < 10; i++) {
        look();
        CHECK(take(1000) == small && take(2 * MIB) == large);
        OK(tarn_free(small));
        OK(tarn_free(large));
    }
    CHECK(all_calls(0) - calls <= 10); /* memory_info */
    struct arena *arena = NULL;
    OK(arena_of(device_at(0), &arena));
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap))
        CHECK(heap->parked.parks);
    verify(0);
}

static void without_host_memory_there_is_none(void)
{
    OK(tarn_trace_start(NULL));
    void *small = take(1000), *large = take(2 * MIB);
    pages_fail(UINT64_MAX, false);
    look();
    uint64_t calls = pages_fail_calls();
    CHECK(calls >= 4);
    for (uint64_t n = 1; n <= calls; n++) {
        picture_finish(&picture);
        pages_fail(n, false);
        tarn_status status = picture_take(&picture);
        CHECK(pages_fail_hits() == 1);
        pages_fail(0, false);
        CHECK(!status || status == TARN_ERROR_OUT_OF_HOST_MEMORY);
        CHECK(!status || strlen(tarn_last_error()) > 0);
        pages_fail(n, false);
        size_t shown = 0;
        status = tarn_memory_list(count_segment, &shown);
        pages_fail(0, false);
        CHECK(status == (shown ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY));
        verify(0);
        CHECK(take(1000) != small && usable_size(large) >= 2 * MIB);
    }
    look();
    CHECK(is_live(small, 1000) && is_live(large, 2 * MIB));
}

static void has_its_stream(const tarn_memory_segment *segment, void *user)
{
    CHECK(segment->stream);
    ++*(size_t *)user;
}

/* The first list makes the record of where a segment belongs. */
static void a_segment_of_a_short_list_is_not_of_another_device(void)
{
    unsigned refusals = 0;
    void *block = take(1000);
    for (uint64_t n = 1, hits = 1; hits; n++) {
        size_t shown = 0;
        pages_fail(n, false);
        tarn_status status = tarn_memory_list(has_its_stream, &shown);
        hits = pages_fail_hits();
        pages_fail(0, false);
        CHECK(status == (hits ? TARN_ERROR_OUT_OF_HOST_MEMORY : TARN_OK) && shown == !hits);
        refusals += status != TARN_OK;
    }
    CHECK(refusals >= 4);
    OK(tarn_free(block));
}

/* The same program with and without the trace -------------------------------------------------- */

#define STEPS 20000
#define SLOTS 64

static struct {
    const char *trace;
    uint64_t *sums; /* shared with the children */
    int which;
    bool stacks; /* they take the way of the lock, by which small blocks go to other slots */
} compared;

static void add(uint64_t value)
{
    uint64_t *sum = &compared.sums[compared.which];
    *sum = (*sum ^ value) * 0x100000001b3u;
}

static void a_program(void)
{
    uint64_t random = 88172645463325252u;
    unsigned char *slots[SLOTS] = {NULL}, *first;
    if (compared.trace)
        setenv("TARN_TRACE", compared.trace, true);
    tarn_stream streams[] = {TARN_STREAM_LEGACY, lease(0)};
    first = take(100);
    for (int i = 0; i < STEPS; i++) {
        unsigned char **slot = &slots[random_next(&random) % SLOTS];
        size_t size = 1 + random_next(&random) % (random_next(&random) % 8 ? 5000 : 3 * MIB);
        void *pointer = NULL;
        if (*slot) {
            OK(tarn_free(*slot));
            *slot = NULL;
            continue;
        }
        tarn_status status = tarn_alloc_on(streams[random_next(&random) % 2], size, &pointer);
        CHECK(!status || status == TARN_ERROR_OUT_OF_MEMORY);
        *slot = pointer;
        if (!compared.stacks)
            add(pointer ? (uint64_t)(*slot - first) : 1);
    }
    tarn_stats stats = stats_of(0);
    add((uint64_t)stats.allocated_bytes[0].allocated);
    add((uint64_t)stats.reserved_bytes[0].peak);
    add((uint64_t)stats.allocation[0].allocated);
    add(all_calls(0));
    verify(0);
    CHECK(trace_is_on() == (compared.trace != NULL));
    CHECK(compared.sums[compared.which]);
}

static void test_the_trace_changes_nothing(void **state)
{
    static const struct {
        const char *words;
        bool stacks;
    } traces[] = {
        {NULL, false},          {"on", false},         {"records=1", false},        {NULL, true},
        {"stacks=alloc", true}, {"stacks=none", true}, {"stacks=all,regions", true}};
    enum { COUNT = sizeof traces / sizeof *traces };
    (void)state;
    compared.sums = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(compared.sums, MAP_FAILED);
    for (int i = 0; i < COUNT; i++) {
        compared.which = i;
        compared.trace = traces[i].words;
        compared.stacks = traces[i].stacks;
        compared.sums[i] = 1;
        in_child(a_program);
        assert_int_equal(compared.sums[i], compared.sums[compared.stacks ? 3 : 0]);
    }
}

#define TEST_LIST(X)                                                  \
    X(a_device_that_was_not_used_has_nothing)                         \
    X(blocks_of_all_sizes)                                            \
    X(tags_and_what_was_extended)                                     \
    X(frees_by_other_threads)                                         \
    X(blocks_that_wait)                                               \
    X(streams_have_segments_of_their_own)                             \
    X(memory_of_a_retired_stream_is_its_devices)                      \
    X(pools_and_what_they_have)                                       \
    X(plain_segments)                                                 \
    X(debug_mode)                                                     \
    X(blocks_know_their_records)                                      \
    X(a_block_of_after_the_trace_is_not_taken_for_one_that_was_freed) \
    X(a_free_on_its_way_is_over)                                      \
    X(what_came_after_it_is_not_in_it)                                \
    X(pictures_while_threads_work)                                    \
    X(the_fast_paths_go_on_after_it)                                  \
    X(without_host_memory_there_is_none)                              \
    X(a_segment_of_a_short_list_is_not_of_another_device)

#define TEST(function)                        \
    static void test_##function(void **state) \
    {                                         \
        (void)state;                          \
        in_child(function);                   \
    }
TEST_LIST(TEST)

int main(void)
{
#define X(function) cmocka_unit_test(test_##function),
    const struct CMUnitTest tests[] = {TEST_LIST(X)
                                           cmocka_unit_test(test_the_trace_changes_nothing)};
#undef X
    unsetenv("TARN_TRACE");
    setenv("TARN_DRIVER", "host", true); /* a machine may have another */
    setenv("TARN_HOST_DEVICES", "1", true);
    setenv("TARN_HOST_MEMORY", "64M", true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
