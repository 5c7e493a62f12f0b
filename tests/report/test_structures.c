/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every structure that begins with its size: another size than today's, NULL too, is refused, nothing behind what the caller says to have
 * is read, and nothing is written. Behind that lies a page that nobody may touch. */
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
static void *block;

static bool take(void *argument, const void *data, size_t size)
{
    (void)argument;
    return data && size;
}

static tarn_status of_a_new_pool(const tarn_pool_options *options)
{
    tarn_pool *made = NULL;
    tarn_status status = tarn_pool_create(options, &made);
    if (!status)
        OK(tarn_pool_release(made));
    return status;
}

/* X(call, structure, whether NULL is fine, the call with `it`) */
/* clang-format off */
#define LIST(X)                                                                                                \
    X(device, tarn_device_properties, false, tarn_device_properties_get(0, it))                                \
    X(row, tarn_library_row, false, tarn_library_register(it, &(tarn_library){0}))                             \
    X(library, tarn_library_info, false, tarn_library_info_get(library, it))                                   \
    X(handles, tarn_handle_stats, false, tarn_handle_stats_get(library, 0, it))                                \
    X(workspaces, tarn_workspace_stats, false, tarn_workspace_stats_get(0, it))                                \
    X(host, tarn_host_config, false, tarn_host_configure(it))                                                  \
    X(ledger, tarn_host_ledger, false, tarn_host_ledger_get(0, it))                                            \
    X(live, tarn_live_options, true, tarn_live_start(it))                                                      \
    X(alloc, tarn_alloc_options, false, tarn_alloc(it, 100, &(void *){0}))                                     \
    X(block, tarn_block_info, false, tarn_pointer_info(block, it))                                             \
    X(observer, tarn_observer_options, false, tarn_observer_add(it, &(tarn_observer){0}))                      \
    X(settings_set, tarn_pinned_settings, false, tarn_pinned_settings_set(it))                                 \
    X(settings_get, tarn_pinned_settings, false, tarn_pinned_settings_get(it))                                 \
    X(pinned, tarn_pinned_stats, false, tarn_pinned_stats_get(it))                                             \
    X(allocator, tarn_pool_allocator, true, of_a_new_pool(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .allocator = it})) \
    X(allocator_get, tarn_pool_allocator, false, tarn_pool_allocator_get(pool, it))                            \
    X(pool, tarn_pool_options, true, of_a_new_pool(it))                                                        \
    X(share, tarn_share_info, false, tarn_share_info_get(share, it))                                           \
    X(snapshot, tarn_snapshot_options, true, tarn_snapshot_print(take, NULL, it))                              \
    X(snapshot_file, tarn_snapshot_options, true, tarn_snapshot_write("/dev/null/none", it))                   \
    X(stats, tarn_stats, false, tarn_stats_get(0, it))                                                         \
    X(pool_stats, tarn_stats, false, tarn_pool_stats_get(pool, it))                                            \
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
    const char *name;
    size_t size;
    bool may_be_null;
    tarn_status (*call)(void *pointer);
} calls[] = {
#define ROW(name, type, null, call) {#name ", " #type, sizeof(type), null, call_##name},
    LIST(ROW)};
enum { CALLS = sizeof calls / sizeof *calls };

static char *page; /* and behind it one that nobody may touch */

/* Refused, with nothing of it read behind what is there, nor written. */
static void refuse(size_t i, size_t size)
{
    size_t there = size < calls[i].size ? size : calls[i].size;
    if (there < sizeof size)
        there = sizeof size;                                /* of what it says of itself all is there */
    there = (there + sizeof size - 1) & ~(sizeof size - 1); /* and it is aligned */
    char *start = page + PAGE - there, before[PAGE];
    memset(page, 0x5a, PAGE);
    memcpy(start, &size, sizeof size);
    memcpy(before, page, PAGE);
    tarn_status status = calls[i].call(start);
    if (status != TARN_ERROR_INVALID_ARGUMENT || memcmp(page, before, PAGE) != 0)
        fprintf(stderr, "%s of %zu bytes instead of %zu\n", calls[i].name, size, calls[i].size);
    GIVES(status, TARN_ERROR_INVALID_ARGUMENT);
    CHECK(*tarn_last_error());
    CHECK(memcmp(page, before, PAGE) == 0);
}

static void other_sizes_are_refused_and_nothing_is_touched(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        size_t size = calls[i].size;
        const size_t wrong[] = {0,
                                1,
                                4,
                                7,
                                8,
                                size / 2,
                                size - 8,
                                size - 1,
                                size + 1,
                                size + 8,
                                2 * size,
                                SIZE_MAX,
                                SIZE_MAX / 2,
                                SIZE_MAX - 7,
                                size | (size_t)1 << 32};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            refuse(i, wrong[k]);
        if (!calls[i].may_be_null)
            GIVES(calls[i].call(NULL), TARN_ERROR_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_sizes_are_refused_and_nothing_is_touched),
    };
    const tarn_pool_options exportable = {.size = sizeof exportable, .exportable = true};
    void *exported = NULL;
    host_start_with(1, 256 * MIB);
    page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && mprotect(page + PAGE, PAGE, PROT_NONE) == 0);
    OK(tarn_pool_create(&exportable, &pool));
    OK(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 100, &exported));
    OK(tarn_export(exported, &share));
    OK(tarn_library_find("cublas", &library));
    CHECK((block = tarn_malloc(100)));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
