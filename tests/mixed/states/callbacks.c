/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Callbacks of every kind that the headers have, and what causes each. */
#include "mixed/states/callbacks.h"
#include "driver/driver.h"
#include "support/every_call.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/debug.h>
#include <tarn/graph.h>
#include <tarn/metrics.h>

#include <cmocka.h>

static void (*armed)(void); /* what the next callback does, once; NULL: nothing */

static void all_calls_here(void)
{
    void (*calls)(void) = armed;
    armed = NULL;
    if (calls)
        calls();
}

static void hear_range(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    all_calls_here();
}

static bool hear_shortage(const tarn_shortage *shortage, void *user)
{
    (void)shortage;
    (void)user;
    all_calls_here();
    return false;
}

static bool hear_request(int device, size_t bytes, void *user)
{
    (void)device;
    (void)bytes;
    (void)user;
    all_calls_here();
    return false;
}

static void observe(tarn_observer_options options)
{
    tarn_observer observer = 0;
    options.size = sizeof options;
    OK(tarn_observer_add(&options, &observer));
}

static void in_mapped(void)
{
    void *block = NULL;
    observe((tarn_observer_options){.mapped = hear_range});
    (void)tarn_alloc_on(world.stream, 60 * MIB, &block);
}

static void in_unmapping(void)
{
    void *block = alloc_on(world.stream, 60 * MIB);
    OK(tarn_free(block));
    observe((tarn_observer_options){.unmapping = hear_range});
    (void)tarn_device_trim(0, 0);
}

static void in_out_of_memory(void)
{
    void *block = NULL;
    observe((tarn_observer_options){.out_of_memory = hear_shortage});
    (void)tarn_alloc_on(world.stream, 900 * MIB, &block);
}

static void in_reclaim(void)
{
    void *block = NULL;
    observe((tarn_observer_options){.before_growth = hear_request});
    (void)tarn_alloc_on(world.stream, 60 * MIB, &block);
}

/* The sleeper's function that makes the calls. */
static enum { PREPARE, CANCEL, COMMIT, WAKE, HELD } in_sleeper;

static tarn_status sleeper_calls(int which)
{
    if ((int)in_sleeper == which)
        all_calls_here();
    return TARN_OK;
}

static tarn_status sleeper_prepare(void *user, char *why, size_t room)
{
    (void)user;
    (void)why;
    (void)room;
    return sleeper_calls(PREPARE);
}

static void sleeper_cancel(void *user)
{
    (void)user;
    (void)sleeper_calls(CANCEL);
}

static tarn_status sleeper_commit(void *user, char *why, size_t room)
{
    (void)user;
    (void)why;
    (void)room;
    return sleeper_calls(COMMIT);
}

static tarn_status sleeper_wake(void *user, char *why, size_t room)
{
    (void)user;
    (void)why;
    (void)room;
    return sleeper_calls(WAKE);
}

static size_t sleeper_held(void *user)
{
    (void)user;
    return (size_t)sleeper_calls(HELD);
}

static void use_a_sleeper(void)
{
    const tarn_sleeper_options options = {.size = sizeof options,
                                          .name = "calls back",
                                          .prepare = sleeper_prepare,
                                          .cancel = sleeper_cancel,
                                          .commit = sleeper_commit,
                                          .wake = sleeper_wake,
                                          .held = sleeper_held};
    tarn_residue residue = {.size = sizeof residue};
    tarn_sleeper sleeper;
    OK(tarn_sleeper_add(&options, &sleeper));
    OK(tarn_sleep_prepare(NULL, NULL));
    OK(tarn_sleep_cancel());
    (void)tarn_sleep(NULL, &residue);
    (void)tarn_wake();
}

/* The allocator's function that makes the calls. */
static enum { SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_GONE } in_allocator;

static void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    uintptr_t address = 0;
    (void)stream;
    (void)user;
    if (in_allocator == SEGMENT_ALLOC)
        all_calls_here();
    return driver->alloc(device, size, &address) ? NULL : (void *)address;
}

static void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size;
    (void)stream;
    (void)user;
    if (in_allocator == SEGMENT_FREE)
        all_calls_here();
    (void)driver->free(device, (uintptr_t)pointer);
}

static void segments_gone(void *user)
{
    (void)user;
    if (in_allocator == SEGMENT_GONE)
        all_calls_here();
}

static void use_an_allocator(void)
{
    const tarn_pool_allocator allocator = {.size = sizeof allocator,
                                           .alloc = segment_alloc,
                                           .free = segment_free,
                                           .gone = segments_gone};
    void *block = NULL;
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0, .allocator = &allocator});
    (void)tarn_pool_alloc(pool, world.stream, 3 * MIB, &block);
    (void)tarn_free(block);
    (void)tarn_pool_trim(pool, 0);
    (void)tarn_pool_release(pool);
}

static void in_segment_alloc(void)
{
    in_allocator = SEGMENT_ALLOC;
    use_an_allocator();
}

static void in_segment_free(void)
{
    in_allocator = SEGMENT_FREE;
    use_an_allocator();
}

static void in_segments_gone(void)
{
    in_allocator = SEGMENT_GONE;
    use_an_allocator();
}

static void hear_change(const tarn_pool_block *block, bool live, void *user)
{
    (void)block;
    (void)live;
    (void)user;
    all_calls_here();
}

static void in_restore(void)
{
    void *block = alloc_in(world.pool, world.stream, 1000);
    (void)block;
    OK(tarn_pool_restore(world.pool, world.checkpoint, hear_change, NULL));
}

static void hear_report(const tarn_debug_report *report, void *user)
{
    (void)report;
    (void)user;
    all_calls_here();
}

static void in_debug_report(void)
{
    void *block = alloc_on(world.stream, 1000);
    tarn_debug_callback_set(hear_report, NULL);
    (void)tarn_free(block);
    (void)tarn_free(block);
}

static void hear_segment(const tarn_memory_segment *segment, void *user)
{
    (void)segment;
    (void)user;
    all_calls_here();
}

static void in_memory_list(void)
{
    OK(tarn_memory_list(hear_segment, NULL));
}

static void hear_reference(const tarn_graph_reference *reference, void *user)
{
    (void)reference;
    (void)user;
    all_calls_here();
}

/* Of a graph that copies from one half of a block to the other. */
static void in_graph_check(void)
{
    const tarn_graph_options options = {.size = sizeof options, .all = true};
    uintptr_t block = (uintptr_t)alloc_on(world.stream, 1024);
    tarn_stream stream = 0;
    void *native = NULL, *graph = NULL;
    OK(tarn_stream_lease(0, 0, &stream));
    OK(tarn_stream_native_get(stream, &native));
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    CHECK(driver->copy(0, block, block + 512, 512, (driver_stream)native) == TARN_OK);
    OK(tarn_capture_end(stream, &graph));
    tarn_status status = tarn_graph_check(graph, &options, hear_reference, NULL, NULL);
    /* the driver does not show nodes, so no callback runs */
    if (status == TARN_ERROR_NOT_SUPPORTED)
        all_calls_here();
    else
        OK(status);
}

static void hear_kind(const tarn_metadata_kind *kind, void *user)
{
    (void)kind;
    (void)user;
    all_calls_here();
}

static void in_metadata_list(void)
{
    OK(tarn_metadata_list(hear_kind, NULL));
}

static bool hear_text(const void *text, size_t length, void *user)
{
    (void)text;
    (void)length;
    (void)user;
    all_calls_here();
    return true;
}

static void in_snapshot(void)
{
    OK(tarn_snapshot_print(hear_text, NULL, NULL));
}

static void in_metrics(void)
{
    OK(tarn_metrics_print(hear_text, NULL));
}

/* The library's function that makes the calls. The others must not call tarn, which holds the
 * handle's lock over them. */
static enum {
    CREATE,
    DESTROY,
    /* The text function, which is called after a create or a destroy has failed. */
    TEXT_OF_CREATE,
    TEXT_OF_DESTROY,
    TEXT_OF_STREAM,
    TEXT_OF_WORKSPACE,
    TEXT_OF_NO_WORKSPACE,
    TEXT_OF_MODE
} in_library;

static void library_calls(int which)
{
    if ((int)in_library == which)
        all_calls_here();
}

static bool failing; /* from the second use on, so that a handle exists */

static int library_fails(int which)
{
    bool fails = (int)in_library == which && (failing || which == TEXT_OF_CREATE);
    return fails ? 7 : 0;
}

static int thing_create(void **handle)
{
    library_calls(CREATE);
    *handle = calloc(1, 1);
    return library_fails(TEXT_OF_CREATE);
}

static int thing_destroy(void *handle)
{
    library_calls(DESTROY);
    free(handle);
    return library_fails(TEXT_OF_DESTROY);
}

static void *thing_stream;

static int thing_set_stream(void *handle, void *stream)
{
    (void)handle;
    thing_stream = stream;
    return library_fails(TEXT_OF_STREAM);
}

static int thing_get_stream(void *handle, void **stream)
{
    (void)handle;
    *stream = thing_stream;
    return 0;
}

static int thing_set_workspace(void *handle, void *pointer, size_t size)
{
    (void)handle;
    (void)size;
    return library_fails(pointer ? TEXT_OF_WORKSPACE : TEXT_OF_NO_WORKSPACE);
}

static int thing_set_pointer_mode(void *handle, int mode)
{
    (void)handle;
    (void)mode;
    return library_fails(TEXT_OF_MODE);
}

static const char *thing_status_text(int status)
{
    (void)status;
    if (in_library >= TEXT_OF_CREATE)
        all_calls_here();
    return "seven";
}

static tarn_library thing_library;

static void *use_thing(void *argument)
{
    void *handle = NULL;
    (void)argument;
    (void)tarn_handle_get(thing_library, world.stream, &handle);
    (void)tarn_handle_get(thing_library, world.stream, &handle);
    return NULL;
}

/* The library also learns when the workspace of a call ends. */
static void use_a_workspace(void)
{
    tarn_workspace_call call = {0};
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    (void)tarn_workspace_begin(thing_library, world.stream, NULL, &call);
    (void)tarn_workspace_end(&call);
}

/* Two threads use it one after the other, so that a handle changes its thread. */
static void use_a_library(void)
{
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "calls back",
                                  .create = thing_create,
                                  .destroy = thing_destroy,
                                  .set_stream = thing_set_stream,
                                  .get_stream = thing_get_stream,
                                  .set_workspace = thing_set_workspace,
                                  .set_pointer_mode = thing_set_pointer_mode,
                                  .status_text = thing_status_text};
    OK(tarn_library_register(&row, &thing_library));
    OK(tarn_workspace_end(&world.workspace));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_thing, NULL) == 0);
        pthread_join(thread, NULL);
        failing = true;
    }
    if (in_library == TEXT_OF_NO_WORKSPACE)
        use_a_workspace();
    (void)tarn_handle_trim(thing_library, 0, NULL);
}

static int thing_create_numbered(void **handle, int number)
{
    CHECK(number == 7);
    return thing_create(handle);
}

static void use_a_numbered_library(void)
{
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "calls back by number",
                                  .flags = TARN_LIBRARY_CREATE_TAKES_NUMBER,
                                  .create_number = 7,
                                  .create_with_number = thing_create_numbered,
                                  .destroy = thing_destroy};
    OK(tarn_library_register(&row, &thing_library));
    use_thing(NULL);
}

/* All callbacks in the headers, except those that must not call tarn by their description. */
static const struct {
    const char *declared; /* the header, and the name of the pointer there */
    const char *name;
    void (*cause)(void);
    int which; /* the function of a library, an allocator or a sleeper; -1: none */
} callbacks[] = {
    {"observe.h:mapped", "an observer's mapped", in_mapped, -1},
    {"observe.h:unmapping", "an observer's unmapping", in_unmapping, -1},
    {"observe.h:out_of_memory", "an observer's out_of_memory", in_out_of_memory, -1},
    {"observe.h:before_growth", "an observer's before_growth", in_reclaim, -1},
    {"pool.h:alloc", "a pool allocator's alloc", in_segment_alloc, -1},
    {"pool.h:free", "a pool allocator's free", in_segment_free, -1},
    {"pool.h:gone", "a pool allocator's gone", in_segments_gone, -1},
    {"pool.h:changed", "a restore's changed", in_restore, -1},
    {"debug.h:function", "a debug report", in_debug_report, -1},
    {"snapshot.h:each", "a list of memory", in_memory_list, -1},
    {"stats.h:each", "a list of metadata", in_metadata_list, -1},
    {"graph.h:found", "a check of a graph", in_graph_check, -1},
    {"snapshot.h:write", "a snapshot's write", in_snapshot, -1},
    {"metrics.h:take", "the metrics' take", in_metrics, -1},
    {"handle.h:create", "a library's create", use_a_library, CREATE},
    {"handle.h:create_with_number", "a library's create_with_number", use_a_numbered_library,
     CREATE},
    {"handle.h:destroy", "a library's destroy", use_a_library, DESTROY},
    {"handle.h:status_text", "a library's status_text, of create", use_a_library, TEXT_OF_CREATE},
    {"handle.h:status_text", "a library's status_text, of destroy", use_a_library, TEXT_OF_DESTROY},
    {"handle.h:status_text", "a library's status_text, of set_stream", use_a_library,
     TEXT_OF_STREAM},
    {"handle.h:status_text", "a library's status_text, of set_workspace", use_a_library,
     TEXT_OF_WORKSPACE},
    {"handle.h:status_text", "a library's status_text, of the end of a workspace", use_a_library,
     TEXT_OF_NO_WORKSPACE},
    {"handle.h:status_text", "a library's status_text, of set_pointer_mode", use_a_library,
     TEXT_OF_MODE},
    {"sleep.h:prepare", "a sleeper's prepare", use_a_sleeper, PREPARE},
    {"sleep.h:cancel", "a sleeper's cancel", use_a_sleeper, CANCEL},
    {"sleep.h:commit", "a sleeper's commit", use_a_sleeper, COMMIT},
    {"sleep.h:wake", "a sleeper's wake", use_a_sleeper, WAKE},
    {"sleep.h:held", "a sleeper's held", use_a_sleeper, HELD},
};

static const char *const silent[] = {"handle.h:set_stream",    "handle.h:get_stream",
                                     "handle.h:set_workspace", "handle.h:set_pointer_mode",
                                     "host.h:function",        "host.h:report"};

static bool is_listed(const char *declared)
{
    for (size_t i = 0; i < sizeof callbacks / sizeof *callbacks; i++)
        if (strcmp(callbacks[i].declared, declared) == 0)
            return true;
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (strcmp(silent[i], declared) == 0)
            return true;
    return false;
}

/* Finds each pointer to a function in a header. */
static int listed_of(const char *folder, const char *header)
{
    char path[4608], line[512], name[64], declared[320];
    int found = 0;
    snprintf(path, sizeof path, "%s/%s", folder, header);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        for (const char *at = line; (at = strstr(at, "(*")); at++) {
            if (sscanf(at, "(*%63[a-z_])(", name) != 1)
                continue;
            snprintf(declared, sizeof declared, "%s:%s", header, name);
            check_at(is_listed(declared), declared, __FILE__, __LINE__);
            found++;
        }
    fclose(file);
    return found;
}

void callbacks_are_listed(void)
{
    char path[4096];
    const char *source = getenv("TARN_SOURCE");
    int found = 0;
    CHECK(source != NULL);
    snprintf(path, sizeof path, "%s/include/tarn", source);
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (strlen(entry->d_name) > 2 &&
            strcmp(entry->d_name + strlen(entry->d_name) - 2, ".h") == 0)
            found += listed_of(path, entry->d_name);
    closedir(folder);
    CHECK(found > 20);
}

const char *callback_name(size_t i)
{
    return i < sizeof callbacks / sizeof *callbacks ? callbacks[i].name : NULL;
}

bool callback_is_debug(size_t i)
{
    return callbacks[i].cause == in_debug_report;
}

void callback_cause(size_t i, void (*calls)(void))
{
    if (callbacks[i].cause == use_a_sleeper)
        in_sleeper = (unsigned)callbacks[i].which;
    else if (callbacks[i].which >= 0)
        in_library = (unsigned)callbacks[i].which;
    armed = calls;
    callbacks[i].cause();
}
