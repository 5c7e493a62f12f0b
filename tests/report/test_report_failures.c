/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure while a file is written: the open, each write (no room, an error, a part of it, a
 * signal), the close and the rename, and the host memory that it takes. Under its name there is
 * what was there before, or all of the new; beside it nothing is left; and the error names the
 * file. */
#include "base/log.h"
#include "report/metrics_test.h"
#include "support/failures.h"
#include "support/host.h"
#include "support/snapshots.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tarn/live.h>
#include <tarn/snapshot.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCKS 500 /* for more than one write */

static char folder[512];
static const char before[] = "what was there before";

static const char *path_of(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name)
{
    FILE *file = fopen(path_of(name), "w");
    CHECK(file && fputs(before, file) >= 0 && fclose(file) == 0);
}

static size_t get(const char *name, char *text, size_t room)
{
    FILE *file = fopen(path_of(name), "r");
    if (!file)
        return 0;
    size_t length = fread(text, 1, room, file);
    CHECK(length < room && fclose(file) == 0);
    text[length] = '\0';
    return length;
}

/* How many files there are. */
static int files(void)
{
    int count = -2; /* . and .. */
    DIR *entries = opendir(folder);
    CHECK(entries);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

/* A file is whole: the old, or a new one with its first and last bytes. */
static bool is_whole(const char *name, const char *first, const char *last)
{
    static char text[1 << 20];
    size_t length = get(name, text, sizeof text), end = strlen(last);
    if (strcmp(text, before) == 0)
        return false;
    CHECK(length > end && strncmp(text, first, strlen(first)) == 0 &&
          memcmp(text + length - end, last, end) == 0);
    return true;
}

static void judge(tarn_status status, const char *name, const char *first, const char *last)
{
    bool is_new = is_whole(name, first, last);
    CHECK(is_new == !status);
    CHECK(files() == 1);
    if (!went_well(status, false, name))
        CHECK(status == TARN_ERROR_OUT_OF_HOST_MEMORY ||
              (status == TARN_ERROR_SYSTEM && strstr(tarn_last_error(), path_of(name))));
    CHECK(unlink(path_of(name)) == 0);
}

/* ---- Scenarios ---- */

static void live_blocks(void **pointers, int count)
{
    for (int i = 0; i < count; i++)
        if (tarn_alloc_on(TARN_STREAM_LEGACY, 100u * (unsigned)(i + 1), &pointers[i]))
            pointers[i] = NULL;
}

static void write_snapshot(tarn_snapshot_format format, const char *first, const char *last)
{
    void *pointers[BLOCKS];
    tarn_snapshot_options options = {sizeof options, format, TARN_NO_LIMIT};
    live_blocks(pointers, BLOCKS);
    put("snapshot");
    judge(tarn_snapshot_write(path_of("snapshot"), &options), "snapshot", first, last);
    for (int i = 0; i < BLOCKS; i++)
        OK(tarn_free(pointers[i]));
}

static void snapshots_are_written(void)
{
    write_snapshot(TARN_SNAPSHOT_PICKLE, "\x80", ".");
}

static void chrome_traces_are_written(void)
{
    write_snapshot(TARN_SNAPSHOT_CHROME, "{", "}\n");
}

static void metrics_are_written(void)
{
    put("metrics");
    judge(write_metrics(path_of("metrics")), "metrics", "# ", "# EOF\n");
}

/* A page is made for its owner, and nothing is left where it could not be. */
static void live_pages_are_made(void)
{
    tarn_live_options options = {
        .size = sizeof options, .directory = folder, .interval_ms = 3600000};
    tarn_status status = tarn_live_start(&options);
    CHECK(files() == !status);
    if (went_well(status, false, "tarn_live_start"))
        OK(tarn_live_stop());
    else
        CHECK(status != TARN_ERROR_SYSTEM || strstr(tarn_last_error(), folder) ||
              strstr(tarn_last_error(), "thread"));
    CHECK(files() == 0);
}

static void nothing_lives(void)
{
    CHECK(files() == 0);
    verify(0);
}

static void trace_all(void)
{
    CHECK(setenv("TARN_TRACE", "records=1024,regions", 1) == 0);
    host_start_with(1, 64 * MIB);
    OK(tarn_live_stop());
    void *pointers[BLOCKS];
    live_blocks(pointers, BLOCKS);
    for (int i = 0; i < BLOCKS; i++)
        OK(tarn_free(pointers[i]));
}

static void every_failure(void **state)
{
    (void)state;
    static const struct scenario scenarios[] = {
        {"snapshots are written", snapshots_are_written},
        {"chrome traces are written", chrome_traces_are_written},
        {"metrics are written", metrics_are_written},
        {"live pages are made", live_pages_are_made},
    };
    static const struct scenarios shared = {
        .set_up = trace_all, .settle = nothing_lives, .without = 1u << FAIL_driver};
    each_failure_of(&shared, scenarios, sizeof scenarios / sizeof *scenarios);
}

/* ---- What is left where memory runs out ---- */

static void leave_what_is_found(void)
{
    trace_all();
    CHECK(setenv("TARN_OOM_SNAPSHOT", folder, 1) == 0);
}

static bool is_cut_off(void)
{
    size_t length = strlen(tarn_last_error());
    return length < 300 && strcmp(tarn_last_error() + length - 3, "...") == 0;
}

static void run_out(void)
{
    void *pointer = &pointer;
    tarn_status status = tarn_alloc_on(TARN_STREAM_LEGACY, 100 * MIB, &pointer);
    clear_injection();
    CHECK(status == TARN_ERROR_OUT_OF_MEMORY || status == TARN_ERROR_OUT_OF_HOST_MEMORY);
    int left = files();
    bool told = strstr(tarn_last_error(), "A snapshot is in"),
         alone = strstr(tarn_last_error(), "with no text beside it"),
         excused = strstr(tarn_last_error(), "No snapshot was left");
    bool is_cut = is_cut_off(); /* the text: a thread that gets no memory for it has little room */
    CHECK(left <= 2 && (left == (told ? 2 - alone : 0) || is_cut));
    CHECK(told || excused || is_cut || status == TARN_ERROR_OUT_OF_HOST_MEMORY);
    /* And why */
    CHECK(!strstr(tarn_last_error(), "left: ") || strstr(tarn_last_error(), "left: ")[6]);
    CHECK(!strstr(tarn_last_error(), "it: ") || strstr(tarn_last_error(), "it: ")[4]);
    char name[64];
    snprintf(name, sizeof name, "tarn-oom-%ld-1.pickle", (long)getpid());
    if (left)
        CHECK(is_whole(name, "\x80", "."));
    (void)unlink(path_of(name));
    snprintf(name, sizeof name, "tarn-oom-%ld-1.txt", (long)getpid());
    (void)unlink(path_of(name));
    CHECK(files() == 0);
    /* And once more */
    CHECK(tarn_alloc_on(TARN_STREAM_LEGACY, 100 * MIB, &pointer) == TARN_ERROR_OUT_OF_MEMORY);
    CHECK(files() == 2 && (strstr(tarn_last_error(), "A snapshot is in") || is_cut_off()));
    for (int i = 1; i <= 2; i++) {
        snprintf(name, sizeof name, "tarn-oom-%ld-%d.pickle", (long)getpid(), i);
        (void)unlink(path_of(name));
        snprintf(name, sizeof name, "tarn-oom-%ld-%d.txt", (long)getpid(), i);
        (void)unlink(path_of(name));
    }
    verify(0);
}

static void what_is_left_of_a_shortage(void **state)
{
    (void)state;
    each_failure_of_once(&(struct once){.name = "what is left of a shortage",
                                        .before = leave_what_is_found,
                                        .run = run_out,
                                        .without = 1u << FAIL_driver,
                                        .most = UINT64_MAX});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failure),
                                       cmocka_unit_test(what_is_left_of_a_shortage)};
    snprintf(folder, sizeof folder, "%s/files", snapshots_folder());
    if (mkdir(folder, 0700))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
