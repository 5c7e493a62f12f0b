/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges beside what else there is: captures, graphs, debug mode, observers, peers, sleeps, threads
 * and the trace. */
#include "driver/driver.h"
#include "memory/range/range.h"
#include "memory/range_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <tarn/sleep.h>
#include <tarn/snapshot.h>
#include <tarn/trace.h>
#include <unistd.h>

#include <cmocka.h>

/* Captures and graphs -------------------------------------------------------------------------- */

static void a_capturing_stream_neither_commits_nor_decommits(void)
{
    start();
    tarn_stream other = lease(0);
    void *graph = NULL;
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    GIVES(tarn_range_commit(range, 0, PAGE, stream), TARN_ERROR_CAPTURE);
    GIVES(tarn_range_commit(range, 8 * PAGE, PAGE, stream), TARN_ERROR_CAPTURE);
    GIVES(tarn_range_decommit(range, PAGE, PAGE, stream), TARN_ERROR_CAPTURE);
    CHECK(info_of(range).committed == 3 * PAGE && info_of(range).decommitted == PAGE);
    /* Others go on; but not at the address whose last work nobody can wait for now */
    OK(tarn_range_commit(range, 9 * PAGE, PAGE, other));
    OK(tarn_range_decommit(range, 9 * PAGE, PAGE, other));
    GIVES(tarn_range_commit(range, 0, PAGE, other), TARN_ERROR_CAPTURE);
    CHECK(strstr(tarn_last_error(), "end the capture first"));
    CHECK(info_of(range).committed == 3 * PAGE && info_of(range).decommitted == 2 * PAGE);
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_range_commit(range, 0, PAGE, other));
    OK(tarn_range_decommit(range, 0, PAGE, other));
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_range_decommit(range, PAGE, 3 * PAGE, stream));
    end(range);
    OK(tarn_stream_return(other));
}

static void held_pages_stay(void)
{
    start();
    void *graph = NULL;
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    OK(driver->set(0, (uintptr_t)address_of(range, 1), 7, 4096, native_of(stream)));
    OK(tarn_capture_end(stream, &graph));
    GIVES(tarn_range_hold(range, 3 * PAGE, 2 * PAGE, graph), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_range_hold(range, PAGE, 2 * PAGE, graph));
    OK(tarn_range_hold(range, 0, 2 * PAGE, NULL));
    OK(tarn_range_hold(range, 0, 2 * PAGE, NULL));
    GIVES(tarn_range_unhold(range, PAGE, 2 * PAGE), TARN_ERROR_INVALID_ARGUMENT);
    for (size_t page = 0; page < 3; page++) {
        GIVES(tarn_range_decommit(range, page * PAGE, PAGE, stream), TARN_ERROR_BUSY);
        CHECK(strstr(tarn_last_error(), "held"));
    }
    GIVES(tarn_range_decommit(range, 0, 4 * PAGE, stream), TARN_ERROR_BUSY);
    CHECK(info_of(range).committed == 4 * PAGE);
    OK(tarn_range_decommit(range, 3 * PAGE, PAGE, stream));
    GIVES(tarn_range_destroy(range), TARN_ERROR_BUSY);
    OK(tarn_range_unhold(range, 0, 2 * PAGE));
    GIVES(tarn_range_decommit(range, 0, PAGE, stream), TARN_ERROR_BUSY);
    OK(tarn_range_unhold(range, 0, 2 * PAGE));
    GIVES(tarn_range_unhold(range, 0, 2 * PAGE), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_host_graph_launch(0, graph, native_of(stream)));
    GIVES(tarn_range_decommit(range, PAGE, PAGE, stream), TARN_ERROR_BUSY);
    GIVES(tarn_range_destroy(range), TARN_ERROR_BUSY);
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_stream_synchronize(stream));
    CHECK(*address_of(range, 1) == 7);
    OK(tarn_range_decommit(range, PAGE, 2 * PAGE, stream));
    end(range);
}

/* Debug mode ----------------------------------------------------------------------------------- */

static bool is_mapped(const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(0, address, 1, &extent) == TARN_OK && extent.accessible;
}

static void debug_mode_unmaps_what_is_idle(void)
{
    setenv("TARN_DEBUG", "poison", 1);
    start();
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    CHECK(!is_mapped(address_of(range, 0)));
    work_on(stream, address_of(range, 1), PAGE, 1000000);
    OK(tarn_range_decommit(range, PAGE, PAGE, stream));
    CHECK(is_mapped(address_of(range, 1)));
    OK(tarn_stream_synchronize(stream));
    OK(tarn_range_decommit(range, 2 * PAGE, PAGE, stream));
    CHECK(!is_mapped(address_of(range, 1)) && !is_mapped(address_of(range, 2)));
    CHECK(is_mapped(address_of(range, 3)));
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_decommit(range, 3 * PAGE, PAGE, stream));
    end(range);
}

/* Observers ------------------------------------------------------------------------------------ */

#define ENTRIES 64
static struct {
    uintptr_t address;
    uint64_t generation;
} book[ENTRIES]; /* by page of the range */
static uintptr_t base;
static size_t mistakes;
static tarn_range *observed;

static void note_mapped(const tarn_mapping *range, void *user)
{
    (void)user;
    for (uintptr_t at = (uintptr_t)range->address; at < (uintptr_t)range->address + range->bytes;
         at += PAGE) {
        size_t i = (at - base) / PAGE;
        if (at - base >= ENTRIES * PAGE)
            continue; /* a block's */
        mistakes += range->generation <= book[i].generation || book[i].address != 0;
        mistakes += !is_mapped((void *)at);
        book[i].address = at;
        book[i].generation = range->generation;
    }
}

static void note_unmapping(const tarn_mapping *range, void *user)
{
    (void)user;
    for (uintptr_t at = (uintptr_t)range->address; at < (uintptr_t)range->address + range->bytes;
         at += PAGE) {
        size_t i = (at - base) / PAGE;
        if (at - base >= ENTRIES * PAGE)
            continue;
        mistakes += book[i].generation != range->generation || book[i].address != at;
        mistakes += !is_mapped((void *)at);
        book[i].address = 0;
    }
    GIVES(tarn_range_commit(observed, 60 * PAGE, PAGE, stream), TARN_ERROR_BUSY);
    GIVES(tarn_range_destroy(observed), TARN_ERROR_BUSY);
    CHECK(info_of(observed).committed <= 64 * PAGE);
}

static size_t asked, given;

static bool give_back(int device, size_t bytes, void *user)
{
    CHECK(device == 0 && bytes == 2 * PAGE);
    asked++;
    if (!*(void **)user)
        return false;
    OK(tarn_free(*(void **)user));
    *(void **)user = NULL;
    given++;
    return true;
}

/* Before memory is created, and not where there is enough. */
static void observers_are_asked_before_growth(void)
{
    start();
    tarn_observer observer;
    void *block = alloc_on(stream, 8 * MIB);
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .device = TARN_ALL_DEVICES,
                                                  .before_growth = give_back,
                                                  .user = &block},
                         &observer));
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    CHECK(asked == 1 && given == 1);
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_commit(range, 8 * PAGE, 2 * PAGE, stream));
    CHECK(asked == 1);
    OK(tarn_observer_remove(observer));
    end(range);
}

static void *cached[4];
static size_t left, times;

static bool spill(const tarn_shortage *shortage, void *user)
{
    (void)user;
    times++;
    CHECK(shortage->rejected && shortage->requested > 24 * MIB);
    if (!left)
        return false;
    OK(tarn_free(cached[--left]));
    return true;
}

static void a_commit_that_cannot_succeed_does_not_spill_everything(void)
{
    start();
    tarn_observer observer;
    tarn_range *range = range_of(NULL, 2 * MEMORY);
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .device = TARN_ALL_DEVICES,
                                                  .out_of_memory = spill},
                         &observer));
    for (left = 0; left < 4; left++)
        cached[left] = alloc_on(stream, 4 * MIB);
    GIVES(tarn_range_commit(range, 0, 2 * MEMORY, stream), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(times == 1 && left == 3);
    OK(tarn_device_limit_set(0, 24 * MIB));
    GIVES(tarn_range_commit(range, 0, 26 * MIB, stream), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(times == 2 && left == 2);
    OK(tarn_observer_remove(observer));
    while (left)
        OK(tarn_free(cached[--left]));
    end(range);
}

static void observers_know_what_is_mapped(void)
{
    start();
    observed = range_of(NULL, ENTRIES * PAGE);
    base = (uintptr_t)address_of(observed, 0);
    tarn_observer observer;
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .device = TARN_ALL_DEVICES,
                                                  .mapped = note_mapped,
                                                  .unmapping = note_unmapping},
                         &observer));
    OK(tarn_range_commit(observed, 0, 8 * PAGE, stream));
    work_on(stream, (void *)base, PAGE, 1000000);
    OK(tarn_range_decommit(observed, 0, 2 * PAGE, stream));
    OK(tarn_range_commit(observed, 20 * PAGE, 4 * PAGE, stream)); /* two are second mappings */
    OK(tarn_range_commit(observed, 0, PAGE, stream));
    OK(tarn_range_decommit(observed, 4 * PAGE, 4 * PAGE, stream));
    OK(tarn_device_trim(0, 0));
    for (size_t i = 0; i < ENTRIES; i++)
        CHECK((book[i].address != 0) == is_mapped((void *)(base + i * PAGE)));
    CHECK(mistakes == 0);
    OK(tarn_host_fail_set(kind_of("unmap"), 1, true, TARN_ERROR_DRIVER));
    OK(tarn_range_decommit(observed, 2 * PAGE, 2 * PAGE, stream));
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(info_of(observed).decommitted == 2 * PAGE);
    OK(tarn_observer_remove(observer));
    end(observed);
}

/* Old pages that the driver refuses to unmap: one call per run, and all stay. */
static uint64_t begun; /* the generation of a mapping that has not ended; 0: none */

static void note_begin(const tarn_mapping *range, void *user)
{
    (void)user;
    mistakes += begun != 0;
    begun = range->generation;
}

static void note_end(const tarn_mapping *range, void *user)
{
    (void)user;
    mistakes += begun == 0 || begun != range->generation;
    begun = 0;
}

/* Each call of a commit fails, and those after it, so that the driver may keep the page mapped. */
static void observers_know_a_page_that_stays_mapped(void)
{
    start();
    observed = range_of(NULL, PAGE);
    tarn_observer observer;
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .device = TARN_ALL_DEVICES,
                                                  .mapped = note_begin,
                                                  .unmapping = note_end},
                         &observer));
    tarn_status status = TARN_ERROR_DRIVER;
    size_t kept = 0;
    for (uint64_t call = 1; status; call++) {
        OK(tarn_host_fail_set(-1, call, true, TARN_ERROR_DRIVER));
        status = tarn_range_commit(observed, 0, PAGE, stream);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        kept += status && begun;
        OK(tarn_device_trim(0, 0));
        CHECK((begun != 0) == (status == TARN_OK));
    }
    CHECK(mistakes == 0 && kept > 0);
    OK(tarn_observer_remove(observer));
    end(observed);
}

static void old_pages_that_are_refused_stay(void)
{
    start();
    tarn_range *range = range_of(NULL, 32 * PAGE);
    OK(tarn_range_commit(range, 0, 7 * PAGE, stream));
    work_on(stream, address_of(range, 0), 7 * PAGE, 5000000);
    OK(tarn_range_decommit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_decommit(range, 5 * PAGE, 2 * PAGE, stream));
    OK(tarn_range_commit(range, 16 * PAGE, 6 * PAGE, stream));
    OK(tarn_stream_synchronize(stream));
    fill(range, 16, 6, 3);
    uint64_t unmaps = calls_of(0, "unmap");
    OK(tarn_host_fail_set(kind_of("unmap"), 1, true, TARN_ERROR_DRIVER));
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(calls_of(0, "unmap") == unmaps + 2 && ledger_of(0).mapped == 13 * PAGE);
    is_filled(range, 16, 6, 3);
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).mapped == 7 * PAGE);
    is_filled(range, 16, 6, 3);
    OK(tarn_range_decommit(range, 4 * PAGE, PAGE, stream));
    OK(tarn_range_decommit(range, 16 * PAGE, 6 * PAGE, stream));
    end(range);
}

/* Other devices -------------------------------------------------------------------------------- */

static void peers_reach_pages(void)
{
    host_start_with(2, MEMORY);
    stream = lease(0);
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_commit(range, 4 * PAGE, PAGE, stream));
    uint64_t before = calls_of(0, "set_access");
    tarn_status status = tarn_device_peer_enable(1, 0);
    if (!status) {
        CHECK(calls_of(0, "set_access") == before + 2); /* one per run */
        tarn_stream other = lease(1);
        OK(tarn_range_commit(range, 8 * PAGE, PAGE, stream));
        static const size_t pages[] = {0, 1, 4, 8};
        for (size_t i = 0; i < 4; i++)
            OK(driver->set(1, (uintptr_t)address_of(range, pages[i]), 5, 4096, native_of(other)));
        OK(tarn_stream_synchronize(other));
        CHECK(*address_of(range, 8) == 5);
        GIVES(tarn_range_commit(range, 9 * PAGE, PAGE, other), TARN_ERROR_INVALID_STREAM);
    }
    OK(tarn_range_destroy(range));
    nothing_is_left(0);
}

/* Sleep ---------------------------------------------------------------------------------------- */

static void a_sleep_says_what_stays(void)
{
    start();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(pool, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    fill(range, 0, 2, 4);
    tarn_sleep_options options = {.size = sizeof options};
    tarn_residue_item items[8];
    tarn_residue residue = {.size = sizeof residue, .items = items, .room = 8};
    OK(tarn_sleep(&options, &residue));
    bool found = false;
    for (size_t i = 0; i < residue.count; i++)
        found = found || items[i].reason == TARN_RESIDUE_RANGE;
    CHECK(found);
    OK(tarn_wake());
    is_filled(range, 0, 2, 4);
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    OK(tarn_sleep(&options, NULL));
    CHECK(ledger_of(0).created == 0);
    GIVES(tarn_range_commit(range, 0, PAGE, stream), TARN_ERROR_SUSPENDED);
    OK(tarn_wake());
    OK(tarn_range_commit(range, 0, PAGE, stream));
    OK(tarn_pool_release(pool));
    end(range);
}

/* The trace ------------------------------------------------------------------------------------ */

static bool take(const void *data, size_t size, void *user)
{
    char **text = user;
    size_t before = strlen(*text);
    *text = realloc(*text, before + size + 1);
    for (size_t i = 0; i < size; i++)
        (*text)[before + i] = ((const char *)data)[i] ? ((const char *)data)[i] : ' ';
    (*text)[before + size] = '\0';
    return true;
}

/* Of the runs of pages of a range: their segments, and bytes of parts by state. */
static size_t seen, parts[3];

static void look(const tarn_memory_segment *segment, void *user)
{
    if ((uintptr_t)segment->address - base >= ENTRIES * PAGE)
        return;
    (void)user;
    CHECK(segment->is_virtual && segment->device == 0);
    seen++;
    for (size_t i = 0; i < segment->part_count; i++)
        parts[segment->parts[i].state] += segment->parts[i].bytes;
    for (size_t i = 0; i < segment->part_count; i++)
        CHECK(!segment->parts[i].tag == (segment->parts[i].state != TARN_MEMORY_LIVE));
}

static void a_snapshot_has_the_pages(void)
{
    start();
    tarn_tag tag = 0;
    OK(tarn_tag_intern("pages of a cache", &tag));
    tarn_range *range = range_with((tarn_range_options){.tag = tag}, 16 * PAGE);
    base = (uintptr_t)address_of(range, 0);
    OK(tarn_trace_start(NULL));
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_commit(range, 4 * PAGE, PAGE, stream));
    OK(tarn_range_decommit(range, PAGE, PAGE, stream));
    OK(tarn_memory_list(look, NULL));
    CHECK(seen == 2 && parts[TARN_MEMORY_LIVE] == 2 * PAGE && parts[TARN_MEMORY_FREE] == PAGE);
    OK(tarn_range_decommit(range, 4 * PAGE, PAGE, stream));
    OK(tarn_device_trim(0, 0));
    char *text = calloc(1, 1);
    OK(tarn_snapshot_print(take, &text, NULL));
    CHECK(strstr(text, "segment_map") && strstr(text, "segment_unmap"));
    CHECK(strstr(text, "pages of a cache"));
    free(text);
    OK(tarn_trace_stop());
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    end(range);
}

/* Threads -------------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 400

static tarn_range *shared;
static atomic_uint turn;

/* Each has pages of its own, and all take memory from each other. */
static void *storm(void *argument)
{
    uint64_t seed = 0x9e3779b97f4a7c15u * ((uintptr_t)argument + 1);
    size_t first = (uintptr_t)argument * 16;
    tarn_stream own = lease(0);
    bool committed[16] = {false};
    for (int i = 0; i < ROUNDS; i++) {
        size_t page = random_next(&seed) % 16, at = (first + page) * PAGE;
        if (committed[page]) {
            char *start = address_of(shared, first + page);
            OK(tarn_stream_synchronize(own));
            CHECK(*start == (char)(first + page) && start[PAGE - 1] == (char)(first + page));
            work_on(own, start, PAGE, random_next(&seed) % 20000);
            OK(tarn_range_decommit(shared, at, PAGE, own));
            committed[page] = false;
            continue;
        }
        tarn_status status = tarn_range_commit(shared, at, PAGE, own);
        CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
        if (!status) {
            char *start = address_of(shared, first + page);
            committed[page] = true;
            OK(tarn_stream_synchronize(own));
            *start = start[PAGE - 1] = (char)(first + page);
        }
        if (random_next(&seed) % 64 == 0)
            OK(tarn_device_trim(0, 0));
        if (random_next(&seed) % 8 == 0) {
            void *block = NULL;
            if (tarn_alloc_on(own, 3 * MIB, &block) == TARN_OK)
                OK(tarn_free(block));
        }
    }
    for (size_t page = 0; page < 16; page++)
        if (committed[page])
            OK(tarn_range_decommit(shared, (first + page) * PAGE, PAGE, own));
    OK(tarn_stream_synchronize(own));
    OK(tarn_stream_return(own));
    return NULL;
}

static void threads_share_a_range(void)
{
    start();
    pthread_t threads[THREADS];
    shared = range_of(NULL, 16 * THREADS * PAGE); /* twice the memory */
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, storm, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(info_of(shared).committed == 0);
    end(shared);
}

/* Of threads that want one page, exactly one gets it. */
static atomic_uint got[ROUNDS];

static void *want(void *argument)
{
    tarn_stream own = lease(0);
    (void)argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        while (atomic_load(&turn) < i)
            ;
        tarn_status status = tarn_range_commit(shared, 0, 2 * PAGE, i % 2 ? own : stream);
        CHECK(status == TARN_OK || status == TARN_ERROR_INVALID_ARGUMENT);
        if (!status) {
            CHECK(atomic_fetch_add(&got[i], 1) == 0);
            atomic_fetch_sub(&got[i], 1); /* while no other thread can have the page */
            OK(tarn_range_decommit(shared, 0, 2 * PAGE, i % 2 ? own : stream));
            atomic_store(&turn, i + 1);
        } else if (i == ROUNDS - 1) {
            break;
        }
    }
    OK(tarn_stream_synchronize(own));
    OK(tarn_stream_return(own));
    return NULL;
}

static void one_of_many_gets_a_page(void)
{
    start();
    pthread_t threads[THREADS];
    shared = range_of(NULL, 4 * PAGE);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, want, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    end(shared);
}

/* What a commit has taken when it fails is found by a later trim, even if a trim looked in between.
 * The commit stops at the word of the first page that is described in the second memory page of its
 * chunk: the handler of the fault runs the trim. */
static struct {
    char *start;
    size_t bytes;
    volatile sig_atomic_t reached;
} barrier;

static void trim_at_the_barrier(int number)
{
    (void)number;
    CHECK(mprotect(barrier.start, barrier.bytes, PROT_READ | PROT_WRITE) == 0);
    barrier.reached = 1;
    OK(tarn_device_trim(0, 0));
    CHECK(info_of(shared).committed == 2 * PAGE && info_of(shared).decommitted == 0);
}

static void a_commit_that_fails_hides_no_page_from_trims(void)
{
    start();
    barrier.bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t described = barrier.bytes - offsetof(struct chunk, pages);
    size_t beyond = (described + sizeof(struct page) - 1) / sizeof(struct page);
    size_t offset = (beyond - 1) * PAGE;
    shared = range_of(NULL, (beyond + 1) * PAGE);
    OK(tarn_range_commit(shared, offset, 2 * PAGE, stream));
    OK(tarn_range_decommit(shared, offset, PAGE, stream));
    OK(tarn_stream_synchronize(stream));
    barrier.start = (char *)range_chunk(shared, 0) + barrier.bytes;
    CHECK(mprotect(barrier.start, barrier.bytes, PROT_NONE) == 0);
    (void)signal(SIGSEGV, trim_at_the_barrier);
    GIVES(tarn_range_commit(shared, offset, 2 * PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    (void)signal(SIGSEGV, SIG_DFL);
    CHECK(barrier.reached && info_of(shared).decommitted == PAGE);
    OK(tarn_device_trim(0, 0));
    CHECK(info_of(shared).decommitted == 0);
    OK(tarn_range_decommit(shared, offset + PAGE, PAGE, stream));
    end(shared);
}

/* A page may be any multiple of the granule, not a power of two alone. */
static void pages_of_three_granules_are_whole_pages(void)
{
    host_start_with(1, 128 * MIB);
    stream = lease(0);
    const size_t page = 3 * PAGE;
    tarn_range *range = range_with((tarn_range_options){.page = page}, 8 * page);
    OK(tarn_range_commit(range, page, 2 * page, stream));
    OK(tarn_range_commit(range, 4 * page, page, stream));
    GIVES(tarn_range_commit(range, PAGE, 2 * PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_range_decommit(range, page, 2 * PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(info_of(range).committed == 3 * page);
    OK(tarn_range_decommit(range, page, 2 * page, stream));
    CHECK(info_of(range).committed == page);
    end(range);
}

/* What a commit that fails puts back is found again: by a trim, a request and a suspend. */
static void decommitted_pages_of_a_failed_commit_are_found(void)
{
    start();
    tarn_pool *pool = NULL;
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options)}, &pool));
    tarn_range *range = range_of(pool, 8 * PAGE);
    for (int way = 0; way < 3; way++) {
        OK(tarn_range_commit(range, 0, PAGE, stream));
        OK(tarn_range_decommit(range, 0, PAGE, stream));
        OK(tarn_stream_synchronize(stream));
        OK(tarn_device_limit_set(0, PAGE));
        GIVES(tarn_range_commit(range, 0, 2 * PAGE, stream), TARN_ERROR_OUT_OF_MEMORY);
        CHECK(info_of(range).committed == 0);
        if (way == 0) {
            OK(tarn_pool_trim(pool, 0));
        } else if (way == 1) {
            void *block = NULL;
            OK(tarn_alloc_on(stream, MIB, &block));
            OK(tarn_free(block));
            OK(tarn_device_trim(0, 0));
        } else {
            OK(tarn_pool_suspend(pool, false));
        }
        CHECK(stats_of(0).reserved_bytes[0].current == 0);
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    }
    OK(tarn_pool_resume(pool));
    OK(tarn_range_destroy(range));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The host device's queries. The clock moves on after the first answer that work has not ended. */
static struct driver hooked;
static bool clock_moves;

static tarn_status query_and_move_on(int device, driver_event event)
{
    tarn_status status = driver_host.event_query(device, event);
    if (clock_moves && status == TARN_ERROR_NOT_READY) {
        clock_moves = false;
        OK(tarn_host_advance(time_now() + 2000));
    }
    return status;
}

static bool is_left(const tarn_range *range, size_t index)
{
    for (const struct page *page = range->left; page; page = page->link)
        if (page->index == index)
            return true;
    return false;
}

/* One pass over the pages that earlier work still uses finds page 1 busy, and then, from page 2 on,
 * ends a run that page 1 is in. The list of such pages keeps page 9, whose work goes on. */
static void work_ends_while_pages_are_looked_at(void)
{
    host_start_with(1, 256 * MIB);
    stream = lease(0);
    tarn_stream other = lease(0), third = lease(0);
    hooked = driver_host;
    hooked.event_query = query_and_move_on;
    driver = &hooked;
    tarn_range *range = range_of(NULL, 16 * PAGE), *second = range_of(NULL, 2 * PAGE);
    OK(tarn_range_commit(second, 0, 2 * PAGE, third));

    OK(tarn_range_commit(range, 9 * PAGE, PAGE, other));
    work_on(other, address_of(range, 9), PAGE, 1000000);
    OK(tarn_range_decommit(range, 9 * PAGE, PAGE, other));
    OK(tarn_range_commit(range, 10 * PAGE, PAGE, other));
    CHECK(is_left(range, 9));
    OK(tarn_range_commit(range, 0, PAGE, stream));
    work_on(stream, address_of(range, 0), PAGE, 1000);
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_range_commit(range, 2 * PAGE, PAGE, stream)); /* with the memory of page 0 */
    OK(tarn_range_commit(range, PAGE, PAGE, stream));
    OK(tarn_range_decommit(range, PAGE, PAGE, stream));
    OK(tarn_range_commit(range, 12 * PAGE, PAGE, other)); /* marks the end of page 1's use */
    OK(tarn_range_decommit(range, 2 * PAGE, PAGE, stream));
    OK(tarn_range_commit(range, 3 * PAGE, 2 * PAGE, stream));
    CHECK(is_left(range, 1) && is_left(range, 2));
    clock_moves = true;
    OK(tarn_range_commit(range, 13 * PAGE, PAGE, other));
    CHECK(!clock_moves && !is_left(range, 1) && is_left(range, 9));
    driver = &driver_host;
    OK(tarn_range_destroy(second)); /* its pieces are unmapped ones of the pool now */
    OK(tarn_range_commit(range, PAGE, PAGE, stream));
    CHECK(is_left(range, 9));
    OK(tarn_host_advance(time_now() + 2000000));
    end(range);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_capturing_stream_neither_commits_nor_decommits),
        CHILD_TEST(held_pages_stay),
        CHILD_TEST(debug_mode_unmaps_what_is_idle),
        CHILD_TEST(observers_are_asked_before_growth),
        CHILD_TEST(a_commit_that_cannot_succeed_does_not_spill_everything),
        CHILD_TEST(observers_know_what_is_mapped),
        CHILD_TEST(observers_know_a_page_that_stays_mapped),
        CHILD_TEST(old_pages_that_are_refused_stay),
        CHILD_TEST(peers_reach_pages),
        CHILD_TEST(a_sleep_says_what_stays),
        CHILD_TEST(a_snapshot_has_the_pages),
        CHILD_TEST(threads_share_a_range),
        CHILD_TEST(one_of_many_gets_a_page),
        CHILD_TEST(a_commit_that_fails_hides_no_page_from_trims),
        CHILD_TEST(pages_of_three_granules_are_whole_pages),
        CHILD_TEST(decommitted_pages_of_a_failed_commit_are_found),
        CHILD_TEST(work_ends_while_pages_are_looked_at),
    };
    return cmocka_run_group_tests_name("range_calls", tests, NULL, NULL);
}
