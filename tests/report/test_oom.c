/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What TARN_OOM_SNAPSHOT leaves: a snapshot and a text beside it, whatever else goes wrong. */
#include "support/host.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static tarn_stream stream;

static void begin(void)
{
    strcpy(folder, "/tmp/tarn-oom-test-XXXXXX");
    CHECK(mkdtemp(folder));
    setenv("TARN_OOM_SNAPSHOT", folder, 1);
    host_start_with(1, 64 * MIB);
    stream = lease(0);
}

static unsigned files(void)
{
    unsigned count = 0;
    DIR *listing = opendir(folder);
    CHECK(listing);
    for (struct dirent *entry; (entry = readdir(listing));)
        count += entry->d_name[0] != '.';
    closedir(listing);
    return count;
}

/* Reads one of the files of the n-th error into a buffer; its length. */
static size_t content(unsigned number, const char *kind, char *buffer, size_t room)
{
    char path[160];
    struct stat status;
    snprintf(path, sizeof path, "%s/tarn-oom-%ld-%u.%s", folder, (long)getpid(), number, kind);
    CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600);
    FILE *file = fopen(path, "rb");
    CHECK(file);
    size_t size = fread(buffer, 1, room - 1, file);
    buffer[size] = '\0';
    fclose(file);
    CHECK(unlink(path) == 0);
    return size;
}

static void refused(void)
{
    void *pointer = NULL;
    GIVES(tarn_alloc_on(stream, 100 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
}

static void a_snapshot_and_a_text_are_left(void)
{
    static char buffer[1 << 20];
    begin();
    OK(tarn_trace_start(NULL));
    tarn_tag tag;
    OK(tarn_tag_intern("weights", &tag));
    OK(tarn_region_push("layer 7"));
    void *block = NULL;
    OK(tarn_alloc(&(tarn_alloc_options){.size = sizeof(tarn_alloc_options),
                                        .device = TARN_CURRENT_DEVICE,
                                        .stream = stream,
                                        .tag = tag},
                  20 * MIB, &block));
    OK(tarn_region_pop());
    refused();
    CHECK(strstr(tarn_last_error(), "A snapshot is in ") && strstr(tarn_last_error(), folder));
    CHECK(files() == 2);
    content(1, "txt", buffer, sizeof buffer);
    CHECK(strstr(buffer, "100 MiB on device 0") &&
          strstr(buffer, "20971520           1  layer 7/weights"));
    CHECK(strstr(buffer, "tarn report ") && strstr(buffer, ".pickle -o report.html"));
    size_t size = content(1, "pickle", buffer, sizeof buffer);
    CHECK(buffer[0] == '\x80' && buffer[size - 1] == '.');
    OK(tarn_free(block));
    rmdir(folder);
}

static void a_commit_of_a_range_leaves_them_too(void)
{
    static char buffer[1 << 20];
    begin();
    OK(tarn_trace_start(NULL));
    tarn_range *range = NULL;
    OK(tarn_range_create(NULL, 128 * MIB, &range));
    OK(tarn_range_commit(range, 0, 20 * MIB, stream));
    GIVES(tarn_range_commit(range, 20 * MIB, 100 * MIB, stream), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "A snapshot is in ") && strstr(tarn_last_error(), folder));
    CHECK(strstr(tarn_last_error(), "The cause: "));
    CHECK(files() == 2);
    content(1, "txt", buffer, sizeof buffer);
    CHECK(strstr(buffer, "a commit of a range needs 100 MiB on device 0"));
    size_t size = content(1, "pickle", buffer, sizeof buffer);
    CHECK(memmem(buffer, size, "device_free", 11)); /* the trace has the error too */
    rmdir(folder);
    OK(tarn_range_decommit(range, 0, 20 * MIB, stream));
    OK(tarn_range_destroy(range));
}

static void so_many_and_no_more(void)
{
    char buffer[64];
    begin();
    for (unsigned i = 1; i <= 20; i++) {
        refused();
        CHECK((strstr(tarn_last_error(), "A snapshot is in ") != NULL) == (i <= 16));
        CHECK((strstr(tarn_last_error(), "no more are left") != NULL) == (i == 16));
    }
    CHECK(files() == 32);
    for (unsigned i = 1; i <= 16; i++) {
        content(i, "txt", buffer, sizeof buffer);
        content(i, "pickle", buffer, sizeof buffer);
    }
    rmdir(folder);
}

static void a_folder_that_is_not_there_is_said_and_changes_nothing(void)
{
    begin();
    rmdir(folder);
    refused();
    CHECK(strstr(tarn_last_error(), "100 MiB on device 0 (tarn host device)"));
    CHECK(strstr(tarn_last_error(), "No snapshot was left: ") &&
          strstr(tarn_last_error(), "No such file"));
    OK(tarn_free(alloc_on(stream, 20 * MIB)));
}

static void a_full_disk_leaves_no_half_file(void)
{
    begin();
    struct rlimit limit = {100, 100};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    refused();
    CHECK(strstr(tarn_last_error(), "No snapshot was left: ") &&
          strstr(tarn_last_error(), "File too large"));
    CHECK(files() == 0);
    rmdir(folder);
}

static void a_text_that_fails_leaves_the_snapshot(void)
{
    static char buffer[1 << 20];
    char path[160];
    begin();
    snprintf(path, sizeof path, "%s/tarn-oom-%ld-1.txt", folder, (long)getpid());
    CHECK(mkdir(path, 0700) == 0); /* no file can have that name */
    refused();
    CHECK(strstr(tarn_last_error(), "A snapshot is in ") && !strstr(tarn_last_error(), "holders"));
    CHECK(strstr(tarn_last_error(), "with no text beside it: ") &&
          strstr(tarn_last_error(), "is not a regular file"));
    CHECK(rmdir(path) == 0 && files() == 1);
    size_t size = content(1, "pickle", buffer, sizeof buffer);
    CHECK(buffer[0] == '\x80' && buffer[size - 1] == '.');
    rmdir(folder);
}

int main(void)
{
    unsetenv("TARN_TRACE");
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_snapshot_and_a_text_are_left),
        CHILD_TEST(a_commit_of_a_range_leaves_them_too),
        CHILD_TEST(so_many_and_no_more),
        CHILD_TEST(a_folder_that_is_not_there_is_said_and_changes_nothing),
        CHILD_TEST(a_full_disk_leaves_no_half_file),
        CHILD_TEST(a_text_that_fails_leaves_the_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
