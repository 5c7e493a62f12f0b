/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Metrics, read back by the parser of the Prometheus client (read_metrics.py): that it takes every
 * line, and that the values are those of the statistics. And the file: whole or as it was. */
#include "report/metrics_test.h"
#include "report/page_test.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <tarn/handle.h>
#include <tarn/metrics.h>

#include <cmocka.h>

static tarn_stream own;
static char path[128];
static char lines[1 << 18]; /* what the parser printed */

/* Has the parser read a file. Debian's python3 has it; another one of the same name may not. */
static void parse(const char *file)
{
    char command[512];
    const char *source = getenv("TARN_SOURCE");
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/report/read_metrics.py' '%s'",
             source ? source : ".", file);
    FILE *pipe = popen(command, "re");
    CHECK(pipe);
    size_t length = fread(lines, 1, sizeof lines - 1, pipe);
    lines[length] = '\0';
    CHECK(pclose(pipe) == 0);
}

/* Whether the parser found that sample: its name and labels, with tabs between, and its value. */
static void has(const char *sample, double value)
{
    char wanted[512];
    size_t length = (size_t)snprintf(wanted, sizeof wanted, "%s\t", sample);
    for (const char *line = lines; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, wanted, length) == 0) {
            double found = strtod(line + length, NULL);
            if (found != value)
                fprintf(stderr, "%s is %f, not %f\n", sample, found, value);
            CHECK(found == value);
            return;
        }
    check_at(false, sample, __FILE__, __LINE__);
}

static bool has_line(const char *text)
{
    return strstr(lines, text) != NULL;
}

static int make_handle(void **handle)
{
    static int number;
    *handle = &number;
    return 0;
}

static int end_handle(void *handle)
{
    (void)handle;
    return 0;
}

static void the_values_are_those_of_the_statistics(void **state)
{
    (void)state;
    tarn_library_row row = {.size = sizeof row,
                            .name = "a \"b\" \\ c\nd",
                            .create = make_handle,
                            .destroy = end_handle};
    tarn_library library;
    tarn_pool *pool;
    void *handle, *pinned, *in_pool,
        *blocks[] = {alloc_on(own, 3 * MIB), alloc_on(own, 100), alloc_on(own, 5 * MIB)};
    OK(tarn_library_register(&row, &library));
    OK(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle));
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, own, 2 * MIB, &in_pool));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 5000, &pinned));
    OK(tarn_free(blocks[0]));
    void *none = NULL;
    GIVES(tarn_alloc_on(own, 4096 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    OK(write_metrics(path));
    parse(path);
    tarn_stats stats = stats_of(0);
    has("tarn_allocated_bytes\tblocks='large'\tdevice='0'", 7 * (double)MIB);
    has("tarn_allocated_bytes\tblocks='small'\tdevice='0'", 512);
    has("tarn_requested_bytes\tblocks='small'\tdevice='0'", 100);
    has("tarn_reserved_bytes\tblocks='large'\tdevice='0'",
        (double)stats.reserved_bytes[TARN_STAT_LARGE_POOL].current);
    has("tarn_allocated_peak_bytes\tdevice='0'", (double)stats.allocated_bytes[TARN_STAT_ALL].peak);
    has("tarn_allocations_total\tblocks='large'\tdevice='0'", 3);
    has("tarn_frees_total\tblocks='large'\tdevice='0'", 1);
    has("tarn_driver_allocations_total\tdevice='0'", (double)stats.num_device_alloc);
    has("tarn_out_of_memory_total\tdevice='0'", 1);
    has("tarn_device_memory_bytes\tdevice='0'", 1024 * (double)MIB);
    has("tarn_pool_allocated_bytes\tdevice='0'\tpool='0,1'", 2 * (double)MIB);
    has("tarn_pool_allocated_bytes\tdevice='0'\tpool='0,0'", 5 * (double)MIB + 512);
    has("tarn_handles_in_use\tdevice='0'\tlibrary='a \"b\" \\\\ c\\nd'", 1);
    has("tarn_pinned_requested_bytes", 5000);
    has("tarn_build_info\tdriver='host'\tversion='0.2.0'", 1);
    CHECK(!has_line("tarn_limit_bytes") &&
          !has_line("tarn_reserved_bytes\tblocks='large'\tdevice='1'"));
    OK(tarn_device_limit_set(0, 512 * MIB));
    OK(write_metrics(path));
    parse(path);
    has("tarn_limit_bytes\tdevice='0'", 512 * (double)MIB);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_free(blocks[1]));
    OK(tarn_free(blocks[2]));
    OK(tarn_free(in_pool));
    OK(tarn_pool_release(pool));
    OK(tarn_free(pinned));
}

/* A stream that comes again in the slot of one that is gone is another line, and no line is there
 * twice. */
static void streams_that_come_and_go_are_told_apart(void **state)
{
    (void)state;
    tarn_stream stream;
    void *block, *native = NULL;
    OK(tarn_stream_native_get(own, &native));
    OK(tarn_caching_set(false, NULL));
    void *uncached = alloc_on(own, 3 * MIB);
    OK(tarn_caching_set(true, NULL));
    OK(tarn_stream_shared_get(0, 0, &stream));
    OK(tarn_alloc_on(stream, 3 * MIB, &block));
    OK(tarn_free(block));
    OK(write_metrics(path));
    parse(path);
    CHECK(has_line("tarn_stream_mapped_bytes\tdevice='0'\tpool='0,0 uncached'"));
    OK(tarn_free(uncached));
}

/* Files ---------------------------------------------------------------------------------------- */

static int files_in_directory(void)
{
    int count = 0;
    DIR *folder = opendir(directory);
    CHECK(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(folder);
    return count;
}

static void too_large(void)
{
    struct rlimit limit = {.rlim_cur = 6000, .rlim_max = 6000};
    char text[64] = "";
    CHECK(alloc_on(TARN_STREAM_LEGACY, 1000));
    FILE *file = fopen(path, "we");
    CHECK(file && fputs("what was there", file) >= 0 && fclose(file) == 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    GIVES(write_metrics(path), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), path));
    CHECK((file = fopen(path, "re")) && fgets(text, sizeof text, file) &&
          strcmp(text, "what was there") == 0);
    fclose(file);
    CHECK(files_in_directory() == 1);
    GIVES(write_metrics("/nonexistent/x.prom"), TARN_ERROR_SYSTEM);
    GIVES(write_metrics(directory), TARN_ERROR_SYSTEM); /* no file can take its place */
    GIVES(write_metrics(""), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_metrics_print(NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(files_in_directory() == 1);
}

static void a_file_that_cannot_be_written_stays_as_it_was(void **state)
{
    (void)state;
    in_child(too_large);
    CHECK(unlink(path) == 0);
}

static bool take_nothing(const void *text, size_t length, void *user)
{
    CHECK(text && length);
    ++*(int *)user;
    return false;
}

static void who_takes_no_more_gets_no_more(void **state)
{
    (void)state;
    int asked = 0;
    GIVES(tarn_metrics_print(take_nothing, &asked), TARN_ERROR_SYSTEM);
    CHECK(asked == 1);
}

static void written_from_time_to_time(void)
{
    CHECK(setenv("TARN_METRICS_INTERVAL", "1", 1) == 0);
    char wish[160], written[160];
    snprintf(wish, sizeof wish, "%s/%%p%%%%.prom", directory);
    snprintf(written, sizeof written, "%s/%ld%%.prom", directory, (long)getpid());
    CHECK(setenv("TARN_METRICS", wish, 1) == 0);
    CHECK(tarn_malloc(3 * MIB));
    struct stat first = {0}, second = {0};
    for (int i = 0; i < 3000 && stat(written, &first); i++)
        sleep_ms(2);
    CHECK(first.st_size > 1000 && (first.st_mode & 07777) == 0644);
    for (int i = 0; i < 3000 && (stat(written, &second) || second.st_ino == first.st_ino); i++)
        sleep_ms(2);
    CHECK(second.st_ino != first.st_ino && second.st_size > 1000); /* another file in its place */
    parse(written);
    has("tarn_allocated_bytes\tblocks='large'\tdevice='0'", 3 * (double)MIB);
    OK(tarn_shutdown());
    CHECK(files_in_directory() == 1); /* the last one stays */
    CHECK(unlink(written) == 0);
}

static void the_environment_has_a_file_written_again_and_again(void **state)
{
    (void)state;
    in_child(written_from_time_to_time);
}

static atomic_bool ends;

static void *write_always(void *argument)
{
    while (!atomic_load(&ends))
        OK(write_metrics(path));
    return argument;
}

static void a_reader_finds_a_whole_text_while_others_write(void **state)
{
    (void)state;
    pthread_t threads[2];
    OK(write_metrics(path));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, write_always, NULL) == 0);
    for (int i = 0; i < 200; i++) {
        static char text[1 << 16];
        int file = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(file >= 0);
        ssize_t length = read(file, text, sizeof text);
        CHECK(length > 6 && memcmp(text + length - 6, "# EOF\n", 6) == 0);
        close(file);
    }
    atomic_store(&ends, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(files_in_directory() == 1 && unlink(path) == 0);
}

static int start(void **state)
{
    (void)state;
    OK(tarn_stream_lease(0, 0, &own));
    return 0;
}

int main(void)
{
    /* Those that need a process which has not used tarn come first. */
    const struct CMUnitTest first[] = {
        cmocka_unit_test(a_file_that_cannot_be_written_stays_as_it_was),
        cmocka_unit_test(the_environment_has_a_file_written_again_and_again),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_values_are_those_of_the_statistics),
        cmocka_unit_test(streams_that_come_and_go_are_told_apart),
        cmocka_unit_test(who_takes_no_more_gets_no_more),
        cmocka_unit_test(a_reader_finds_a_whole_text_while_others_write),
    };
    host_start_with(2, 1024 * MIB);
    directory_make();
    snprintf(path, sizeof path, "%s/tarn.prom", directory);
    int failed =
        cmocka_run_group_tests(first, NULL, NULL) + cmocka_run_group_tests(tests, start, NULL);
    (void)rmdir(directory);
    return failed;
}
