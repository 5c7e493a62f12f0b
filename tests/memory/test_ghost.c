/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory that is free in the order of its stream, but not idle: mapped a second time for the same
 * stream, and at the old addresses until the work there has ended. */
#include "driver/host/host.h"
#include "memory/growth/ghost.h"
#include "support/host.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PIECE (20 * MIB)
#define DEVICE (512 * MIB)

static tarn_stream own, other;

static bool is_mapped(const void *address, tarn_host_extent *extent)
{
    return tarn_host_extent_get(0, address, 1, extent) == TARN_OK;
}

static struct heap *heap_of_stream(tarn_stream stream)
{
    struct stream *found = NULL;
    struct heap *heap = NULL;
    OK(stream_find(stream, 0, &found));
    OK(default_heap(found, &heap));
    return heap;
}

/* Four blocks in a row, of which two that do not touch are freed while work of `ns` uses them. */
static void prepare(void *blocks[4], uint64_t ns)
{
    for (int i = 0; i < 4; i++)
        blocks[i] = alloc_on(own, PIECE);
    memset(blocks[1], 1, PIECE);
    memset(blocks[3], 3, PIECE);
    for (int i = 0; i < 4; i += 2) {
        work_on(own, blocks[i], PIECE, ns);
        OK(tarn_free(blocks[i]));
    }
}

static void check_and_free(void *blocks[4])
{
    for (int i = 1; i < 4; i += 2) {
        const unsigned char *bytes = blocks[i];
        CHECK(bytes[0] == i && bytes[PIECE / 2] == i && bytes[PIECE - 1] == i);
        OK(tarn_free(blocks[i]));
    }
}

static void the_same_memory_is_at_both_addresses_until_the_old_one_is_idle(void **state)
{
    (void)state;
    void *blocks[4];
    tarn_host_extent old[2], new[2];
    prepare(blocks, 1000);
    CHECK(is_mapped(blocks[0], &old[0]) && is_mapped(blocks[2], &old[1]));
    uint64_t created = ledger_of(0).created;
    char *wide = alloc_on(own, 2 * PIECE);
    CHECK(ledger_of(0).created == created && ledger_of(0).waited_ns == 0);
    CHECK(is_mapped(wide, &new[0]) && is_mapped(wide + PIECE, &new[1]));
    CHECK((new[0].piece == old[0].piece &&new[1].piece == old[1].piece) ||
          (new[0].piece == old[1].piece &&new[1].piece == old[0].piece));
    CHECK(new[0].accessible &&new[1].accessible);
    CHECK(is_mapped(blocks[0], &old[0]) && is_mapped(blocks[2], &old[1]));
    CHECK(heap_of_stream(own)->ghosts);
    verify(0);
    GIVES(tarn_free(blocks[0]), TARN_ERROR_DOUBLE_FREE);
    memset(wide, 5, 2 * PIECE);
    void *early = alloc_on(own, PIECE); /* a growth while the work still runs leaves them alone */
    CHECK(is_mapped(blocks[0], &old[0]) && is_mapped(blocks[2], &old[1]) &&
          heap_of_stream(own)->ghosts);

    time_pass(2000);
    void *more = alloc_on(own, 3 * PIECE);
    CHECK(!is_mapped(blocks[0], &old[0]) && !is_mapped(blocks[2], &old[1]));
    CHECK(!heap_of_stream(own)->ghosts);
    CHECK(wide[0] == 5 && wide[2 * PIECE - 1] == 5);
    verify(0);
    OK(tarn_free(early));
    OK(tarn_free(wide));
    OK(tarn_free(more));
    check_and_free(blocks);
    nothing_is_left(0);
}

static void another_stream_does_not_get_it(void **state)
{
    (void)state;
    void *blocks[4];
    prepare(blocks, 1000);
    void *wide = alloc_on(own, 2 * PIECE); /* carries the work of both */
    OK(tarn_free(wide));
    uint64_t created = ledger_of(0).created;
    void *block = alloc_on(other, 2 * PIECE);
    CHECK(ledger_of(0).created == created + 2 * PIECE); /* new memory: the other stream does not
                                                           wait */
    OK(tarn_free(block));
    check_and_free(blocks);
    nothing_is_left(0);
}

static void a_third_address_is_possible_and_all_of_them_go(void **state)
{
    (void)state;
    void *blocks[4];
    prepare(blocks, 1000);
    uint64_t created = ledger_of(0).created;
    void *wide = alloc_on(own, 2 * PIECE), *wall = alloc_on(own, PIECE);
    work_on(own, wide, 2 * PIECE, 1000);
    OK(tarn_free(wide));
    void *wider = alloc_on(own, 2 * PIECE + MIB);
    CHECK(ledger_of(0).created <= created + 3 * PIECE);
    verify(0);
    OK(tarn_free(wider));
    OK(tarn_free(wall));
    check_and_free(blocks);
    nothing_is_left(0); /* waits for the work, ends the ghosts, gives every piece back */
    CHECK(ledger_of(0).mapped == 0);
}

/* Every driver call of the scenario fails once, and for ever: live blocks and invariants stand, and
 * the next call works. */
static void any_failure_leaves_everything_usable(void **state)
{
    (void)state;
    int injected = 0;
    for (int forever = 0; forever < 2; forever++) {
        for (uint64_t n = 1;; n++) {
            void *blocks[4], *wide = NULL, *more = NULL;
            prepare(blocks, 1000);
            OK(tarn_host_fail_set(-1, n, forever, TARN_ERROR_DRIVER));
            (void)tarn_alloc_on(own, 2 * PIECE, &wide);
            uint64_t hits = host_fail_hits();
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            verify(0);
            time_pass(2000);
            /* And while ghosts are ended */
            OK(tarn_host_fail_set(-1, hits ? n : 1, forever, TARN_ERROR_DRIVER));
            (void)tarn_alloc_on(own, 3 * PIECE, &more);
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            verify(0);
            OK(tarn_free(wide));
            OK(tarn_free(more));
            OK(tarn_free(alloc_on(own, 2 * PIECE)));
            check_and_free(blocks);
            nothing_is_left(0);
            if (!hits)
                break;
            injected++;
        }
    }
    print_message("%d injections\n", injected);
    CHECK(injected > 10);
}

/* A mark that cannot be asked, as one that a capture has taken, does not hide that a later one has
 * finished. */
static void a_later_mark_speaks_for_the_earlier_ones(void **state)
{
    (void)state;
    struct heap *heap = heap_of_stream(own);
    for (int i = 0; i < 2; i++) {
        void *block = alloc_on(own, 2 * MIB);
        work_on(own, block, 2 * MIB, 1000);
        OK(tarn_free(block));
        mutex_lock(&heap->lock);
        heap_learn_locked(heap, true);
        CHECK(heap->batches.count == (unsigned)i + 1);
        mutex_unlock(&heap->lock);
    }
    uint64_t last = heap->batches.closed[1].number;
    time_pass(5000);
    OK(tarn_host_fail_set(kind_of("event_query"), 1, false, TARN_ERROR_DRIVER));
    mutex_lock(&heap->lock);
    heap_learn_locked(heap, false);
    CHECK(host_fail_hits() == 1 && heap->batches.count == 0 && heap->batches.idle == last);
    mutex_unlock(&heap->lock);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    nothing_is_left(0);
}

/* Has every address that no heap has, so that the device seems to have none left. */
#define STRETCHES 64
static struct {
    uintptr_t start;
    size_t size;
} taken[STRETCHES];
static int taken_count;

static void take_addresses(struct arena *arena)
{
    mutex_lock(&arena->lock);
    for (taken_count = 0; arena_longest_locked(arena); taken_count++) {
        CHECK(taken_count < STRETCHES);
        taken[taken_count].size = arena_longest_locked(arena);
        taken[taken_count].start = arena_find_high_locked(arena, taken[taken_count].size);
        arena_claim_locked(arena, taken[taken_count].start, taken[taken_count].size);
    }
    mutex_unlock(&arena->lock);
}

static void give_addresses(struct arena *arena)
{
    while (taken_count > 0) {
        taken_count--;
        arena_unclaim(arena, taken[taken_count].start, taken[taken_count].size);
    }
}

static void where_no_addresses_are_left_the_old_ones_serve(void **state)
{
    (void)state;
    struct heap *heap = heap_of_stream(own);
    for (int pieces = 1; pieces <= 3; pieces += 2) {
        void *blocks[4], *block = NULL;
        tarn_host_extent old;
        prepare(blocks, 1000);
        void *wide = alloc_on(own, 2 * PIECE);
        CHECK(heap->ghosts);
        time_pass(2000);
        take_addresses(heap->arena);
        if (pieces == 1)
            OK(tarn_alloc_on(own, PIECE, &block)); /* where one of them was */
        else
            GIVES(tarn_alloc_on(own, (size_t)pieces * PIECE, &block), TARN_ERROR_OUT_OF_MEMORY);
        CHECK(!heap->ghosts &&
              is_mapped(blocks[0], &old) + is_mapped(blocks[2], &old) == (block != NULL));
        give_addresses(heap->arena);
        verify(0);
        OK(tarn_free(block));
        OK(tarn_free(wide));
        check_and_free(blocks);
        nothing_is_left(0);
    }
}

/* What was given up while its old addresses could not be unmapped: the next trim has them too. */
static void a_trim_ends_what_could_not_be_unmapped_before(void **state)
{
    (void)state;
    struct heap *heap = heap_of_stream(own);
    void *blocks[4];
    prepare(blocks, 1000);
    void *wide = alloc_on(own, 2 * PIECE);
    CHECK(heap->ghosts);
    OK(tarn_free(wide));
    check_and_free(blocks);
    OK(tarn_device_synchronize(0));
    OK(tarn_host_fail_set(kind_of("unmap"), 1, false, TARN_ERROR_DRIVER));
    (void)tarn_device_trim(0, 0);
    CHECK(host_fail_hits() == 1);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    verify(0); /* memory that is still mapped somewhere is the driver's, and counts */
    OK(tarn_device_trim(0, 0));
    CHECK(!heap->ghosts && ledger_of(0).created == 0 && ledger_of(0).mapped == 0);
    nothing_is_left(0);
}

/* A growth whose every call fails from the n-th on leaves second mappings that the driver does not
 * unmap. The trim after it gives the memory at the first addresses up, and is refused the second
 * ones too. */
static void memory_counts_until_its_last_mapping_is_gone(void **state)
{
    (void)state;
    struct heap *heap = heap_of_stream(own);
    int left = 0;
    for (uint64_t n = 1, hits = 1; hits; n++) {
        void *blocks[4], *wide = NULL;
        prepare(blocks, 1000);
        OK(tarn_host_fail_set(-1, n, true, TARN_ERROR_DRIVER));
        (void)tarn_alloc_on(own, 2 * PIECE, &wide);
        hits = host_fail_hits();
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        left += !wide && heap->ghosts;
        OK(tarn_free(wide));
        check_and_free(blocks);
        OK(tarn_device_synchronize(0));
        OK(tarn_host_fail_set(kind_of("unmap"), 1, false, TARN_ERROR_DRIVER));
        (void)tarn_device_trim(0, 0);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        verify(0);
        nothing_is_left(0);
    }
    CHECK(left > 0);
}

static _Thread_local bool is_slow;
static sem_t is_held_up;
static atomic_bool goes_on;

/* Between the moment when the slow thread has taken old addresses out of the heap, and the driver's
 * call that unmaps them. */
static void hold_up(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    if (!is_slow)
        return;
    is_slow = false;
    (void)sem_post(&is_held_up);
    for (int i = 0; i < 300 && !atomic_load(&goes_on); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Takes all old addresses, and of the memory only what is in the largest free span. */
static void *trim_slowly(void *argument)
{
    is_slow = true;
    OK(tarn_device_trim(0, ledger_of(0).created - PIECE));
    return argument;
}

/* Memory that one trim gives up, while another is about to unmap its old addresses. */
static void two_trims_at_once_are_no_failure(void **state)
{
    (void)state;
    struct heap *heap = heap_of_stream(own);
    tarn_observer observer = 0;
    pthread_t thread;
    void *blocks[4], *large = alloc_on(own, 5 * PIECE);
    prepare(blocks, 1000);
    void *wide = alloc_on(own, 2 * PIECE);
    CHECK(heap->ghosts);
    OK(tarn_free(large));
    OK(tarn_free(wide));
    check_and_free(blocks);
    OK(tarn_device_synchronize(0));
    OK(tarn_observer_add(
        &(tarn_observer_options){.size = sizeof(tarn_observer_options), .unmapping = hold_up},
        &observer));
    CHECK(!sem_init(&is_held_up, 0, 0));
    CHECK(!pthread_create(&thread, NULL, trim_slowly, NULL));
    CHECK(!sem_wait(&is_held_up));
    OK(tarn_device_trim(0, 0));
    atomic_store(&goes_on, true);
    CHECK(!pthread_join(thread, NULL));
    OK(tarn_observer_remove(observer));
    (void)sem_destroy(&is_held_up);
    CHECK(ledger_of(0).created == 0 && ledger_of(0).mapped == 0);
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    return 0;
}

int main(void)
{
    host_start_with(1, DEVICE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_memory_is_at_both_addresses_until_the_old_one_is_idle),
        cmocka_unit_test(another_stream_does_not_get_it),
        cmocka_unit_test(a_third_address_is_possible_and_all_of_them_go),
        cmocka_unit_test(any_failure_leaves_everything_usable),
        cmocka_unit_test(a_later_mark_speaks_for_the_earlier_ones),
        cmocka_unit_test(where_no_addresses_are_left_the_old_ones_serve),
        cmocka_unit_test(a_trim_ends_what_could_not_be_unmapped_before),
        cmocka_unit_test(memory_counts_until_its_last_mapping_is_gone),
        cmocka_unit_test(two_trims_at_once_are_no_failure),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
