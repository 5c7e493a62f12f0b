/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every structure that begins with its size, as callers have it that were compiled with other
 * headers: an older one has fewer fields, a newer one more. A size that nobody can have is refused,
 * NULL too; nothing behind what the caller says to have is read or written. Behind that lies a page
 * that nobody may touch. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tarn/live.h>

#include <cmocka.h>

#define PAGE ((size_t)4096)

static tarn_pool *pool;
static tarn_library library;
static tarn_share *share;
static tarn_sleeper sleeper;
static void *block, *graph;

static bool take(const void *data, size_t size, void *user)
{
    (void)user;
    return data && size;
}

static tarn_status sleeps(void *user, char *why, size_t room)
{
    (void)user;
    (void)why;
    return room ? TARN_OK : TARN_ERROR_LIBRARY;
}

static tarn_status of_a_new_pool(const tarn_pool_options *options)
{
    tarn_pool *made = NULL;
    tarn_status status = tarn_pool_create(options, &made);
    if (!status)
        OK(tarn_pool_release(made));
    return status;
}

static tarn_status graph_summary_get(tarn_graph_summary *summary)
{
    return tarn_graph_check(graph, NULL, NULL, NULL, summary);
}

#define POOL(...) ((tarn_pool_options){.size = sizeof(tarn_pool_options), __VA_ARGS__})

/* X(call, structure, whether NULL is fine, the call with `it`): a `_get` asks for the structure,
 * and so does a clear; others are given it. */
/* clang-format off */
#define LIST(X) \
    X(device, tarn_device_properties, false, tarn_device_properties_get(0, it)) \
    X(row, tarn_library_row, false, tarn_library_register(it, &(tarn_library){0})) \
    X(library, tarn_library_info, false, tarn_library_info_get(library, it)) \
    X(handles, tarn_handle_stats, false, tarn_handle_stats_get(library, 0, it)) \
    X(workspaces, tarn_workspace_stats, false, tarn_workspace_stats_get(0, it)) \
    X(choice, tarn_workspace_choice, true, tarn_workspace_clear(it, NULL)) \
    X(cleared, tarn_workspace_cleared, true, tarn_workspace_clear(NULL, it)) \
    X(host, tarn_host_configuration, false, tarn_host_configuration_set(it)) \
    X(ledger, tarn_host_ledger, false, tarn_host_ledger_get(0, it)) \
    X(live, tarn_live_options, true, tarn_live_start(it)) \
    X(alloc, tarn_alloc_options, false, tarn_alloc(it, 100, &(void *){0})) \
    X(block, tarn_block_info, false, tarn_pointer_info_get(block, it)) \
    X(observer, tarn_observer_options, false, tarn_observer_add(it, &(tarn_observer){0})) \
    X(pinned, tarn_pinned_stats, false, tarn_pinned_stats_get(it)) \
    X(allocator, tarn_pool_allocator, true, of_a_new_pool(&POOL(.allocator = it))) \
    X(stream, tarn_stream_info, false, tarn_stream_info_get(TARN_STREAM_LEGACY, it)) \
    X(graph_options, tarn_graph_options, true, tarn_graph_check(graph, it, NULL, NULL, NULL)) \
    X(graph_summary, tarn_graph_summary, true, graph_summary_get(it)) \
    X(pool_info, tarn_pool_info, false, tarn_pool_info_get(pool, it)) \
    X(sizes, tarn_segment_sizes, true, of_a_new_pool(&POOL(.sizes = it))) \
    X(pool, tarn_pool_options, true, of_a_new_pool(it)) \
    X(keep, tarn_keep_options, true, tarn_pool_keep("none", it, &(tarn_pool *){0}, NULL)) \
    X(share, tarn_share_info, false, tarn_share_info_get(share, it)) \
    X(snapshot, tarn_snapshot_options, true, tarn_snapshot_print(take, NULL, it)) \
    X(snapshot_file, tarn_snapshot_options, true, tarn_snapshot_write("/dev/null/none", it)) \
    X(stats, tarn_stats, false, tarn_device_stats_get(0, it)) \
    X(pool_stats, tarn_stats, false, tarn_pool_stats_get(pool, it)) \
    X(sleeper, tarn_sleeper_options, false, tarn_sleeper_add(it, &(tarn_sleeper){0})) \
    X(sleeper_get, tarn_sleeper_info, false, tarn_sleeper_info_get(sleeper, it)) \
    X(trace, tarn_trace_options, true, tarn_trace_start(it))
/* clang-format on */

#define CALL(name, type, null, call)              \
    static tarn_status call_##name(void *pointer) \
    {                                             \
        type *it = pointer;                       \
        return call;                              \
    }
LIST(CALL)

static const struct {
    const char *name, *type, *text;
    size_t size;
    bool may_be_null;
    tarn_status (*call)(void *pointer);
} calls[] = {
#define ROW(name, type, null, call) {#name, #type, #call, sizeof(type), null, call_##name},
    LIST(ROW)};
enum { CALLS = sizeof calls / sizeof *calls };

static bool is_asked_for(size_t i)
{
    return strstr(calls[i].text, "_get(") || strstr(calls[i].text, "_clear(NULL");
}

static char *page; /* and behind it one that nobody may touch */

/* A structure of that size before the end of the page, with `fill` in all that is behind the
 * size. */
static char *structure(size_t size, size_t there, int fill)
{
    char *start = page + PAGE - there;
    memset(page, 0x5a, PAGE);
    memset(start, fill, there);
    memcpy(start, &size, sizeof size);
    return start;
}

/* Refused, with nothing of it read behind what is there, nor written. */
static void refuse(size_t i, size_t size, size_t there, int fill)
{
    char before[PAGE], *start = structure(size, there, fill);
    memcpy(before, page, PAGE);
    tarn_status status = calls[i].call(start);
    if (status != TARN_ERROR_INVALID_ARGUMENT || memcmp(page, before, PAGE) != 0)
        fprintf(stderr, "%s of %zu bytes instead of %zu\n", calls[i].name, size, calls[i].size);
    GIVES(status, TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), calls[i].type));
    CHECK(memcmp(page, before, PAGE) == 0);
}

static void sizes_that_nobody_has_are_refused_and_nothing_is_touched(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        size_t size = calls[i].size;
        const size_t wrong[] = {0,
                                1,
                                4,
                                7,
                                8,
                                size - 1,
                                size + 1,
                                size + 4096,
                                SIZE_MAX,
                                SIZE_MAX / 2,
                                SIZE_MAX - 7,
                                size | (size_t)1 << 32};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            refuse(i, wrong[k], sizeof size, 0); /* of what it says of itself only the size is
                                                    there */
            CHECK(strstr(tarn_last_error(), "sizeof("));
        }
        if (!calls[i].may_be_null) {
            GIVES(calls[i].call(NULL), TARN_ERROR_INVALID_ARGUMENT);
            CHECK(strstr(tarn_last_error(), calls[i].type));
        }
    }
}

static void settle(void)
{
    OK(tarn_trace_stop());
    OK(tarn_live_stop());
}

/* What was asked for is filled as far as it goes; what was given counts as far as it goes. */
static void an_older_caller_has_fewer_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        for (size_t size = 16; size < calls[i].size; size += 8) {
            char *start = structure(size, size, is_asked_for(i) ? 0x5a : 0);
            tarn_status status = calls[i].call(start);
            if (is_asked_for(i))
                OK(status);
            CHECK(!status || !strstr(tarn_last_error(), "its size is"));
            CHECK(memcmp(start, &size, sizeof size) == 0); /* still its own */
            for (char *byte = page; byte < start; byte++)
                CHECK(*byte == 0x5a);
            settle();
        }
    }
}

/* What this version does not know is 0 in what it fills, and must be 0 in what it is given. */
static void a_newer_caller_has_more_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        size_t size = calls[i].size + 24;
        char *start = structure(size, size, is_asked_for(i) ? 0x5a : 0);
        tarn_status status = calls[i].call(start);
        CHECK(!status || (!is_asked_for(i) && !strstr(tarn_last_error(), "this version knows")));
        CHECK(memcmp(start, &size, sizeof size) == 0);
        for (size_t k = calls[i].size; k < size; k++)
            CHECK(start[k] == 0);
        settle();
        if (!is_asked_for(i)) {
            refuse(i, size, size, 0x5a);
            CHECK(strstr(tarn_last_error(), "this version knows"));
        }
    }
}

/* Where all except the size is 0, a structure means the same as none. */
static void all_zero_is_the_default(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        bool is_alloc = strcmp(calls[i].name, "alloc") == 0;
        if (is_asked_for(i) || strcmp(calls[i].name, "allocator") == 0 ||
            !(calls[i].may_be_null || is_alloc))
            continue; /* nobody can leave its fields out */
        tarn_status none = calls[i].may_be_null ? calls[i].call(NULL) : TARN_OK;
        settle();
        tarn_status zero = calls[i].call(structure(calls[i].size, calls[i].size, 0));
        settle();
        if (zero != none)
            fprintf(stderr, "%s: %s\n", calls[i].name, tarn_last_error());
        GIVES(zero, none);
    }
}

/* What lies in others or in lists. */
_Static_assert(sizeof(tarn_stat) == 32 && sizeof(tarn_pinned_duration) == 40 &&
                   sizeof(tarn_pool_id) == 16 && sizeof(tarn_pool_block) == 48,
               "structures that cannot grow");

/* The same fields with the same values, whatever more there is. */
static void a_structure_means_the_same_to_all_versions(void **state)
{
    (void)state;
    struct {
        tarn_alloc_options known;
        size_t more[3];
    } newer = {
        .known = {.size = sizeof newer, .device = TARN_CURRENT_DEVICE, .alignment = 2 * MIB}};
    tarn_alloc_options shorter = {.size = offsetof(tarn_alloc_options, alignment),
                                  .device = TARN_CURRENT_DEVICE,
                                  .alignment = 3};
    void *aligned = NULL, *plain = NULL;
    OK(tarn_alloc(&newer.known, 100, &aligned));
    CHECK((uintptr_t)aligned % (2 * MIB) == 0);
    OK(tarn_alloc(&shorter, 100, &plain)); /* it has no alignment */
    OK(tarn_free(aligned));
    OK(tarn_free(plain));

    tarn_block_info all = {.size = sizeof all},
                    older = {.size = offsetof(tarn_block_info, stream), .stream = 77};
    OK(tarn_pointer_info_get(block, &all));
    OK(tarn_pointer_info_get(block, &older));
    CHECK(older.base == all.base && older.usable_size == all.usable_size && older.stream == 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_nobody_has_are_refused_and_nothing_is_touched),
        cmocka_unit_test(an_older_caller_has_fewer_fields),
        cmocka_unit_test(a_newer_caller_has_more_fields),
        cmocka_unit_test(all_zero_is_the_default),
        cmocka_unit_test(a_structure_means_the_same_to_all_versions),
    };
    const tarn_pool_options exportable = {.size = sizeof exportable, .exportable = true};
    const tarn_sleeper_options sleeps_well = {
        .size = sizeof sleeps_well, .name = "s", .commit = sleeps, .wake = sleeps};
    void *exported = NULL;
    host_start_with(1, 256 * MIB);
    page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && mprotect(page + PAGE, PAGE, PROT_NONE) == 0);
    OK(tarn_pool_create(&exportable, &pool));
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 100, &exported));
    OK(tarn_export(exported, &share));
    OK(tarn_sleeper_add(&sleeps_well, &sleeper));
    OK(tarn_library_find("cublas", &library));
    CHECK((block = tarn_malloc(100)));
    tarn_stream stream = lease(0);
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    OK(tarn_capture_end(stream, &graph));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
