/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure in the life of a handle: for each row of the driver's platform on its simulated
 * library, which fails each of its calls in the ways that vendors have, success without a handle
 * and a failure with garbage among them; on the host device, for a registered row. What a get does
 * not give stays untouched; no handle is lost, misused, or used after its end; and the next get
 * works. */
#include "driver/driver.h"
#include "handle/registry.h"
#include "support/clearing.h"
#include "support/failures.h"
#include "support/host.h"
#include "support/system.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tarn_library library;
static tarn_stream streams[2];

/* ---- A row of a test's ---- */

static int things[64], thing_count;

static int thing_create(void **handle)
{
    *handle = &things[thing_count++ % 64];
    return 0;
}

static int thing_destroy(void *handle)
{
    return !handle;
}

static int thing_set_stream(void *handle, void *stream)
{
    (void)stream;
    return !handle;
}

static int thing_set_workspace(void *handle, void *pointer, size_t size)
{
    return !handle || (pointer && !size);
}

static const tarn_library_row thing = {.size = sizeof thing,
                                       .name = "thing",
                                       .create = thing_create,
                                       .destroy = thing_destroy,
                                       .set_stream = thing_set_stream,
                                       .set_workspace = thing_set_workspace};

/* ---- The life of a handle ---- */

static void get_on(tarn_stream stream)
{
    void *handle = &handle;
    bool got =
        TRY(stream == TARN_STREAM_LEGACY ? tarn_handle_get(library, TARN_STREAM_CURRENT, &handle)
                                         : tarn_handle_get(library, stream, &handle));
    CHECK(got ? handle && handle != (void *)&handle : handle == (void *)&handle);
}

static void lease_one(void)
{
    tarn_lease one = {.handle = &one};
    if (!TRY(tarn_handle_lease(library, streams[0], &one))) {
        CHECK(one.handle == &one);
        return;
    }
    if (!TRY(tarn_handle_lease_bind(&one, streams[1])))
        CHECK(one.owner);
    OK(tarn_handle_return(&one)); /* makes no call */
}

static void use_workspaces(void)
{
    tarn_workspace_call call;
    void *pointer = &pointer;
    size_t size = 7;
    tarn_handle_stats stats = {.size = sizeof stats};
    OK(tarn_handle_stats_get(library, 0, &stats));
    if (!stats.workspace_bytes)
        return;
    tarn_status status = tarn_workspace_get(library, TARN_STREAM_CURRENT, NULL, &pointer, &size);
    if (status != TARN_ERROR_NOT_SUPPORTED)
        (void)TRY(status);
    CHECK(!status || (pointer == &pointer && size == 7));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    if (TRY(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call)))
        (void)TRY(tarn_workspace_end(&call));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
}

/* A handle that is first bound to the stream in a scope. */
static void get_in_a_pool(void)
{
    tarn_pool_options options = {.size = sizeof options};
    tarn_pool *pool = NULL;
    tarn_scope scope = 0;
    if (!TRY(tarn_pool_create(&options, &pool)))
        return;
    if (TRY(tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope))) {
        get_on(streams[0]);
        OK(tarn_scope_end(scope));
    }
    (void)TRY(workspaces_clear_pool(pool, NULL));
    (void)TRY(workspaces_clear_capture(12345, NULL));
    OK(tarn_pool_release(pool));
}

/* More streams than a thread has handles for, and a capture that comes to nothing. */
static tarn_stream many[TARN_HANDLE_STREAMS + 1];
static bool capturing;

static void follow_and_abort(void)
{
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        get_on(many[i]);
    if (!(capturing = TRY(tarn_capture_begin(many[TARN_HANDLE_STREAMS], TARN_CAPTURE_RELAXED))))
        return;
    void *handle = NULL;
    tarn_status status = tarn_handle_get(library, many[TARN_HANDLE_STREAMS], &handle);
    if (status != TARN_ERROR_CAPTURE) /* it could not be had before */
        (void)TRY(status);
    capturing = !TRY(tarn_capture_abort(many[TARN_HANDLE_STREAMS]));
}

static void run_by_stream(void)
{
    system_in_thread(follow_and_abort);
}

static void body(void)
{
    tarn_guard guard;
    (void)tarn_device_guard_set(&guard, 0);
    get_on(streams[0]);
    get_on(streams[1]);
    get_on(TARN_STREAM_LEGACY);
    get_on(streams[0]);
    lease_one();
    bool has_mode = tarn_handle_mode_set(library, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, 1,
                                         NULL) == TARN_OK;
    get_on(streams[0]);
    if (has_mode)
        OK(tarn_handle_mode_set(library, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, -1, NULL));
    use_workspaces();
    (void)TRY(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2));
    (void)TRY(tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, streams[1], 1));
    (void)TRY(workspaces_clear_stream(streams[1], NULL));
    get_in_a_pool();
    get_on(streams[1]);
    (void)TRY(tarn_handle_trim(library, 0, NULL));
    get_on(streams[0]);
}

/* Its end gives back what it has. */
static void run(void)
{
    system_in_thread(body);
}

static unsigned long vendor_count(const char *word)
{
    unsigned long (*count)(const char *) = NULL;
    void *opened = entry_at(library)->opened;
    if (opened)
        loader_store(&count, dlsym(opened, "tarn_sim_calls"));
    return count ? count(word) : 0;
}

static void no_handle_was_misused(void)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    OK(tarn_handle_stats_get(library, 0, &stats));
    CHECK(stats.in_use == 0 && stats.contract_breaks == 0);
    CHECK(stats.created - stats.destroyed == stats.available);
    CHECK(vendor_count("misuse") == 0 && vendor_count("late") == 0);
    if (entry_at(library)->opened)
        CHECK(vendor_count("alive") == stats.available + vendor_count("undestroyed"));
}

static void settle(void)
{
    tarn_workspace_stats workspaces = {.size = sizeof workspaces};
    if (capturing) { /* or its graph alone could not be destroyed */
        tarn_status status = tarn_capture_abort(many[TARN_HANDLE_STREAMS]);
        CHECK(!status || status == TARN_ERROR_INVALID_ARGUMENT);
    }
    if (many[TARN_HANDLE_STREAMS]) /* where the driver did not say what the capture is called its
                                      workspace has stayed */
        OK(workspaces_clear_stream(many[TARN_HANDLE_STREAMS], NULL));
    capturing = false;
    no_handle_was_misused();
    OK(tarn_handle_trim(library, 0, NULL));
    OK(workspaces_clear_all(NULL));
    no_handle_was_misused();
    OK(tarn_workspace_stats_get(0, &workspaces));
    CHECK(workspaces.bytes == workspaces.leaked_bytes || workspaces.bytes == 0);
    OK(tarn_device_synchronize(0));
    OK(tarn_device_trim(0, 0));
}

static void lost(void)
{
    CHECK(vendor_count("misuse") == 0 && vendor_count("late") == 0);
}

static void set_up_by_stream(void)
{
    tarn_library_row row = thing;
    row.name = "thing by stream";
    row.flags = TARN_LIBRARY_BY_STREAM;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i] = lease(0);
    OK(tarn_library_register(&row, &library));
    OK(tarn_workspace_size_set(library, MIB));
}

static void set_up(void)
{
    tarn_library_info info = {.size = sizeof info};
    for (int i = 0; i < 2; i++)
        streams[i] = lease(0);
    if (!library) {
        OK(tarn_library_register(&thing, &library));
        OK(tarn_workspace_size_set(library, MIB));
        return;
    }
    OK(tarn_library_info_get(library, &info));
    CHECK(info.usable);
    failure_library(entry_at(library)->opened);
}

static void each_failure(void **state)
{
    (void)state;
    const char *name = getenv("TARN_DRIVER");
    tarn_platform platform =
        name && strcmp(name, "cuda") == 0 ? TARN_PLATFORM_CUDA : TARN_PLATFORM_HIP;
    if (!name || strcmp(name, "host") == 0) {
        static const struct scenarios shared = {.set_up = set_up, .settle = settle, .lost = lost};
        each_failure_of(&shared, &(struct scenario){"a registered row", run}, 1);
        static const struct scenarios by_stream = {
            .set_up = set_up_by_stream, .settle = settle, .lost = lost, .most = 60};
        each_failure_of(&by_stream, &(struct scenario){"a registered row by stream", run_by_stream},
                        1);
        return;
    }
    for (library = 1; library <= entry_count(); library++) {
        const struct library *row = entry_at(library)->row;
        if (row->platform != platform)
            continue;
        /* These of AMD's end the process where the driver fails below them (ROCm/rocm-libraries
         * issue 11838). */
        bool may_end = strstr("rocblas hipblas hipblaslt hipsolver", row->name) != NULL;
        struct scenarios shared = {.set_up = set_up,
                                   .settle = settle,
                                   .lost = may_end ? NULL : lost,
                                   .without = may_end ? 1u << FAIL_driver : 0};
        each_failure_of(&shared, &(struct scenario){row->name, run}, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure)};
    host_start_with(1, 32768 * MIB); /* handles whose destroy failed keep what they have */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
