/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The adaptor for NCCL, on a libnccl of the test's own that keeps what the real one keeps: of each
 * registration the physical memory that was there at that time. A collective on memory that was
 * mapped anew since is found, as a read of old memory; that the test can find it is tried by
 * registering without the adaptor. */
#include "keep_test.h"
#include "nccl/tarn_nccl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <tarn/sleep.h>

#include <cmocka.h>

enum { REGISTRATIONS = 32 };

struct ncclWindow_vidmem {
    char *address;
    size_t size;
    uint64_t piece; /* that was mapped there */
    bool is_window;
};

struct ncclComm {
    struct ncclWindow_vidmem *registered[REGISTRATIONS];
    unsigned calls, fail_nth; /* 0: none */
    bool no_windows, suspended, in_progress;
};

static struct ncclComm communicator;

static ncclResult_t fake_enter(struct ncclComm *comm)
{
    return ++comm->calls == comm->fail_nth ? ncclInternalError : ncclSuccess;
}

static ncclResult_t fake_register(struct ncclComm *comm, void *buffer, size_t size,
                                  struct ncclWindow_vidmem **result, bool is_window)
{
    tarn_host_extent extent;
    ncclResult_t failure = fake_enter(comm);
    if (failure)
        return failure;
    CHECK(!comm->suspended);
    OK(tarn_host_extent_get(0, buffer, size, &extent));
    CHECK(extent.offset == 0 && extent.length == size); /* a whole allocation: windows map nothing
                                                           less */
    for (int i = 0; i < REGISTRATIONS; i++) {
        if (comm->registered[i])
            continue;
        *result = comm->registered[i] = malloc(sizeof **result);
        **result = (struct ncclWindow_vidmem){buffer, size, extent.piece, is_window};
        return ncclSuccess;
    }
    return ncclInvalidUsage;
}

static ncclResult_t fake_deregister(struct ncclComm *comm, struct ncclWindow_vidmem *window,
                                    bool is_window)
{
    ncclResult_t failure = fake_enter(comm);
    if (failure)
        return failure;
    for (int i = 0; i < REGISTRATIONS; i++) {
        if (!comm->registered[i] || comm->registered[i] != window || window->is_window != is_window)
            continue;
        free(window);
        comm->registered[i] = NULL;
        return ncclSuccess;
    }
    return ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    struct ncclWindow_vidmem *made = NULL;
    ncclResult_t result = fake_register(comm, buffer, size, &made, false);
    *handle = made;
    return result;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return fake_deregister(comm, handle, false);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size,
                                    ncclWindow_t *window, int flags)
{
    CHECK(flags == NCCL_WIN_COLL_SYMMETRIC);
    *window = NULL;
    return comm->no_windows ? ncclSuccess : fake_register(comm, buffer, size, window, true);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    return fake_deregister(comm, window, true);
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    CHECK(flags == NCCL_SUSPEND_MEM && !comm->suspended);
    for (int i = 0; i < REGISTRATIONS; i++)
        CHECK(!comm->registered[i]);
    ncclResult_t failure = fake_enter(comm);
    comm->suspended = !failure;
    return failure;
}

ncclResult_t ncclCommResume(ncclComm_t comm)
{
    CHECK(comm->suspended);
    ncclResult_t failure = fake_enter(comm);
    comm->suspended = failure != ncclSuccess;
    return failure;
}

/* 1000 bytes of its own can be suspended, 24 stay. */
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
    CHECK(stat == (comm->suspended ? ncclStatGpuMemPersist : ncclStatGpuMemTotal));
    *value = comm->suspended ? 24 : 1024;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    *state = comm->in_progress ? ncclInProgress : ncclSuccess;
    return fake_enter(comm);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    *device = 0;
    return fake_enter(comm);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInternalError ? "an internal error" : "another error";
}

/* A collective: whether it would use the memory that is there now. One without a registration
 * copies, and does. */
static bool reads_what_is_there(struct ncclComm *comm, void *buffer)
{
    CHECK(!comm->suspended);
    for (int i = 0; i < REGISTRATIONS; i++) {
        const struct ncclWindow_vidmem *window = comm->registered[i];
        tarn_host_extent extent;
        if (!window || (char *)buffer < window->address ||
            (char *)buffer >= window->address + window->size)
            continue;
        OK(tarn_host_extent_get(0, window->address, window->size, &extent));
        return extent.piece == window->piece;
    }
    return true;
}

static int fake_registrations(void)
{
    int count = 0;
    for (int i = 0; i < REGISTRATIONS; i++)
        count += communicator.registered[i] != NULL;
    return count;
}

/* Each test has a pool, with a buffer in each of two segments. */
static tarn_pool *pool;
static tarn_stream stream;
static void *buffers[2];

static int set_up(void **state)
{
    (void)state;
    communicator = (struct ncclComm){.calls = 0};
    pool = pool_with((tarn_pool_options){.device = 0, .registrable = true});
    stream = lease(0);
    for (int i = 0; i < 2; i++)
        buffers[i] = alloc_in(pool, stream, 24 * MIB);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    CHECK(fake_registrations() == 0);
    for (int i = 0; i < 2; i++)
        OK(tarn_free(buffers[i]));
    OK(tarn_pool_release(pool));
    OK(tarn_stream_return(stream));
    nothing_is_left(0);
    return 0;
}

static void without_the_adaptor_old_memory_is_read(void **state)
{
    (void)state;
    tarn_mapping segments[2];
    size_t count;
    void *handle = NULL;
    OK(tarn_pool_segments_get(pool, segments, 2, &count));
    CHECK(count == 2 && ncclCommRegister(&communicator, segments[0].address, segments[0].bytes,
                                         &handle) == ncclSuccess);
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    CHECK(!reads_what_is_there(&communicator, buffers[0]));
    CHECK(ncclCommDeregister(&communicator, handle) == ncclSuccess);
}

static void segments_are_registered_once_and_pinned_until_they_are_not(tarn_nccl_kind kind,
                                                                       int flags)
{
    tarn_nccl registered;
    tarn_nccl_begin(&registered, &communicator, pool, kind, flags);
    OK(tarn_nccl_register(&registered));
    CHECK(registered.count == 2 && fake_registrations() == 2);
    unsigned calls = communicator.calls;
    OK(tarn_nccl_register(&registered)); /* nothing new: no call */
    CHECK(communicator.calls == calls);
    void *third = alloc_in(pool, stream, 24 * MIB);
    CHECK(!tarn_nccl_find(&registered, third));
    OK(tarn_nccl_register(&registered)); /* the new one alone */
    CHECK(communicator.calls == calls + 1 && tarn_nccl_find(&registered, third));

    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_BUSY);
    OK(tarn_free(third)); /* its segment stays: NCCL has it */
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_device_trim(0, 0));
    size_t gained, count;
    (void)tarn_compact(0, 1, &gained);
    OK(tarn_pool_segments_get(pool, NULL, 0, &count));
    CHECK(count == 3 && reads_what_is_there(&communicator, buffers[0]) &&
          reads_what_is_there(&communicator, buffers[1]));
    tarn_residue_item item;
    tarn_residue residue = {.size = sizeof residue, .items = &item, .room = 1};
    OK(tarn_sleep(NULL, &residue));
    CHECK(residue.count == 1 && item.reason == TARN_RESIDUE_REGISTERED &&
          item.bytes == residue.after);
    OK(tarn_wake());

    ncclWindow_t window = NULL;
    size_t offset = 0;
    bool found = tarn_nccl_window_get(&registered, (char *)buffers[1] + 5, &window, &offset);
    CHECK(found == (kind == TARN_NCCL_WINDOW) &&
          (!found || window->address + offset == (char *)buffers[1] + 5));

    OK(tarn_nccl_deregister(&registered));
    CHECK(registered.count == 0 && fake_registrations() == 0);
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_pool_segments_get(pool, NULL, 0, &count));
    CHECK(count == 2);
}

static void local_registrations_pin(void **state)
{
    (void)state;
    segments_are_registered_once_and_pinned_until_they_are_not(TARN_NCCL_LOCAL, 0);
}

static void windows_pin(void **state)
{
    (void)state;
    segments_are_registered_once_and_pinned_until_they_are_not(TARN_NCCL_WINDOW,
                                                               NCCL_WIN_COLL_SYMMETRIC);
}

static void no_collective_reads_old_memory_after_a_sleep(void **state)
{
    (void)state;
    tarn_nccl registered;
    tarn_nccl_begin(&registered, &communicator, pool, TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
    for (int i = 0; i < 3; i++) {
        OK(i ? tarn_nccl_resume(&registered) : tarn_nccl_register(&registered));
        CHECK(registered.count == 2);
        for (int j = 0; j < 2; j++)
            CHECK(reads_what_is_there(&communicator, buffers[j]));
        OK(tarn_nccl_suspend(&registered));
        CHECK(communicator.suspended && tarn_nccl_register(&registered) == TARN_ERROR_SUSPENDED);
        tarn_residue residue = {.size = sizeof residue};
        OK(tarn_sleep(NULL, &residue));
        CHECK(residue.after == 0 && residue.count == 0);
        OK(tarn_wake());
    }
    OK(tarn_nccl_resume(&registered));
    OK(tarn_nccl_deregister(&registered));
}

static void where_nccl_refuses_nothing_stays_pinned_that_is_not_registered(void **state)
{
    (void)state;
    tarn_nccl registered;
    tarn_nccl_begin(&registered, &communicator, pool, TARN_NCCL_LOCAL, 0);
    communicator.fail_nth = 2;
    CHECK(tarn_nccl_register(&registered) == TARN_ERROR_LIBRARY &&
          registered.result == ncclInternalError);
    CHECK(registered.count == 1 && fake_registrations() == 1);
    OK(tarn_nccl_register(&registered)); /* the rest */
    CHECK(registered.count == 2);
    communicator.fail_nth = communicator.calls + 2;
    CHECK(tarn_nccl_deregister(&registered) == TARN_ERROR_LIBRARY && registered.count == 1);
    GIVES(tarn_pool_suspend(pool, false), TARN_ERROR_BUSY); /* that one is pinned still */
    OK(tarn_nccl_deregister(&registered));
    OK(tarn_pool_suspend(pool, false));
    CHECK(tarn_nccl_register(&registered) == TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
}

static void where_there_are_no_windows_it_says_so(void **state)
{
    (void)state;
    tarn_nccl registered;
    communicator.no_windows = true;
    tarn_nccl_begin(&registered, &communicator, pool, TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
    CHECK(tarn_nccl_register(&registered) == TARN_ERROR_NOT_SUPPORTED && registered.unsupported &&
          !registered.count);
    OK(tarn_pool_suspend(pool, true)); /* nothing is pinned */
    OK(tarn_pool_resume(pool));
    OK(tarn_nccl_deregister(&registered));
}

/* In one call or in steps, now and then cancelled; nothing of the adaptor is called meanwhile. */
static void a_sleep_alone(tarn_nccl_kind kind, int flags)
{
    tarn_nccl registered;
    tarn_nccl_begin(&registered, &communicator, pool, kind, flags);
    OK(tarn_nccl_sleeper_add(&registered, "all ranks"));
    OK(tarn_nccl_register(&registered));
    for (int i = 0; i < 6; i++) {
        tarn_residue_item item;
        tarn_residue residue = {.size = sizeof residue, .items = &item, .room = 1};
        memset(buffers[0], i + 1, 24 * MIB);
        if (i % 3)
            OK(tarn_sleep_prepare(NULL, NULL));
        if (i % 3 == 1)
            OK(tarn_sleep_cancel());
        else
            OK(i % 3 ? tarn_sleep_commit(&residue) : tarn_sleep(NULL, &residue));
        if (i % 3 != 1) {
            CHECK(communicator.suspended && fake_registrations() == 0 && residue.after == 0);
            CHECK(residue.count == 1 && item.reason == TARN_RESIDUE_SLEEPER && item.bytes == 24 &&
                  item.device == 0 && item.count == registered.sleeper);
            OK(tarn_wake());
        }
        CHECK(!communicator.suspended && fake_registrations() == 2 && registered.count == 2);
        for (int j = 0; j < 2; j++)
            CHECK(tarn_nccl_find(&registered, buffers[j]) &&
                  reads_what_is_there(&communicator, buffers[j]));
        CHECK(*(unsigned char *)buffers[0] == i + 1 &&
              memcmp(buffers[0], (char *)buffers[0] + 1, 24 * MIB - 1) == 0);
    }
    OK(tarn_nccl_deregister(&registered));
    OK(tarn_nccl_sleeper_remove(&registered));
}

static void after_a_sleep_alone_no_collective_reads_old_memory(void **state)
{
    (void)state;
    a_sleep_alone(TARN_NCCL_LOCAL, 0);
    a_sleep_alone(TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
}

/* The same with each call of NCCL's failing: what is registered at the end is what is there. */
static void nor_whatever_nccl_refuses(void **state)
{
    (void)state;
    tarn_nccl registered;
    unsigned failures = 0;
    tarn_nccl_begin(&registered, &communicator, pool, TARN_NCCL_LOCAL, 0);
    OK(tarn_nccl_sleeper_add(&registered, "all ranks"));
    OK(tarn_nccl_register(&registered));
    for (unsigned nth = 1, hit = 1; hit; nth++) {
        tarn_sleep_state now = TARN_SLEEP_CHANGES;
        unsigned start = communicator.calls;
        communicator.fail_nth = start + nth;
        tarn_status status = tarn_sleep(NULL, NULL);
        if (!status)
            status = tarn_wake();
        hit = communicator.calls >= communicator.fail_nth;
        failures += hit;
        communicator.fail_nth = 0;
        CHECK(!hit ||
              (status == TARN_ERROR_LIBRARY && strstr(tarn_last_error(), "an internal error")));
        OK(tarn_sleep_state_get(&now));
        if (now == TARN_SLEEP_ASLEEP)
            OK(tarn_wake());
        else
            CHECK(now == TARN_SLEEP_AWAKE);
        CHECK(!communicator.suspended && fake_registrations() == 2 && registered.count == 2);
        for (int j = 0; j < 2; j++)
            CHECK(reads_what_is_there(&communicator, buffers[j]));
    }
    CHECK(failures == 7); /* the question, two and two registrations, a suspend and a resume */
    OK(tarn_nccl_deregister(&registered));
    OK(tarn_nccl_sleeper_remove(&registered));
}

static void two_pools_of_a_communicator_suspend_it_once(void **state)
{
    (void)state;
    tarn_nccl registered[2];
    tarn_pool *other = pool_with((tarn_pool_options){.device = 0, .registrable = true});
    void *buffer = alloc_in(other, stream, 24 * MIB);
    for (int i = 0; i < 2; i++) {
        tarn_nccl_begin(&registered[i], &communicator, i ? other : pool, TARN_NCCL_LOCAL, 0);
        registered[i].leaves_comm = i;
        OK(tarn_nccl_sleeper_add(&registered[i], i ? "the other pool" : "the pool"));
        OK(tarn_nccl_register(&registered[i]));
    }
    for (int i = 0; i < 2; i++) {
        tarn_residue residue = {.size = sizeof residue};
        CHECK(fake_registrations() == 3);
        OK(tarn_sleep(NULL, &residue));
        CHECK(communicator.suspended && residue.after == 0 && residue.count == 1);
        OK(tarn_wake());
    }
    CHECK(reads_what_is_there(&communicator, buffer) &&
          reads_what_is_there(&communicator, buffers[1]));
    for (int i = 0; i < 2; i++) {
        OK(tarn_nccl_deregister(&registered[i]));
        OK(tarn_nccl_sleeper_remove(&registered[i]));
    }
    OK(tarn_free(buffer));
    OK(tarn_pool_release(other));
}

static void a_communicator_that_cannot_sleep_says_why(void **state)
{
    (void)state;
    tarn_nccl registered;
    tarn_sleeper_info info = {.size = sizeof info};
    tarn_residue_item items[2];
    tarn_nccl_begin(&registered, &communicator, pool, TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
    OK(tarn_nccl_sleeper_add(&registered, "busy"));
    OK(tarn_nccl_register(&registered));
    for (int i = 0; i < 2; i++) {
        tarn_residue residue = {.size = sizeof residue, .items = items, .room = 2};
        communicator.in_progress = i == 0;
        registered.has_graphs = i == 1;
        OK(tarn_sleep(NULL, &residue));
        CHECK(residue.count == 2 && items[0].reason == TARN_RESIDUE_REGISTERED &&
              items[0].bytes == residue.after);
        CHECK(items[1].reason == TARN_RESIDUE_SLEEPER && items[1].bytes == 1024);
        OK(tarn_sleeper_info_get(registered.sleeper, &info));
        CHECK(strcmp(info.name, "busy") == 0 &&
              strstr(info.why, i ? "NCCL_GRAPH_REGISTER=0" : "in progress"));
        CHECK(fake_registrations() == 2 && !registered.graphs_ended);
        OK(tarn_wake());
    }
    CHECK(setenv("NCCL_GRAPH_REGISTER", "0", 1) == 0);
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_wake());
    CHECK(unsetenv("NCCL_GRAPH_REGISTER") == 0);
    /* The windows are others */
    CHECK(registered.graphs_ended && reads_what_is_there(&communicator, buffers[0]));
    OK(tarn_nccl_deregister(&registered));
    OK(tarn_nccl_sleeper_remove(&registered));
}

static void a_communicator_sleeps_without_a_pool(void **state)
{
    (void)state;
    tarn_nccl alone;
    tarn_nccl_begin(&alone, &communicator, NULL, TARN_NCCL_LOCAL, 0);
    OK(tarn_nccl_sleeper_add(&alone, "alone"));
    OK(tarn_nccl_register(&alone));
    OK(tarn_sleep(NULL, NULL));
    CHECK(communicator.suspended);
    OK(tarn_wake());
    CHECK(!communicator.suspended && alone.count == 0);
    OK(tarn_nccl_sleeper_remove(&alone));
}

/* By tarn_nccl_suspend() and tarn_pool_suspend(); or the pool alone, while nothing of it is
 * registered. */
static void what_the_program_has_suspended_a_sleep_leaves_alone(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        tarn_nccl registered;
        tarn_pool_state now = TARN_POOL_RUNS;
        tarn_nccl_begin(&registered, &communicator, pool, TARN_NCCL_WINDOW,
                        NCCL_WIN_COLL_SYMMETRIC);
        OK(tarn_nccl_sleeper_add(&registered, "suspended before"));
        if (both) {
            OK(tarn_nccl_register(&registered));
            OK(tarn_nccl_suspend(&registered));
        }
        OK(tarn_pool_suspend(pool, true));
        OK(tarn_sleep(NULL, NULL));
        CHECK(communicator.suspended);
        OK(tarn_wake());
        now = pool_info_of(pool).state;
        CHECK(now == TARN_POOL_SAVED && communicator.suspended == (bool)both &&
              registered.suspended == (bool)both && fake_registrations() == 0);
        OK(tarn_pool_resume(pool));
        OK(tarn_nccl_resume(&registered));
        CHECK(!communicator.suspended && fake_registrations() == 2 &&
              reads_what_is_there(&communicator, buffers[1]));
        OK(tarn_sleep(NULL, NULL)); /* and takes part in the next one */
        CHECK(communicator.suspended && fake_registrations() == 0);
        OK(tarn_wake());
        CHECK(!communicator.suspended && fake_registrations() == 2 &&
              reads_what_is_there(&communicator, buffers[1]));
        OK(tarn_nccl_deregister(&registered));
        OK(tarn_nccl_sleeper_remove(&registered));
    }
}

/* After tarn_shutdown() there are no anchors to remove. NCCL is told once of each segment, however
 * often the caller tries. */
static void the_end_of_tarn(void)
{
    tarn_nccl registered;
    host_start_with(1, 512 * MIB);
    CHECK(set_up(NULL) == 0);
    tarn_nccl_begin(&registered, &communicator, pool, TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
    OK(tarn_nccl_register(&registered));
    OK(tarn_shutdown());
    for (int left = fake_registrations(); left; left--) {
        CHECK(registered.count == (size_t)left);
        GIVES(tarn_nccl_deregister(&registered), TARN_ERROR_SHUTDOWN);
        CHECK(fake_registrations() == left - 1);
    }
    OK(tarn_nccl_deregister(&registered));
    CHECK(registered.count == 0);
}

static void no_segment_is_deregistered_twice(void **state)
{
    (void)state;
    in_child(the_end_of_tarn);
}

/* A process that has taken a pool over registers the segments that it makes itself, each once.
 * Nothing takes those away before they are deregistered. What was taken over is left out, because
 * NCCL would export it, which the driver refuses. */
static void windows_are_made_of_own_segments(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    tarn_mapping segments[8];
    size_t count = 0;
    if (!keep_has_program())
        return;
    keep_name_socket("nccl");
    start_owner();
    for (int i = 0; i < 2; i++) {
        tarn_nccl registered;
        communicator = (struct ncclComm){.calls = 0};
        kill_side(filled(&told));
        tarn_pool *adopted = keep("weights", &kept);
        CHECK(kept.blocks == 2 && both_are_whole(adopted));
        char *first = found(adopted, "first").pointer, *second = found(adopted, "second").pointer;
        OK(tarn_pool_segments_get(adopted, segments, 8, &count));
        CHECK(count == 0);
        tarn_nccl_begin(&registered, &communicator, adopted, TARN_NCCL_WINDOW,
                        NCCL_WIN_COLL_SYMMETRIC);
        OK(tarn_nccl_register(&registered));
        CHECK(registered.count == 0 && fake_registrations() == 0);
        void *more = alloc_in(adopted, 0, 40 * MIB);
        OK(tarn_nccl_register(&registered));
        CHECK(registered.count == 1 && tarn_nccl_find(&registered, more));
        CHECK(!tarn_nccl_find(&registered, first) && !tarn_nccl_find(&registered, second));
        OK(tarn_free(more));
        GIVES(tarn_pool_suspend(adopted, true), TARN_ERROR_BUSY);
        OK(tarn_pool_trim(adopted, 0));
        OK(tarn_pool_segments_get(adopted, NULL, 0, &count));
        CHECK(count == 1 && reads_what_is_there(&communicator, more));
        OK(tarn_nccl_deregister(&registered));
        OK(tarn_pool_trim(adopted, 0));
        OK(tarn_pool_segments_get(adopted, NULL, 0, &count));
        CHECK(count == 0 && both_are_whole(adopted));
        end_pool(adopted);
    }
    end_owner(SIGTERM);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        host_start_with(1, 512 * MIB);
        fill_and_wait(atoi(argv[2]));
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_segment_is_deregistered_twice), /* before this process uses tarn */
        cmocka_unit_test_setup_teardown(without_the_adaptor_old_memory_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(local_registrations_pin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(windows_pin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_collective_reads_old_memory_after_a_sleep, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            where_nccl_refuses_nothing_stays_pinned_that_is_not_registered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(where_there_are_no_windows_it_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(after_a_sleep_alone_no_collective_reads_old_memory, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nor_whatever_nccl_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_pools_of_a_communicator_suspend_it_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_communicator_that_cannot_sleep_says_why, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_communicator_sleeps_without_a_pool, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_program_has_suspended_a_sleep_leaves_alone, set_up,
                                        tear_down),
        cmocka_unit_test(windows_are_made_of_own_segments),
    };
    host_start_with(1, 512 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
