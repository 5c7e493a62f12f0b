/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/host.h"

#include "base/status.h"
#include "driver/driver.h"
#include "memory/heap/cache.h"
#include "memory/pool/pool.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <tarn/sleep.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)
#define BLOCKS 24

static tarn_pool *pool;
static tarn_stream stream, second;
static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static size_t much; /* of one block, so that its contents travel in chunks; 0: all blocks are
                       small */

static tarn_pool_state state_of(void)
{
    return pool_info_of(pool).state;
}

#define STRIPE ((size_t)4096)
#define CHUNK (MIB / 4)

/* What a block's byte holds: other stripes, and other chunks, hold something else. */
static int stamp(int i, size_t at)
{
    return (int)((0x20 + (size_t)i + at / STRIPE + at / CHUNK) & 0xff);
}

static void fill(int i)
{
    for (size_t at = 0; at < sizes[i]; at += STRIPE)
        memset(blocks[i] + at, stamp(i, at), sizes[i] - at < STRIPE ? sizes[i] - at : STRIPE);
}

static bool is_filled(int i)
{
    unsigned char stripe[STRIPE];
    for (size_t at = 0; at < sizes[i]; at += STRIPE) {
        memset(stripe, stamp(i, at), STRIPE);
        if (memcmp(blocks[i] + at, stripe, sizes[i] - at < STRIPE ? sizes[i] - at : STRIPE) != 0)
            return false;
    }
    return true;
}

/* A pool with small and large blocks on two streams, every third of them free again, except the
 * first. */
static void begin(void)
{
    OK(tarn_pool_create(NULL, &pool));
    stream = lease(0);
    second = lease(0);
    for (int i = 0; i < BLOCKS; i++) {
        void *block = NULL;
        sizes[i] = i % 2 ? 700 + (size_t)i * 900 : (size_t)i * MIB / 8 + 70000;
        if (i == 1 && much)
            sizes[i] = much;
        OK(tarn_pool_alloc(pool, i % 3 ? stream : second, sizes[i], &block));
        blocks[i] = block;
        fill(i);
    }
    for (int i = 3; i < BLOCKS; i += 3) {
        OK(tarn_free(blocks[i]));
        blocks[i] = NULL;
    }
    OK(tarn_device_synchronize(0));
}

static void check_contents(void)
{
    for (int i = 0; i < BLOCKS; i++)
        CHECK(!blocks[i] || is_filled(i));
}

static void end(void)
{
    for (int i = 0; i < BLOCKS; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(second));
}

/* How work on a block that was freed, and waits, is hidden from code that asks whether it has
 * ended. */
enum { NO_ANSWER, NO_MARK, UNKNOWN_CAPTURE, HIDINGS };

/* A suspend takes no memory from under work, whatever hides it: it waits for that, or fails and the
 * pool runs. */
static void what_freed_blocks_wait_for_is_waited_for(void **state)
{
    (void)state;
    static const size_t of_sizes[] = {1000, 5 * MIB};
    begin();
    tarn_stream user = lease(0);
    for (int i = 0; i < 2 * HIDINGS; i++) {
        void *block = NULL, *graph = NULL;
        int hiding = i / 2;
        tarn_event *event = NULL;
        OK(tarn_pool_alloc(pool, stream, of_sizes[i % 2], &block));
        work_on(user, block, of_sizes[i % 2], 1000000);
        OK(tarn_event_create(0, &event));
        OK(tarn_event_record(event, user));
        if (hiding != NO_ANSWER)
            OK(tarn_record_stream(block, user));
        if (hiding == NO_ANSWER)
            OK(tarn_host_fail_set(kind_of("event_query"), 1, true, TARN_ERROR_DRIVER));
        else if (hiding == NO_MARK)
            OK(tarn_host_fail_set(kind_of("event_record"), 1, true, TARN_ERROR_DRIVER));
        else
            OK(driver->capture_begin(0, native_of(user), DRIVER_CAPTURE_RELAXED));
        OK(hiding == NO_ANSWER ? tarn_free_after(block, event) : tarn_free(block));
        tarn_status status = tarn_pool_suspend(pool, false);
        const char *text = tarn_last_error();
        CHECK(hiding != UNKNOWN_CAPTURE ||
              (status == TARN_ERROR_CAPTURE && strstr(text, "captures")));
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        if (hiding == UNKNOWN_CAPTURE) {
            OK(driver->capture_end(0, native_of(user), &graph));
            OK(tarn_host_graph_destroy(graph));
        }
        CHECK(status ? state_of() == TARN_POOL_RUNS : tarn_stream_query(user) == TARN_OK);
        if (!status)
            OK(tarn_pool_resume(pool));
        OK(tarn_event_destroy(event));
        time_pass(1000000);
    }
    OK(tarn_stream_return(user));
    end();
}

static void the_memory_goes_and_comes_back_with_its_contents(void **state)
{
    (void)state;
    begin();
    int64_t live = stats_of(0).allocated_bytes[0].current;
    OK(tarn_pool_suspend(pool, true));
    CHECK(state_of() == TARN_POOL_SAVED && ledger_of(0).created == 0 && ledger_of(0).mapped == 0);
    CHECK(stats_of(0).reserved_bytes[0].current == 0 &&
          stats_of(0).allocated_bytes[0].current == live);
    verify(0);
    void *all = alloc_on(stream, MEMORY); /* which others can have meanwhile */
    memset(all, 0xff, MEMORY);
    GIVES(tarn_pool_resume(pool), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(state_of() == TARN_POOL_SAVED);
    verify(0);
    OK(tarn_free(all)); /* idle memory of the default pool makes room */
    OK(tarn_pool_resume(pool));
    CHECK(state_of() == TARN_POOL_RUNS);
    verify(0);
    check_contents();
    void *more = NULL;
    OK(tarn_pool_alloc(pool, stream, 30 * MIB, &more));
    OK(tarn_free(more));
    end();
}

/* Fills the device from a pool of which only a thread scope is left when it ends, as this thread
 * does: it cannot collect the pool. */
static void *fill_from_another_pool(void *argument)
{
    (void)argument;
    tarn_pool *own = NULL;
    tarn_scope scope = 0;
    OK(tarn_pool_create(NULL, &own));
    OK(tarn_scope_begin(own, TARN_SCOPE_THREAD, 0, &scope));
    OK(tarn_free(alloc_on(stream, MEMORY)));
    OK(tarn_pool_release(own));
    return NULL;
}

static void what_an_ended_thread_leaves_makes_room(void **state)
{
    (void)state;
    pthread_t thread;
    begin();
    OK(tarn_pool_suspend(pool, true));
    CHECK(pthread_create(&thread, NULL, fill_from_another_pool, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(ledger_of(0).created == MEMORY);
    OK(tarn_pool_resume(pool));
    check_contents();
    end();
}

/* Growth that failed at a call, with all calls after it, may leave memory mapped. */
static void what_failed_growth_leaves_mapped_goes_too(void **state)
{
    (void)state;
    tarn_status status = TARN_ERROR_DRIVER;
    begin();
    for (uint64_t n = 1; status; n++) {
        void *more = NULL;
        OK(tarn_host_fail_set(-1, n, true, TARN_ERROR_DRIVER));
        status = tarn_pool_alloc(pool, stream, 100 * MIB, &more);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        if (!status)
            OK(tarn_free(more));
        OK(tarn_pool_suspend(pool, true));
        CHECK(ledger_of(0).created == 0 && stats_of(0).reserved_bytes[0].current == 0);
        OK(tarn_pool_resume(pool));
    }
    check_contents();
    end();
}

static void discarded_contents_leave_addresses_and_blocks(void **state)
{
    (void)state;
    begin();
    uint64_t metadata = metadata_bytes();
    OK(tarn_pool_suspend(pool, false));
    CHECK(state_of() == TARN_POOL_DISCARDED && metadata_bytes() <= metadata + 65536 &&
          ledger_of(0).created == 0);
    OK(tarn_pool_resume(pool));
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i])
            fill(i);
    check_contents();
    end();
}

static void what_is_wrong_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    begin();
    void *block = NULL;
    GIVES(tarn_pool_resume(pool), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_suspend(pool, true));
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_SUSPENDED);
    CHECK(strstr(tarn_last_error(), "is suspended"));
    GIVES(tarn_pool_alloc(pool, stream, 1000, &block), TARN_ERROR_SUSPENDED);
    GIVES(tarn_pool_alloc(pool, stream, 30 * MIB, &block), TARN_ERROR_SUSPENDED);
    CHECK(!block && strstr(tarn_last_error(), "tarn_pool_resume()"));
    OK(tarn_pool_resume(pool));
    GIVES(tarn_pool_suspend(NULL, true), TARN_ERROR_INVALID_ARGUMENT);
    tarn_stream capturing = lease(0);
    OK(tarn_capture_begin(capturing, TARN_CAPTURE_RELAXED));
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_CAPTURE);
    OK(tarn_capture_abort(capturing));
    CHECK(state_of() == TARN_POOL_RUNS);
    check_contents();
    OK(tarn_stream_return(capturing));
    end();
}

static void blocks_are_freed_while_it_is_suspended(void **state)
{
    (void)state;
    begin();
    OK(tarn_pool_suspend(pool, true));
    for (int i = 1; i < BLOCKS; i += 2) {
        OK(tarn_free(blocks[i]));
        blocks[i] = NULL;
    }
    verify(0);
    OK(tarn_device_trim(0, 0));
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_pool_resume(pool));
    check_contents();
    verify(0);
    end();
}

static void a_suspended_pool_that_is_released_gives_its_addresses_back(void **state)
{
    (void)state;
    begin();
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_release(pool));
    for (int i = 0; i < BLOCKS; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(second));
    tarn_pool *next = NULL;
    OK(tarn_pool_create(NULL, &next)); /* which looks what has ended */
    OK(tarn_pool_release(next));
    nothing_is_left(0);
}

static void it_waits_for_the_work_that_uses_the_memory(void **state)
{
    (void)state;
    begin();
    work_on(stream, blocks[1], sizes[1], 5000);
    void *block = NULL;
    OK(tarn_pool_alloc(pool, stream, 5 * MIB, &block));
    work_on(second, block, 5 * MIB, 9000);
    OK(tarn_record_stream(block, second));
    OK(tarn_free(block));
    uint64_t before = time_now();
    OK(tarn_pool_suspend(pool, true));
    CHECK(time_now() >= before + 9000 && ledger_of(0).reports == 0);
    OK(tarn_pool_resume(pool));
    check_contents();
    end();
}

/* Also where the pool is held, so that its own device is waited for as a whole. */
static void it_waits_for_the_work_of_another_device(void **state)
{
    (void)state;
    begin();
    tarn_stream other = lease(1);
    OK(tarn_record_stream(blocks[2], other));
    for (int held = 0; held < 2; held++) {
        if (held)
            OK(tarn_pool_hold(pool, NULL));
        work_on(other, blocks[2], sizes[2], 9000);
        OK(tarn_pool_suspend(pool, true));
        CHECK(tarn_stream_query(other) == TARN_OK && ledger_of(1).reports == 0);
        OK(tarn_pool_resume(pool));
    }
    OK(tarn_pool_unhold(pool));
    check_contents();
    end();
    OK(tarn_stream_return(other));
}

/* A graph's addresses are good again after a resume. */
static void a_graph_runs_before_and_after(void **state)
{
    (void)state;
    begin();
    void *graph = NULL, *inside = NULL;
    tarn_stream capturing = lease(0);
    void *native = NULL;
    OK(tarn_stream_native_get(capturing, &native));
    OK(tarn_pool_capture_begin(pool, capturing, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(capturing, 3 * MIB, &inside));
    OK(driver->copy(0, (uintptr_t)inside, (uintptr_t)blocks[1], sizes[1], native));
    OK(driver->copy(0, (uintptr_t)blocks[2], (uintptr_t)inside, sizes[1], native));
    OK(tarn_free(inside));
    OK(tarn_capture_end(capturing, &graph));
    for (int round = 0; round < 2; round++) {
        memset(blocks[2], 0, sizes[2]);
        OK(tarn_host_graph_launch(0, graph, native));
        if (round == 0) { /* with the launch still to run */
            OK(tarn_pool_suspend(pool, true));
            CHECK(ledger_of(0).created == 0);
            OK(tarn_pool_resume(pool));
        }
        OK(tarn_device_synchronize(0));
        CHECK(blocks[2][0] == 0x21 && blocks[2][sizes[1] - 1] == 0x21);
    }
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_stream_return(capturing));
    fill(2);
    check_contents();
    end();
}

/* While a graph holds the pool, the device is waited for. That would end a capture that tarn does
 * not know. */
static void a_wait_for_the_device_ends_no_capture(void **state)
{
    (void)state;
    begin();
    driver_graph graph = NULL;
    tarn_stream capturing = lease(0);
    void *block = alloc_on(capturing, MIB);
    OK(tarn_pool_hold(pool, NULL));
    OK(driver->capture_begin(0, native_of(capturing), DRIVER_CAPTURE_RELAXED));
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_CAPTURE);
    CHECK(strstr(tarn_last_error(), "captures"));
    GIVES(tarn_sleep_prepare(NULL, NULL), TARN_ERROR_CAPTURE);
    work_on(capturing, block, MIB, 1000);
    OK(driver->capture_end(0, native_of(capturing), &graph));
    OK(driver->graph_destroy(0, graph));
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    OK(tarn_pool_unhold(pool));
    OK(tarn_free(block));
    OK(tarn_stream_return(capturing));
    check_contents();
    end();
}

/* What fails together, which the host device's own failures, of one kind at a time, cannot. */
static struct {
    const struct driver *real;
    struct driver driver;
    bool synchronizes, maps, accesses;
    int copies_left, unmaps_left; /* -1: any number works */
} failing;

static tarn_status no(const char *what)
{
    return failed(TARN_ERROR_DRIVER, "%s fails, as the test wants", what);
}

static tarn_status stream_synchronize(int device, driver_stream native)
{
    return failing.synchronizes ? no("a wait") : failing.real->stream_synchronize(device, native);
}

static tarn_status device_synchronize(int device)
{
    return failing.synchronizes ? no("a wait") : failing.real->device_synchronize(device);
}

static tarn_status copy(int device, uintptr_t to, uintptr_t from, size_t size, driver_stream native)
{
    if (failing.copies_left == 0)
        return no("a copy");
    failing.copies_left--;
    return failing.real->copy(device, to, from, size, native);
}

static tarn_status unmap(int device, uintptr_t address, size_t size)
{
    if (failing.unmaps_left == 0)
        return no("an unmap");
    failing.unmaps_left--;
    return failing.real->unmap(device, address, size);
}

static tarn_status map(int device, uintptr_t address, size_t size, driver_piece piece)
{
    return failing.maps ? no("a map") : failing.real->map(device, address, size, piece);
}

static tarn_status set_access(int device, uintptr_t address, size_t size, const int *devices,
                              int count)
{
    return failing.accesses ? no("an access")
                            : failing.real->set_access(device, address, size, devices, count);
}

static void nothing_fails(void)
{
    failing.synchronizes = failing.maps = failing.accesses = false;
    failing.copies_left = failing.unmaps_left = -1;
}

static void failing_begin(void)
{
    failing.real = driver;
    failing.driver = *driver;
    failing.driver.stream_synchronize = stream_synchronize;
    failing.driver.device_synchronize = device_synchronize;
    failing.driver.copy = copy;
    failing.driver.unmap = unmap;
    failing.driver.map = map;
    failing.driver.set_access = set_access;
    nothing_fails();
    driver = &failing.driver;
}

static void failing_end(void)
{
    driver = failing.real;
}

static void fails_to_resume(void)
{
    GIVES(tarn_pool_resume(pool), TARN_ERROR_DRIVER);
    CHECK(state_of() == TARN_POOL_SAVED);
}

/* All copies begun, or some; then a resume that cannot wait for them either, and one that gets
 * further. */
static void contents_stay_where_nobody_knows_of_the_copies_out(void **state)
{
    (void)state;
    for (int copies = -1; copies <= 1; copies++) {
        begin();
        failing_begin();
        failing.copies_left = copies;
        failing.synchronizes = copies != 0;
        GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_DRIVER);
        CHECK(state_of() == (copies ? TARN_POOL_SAVED : TARN_POOL_RUNS));
        if (copies) {
            GIVES(tarn_pool_resume(pool), TARN_ERROR_DRIVER);
            nothing_fails();
            failing.accesses = failing.maps = true; /* whatever it may try with memory that was
                                                       never taken out */
            failing.copies_left = failing.unmaps_left = 0;
            OK(tarn_pool_resume(pool));
        }
        failing_end();
        check_contents();
        end();
    }
}

static void contents_stay_where_nobody_knows_of_the_copies_back(void **state)
{
    (void)state;
    for (int copies = -1; copies <= 1; copies += 2) {
        begin();
        OK(tarn_pool_suspend(pool, true));
        failing_begin();
        failing.copies_left = copies;
        failing.synchronizes = true;
        fails_to_resume();
        fails_to_resume();
        nothing_fails();
        failing.accesses = true;
        fails_to_resume();
        nothing_fails();
        failing.copies_left = 1;
        fails_to_resume();
        nothing_fails();
        OK(tarn_pool_resume(pool));
        failing_end();
        check_contents();
        end();
    }
}

static void contents_stay_where_the_memory_neither_goes_nor_comes_back(void **state)
{
    (void)state;
    for (int unmaps = 1; unmaps <= 2; unmaps++) {
        begin();
        failing_begin();
        failing.unmaps_left = unmaps;
        failing.maps = true;
        GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_DRIVER);
        CHECK(state_of() == TARN_POOL_SAVED);
        verify(0);
        fails_to_resume();
        nothing_fails();
        failing.accesses = true;
        fails_to_resume();
        nothing_fails();
        failing.copies_left = 1;
        fails_to_resume();
        nothing_fails();
        verify(0);
        OK(tarn_pool_resume(pool));
        failing_end();
        verify(0);
        check_contents();
        end();
    }
}

/* Released while it is suspended in part: freed and trimmed, nothing is left of it. */
static void a_pool_suspended_in_part_can_be_released(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        begin();
        failing_begin();
        failing.synchronizes = way < 2;
        failing.maps = way >= 2;
        failing.unmaps_left = way < 2 ? -1 : 1;
        GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_DRIVER);
        CHECK(state_of() == TARN_POOL_SAVED);
        for (int i = 0; i < BLOCKS && way % 2; i++) {
            OK(tarn_free(blocks[i]));
            blocks[i] = NULL;
        }
        nothing_fails();
        failing_end();
        end();
        tarn_stream capturing = lease(0); /* nothing bars it any more */
        OK(tarn_capture_begin(capturing, TARN_CAPTURE_RELAXED));
        OK(tarn_capture_abort(capturing));
        OK(tarn_stream_return(capturing));
    }
}

/* Room is made for what is missing, and the rest of what is idle stays at hand. */
static void a_resume_takes_no_more_of_others_than_it_needs(void **state)
{
    (void)state;
    void *others[12];
    begin();
    OK(tarn_pool_suspend(pool, true));
    for (int i = 0; i < 12; i++)
        others[i] = alloc_on(stream, 20 * MIB);
    for (int i = 0; i < 12; i++)
        OK(tarn_free(others[i]));
    size_t reserved = ledger_of(0).created;
    OK(tarn_pool_resume(pool));
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_pool_stats_get(pool, &stats));
    size_t own = (size_t)stats.reserved_bytes[0].current;
    CHECK(reserved >= 240 * MIB && own < 80 * MIB && ledger_of(0).created - own >= 140 * MIB);
    check_contents();
    end();
}

/* Another thread has the pool grow, and is in the driver for it. */
static atomic_bool grows, together;

static tarn_status create_slowly(int device, size_t size, unsigned flags, driver_piece *piece)
{
    atomic_store(&grows, true);
    while (state_of() == TARN_POOL_RUNS)
        sched_yield();
    for (int i = 0; i < 200 && !atomic_load(&together); i++)
        usleep(1000); /* in which a suspend that did not wait would come to its copies */
    tarn_status status = failing.real->create(device, size, flags, piece);
    atomic_store(&grows, false);
    return status;
}

static tarn_status copy_alone(int device, uintptr_t to, uintptr_t from, size_t size,
                              driver_stream native)
{
    if (atomic_load(&grows))
        atomic_store(&together, true);
    return failing.real->copy(device, to, from, size, native);
}

static void *grow(void *argument)
{
    tarn_status status = tarn_pool_alloc(pool, stream, 60 * MIB, argument);
    CHECK(status == TARN_OK || status == TARN_ERROR_SUSPENDED);
    return NULL;
}

static void it_waits_for_growth_that_is_under_way(void **state)
{
    (void)state;
    pthread_t thread;
    void *block = NULL;
    begin();
    failing_begin();
    failing.driver.create = create_slowly;
    failing.driver.copy = copy_alone;
    CHECK(pthread_create(&thread, NULL, grow, &block) == 0);
    while (!atomic_load(&grows))
        sched_yield();
    OK(tarn_pool_suspend(pool, true));
    CHECK(pthread_join(thread, NULL) == 0);
    failing_end();
    CHECK(state_of() == TARN_POOL_SAVED && !atomic_load(&together));
    verify(0);
    OK(tarn_pool_resume(pool));
    check_contents();
    OK(tarn_free(block));
    end();
}

/* Small blocks take no lock then, as before. */
static void caches_are_open_afterwards(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < 3; round++) {
        const struct store *store = &pool_of_public(pool)->store;
        unsigned open = 0;
        for (struct heap *heap = heap_next(store->arena, NULL); heap;
             heap = heap_next(store->arena, heap))
            for (const struct cache *cache = heap_store(heap) == store ? heap->caches.first : NULL;
                 cache; cache = cache->next)
                /* What rests is opened by its first use */
                open += !cache->bypassed && heap->parked.parks &&
                        (atomic_load(&cache->gate) != CACHE_REVOKED || heap->caches.resting);
        CHECK(open == 2);
        failing_begin();
        failing.synchronizes = round == 1;
        (void)tarn_pool_suspend(pool, true);
        nothing_fails();
        failing_end();
        if (state_of() != TARN_POOL_RUNS)
            OK(tarn_pool_resume(pool));
    }
    end();
}

/* Threads that allocate find the memory of a resume, as the thread sanitizer can tell. */
#define USERS 2
/* Heaps that a resume opens before that of the threads: so long they may be early. */
#define OTHERS 12
#define HELD 6
static atomic_bool enough;
static atomic_uint served;

static void *use_pool(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    void *held[HELD] = {NULL};
    while (!atomic_load_explicit(&enough, memory_order_relaxed)) {
        unsigned i = (unsigned)(random_next(&random) % HELD);
        size_t size = 65536 + random_next(&random) % 300000;
        if (held[i]) {
            OK(tarn_free(held[i]));
            held[i] = NULL;
            continue;
        }
        tarn_status status = tarn_pool_alloc(pool, stream, size, &held[i]);
        CHECK(!status || status == TARN_ERROR_SUSPENDED || status == TARN_ERROR_OUT_OF_MEMORY);
        atomic_fetch_add_explicit(&served, !status, memory_order_relaxed);
        if (status)
            sched_yield();
    }
    for (int i = 0; i < HELD; i++)
        OK(tarn_free(held[i]));
    return NULL;
}

static void threads_allocate_beside_suspends_and_resumes(void **state)
{
    (void)state;
    pthread_t threads[USERS];
    tarn_stream others[OTHERS];
    void *first = NULL, *blocks_of_others[OTHERS];
    OK(tarn_pool_create(NULL, &pool));
    stream = lease(0);
    OK(tarn_pool_alloc(pool, stream, 65536, &first));
    for (int i = 0; i < OTHERS; i++) {
        others[i] = lease(0);
        OK(tarn_pool_alloc(pool, others[i], 1000, &blocks_of_others[i]));
    }
    atomic_store(&enough, false);
    for (int i = 0; i < USERS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_pool, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < 60; i++) {
        unsigned before = atomic_load(&served);
        OK(tarn_pool_suspend(pool, i % 2));
        OK(tarn_pool_resume(pool));
        for (int tries = 0; tries < 100 && atomic_load(&served) < before + 10; tries++)
            usleep(100);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < USERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(tarn_free(first));
    for (int i = 0; i < OTHERS; i++)
        OK(tarn_free(blocks_of_others[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
    for (int i = 0; i < OTHERS; i++)
        OK(tarn_stream_return(others[i]));
}

/* A stream that was found owes its mark, so that only a wait for the device can say that it is
 * idle. */
static void a_block_of_a_released_pool_is_gone_after_a_trim(void **state)
{
    (void)state;
    tarn_stream own = lease(0), found = 0;
    void *native = native_made(0), *block = NULL;
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_stream_find(0, native, &found));
    OK(tarn_pool_alloc(pool, own, 5000, &block));
    OK(tarn_record_stream(block, found));
    work_on(found, block, 5000, 100);
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_device_trim(0, 0));
    CHECK(stats_of(0).active[0].current == 0 && !arena_if_used(0)->pools.list);
    nothing_is_left(0);
    OK(tarn_stream_retire(found));
    OK(tarn_stream_return(own));
}

/* The driver copies pageable memory then. */
static void contents_are_kept_without_what_makes_it_fast(void **state)
{
    (void)state;
    static const char *const missing[] = {"host_alloc", "event_create"};
    for (int i = 0; i < 2; i++) {
        begin();
        uint64_t pinned = calls_of(0, "host_alloc"), copies = calls_of(0, "copy");
        OK(tarn_host_fail_set(kind_of(missing[i]), 1, true, TARN_ERROR_OUT_OF_HOST_MEMORY));
        OK(tarn_pool_suspend(pool, true));
        OK(tarn_pool_resume(pool));
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        CHECK(calls_of(0, "host_alloc") == pinned + 2 && calls_of(0, "copy") < copies + 2 * BLOCKS);
        check_contents();
        end();
    }
}

static void large_contents_travel_in_chunks(void **state)
{
    (void)state;
    begin();
    uint64_t copies = calls_of(0, "copy"), pinned = calls_of(0, "host_alloc"), events = 0;
    for (int round = 0; round < 3; round++) {
        OK(tarn_pool_suspend(pool, true));
        CHECK(calls_of(0, "copy") - copies > much / CHUNK);
        OK(tarn_pool_resume(pool));
        check_contents();
        CHECK(ledger_of(0).pinned == 0 && (round == 0 || ledger_of(0).events == events));
        events = ledger_of(0).events; /* the first has made those that streams keep */
        fill(1);
    }
    CHECK(calls_of(0, "host_alloc") == pinned + 6);
    end();
}

/* It goes with the pool; with_little() looks. */
static void pinned_memory_that_the_driver_does_not_take_back_is_not_lost(void **state)
{
    (void)state;
    begin();
    OK(tarn_host_fail_set(kind_of("host_free"), 1, true, TARN_ERROR_DRIVER));
    OK(tarn_pool_suspend(pool, true));
    CHECK(ledger_of(0).pinned == 1);
    OK(tarn_pool_resume(pool));
    CHECK(ledger_of(0).pinned == 1);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    check_contents();
    end();
}

static int with_much(void **state)
{
    (void)state;
    much = 9 * MIB + 12345;
    contents_staging = (struct contents_staging){.least = 20 * MIB, .chunk = CHUNK};
    return 0;
}

static int with_little(void **state)
{
    (void)state;
    CHECK(ledger_of(0).pinned == 0);
    contents_staging.least = SIZE_MAX;
    much = 0;
    return 0;
}

#define WITH_MUCH(test)                                        \
    {                                                          \
        "with_much_" #test, test, with_much, with_little, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MUCH(large_contents_travel_in_chunks),
        WITH_MUCH(contents_are_kept_without_what_makes_it_fast),
        WITH_MUCH(pinned_memory_that_the_driver_does_not_take_back_is_not_lost),
        WITH_MUCH(contents_stay_where_nobody_knows_of_the_copies_out),
        WITH_MUCH(contents_stay_where_nobody_knows_of_the_copies_back),
        WITH_MUCH(contents_stay_where_the_memory_neither_goes_nor_comes_back),
        WITH_MUCH(a_pool_suspended_in_part_can_be_released),
        cmocka_unit_test(what_freed_blocks_wait_for_is_waited_for),
        cmocka_unit_test(the_memory_goes_and_comes_back_with_its_contents),
        cmocka_unit_test(what_an_ended_thread_leaves_makes_room),
        cmocka_unit_test(what_failed_growth_leaves_mapped_goes_too),
        cmocka_unit_test(discarded_contents_leave_addresses_and_blocks),
        cmocka_unit_test(a_wait_for_the_device_ends_no_capture),
        cmocka_unit_test(what_is_wrong_is_refused_and_changes_nothing),
        cmocka_unit_test(blocks_are_freed_while_it_is_suspended),
        cmocka_unit_test(a_suspended_pool_that_is_released_gives_its_addresses_back),
        cmocka_unit_test(it_waits_for_the_work_that_uses_the_memory),
        cmocka_unit_test(it_waits_for_the_work_of_another_device),
        cmocka_unit_test(a_graph_runs_before_and_after),
        cmocka_unit_test(contents_stay_where_nobody_knows_of_the_copies_out),
        cmocka_unit_test(contents_stay_where_nobody_knows_of_the_copies_back),
        cmocka_unit_test(contents_stay_where_the_memory_neither_goes_nor_comes_back),
        cmocka_unit_test(a_pool_suspended_in_part_can_be_released),
        cmocka_unit_test(a_resume_takes_no_more_of_others_than_it_needs),
        cmocka_unit_test(it_waits_for_growth_that_is_under_way),
        cmocka_unit_test(caches_are_open_afterwards),
        cmocka_unit_test(a_block_of_a_released_pool_is_gone_after_a_trim),
        cmocka_unit_test(threads_allocate_beside_suspends_and_resumes),
    };
    host_start_with(2, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
