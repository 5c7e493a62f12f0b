/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The first use of tarn in a process, of each of its parts, while a host allocation or a driver
 * call fails: each of them once, and it with all that follow. What is made once per process (a
 * device, its address range, its tables, the slots of streams) is made here and nowhere else where
 * failures are tried. Then nothing fails any more, and the same must work as if nothing had
 * happened. Every attempt is a process of its own. */
#include "support/clearing.h"
#include "support/failures.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static uint64_t
    *addresses; /* by device: bytes reserved after a run in which nothing failed; shared with the
                   children */

static void use_memory(void)
{
    tarn_stream stream;
    void *large, *small;
    if (!TRY(tarn_stream_lease(0, 0, &stream)))
        return;
    if (TRY(tarn_alloc_on(stream, 3 * MIB, &large)))
        OK(tarn_free(large));
    if (TRY(tarn_alloc_on(stream, 100, &small)))
        OK(tarn_free(small));
    (void)TRY(tarn_stream_return(stream));
}

static void use_another_device(void)
{
    tarn_alloc_options options = {
        .size = sizeof options, .device = 1, .stream = TARN_STREAM_PER_THREAD};
    tarn_event *event;
    void *block;
    if (!TRY(tarn_device_peer_enable(0, 1)) || !TRY(tarn_alloc(&options, MIB, &block)))
        return;
    if (TRY(tarn_event_create(1, &event))) {
        if (!TRY(tarn_free_after(block, event)))
            OK(tarn_free(block));
        OK(tarn_event_destroy(event));
    } else {
        OK(tarn_free(block));
    }
}

static void use_pinned(void)
{
    void *block;
    if (TRY(tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, &block)))
        OK(tarn_free(block));
}

static void use_pool(void)
{
    static const tarn_segments kinds[] = {TARN_SEGMENTS_DEFAULT, TARN_SEGMENTS_PLAIN,
                                          TARN_SEGMENTS_EXACT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tarn_pool_options options = {.size = sizeof options, .device = 0, .segments = kinds[i]};
        tarn_pool *pool;
        tarn_scope scope;
        void *block;
        if (!TRY(tarn_pool_create(&options, &pool)))
            continue;
        if (TRY(tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope))) {
            if (TRY(tarn_alloc_on(TARN_STREAM_LEGACY, MIB, &block)))
                OK(tarn_free(block));
            OK(tarn_scope_end(scope));
        }
        OK(tarn_pool_release(pool));
    }
}

static void use_capture(void)
{
    tarn_stream stream;
    void *block, *graph;
    if (!TRY(tarn_stream_lease(0, 0, &stream)))
        return;
    if (TRY(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED))) {
        if (TRY(tarn_alloc_on(stream, MIB, &block)))
            (void)TRY(tarn_free(block));
        if (TRY(tarn_capture_end(stream, &graph))) {
            (void)TRY(machine->graph_destroy(graph));
        } else {
            clear_injection(); /* what could not be ended either lies on the way of all that
                                  follows */
            (void)tarn_capture_abort(stream);
        }
    }
    (void)TRY(tarn_stream_return(stream));
}

/* HIP's plain segments cannot be shared. */
static bool shares(void)
{
    const char *name = getenv("TARN_DRIVER"), *virtual_memory = getenv("TARN_HIP_VMM");
    return !name || strcmp(name, "hip") != 0 || (virtual_memory && *virtual_memory == '1');
}

static void use_share(void)
{
    tarn_pool_options options = {.size = sizeof options, .device = 0, .exportable = true};
    tarn_pool *pool;
    tarn_share *share;
    void *block;
    if (!shares()) {
        CHECK(tarn_pool_create(&options, &pool) != TARN_OK);
        return;
    }
    if (!TRY(tarn_pool_create(&options, &pool)))
        return;
    if (TRY(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, MIB, &block))) {
        if (TRY(tarn_export(block, &share)))
            OK(tarn_share_close(share));
        OK(tarn_free(block));
    }
    OK(tarn_pool_release(pool));
}

static int create(void **handle)
{
    static int thing;
    *handle = &thing;
    return 0;
}
static int destroy(void *handle)
{
    return !handle;
}
static int set_workspace(void *handle, void *pointer, size_t size)
{
    return !handle || (pointer && !size);
}

static void use_handle(void)
{
    static const tarn_library_row row = {.size = sizeof row,
                                         .name = "thing",
                                         .create = create,
                                         .destroy = destroy,
                                         .set_workspace = set_workspace};
    static tarn_library thing;
    static bool registered;
    tarn_stream stream;
    tarn_lease one;
    void *handle;
    registered = registered || TRY(tarn_library_register(&row, &thing));
    if (!registered || !TRY(tarn_workspace_size_set(thing, MIB)) ||
        !TRY(tarn_stream_lease(0, 0, &stream)))
        return;
    (void)TRY(tarn_handle_get(thing, stream, &handle));
    if (TRY(tarn_handle_lease(thing, stream, &one)))
        OK(tarn_handle_return(&one));
    (void)TRY(tarn_stream_return(stream));
}

static void (*use)(void);

static void use_again(void)
{
    use();
    OK(workspaces_clear_all(NULL));
    OK(tarn_pinned_trim(0));
    for (int device = 0; device < 2; device++) {
        OK(tarn_device_trim(device, 0));
        tarn_host_ledger ledger = ledger_of(device);
        /* A driver that takes nothing back while a capture is thrown away keeps its graph, and the
         * graph its memory. */
        if (failure_tried()->kind != FAIL_driver || !failure_tried()->forever)
            CHECK(ledger.mapped == 0 && ledger.pieces == 0 && ledger.plain == 0 &&
                  ledger.graphs == 0);
        if (!failure_is_tried())
            addresses[device] = ledger.reserved_addresses;
        /* Less where the first range was refused */
        CHECK(ledger.reserved_addresses <= addresses[device]);
    }
    OK(tarn_shutdown());
}

static void test_each_failure_of_the_first_use(void **state)
{
    (void)state;
    static const struct scenario uses[] = {
        {"memory", use_memory},   {"another device", use_another_device},
        {"pinned", use_pinned},   {"pool", use_pool},
        {"capture", use_capture}, {"share", use_share},
        {"handle", use_handle}};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        use = uses[i].run;
        each_failure_of_once(
            &(struct once){.name = uses[i].name, .run = use, .after = use_again, .most = 200});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_failure_of_the_first_use)};
    host_start_with(2, 64 * MIB);
    addresses = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (addresses == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
