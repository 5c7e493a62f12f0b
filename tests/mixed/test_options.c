/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Structures of options in which the caller sets only the size. Every field that is 0 means a
 * default, so the call must succeed. Exceptions are structures that must name a function or a name.
 * All structures of the headers are tried, each in a process of its own. */
#include "support/host.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/live.h>
#include <tarn/tarn.h>

#include <cmocka.h>

static bool take(const void *data, size_t size, void *user)
{
    *(size_t *)user += size;
    return data;
}

static void alloc_options(void)
{
    const tarn_alloc_options options = {.size = sizeof options};
    void *block = NULL;
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_alloc(&options, 1000, &block));
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.device == 0 && info.tag == 0);
    OK(tarn_free(block));
}

/* The whole snapshot, as with NULL. */
static void snapshot_options(void)
{
    const tarn_snapshot_options options = {.size = sizeof options};
    size_t bytes = 0, plain = 0;
    OK(tarn_snapshot_print(take, &bytes, &options));
    OK(tarn_snapshot_print(take, &plain, NULL));
    CHECK(bytes > 0 && plain > 0);
    OK(tarn_snapshot_write("/dev/shm/tarn-test-options.pickle", &options));
    remove("/dev/shm/tarn-test-options.pickle");
}

static void pool_options(void)
{
    const tarn_segment_sizes sizes = {.size = sizeof sizes};
    const tarn_pool_options options = {.size = sizeof options},
                            with_sizes = {.size = sizeof options, .sizes = &sizes};
    tarn_pool *pool = NULL;
    OK(tarn_pool_create(&options, &pool));
    OK(tarn_pool_release(pool));
    OK(tarn_pool_create(&with_sizes, &pool));
    OK(tarn_pool_release(pool));
}

static void range_options(void)
{
    const tarn_range_options options = {.size = sizeof options};
    tarn_range *range = NULL;
    OK(tarn_range_create(&options, 1, &range));
    OK(tarn_range_destroy(range));
}

/* It gets as far as the owner, which is not there. */
static void keep_options(void)
{
    const tarn_keep_options options = {.size = sizeof options};
    tarn_pool *pool = NULL;
    CHECK(setenv("TARN_KEEP", "/nowhere", 1) == 0);
    GIVES(tarn_pool_keep("none", &options, &pool, NULL), TARN_ERROR_SYSTEM);
}

static void trace_options(void)
{
    const tarn_trace_options options = {.size = sizeof options};
    OK(tarn_trace_start(&options));
    OK(tarn_trace_stop());
}

static void live_options(void)
{
    const tarn_live_options options = {.size = sizeof options};
    OK(tarn_live_start(&options));
    OK(tarn_live_stop());
}

static void sleep_options(void)
{
    const tarn_sleep_options options = {.size = sizeof options};
    OK(tarn_sleep(&options, NULL));
    OK(tarn_wake());
}

static void workspace_choice(void)
{
    const tarn_workspace_choice choice = {.size = sizeof choice};
    OK(tarn_workspace_clear(&choice, NULL));
}

static void observer_options(void)
{
    const tarn_observer_options options = {.size = sizeof options};
    tarn_observer observer = 0;
    GIVES(tarn_observer_add(&options, &observer), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "no callback"));
}

static void sleeper_options(void)
{
    const tarn_sleeper_options options = {.size = sizeof options};
    tarn_sleeper sleeper = 0;
    GIVES(tarn_sleeper_add(&options, &sleeper), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "no name"));
}

static void graph_options(void)
{
    const tarn_graph_options options = {.size = sizeof options};
    tarn_stream stream = 0;
    void *graph = NULL;
    OK(tarn_stream_lease(0, 0, &stream));
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_graph_check(graph, &options, NULL, NULL, NULL));
}

static void host_configuration(void)
{
    const tarn_host_configuration configuration = {.size = sizeof configuration};
    int count = 0;
    OK(tarn_host_configuration_set(&configuration));
    OK(tarn_device_count_get(&count));
    CHECK(count == 1);
}

static const struct {
    const char *name;
    void (*try)(void);
} structures[] = {
    {"tarn_alloc_options", alloc_options},       {"tarn_snapshot_options", snapshot_options},
    {"tarn_pool_options", pool_options},         {"tarn_trace_options", trace_options},
    {"tarn_live_options", live_options},         {"tarn_sleep_options", sleep_options},
    {"tarn_workspace_choice", workspace_choice}, {"tarn_observer_options", observer_options},
    {"tarn_sleeper_options", sleeper_options},   {"tarn_host_configuration", host_configuration},
    {"tarn_graph_options", graph_options},       {"tarn_range_options", range_options},
    {"tarn_keep_options", keep_options},
};

static void the_size_alone_is_enough(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
        check_at(child_status(structures[i].try) == 0, structures[i].name, __FILE__, __LINE__);
}

static bool is_tried(const char *name)
{
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
        if (strcmp(structures[i].name, name) == 0)
            return true;
    return false;
}

static int look_for_structures(FILE *header)
{
    static const char *const kinds[] = {"_options", "_settings", "_configuration", "_choice"};
    char line[512], name[64];
    int found = 0;
    while (fgets(line, sizeof line, header)) {
        if (sscanf(line, "typedef struct %63[a-z_] {", name) != 1)
            continue;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            const char *end = strstr(name, kinds[i]);
            if (!end || strcmp(end, kinds[i]) != 0)
                continue;
            check_at(is_tried(name), name, __FILE__, __LINE__);
            found++;
        }
    }
    return found;
}

static void all_of_the_headers_are_tried(void **state)
{
    const char *source = getenv("TARN_SOURCE");
    char path[4096];
    int found = 0;
    (void)state;
    CHECK(source != NULL);
    snprintf(path, sizeof path, "%s/include/tarn", source);
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char file[4608];
        size_t length = strlen(entry->d_name);
        if (length < 2 || strcmp(entry->d_name + length - 2, ".h") != 0)
            continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        FILE *header = fopen(file, "r");
        CHECK(header != NULL);
        found += look_for_structures(header);
        fclose(header);
    }
    closedir(folder);
    CHECK(found == sizeof structures / sizeof *structures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_the_headers_are_tried),
        cmocka_unit_test(the_size_alone_is_enough),
    };
    CHECK(setenv("TARN_DRIVER", "host", 0) == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
