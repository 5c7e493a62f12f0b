/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every public call from within each callback that tarn makes: it is answered, or refused, and
 * nothing waits for itself. Builds with internal checks hold the locks to their order meanwhile. */
#include "support/every_call.h"

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/debug.h>

#include <cmocka.h>

static bool called;

/* Once a process. */
static void call_everything(void)
{
    if (called)
        return;
    called = true;
    every_call_returns();
}

static void and_goes_on(void)
{
    tarn_pool *pool = NULL;
    void *block = NULL;
    CHECK(called);
    (void)tarn_capture_abort(world.stream); /* that was announced, with every other call */
    OK(tarn_pool_create(NULL, &pool));      /* whatever scopes are open by now */
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 30 * MIB, &block));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_device_synchronize(0));
    verify(0);
    OK(tarn_shutdown());
}

/* Observers ------------------------------------------------------------------------------------ */

static bool armed;

static void hear(const tarn_mapping *range, void *user)
{
    (void)user;
    CHECK(range->bytes > 0);
    if (armed)
        call_everything();
}

static bool hear_shortage(const tarn_shortage *shortage, void *user)
{
    (void)user;
    CHECK(shortage->requested > 0);
    if (armed)
        call_everything();
    return false;
}

static bool give_nothing(int device, size_t bytes, void *user)
{
    (void)user;
    CHECK(device == 0 && bytes > 0);
    if (armed)
        call_everything();
    return false;
}

static void with_observer(const tarn_observer_options *options)
{
    tarn_observer observer = 0;
    void *block = NULL;
    world_make();
    OK(tarn_observer_add(options, &observer));
    armed = !options->unmapping;
    if (options->out_of_memory)
        GIVES(tarn_alloc_on(world.stream, 1000 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    else
        OK(tarn_alloc_on(world.stream, 100 * MIB, &block));
    armed = true;
    OK(tarn_free(block));
    (void)tarn_device_trim(0, 0);
    and_goes_on();
}

static void in_mapped(void)
{
    with_observer(&(tarn_observer_options){.size = sizeof(tarn_observer_options), .mapped = hear});
}

static void in_unmapping(void)
{
    with_observer(
        &(tarn_observer_options){.size = sizeof(tarn_observer_options), .unmapping = hear});
}

static void in_out_of_memory(void)
{
    with_observer(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                           .out_of_memory = hear_shortage});
}

static void in_reclaim(void)
{
    with_observer(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                           .before_growth = give_nothing});
}

/* A caller's allocator ------------------------------------------------------------------------- */

enum when { IN_ALLOC, IN_FREE, IN_GONE };
static enum when when;

static void *own_alloc(size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    (void)user;
    if (when == IN_ALLOC)
        call_everything();
    return aligned_alloc(4096, (size + 4095) / 4096 * 4096);
}

static void own_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size;
    (void)device;
    (void)stream;
    (void)user;
    if (when == IN_FREE)
        call_everything();
    free(pointer);
}

static void own_gone(void *user)
{
    (void)user;
    if (when == IN_GONE)
        call_everything();
}

static void with_allocator(void)
{
    const tarn_pool_allocator own = {
        .size = sizeof own, .alloc = own_alloc, .free = own_free, .gone = own_gone};
    const tarn_pool_options options = {.size = sizeof options, .allocator = &own};
    tarn_pool *pool = NULL;
    void *block = NULL;
    world_make();
    OK(tarn_pool_create(&options, &pool));
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 3 * MIB, &block));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    (void)tarn_device_trim(0, 0);
    and_goes_on();
}

static void in_alloc(void)
{
    when = IN_ALLOC;
    with_allocator();
}

static void in_free(void)
{
    when = IN_FREE;
    with_allocator();
}

static void in_gone(void)
{
    when = IN_GONE;
    with_allocator();
}

/* Others --------------------------------------------------------------------------------------- */

static void hear_change(const tarn_pool_block *block, bool live, void *user)
{
    (void)user;
    CHECK(block->address && live);
    call_everything();
}

static void in_changed(void)
{
    tarn_pool *pool = NULL;
    tarn_checkpoint *checkpoint = NULL;
    void *block = NULL, *other = NULL;
    world_make();
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 3 * MIB, &block));
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 3 * MIB, &other));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(block));
    OK(tarn_pool_restore(pool, checkpoint, hear_change, NULL));
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_free(block));
    OK(tarn_free(other));
    OK(tarn_pool_release(pool));
    and_goes_on();
}

static bool take(const void *data, size_t size, void *user)
{
    (void)user;
    call_everything();
    return data && size;
}

static void in_the_sink(void)
{
    world_make();
    OK(tarn_snapshot_print(take, NULL, NULL));
    and_goes_on();
}

static void hear_report(const tarn_debug_report *report, void *user)
{
    (void)user;
    CHECK(report->size == sizeof *report);
    call_everything();
}

static void in_a_report(void)
{
    CHECK(setenv("TARN_DEBUG", "all", 1) == 0);
    world_make();
    void *block = alloc_on(TARN_STREAM_LEGACY, 5000);
    tarn_debug_callback_set(hear_report, NULL);
    OK(tarn_free(block));
    GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
    and_goes_on();
}

static int make_and_call(void **handle)
{
    static int one;
    call_everything();
    *handle = &one;
    return 0;
}

static int unmake(void *handle)
{
    return !handle;
}

static int unmake_and_call(void *handle)
{
    call_everything();
    return !handle;
}

static void with_row(const tarn_library_row *row)
{
    tarn_library library = 0;
    world_make();
    OK(tarn_library_register(row, &library));
    tarn_status status = tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2);
    CHECK(status == TARN_OK || status == TARN_ERROR_CAPTURE); /* it announces a capture */
    (void)tarn_handle_trim(library, 0, NULL);
    and_goes_on();
}

static int make(void **handle)
{
    static int one;
    *handle = &one;
    return 0;
}

static void in_create(void)
{
    with_row(&(tarn_library_row){.size = sizeof(tarn_library_row),
                                 .name = "calling",
                                 .create = make_and_call,
                                 .destroy = unmake});
}

static void in_destroy(void)
{
    with_row(&(tarn_library_row){.size = sizeof(tarn_library_row),
                                 .name = "calling",
                                 .create = make,
                                 .destroy = unmake_and_call});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(in_mapped),   CHILD_TEST(in_unmapping), CHILD_TEST(in_out_of_memory),
        CHILD_TEST(in_reclaim),  CHILD_TEST(in_alloc),     CHILD_TEST(in_free),
        CHILD_TEST(in_gone),     CHILD_TEST(in_changed),   CHILD_TEST(in_the_sink),
        CHILD_TEST(in_a_report), CHILD_TEST(in_create),    CHILD_TEST(in_destroy),
    };
    host_start_with(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
