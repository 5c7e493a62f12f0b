/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Observers: a book that is kept by `mapped` and `unmapping` alone is what the driver has mapped,
 * each incarnation of an address with a generation of its own; callbacks come at the right moment,
 * with what they may and may not do; shortages and reclaims; removal. */
#include "memory/arena/arena.h"
#include "support/host.h"

#include "base/pages.h"
#include "driver/driver.h"
#include "driver/host/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PIECE (20 * MIB)
#define GRANULE (2 * MIB)
#define DEVICE (256 * MIB)
#define ENTRIES 4096

static tarn_stream own, other;

/* The book: what is mapped, by granule. */
static pthread_mutex_t book_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uintptr_t address;
    uint64_t generation;
} book[ENTRIES];
static size_t booked, mistakes;
static uint64_t newest;

static size_t entry_of(uintptr_t address)
{
    size_t i = 0;
    while (i < booked && book[i].address != address)
        i++;
    return i;
}

static bool is_mapped(const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(0, address, 1, &extent) == TARN_OK && extent.accessible;
}

static void note_mapped(const tarn_mapping *range, void *user)
{
    (void)user;
    pthread_mutex_lock(&book_lock);
    mistakes += range->device != 0 || range->bytes == 0 || range->bytes % GRANULE != 0 ||
                range->generation == 0;
    newest = range->generation > newest ? range->generation : newest;
    for (uintptr_t at = (uintptr_t)range->address; at < (uintptr_t)range->address + range->bytes;
         at += GRANULE) {
        size_t i = entry_of(at);
        mistakes += !is_mapped((void *)at) || (i < booked && book[i].generation != 0);
        booked += i == booked;
        book[i].address = at;
        book[i].generation = range->generation;
    }
    pthread_mutex_unlock(&book_lock);
}

static void note_unmapping(const tarn_mapping *range, void *user)
{
    (void)user;
    pthread_mutex_lock(&book_lock);
    for (uintptr_t at = (uintptr_t)range->address; at < (uintptr_t)range->address + range->bytes;
         at += GRANULE) {
        size_t i = entry_of(at);
        mistakes +=
            !is_mapped((void *)at) || i == booked || book[i].generation != range->generation;
        book[i].generation = 0;
    }
    pthread_mutex_unlock(&book_lock);
}

static size_t booked_bytes(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < booked; i++)
        bytes += book[i].generation ? GRANULE : 0;
    return bytes;
}

/* The book is right, by the driver's word. */
static void check_book(void)
{
    CHECK(mistakes == 0);
    CHECK(booked_bytes() == ledger_of(0).mapped);
}

static const tarn_observer_options book_keeper = {.size = sizeof(tarn_observer_options),
                                                  .device = 0,
                                                  .mapped = note_mapped,
                                                  .unmapping = note_unmapping};

static tarn_observer add(tarn_observer_options options)
{
    tarn_observer observer = 0;
    options.size = sizeof options;
    OK(tarn_observer_add(&options, &observer));
    CHECK(observer != 0);
    return observer;
}

static uint64_t generation_of(const void *pointer)
{
    tarn_mapping range;
    OK(tarn_mapping_get(pointer, &range));
    CHECK((char *)range.address <= (const char *)pointer &&
          (const char *)pointer < (char *)range.address + range.bytes && range.device == 0);
    CHECK(book[entry_of((uintptr_t)range.address)].generation == range.generation);
    return range.generation;
}

static void the_book_follows_all_that_is_mapped(void **state)
{
    (void)state;
    tarn_observer observer = add(book_keeper);
    char *block = alloc_on(own, 3 * PIECE);
    uint64_t first = generation_of(block);
    CHECK(generation_of(block + 3 * PIECE - 1) == first);
    check_book();
    char *behind = alloc_on(own, PIECE);
    CHECK(generation_of(behind) > first && generation_of(block) == first);
    check_book();
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    check_book();
    CHECK(booked_bytes() == PIECE);
    GIVES(tarn_mapping_get(block, &(tarn_mapping){0}), TARN_ERROR_INVALID_POINTER);
    OK(tarn_free(behind));
    OK(tarn_device_trim(0, 0));
    check_book();
    CHECK(booked_bytes() == 0);

    char *again = alloc_on(own, 3 * PIECE); /* where `block` was */
    CHECK(again == block && generation_of(again) > first);
    check_book();
    OK(tarn_free(again));
    nothing_is_left(0);
    check_book();
    OK(tarn_observer_remove(observer));
}

/* Memory that work still uses is mapped a second time: both addresses are in the book until the old
 * one goes. */
static void aliases_and_the_end_of_the_old_address_are_reported(void **state)
{
    (void)state;
    tarn_observer observer = add(book_keeper);
    void *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = alloc_on(own, PIECE);
    for (int i = 0; i < 4; i += 2) {
        work_on(own, blocks[i], PIECE, 1000);
        OK(tarn_free(blocks[i]));
    }
    check_book();
    void *wide = alloc_on(own, 2 * PIECE);
    CHECK(booked_bytes() == 6 * PIECE);
    check_book();
    time_pass(2000);
    void *more = alloc_on(own, 3 * PIECE);
    CHECK(booked_bytes() == 7 * PIECE);
    check_book();
    OK(tarn_free(wide));
    OK(tarn_free(more));
    OK(tarn_free(blocks[1]));
    OK(tarn_free(blocks[3]));
    nothing_is_left(0);
    check_book();
    OK(tarn_observer_remove(observer));
}

static void what_the_driver_refuses_to_unmap_is_mapped_anew(void **state)
{
    (void)state;
    tarn_observer observer = add(book_keeper);
    void *block = alloc_on(own, PIECE), *pinned = alloc_on(own, PIECE);
    uint64_t before = generation_of(block);
    OK(tarn_free(block));
    OK(tarn_host_fail_set(DRIVER_CALL_unmap, 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_DRIVER);
    check_book();
    CHECK(newest > before);
    CHECK(alloc_on(own, PIECE) == block && generation_of(block) == newest);
    OK(tarn_free(block));
    OK(tarn_free(pinned));

    for (uint64_t nth = 1;; nth++) { /* a failed mapping is not reported */
        void *wide = NULL;
        OK(tarn_device_trim(0, 0));
        OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
        tarn_status status = tarn_alloc_on(own, 5 * PIECE, &wide);
        bool hit = host_fail_hits() != 0;
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        check_book();
        if (!status)
            OK(tarn_free(wide));
        if (!hit)
            break;
    }
    nothing_is_left(0);
    check_book();
    OK(tarn_observer_remove(observer));
}

static void a_pool_that_is_suspended_and_resumed_is_mapped_anew(void **state)
{
    (void)state;
    tarn_observer observer = add(book_keeper);
    tarn_pool *pool = NULL;
    void *block = NULL, *more = NULL;
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options)}, &pool));
    OK(tarn_pool_alloc(pool, own, 3 * PIECE, &block));
    OK(tarn_pool_alloc(pool, own, MIB, &more));
    uint64_t before = generation_of(block);
    OK(tarn_pool_suspend(pool, true));
    check_book();
    CHECK(booked_bytes() == 0);
    GIVES(tarn_mapping_get(block, &(tarn_mapping){0}), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    check_book();
    CHECK(booked_bytes() == ledger_of(0).mapped && generation_of(block) > before);
    for (uint64_t nth = 1, hits = 1; hits; nth++) { /* whatever fails on the way there and back */
        OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
        tarn_status status = tarn_pool_suspend(pool, true);
        hits = host_fail_hits();
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        CHECK(hits || !status);
        check_book();
        tarn_pool_state now = pool_info_of(pool).state;
        if (now != TARN_POOL_RUNS) {
            OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
            if (tarn_pool_resume(pool)) {
                check_book();
                OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
                OK(tarn_pool_resume(pool));
            }
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        }
        check_book();
    }
    OK(tarn_free(block));
    OK(tarn_free(more));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    check_book();
    OK(tarn_observer_remove(observer));
}

/* ---- What a callback may do ---- */

static struct {
    tarn_pool *pool;
    void *block;
    unsigned ran;
    bool well;
} doing;

static void do_much(const tarn_mapping *range, void *user)
{
    void *more = NULL;
    tarn_mapping found;
    tarn_stats stats = {.size = sizeof stats};
    (void)user;
    (void)range;
    doing.well = tarn_alloc_on(own, 100 * MIB, &more) == TARN_ERROR_BUSY && !more;
    doing.well = doing.well && strstr(tarn_last_error(), "observer");
    doing.well = doing.well && tarn_device_trim(0, 0) == TARN_ERROR_BUSY;
    doing.well = doing.well && tarn_pool_suspend(doing.pool, true) == TARN_ERROR_BUSY;
    doing.well = doing.well && tarn_pool_resume(doing.pool) == TARN_ERROR_BUSY;
    doing.well = doing.well && tarn_pool_hold(doing.pool, NULL) == TARN_ERROR_BUSY;
    doing.well = doing.well && tarn_device_stats_get(0, &stats) == TARN_OK;
    if (doing.block) {
        doing.well = doing.well && tarn_mapping_get(doing.block, &found) == TARN_OK;
        doing.well = doing.well && tarn_free(doing.block) == TARN_OK;
        doing.block = NULL;
    }
    doing.ran++;
}

static void a_callback_may_look_and_free_and_not_move_memory(void **state)
{
    (void)state;
    GIVES(tarn_alloc_on(own, DEVICE + 1, &(void *){NULL}), TARN_ERROR_OUT_OF_MEMORY);
    char error[256];
    strncpy(error, tarn_last_error(), sizeof error - 1);
    error[sizeof error - 1] = '\0';

    OK(tarn_pool_create(NULL, &doing.pool));
    tarn_observer observer = add((tarn_observer_options){.mapped = do_much});
    void *block = alloc_on(own, PIECE);
    CHECK(doing.ran == 1 && doing.well);
    /* What failed inside is not ours */
    CHECK(strncmp(error, tarn_last_error(), sizeof error - 1) == 0);
    doing.block = block;
    void *second = alloc_on(own, 2 * PIECE);
    CHECK(doing.ran == 2 && doing.well && !doing.block);
    OK(tarn_observer_remove(observer));

    observer = add((tarn_observer_options){.unmapping = do_much});
    OK(tarn_free(second));
    OK(tarn_device_trim(0, 0));
    CHECK(doing.ran > 2 && doing.well);
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

static void only_the_requested_device_is_reported(void **state)
{
    (void)state;
    tarn_observer observer = add((tarn_observer_options){.device = 1, .mapped = do_much});
    unsigned before = doing.ran;
    OK(tarn_free(alloc_on(own, PIECE)));
    CHECK(doing.ran == before);
    tarn_stream far = lease(1);
    OK(tarn_free(alloc_on(far, PIECE)));
    CHECK(doing.ran == before + 1);
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    tarn_observer observer = 0;
    tarn_observer_options options = book_keeper;
    GIVES(tarn_observer_add(NULL, &observer), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_observer_add(&options, NULL), TARN_ERROR_INVALID_ARGUMENT);
    options.size--;
    GIVES(tarn_observer_add(&options, &observer), TARN_ERROR_INVALID_ARGUMENT);
    options = (tarn_observer_options){.size = sizeof options};
    GIVES(tarn_observer_add(&options, &observer), TARN_ERROR_INVALID_ARGUMENT);
    options = book_keeper;
    options.device = -2;
    GIVES(tarn_observer_add(&options, &observer), TARN_ERROR_INVALID_ARGUMENT);
    options.device = TARN_MAX_DEVICES;
    GIVES(tarn_observer_add(&options, &observer), TARN_ERROR_INVALID_ARGUMENT);
    options.device = TARN_ALL_DEVICES;
    pages_fail(1, false);
    GIVES(tarn_observer_add(&options, &observer), TARN_ERROR_OUT_OF_HOST_MEMORY);
    pages_fail(0, false);
    CHECK(observer == 0);
    GIVES(tarn_observer_remove(0), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_mapping_get(&observer, &(tarn_mapping){0}), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_mapping_get(&observer, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

/* ---- Shortages ---- */

static struct {
    tarn_shortage last;
    unsigned count, reclaims;
    void *spare; /* given back by reclaim */
    bool well;
} shortage;

static bool note_shortage(const tarn_shortage *seen, void *user)
{
    (void)user;
    shortage.last = *seen;
    shortage.count++;
    void *small = NULL, *large = NULL;
    OK(tarn_alloc_on(own, 512, &small)); /* anything may be done */
    OK(tarn_free(small));
    /* And nobody learns of that */
    GIVES(tarn_alloc_on(own, DEVICE, &large), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_trim(0, SIZE_MAX));
    return false;
}

static void an_out_of_memory_is_reported_with_its_numbers(void **state)
{
    (void)state;
    tarn_observer observer = add((tarn_observer_options){.out_of_memory = note_shortage});
    void *block = alloc_on(own, DEVICE / 2), *more = NULL;
    GIVES(tarn_alloc_on(other, DEVICE / 2 + PIECE, &more), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "of its 256 MiB free"));
    CHECK(shortage.count == 1 && !shortage.last.rejected && shortage.last.device == 0);
    CHECK(shortage.last.requested == DEVICE / 2 + PIECE && shortage.last.total == DEVICE);
    CHECK(shortage.last.limit == SIZE_MAX &&
          shortage.last.reserved == ledger_of(0).created - GRANULE);
    CHECK(shortage.last.free == DEVICE - shortage.last.reserved);

    OK(tarn_device_limit_set(0, DEVICE / 2));
    GIVES(tarn_alloc_on(other, DEVICE / 2 + PIECE, &more), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(shortage.count == 2 && shortage.last.rejected);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_free(block));
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

static bool give_back(int device, size_t bytes, void *user)
{
    (void)user;
    shortage.reclaims++;
    shortage.well = device == 0 && bytes == PIECE;
    if (!shortage.spare)
        return false;
    OK(tarn_free(shortage.spare));
    shortage.spare = NULL;
    return true;
}

static void what_is_given_back_serves_before_the_driver_is_asked(void **state)
{
    (void)state;
    shortage.spare = alloc_on(own, PIECE);
    void *expected = shortage.spare;
    uint64_t creates = calls_of(0, "create");
    tarn_observer observer = add((tarn_observer_options){.before_growth = give_back});
    void *block = alloc_on(own, PIECE);
    CHECK(block == expected && shortage.reclaims == 1 && shortage.well);
    CHECK(calls_of(0, "create") == creates);
    void *next = alloc_on(own, PIECE); /* asked once, and then the driver */
    CHECK(shortage.reclaims == 2 && calls_of(0, "create") == creates + 1);
    OK(tarn_free(next));
    next = alloc_on(own, PIECE); /* nobody is asked where free memory is at hand */
    CHECK(shortage.reclaims == 2);
    OK(tarn_free(next));
    OK(tarn_free(block));
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

/* What a program can do without: blocks, and who uses them. */
static struct {
    void *blocks[4];
    int count, asked;
    tarn_stream user; /* 0: none */
    bool lies;        /* says once more that it has freed something */
} spare;

static bool spill(const tarn_shortage *seen, void *user)
{
    (void)user;
    CHECK(seen->device == 0 && seen->requested == DEVICE - PIECE);
    spare.asked++;
    if (!spare.count) {
        bool lies = spare.lies;
        spare.lies = false;
        return lies;
    }
    void *block = spare.blocks[--spare.count];
    OK(spare.user ? tarn_free_on(block, spare.user) : tarn_free(block));
    return true;
}

/* Asked again as long as something was freed and it does not suffice. */
static void what_is_freed_before_a_failure_serves_the_request(void **state)
{
    (void)state;
    tarn_observer observer = add((tarn_observer_options){.out_of_memory = spill});
    for (int used = 0; used < 2; used++) {
        spare.user = used ? other : 0;
        spare.count = 4;
        spare.asked = 0;
        for (int i = 0; i < 4; i++)
            spare.blocks[i] = alloc_on(own, DEVICE / 8);
        if (used)
            work_on(other, spare.blocks[0], MIB, 1000000); /* the request waits for it */
        tarn_stats before = stats_of(0);
        void *block = alloc_on(own, DEVICE - PIECE);
        CHECK(spare.asked == 4 && spare.count == 0);
        CHECK(stats_of(0).num_ooms == before.num_ooms);
        verify(0);
        OK(tarn_free(block));
        OK(tarn_device_trim(0, 0));
    }
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

static void a_request_that_stays_short_fails_with_the_text_of_the_end(void **state)
{
    (void)state;
    tarn_observer observer = add((tarn_observer_options){.out_of_memory = spill});
    void *kept = alloc_on(own, DEVICE / 2), *none = NULL;
    spare.user = 0;
    spare.asked = 0;
    spare.blocks[0] = alloc_on(own, DEVICE / 4);
    spare.count = 1;
    spare.lies = true; /* costs a search, and nothing else */
    tarn_stats before = stats_of(0);
    GIVES(tarn_alloc_on(own, DEVICE - PIECE, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(spare.asked == 3 && !none);
    CHECK(strstr(tarn_last_error(), "128 MiB live"));
    CHECK(stats_of(0).num_ooms == before.num_ooms + 1);
    OK(tarn_free(kept));
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

/* Where only leave_free_mb holds, the limit is what that leaves of what is free now. */
static void an_out_of_memory_names_what_is_left_free(void **state)
{
    (void)state;
    void *pointer = NULL;
    uintptr_t foreign = 0;
    tarn_stream stream = lease(0);
    tarn_observer observer = add((tarn_observer_options){.out_of_memory = note_shortage});
    OK(tarn_device_trim(0, 0));
    OK(tarn_configuration_set("leave_free_mb:16"));
    OK(driver->alloc(0, DEVICE / 4, &foreign)); /* somebody else */
    void *block = alloc_on(stream, DEVICE / 2);
    GIVES(tarn_alloc_on(stream, DEVICE / 4, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(shortage.last.reserved == DEVICE / 2);
    CHECK(shortage.last.limit == DEVICE - DEVICE / 4 - 16 * MIB);
    OK(tarn_device_limit_set(0, DEVICE / 2 + 2 * MIB)); /* the lesser of both */
    GIVES(tarn_alloc_on(stream, DEVICE / 4, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(shortage.last.limit == DEVICE / 2 + 2 * MIB);
    OK(driver->free(0, foreign));
    OK(tarn_free(block));
    OK(tarn_configuration_set("all:default"));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_observer_remove(observer));
    OK(tarn_stream_return(stream));
}

/* The limit that the observer sets at its first call; 0: none. */
static size_t raised;

static bool spill_blindly(const tarn_shortage *seen, void *user)
{
    (void)seen;
    (void)user;
    if (!spare.asked++ && raised)
        OK(tarn_device_limit_set(0, raised));
    if (!spare.count)
        return false;
    OK(tarn_free(spare.blocks[--spare.count]));
    return true;
}

/* What no memory can serve costs at most one answer, unless that raises the limit. */
static void a_request_that_cannot_succeed_does_not_spill_everything(void **state)
{
    (void)state;
    tarn_observer observer = add((tarn_observer_options){.out_of_memory = spill_blindly});
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    void *none = NULL;
    for (spare.count = 0; spare.count < 4; spare.count++)
        spare.blocks[spare.count] = alloc_on(own, DEVICE / 8);
    spare.asked = 0;
    GIVES(tarn_alloc_on(own, 2 * DEVICE, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(spare.asked == 1 && spare.count == 3);
    OK(tarn_pool_limit_set(pool, DEVICE / 8));
    GIVES(tarn_pool_alloc(pool, own, DEVICE / 4, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(spare.asked == 2 && spare.count == 2);

    OK(tarn_device_limit_set(0, DEVICE / 2));
    spare.asked = 0;
    raised = DEVICE - PIECE;
    void *block = alloc_on(own, DEVICE - PIECE);
    raised = 0;
    CHECK(spare.asked == 2 && spare.count == 0);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_free(block));
    OK(tarn_observer_remove(observer));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static tarn_pool *ending;

static bool end_pool(int device, size_t bytes, void *user)
{
    (void)device;
    (void)bytes;
    (void)user;
    OK(tarn_pool_release(ending));
    return true;
}

/* The request goes on in a pool without references; what it gets is found again. */
static void a_pool_may_be_released_under_a_request(void **state)
{
    (void)state;
    tarn_observer observer = add((tarn_observer_options){.before_growth = end_pool});
    for (int i = 0; i < 2; i++) {
        void *block = NULL;
        ending = pool_with((tarn_pool_options){.device = 0});
        const tarn_alloc_options options = {
            .size = sizeof options, .device = 0, .stream = own, .pool = ending};
        OK(i ? tarn_pool_alloc(ending, own, PIECE, &block) : tarn_alloc(&options, PIECE, &block));
        CHECK(is_mapped(block));
        verify(0);
        OK(tarn_free(block));
        OK(tarn_device_trim(0, 0));
        CHECK(ledger_of(0).created == 0);
    }
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

static bool shut_down(int device, size_t bytes, void *user)
{
    (void)device;
    (void)bytes;
    (void)user;
    GIVES(tarn_shutdown(), TARN_ERROR_BUSY);
    shortage.reclaims++;
    return false;
}

static bool shut_down_late(const tarn_shortage *seen, void *user)
{
    return shut_down(seen->device, 0, user);
}

static void shut_down_at_once(const tarn_mapping *range, void *user)
{
    (void)shut_down(range->device, 0, user);
}

static void no_callback_shuts_down(void **state)
{
    (void)state;
    void *none = NULL;
    shortage.reclaims = 0;
    tarn_observer observer = add((tarn_observer_options){
        .before_growth = shut_down, .out_of_memory = shut_down_late, .mapped = shut_down_at_once});
    void *block = alloc_on(own, PIECE);
    CHECK(shortage.reclaims == 2);
    GIVES(tarn_alloc_on(own, 2 * DEVICE, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(shortage.reclaims == 3);
    OK(tarn_free(block));
    OK(tarn_observer_remove(observer));
    nothing_is_left(0);
}

/* ---- Removal ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool inside, may_leave;
    unsigned calls;
    tarn_observer number;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_at_gate(const tarn_mapping *range, void *user)
{
    (void)user;
    (void)range;
    pthread_mutex_lock(&gate.lock);
    gate.calls++;
    gate.inside = true;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.may_leave)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.inside = false;
    pthread_mutex_unlock(&gate.lock);
}

static void *grow_run(void *argument)
{
    (void)argument;
    void *block = NULL;
    if (tarn_alloc_on(other, PIECE, &block) || tarn_free(block))
        return NULL;
    return &gate;
}

static void *open_later(void *argument)
{
    (void)argument;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    pthread_mutex_lock(&gate.lock);
    gate.may_leave = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    return NULL;
}

static void a_removal_waits_for_the_callback_that_runs(void **state)
{
    (void)state;
    pthread_t grower, opener;
    void *result = NULL;
    tarn_observer observer = add((tarn_observer_options){.mapped = wait_at_gate});
    CHECK(pthread_create(&grower, NULL, grow_run, NULL) == 0);
    pthread_mutex_lock(&gate.lock);
    while (!gate.inside)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    CHECK(pthread_create(&opener, NULL, open_later, NULL) == 0);
    OK(tarn_observer_remove(observer));
    pthread_mutex_lock(&gate.lock);
    CHECK(gate.may_leave && !gate.inside);
    pthread_mutex_unlock(&gate.lock);
    GIVES(tarn_observer_remove(observer), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(pthread_join(grower, &result) == 0 && result);
    CHECK(pthread_join(opener, NULL) == 0);
    OK(tarn_free(alloc_on(own, 10 * PIECE)));
    CHECK(gate.calls == 1);
    nothing_is_left(0);
}

static void remove_itself(const tarn_mapping *range, void *user)
{
    (void)range;
    tarn_observer *number = user;
    gate.calls++;
    OK(tarn_observer_remove(*number));
}

static void a_callback_may_remove_its_own_observer(void **state)
{
    (void)state;
    tarn_observer number = 0;
    tarn_observer before = add(book_keeper);
    number = add((tarn_observer_options){.user = &number, .mapped = remove_itself});
    tarn_observer after = add((tarn_observer_options){.mapped = do_much});
    unsigned calls = gate.calls, others = doing.ran;
    void *block = alloc_on(own, PIECE), *more = alloc_on(own, PIECE);
    CHECK(gate.calls == calls + 1 && doing.ran == others + 2);
    check_book();
    GIVES(tarn_observer_remove(number), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_free(block));
    OK(tarn_free(more));
    nothing_is_left(0);
    OK(tarn_observer_remove(before));
    OK(tarn_observer_remove(after));
}

/* Observers come and go while memory does. */
/* Removes the observer behind its own, once. */
static tarn_observer behind;

static void remove_the_next(const tarn_mapping *range, void *user)
{
    (void)range;
    ++*(int *)user;
    if (behind)
        OK(tarn_observer_remove(behind));
    behind = 0;
}

static void count_call(const tarn_mapping *range, void *user)
{
    (void)range;
    ++*(int *)user;
}

static void a_callback_may_remove_the_next_observer(void **state)
{
    (void)state;
    int first = 0, second = 0, third = 0;
    tarn_observer remover = add((tarn_observer_options){.mapped = remove_the_next, .user = &first});
    behind = add((tarn_observer_options){.mapped = count_call, .user = &second});
    tarn_observer last = add((tarn_observer_options){.mapped = count_call, .user = &third});
    OK(tarn_device_trim(0, 0));
    void *block = alloc_on(own, 60 * MIB);
    CHECK(first > 0 && second == 0 && third == first);
    OK(tarn_free(block));
    OK(tarn_observer_remove(remover));
    OK(tarn_observer_remove(last));
    OK(tarn_device_trim(0, 0));
}

static atomic_bool storm_ends;

static void count_here(const tarn_mapping *range, void *user)
{
    (void)range;
    atomic_fetch_add((atomic_uint *)user, 1);
}

static void *storm_run(void *argument)
{
    uint64_t random = 77 + (uint64_t)(uintptr_t)argument;
    tarn_stream stream = (uintptr_t)argument ? other : own;
    while (!atomic_load(&storm_ends)) {
        void *block = NULL;
        if (tarn_alloc_on(stream, (random_next(&random) % 4 + 1) * PIECE, &block) == TARN_OK)
            OK(tarn_free(block));
        if (random_next(&random) % 4 == 0)
            OK(tarn_device_trim(0, 0));
    }
    return NULL;
}

static void observers_come_and_go_while_memory_does(void **state)
{
    (void)state;
    pthread_t threads[2];
    tarn_observer always = add(book_keeper);
    atomic_store(&storm_ends, false);
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, storm_run, (void *)i) == 0);
    for (int i = 0; i < 2000; i++) {
        atomic_uint *here = pages_alloc(sizeof *here); /* gone as soon as the removal has
                                                          returned */
        CHECK(here != NULL);
        tarn_observer observer = add(
            (tarn_observer_options){.user = here, .mapped = count_here, .unmapping = count_here});
        if (i % 8 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        OK(tarn_observer_remove(observer));
        memset(here, 0, sizeof *here);
        pages_free(here, sizeof *here);
    }
    atomic_store(&storm_ends, true);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    nothing_is_left(0);
    check_book();
    OK(tarn_observer_remove(always));
}

static void after_the_shutdown_an_observer_can_still_be_removed(void)
{
    host_start_with(1, DEVICE);
    tarn_observer observer = add(book_keeper);
    void *block = alloc_on(TARN_STREAM_LEGACY, PIECE);
    CHECK(booked_bytes() == PIECE);
    OK(tarn_free(block));
    OK(tarn_shutdown());
    CHECK(mistakes == 0 && booked_bytes() == 0);
    OK(tarn_observer_remove(observer));
    GIVES(tarn_observer_add(&book_keeper, &observer), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_mapping_get(block, &(tarn_mapping){0}), TARN_ERROR_SHUTDOWN);
}

static void at_the_end(void **state)
{
    (void)state;
    in_child(after_the_shutdown_an_observer_can_still_be_removed);
}

static int start(void **state)
{
    (void)state;
    host_start_with(2, DEVICE);
    own = lease(0);
    other = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest first[] = {cmocka_unit_test(at_the_end)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_book_follows_all_that_is_mapped),
        cmocka_unit_test(aliases_and_the_end_of_the_old_address_are_reported),
        cmocka_unit_test(what_the_driver_refuses_to_unmap_is_mapped_anew),
        cmocka_unit_test(a_pool_that_is_suspended_and_resumed_is_mapped_anew),
        cmocka_unit_test(a_callback_may_look_and_free_and_not_move_memory),
        cmocka_unit_test(only_the_requested_device_is_reported),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(an_out_of_memory_is_reported_with_its_numbers),
        cmocka_unit_test(an_out_of_memory_names_what_is_left_free),
        cmocka_unit_test(a_request_that_cannot_succeed_does_not_spill_everything),
        cmocka_unit_test(what_is_freed_before_a_failure_serves_the_request),
        cmocka_unit_test(a_request_that_stays_short_fails_with_the_text_of_the_end),
        cmocka_unit_test(what_is_given_back_serves_before_the_driver_is_asked),
        cmocka_unit_test(a_pool_may_be_released_under_a_request),
        cmocka_unit_test(no_callback_shuts_down),
        cmocka_unit_test(a_removal_waits_for_the_callback_that_runs),
        cmocka_unit_test(a_callback_may_remove_its_own_observer),
        cmocka_unit_test(a_callback_may_remove_the_next_observer),
        cmocka_unit_test(observers_come_and_go_while_memory_does),
    };
    int failures = cmocka_run_group_tests(first, NULL, NULL);
    return failures + cmocka_run_group_tests(tests, start, NULL);
}
