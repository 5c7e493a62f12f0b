/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Snapshots of a program that does of everything something: PyTorch's readers would take the file
 * (check_snapshot.py), `tarn replay` finds in it what the program counted, Chrome's JSON is whole
 * (check_chrome.py); and what happens where no file can be written. Each test is a process of its
 * own. */
#include "base/pages.h"
#include "device/stream.h"
#include "memory/malloc.h"
#include "report/snapshot/snapshot.h"
#include "support/failures.h"
#include "support/host.h"
#include "support/snapshots.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tarn/handle.h>
#include <tarn/observe.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)

/* Files ---------------------------------------------------------------------------------------- */

static char folder[4000]; /* of the test */

static void folder_begin(const char *name)
{
    snprintf(folder, sizeof folder, "%s/%s", snapshots_folder(), name);
    CHECK(mkdir(folder, 0700) == 0);
}

static const char *path_of(const char *name)
{
    static char paths[4][4096];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static size_t size_of_file(const char *path)
{
    struct stat file;
    CHECK(stat(path, &file) == 0);
    return (size_t)file.st_size;
}

static int files_in_folder(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    CHECK(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static bool file_is(const char *path, const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "r");
    CHECK(file);
    size_t length = fread(found, 1, sizeof found - 1, file);
    fclose(file);
    return length == strlen(text) && strcmp(found, text) == 0;
}

static void write_chrome(const char *path, uint64_t most)
{
    tarn_snapshot_options options = {sizeof options, TARN_SNAPSHOT_CHROME, most};
    OK(tarn_snapshot_write(path, &options));
}

static void is_right(const char *path)
{
    char arguments[4200];
    snprintf(arguments, sizeof arguments, "'%s'", path);
    CHECK(snapshots_check(arguments));
}

/* Runs a command of a shell with %s in it, a path; what it prints. */
static const char *output_of(const char *format, const char *path)
{
    static char command[9000], output[65536];
    snprintf(command, sizeof command, format, path);
    fflush(NULL);
    FILE *pipe = popen(command, "r");
    CHECK(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    CHECK(pclose(pipe) == 0);
    return output;
}

static void is_right_chrome(const char *path)
{
    (void)output_of("python3 \"$TARN_SOURCE/tests/report/check_chrome.py\" '%s'", path);
}

static bool file_has(const char *path, const char *text)
{
    char command[4400];
    snprintf(command, sizeof command, "grep -aqF '%s' '%%s' && echo yes || echo no", text);
    return strcmp(output_of(command, path), "yes\n") == 0;
}

/* The program ---------------------------------------------------------------------------------- */

/* What it counts itself: bytes that it asked for and has not freed. */
static struct {
    size_t now, peak, refusals;
} counted;

static void count_taken(size_t size)
{
    counted.now += size;
    counted.peak = counted.now > counted.peak ? counted.now : counted.peak;
}

static void *take(tarn_stream stream, size_t size)
{
    void *pointer = alloc_on(stream, size);
    count_taken(size);
    return pointer;
}

static void give(void *pointer, size_t size)
{
    OK(tarn_free(pointer));
    counted.now -= size;
}

static void some_streams(void)
{
    tarn_stream streams[] = {TARN_STREAM_LEGACY, TARN_STREAM_PER_THREAD, lease(0), lease(0)};
    void *blocks[48];
    for (size_t i = 0; i < 48; i++)
        blocks[i] = take(streams[i % 4], 1 + i * i * 997 % 70000);
    for (size_t i = 0; i < 48; i += 2)
        give(blocks[i], 1 + i * i * 997 % 70000);
    void *large = take(streams[2], 5 * MIB);
    for (size_t i = 1; i < 48; i += 2)
        give(blocks[i], 1 + i * i * 997 % 70000);
    give(large, 5 * MIB);
    OK(tarn_stream_return(streams[2]));
    OK(tarn_stream_return(streams[3]));
}

static void waits_and_uses(void)
{
    tarn_stream one = lease(0), two = lease(0);
    tarn_event *event = NULL;
    void *small = take(one, 3000), *large = take(one, 2 * MIB), *third = take(one, 4000),
         *fourth = take(one, 5000);
    OK(tarn_event_create(0, &event));
    work_on(two, large, 1000, 5000);
    OK(tarn_record_stream(small, two));
    OK(tarn_record_stream(large, two));
    OK(tarn_event_record(event, two));
    give(small, 3000);
    give(large, 2 * MIB);
    OK(tarn_free_on(third, two));
    OK(tarn_free_after(fourth, event));
    counted.now -= 9000;
    OK(tarn_stream_wait(one, event));
    OK(tarn_stream_synchronize(two));
    give(take(one, 2 * MIB), 2 * MIB);
    OK(tarn_event_destroy(event));
    OK(tarn_stream_return(one));
    OK(tarn_stream_return(two));
}

static void pools_and_captures(void)
{
    tarn_pool *pool = NULL;
    tarn_scope scope = 0;
    tarn_stream stream = lease(0);
    void *graph = NULL, *kept = NULL;
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope));
    void *small = take(stream, 1000), *large = take(stream, 3 * MIB);
    OK(tarn_scope_end(scope));
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    give(large, 3 * MIB);
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    kept = take(stream, 2000);
    give(take(stream, 70000), 70000);
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_host_graph_destroy(graph));
    give(kept, 2000);
    OK(tarn_pool_release(pool));
    give(small, 1000);
    OK(tarn_stream_return(stream));
}

static void tags_and_regions(void)
{
    tarn_tag tag = 0;
    void *pointer = NULL;
    OK(tarn_tag_intern("attention", &tag));
    OK(tarn_region_push("step 3"));
    OK(tarn_region_push("layer 7"));
    tarn_alloc_options options = {
        sizeof options, TARN_CURRENT_DEVICE, TARN_STREAM_LEGACY, 4096, tag, NULL, 0};
    OK(tarn_alloc(&options, 9000, &pointer));
    count_taken(9000);
    OK(tarn_region_pop());
    OK(tarn_extend(pointer, 10000));
    count_taken(1000);
    give(pointer, 10000);
    OK(tarn_region_pop());
}

static void too_much(void)
{
    void *pointer = NULL;
    GIVES(tarn_alloc_on(TARN_STREAM_LEGACY, 1024 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    counted.refusals++;
}

static void *another_thread(void *left)
{
    give(left, 700);
    some_streams();
    void **leaves = left = take(TARN_STREAM_LEGACY, 900);
    return leaves;
}

static void threads(void)
{
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *left = take(TARN_STREAM_LEGACY, 700);
        CHECK(pthread_create(&thread, NULL, another_thread, left) == 0);
        CHECK(pthread_join(thread, &left) == 0);
        give(left, 900);
    }
}

static int make_handle(void **handle)
{
    *handle = malloc(16);
    return *handle ? 0 : 1;
}

static int end_handle(void *handle)
{
    free(handle);
    return 0;
}

static void handles(void)
{
    tarn_library library = 0;
    void *handle = NULL;
    tarn_library_row row = {
        .size = sizeof row, .name = "loom", .create = make_handle, .destroy = end_handle};
    OK(tarn_library_register(&row, &library));
    OK(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle));
}

/* On the second device, which is not counted. */
static void another_device(void)
{
    OK(tarn_device_set(1));
    tarn_stream stream = lease(1);
    void *small = alloc_on(TARN_STREAM_LEGACY, 300), *large = alloc_on(stream, 3 * MIB),
         *there = alloc_on(stream, 500);
    CHECK(there);
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_stream_return(stream));
    OK(tarn_device_set(0));
}

/* What is left of it: one block of each kind. */
static void *left[3];

static void program(void)
{
    some_streams();
    waits_and_uses();
    pools_and_captures();
    tags_and_regions();
    too_much();
    another_device();
    threads();
    left[0] = take(TARN_STREAM_LEGACY, 1234);
    left[1] = take(TARN_STREAM_LEGACY, 4 * MIB);
    tarn_stream stream = lease(0);
    left[2] = take(stream, 2 * MIB);
    work_on(stream, left[2], 100, 1000000000);
    tarn_stream other = lease(0);
    work_on(other, left[2], 100, 1000000000);
    OK(tarn_record_stream(left[2], other));
    give(left[2], 2 * MIB);
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(other));
}

static void start_with(const char *trace)
{
    setenv("TARN_TRACE", trace, true);
    host_start_with(2, 256 * MIB);
}

/* The number at a key of a JSON text. */
static unsigned long long number_at(const char *json, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(json, quoted);
    CHECK(at);
    return strtoull(at + strlen(quoted), NULL, 10);
}

/* What it says --------------------------------------------------------------------------------- */

static const char *traced_by;

static void a_program_is_in_its_snapshot(void)
{
    start_with(traced_by);
    program();
    /* With handles too, which PyTorch's traces have nothing of */
    if (strstr(traced_by, "stacks")) {
        handles();
        OK(tarn_trace_count_get(NULL, NULL));
    }
    const char *path = path_of("program.pickle");
    OK(tarn_snapshot_write(path, NULL));
    is_right(path);
    CHECK(size_of_file(path) > 10000);
    struct stat file;
    CHECK(stat(path, &file) == 0 && (file.st_mode & 07777) == 0600);
    CHECK(file_has(path, "step 3/layer 7/attention"));
    CHECK(file_has(path, "active_pending_free"));
    CHECK(file_has(path, __FILE__) == (strstr(traced_by, "stacks") != NULL));
    CHECK(!strstr(traced_by, "stacks") || file_has(path, "loom"));

    const char *json = output_of("\"$TARN_PROGRAM\" replay --json '%s'", path);
    CHECK(number_at(json, "peak_requested") == counted.peak);
    CHECK(number_at(json, "lost_events") == 0 && number_at(json, "initial_blocks") == 0);
    CHECK(number_at(json, "device") == 0 && strstr(json, "\"device\": 1,"));
    CHECK(number_at(json, "recorded_ooms") == counted.refusals);
    CHECK(number_at(json, "recorded_peak_reserved") ==
          (unsigned long long)stats_of(0).reserved_bytes[0].peak);
    CHECK(unlink(path) == 0);

    path = path_of("program.json");
    write_chrome(path, TARN_NO_LIMIT);
    is_right_chrome(path);
    CHECK(unlink(path) == 0);
}

static void test_a_program_is_in_its_snapshot(void **state)
{
    static const char *const ways[] = {"on", "regions,records=100000", "stacks=alloc",
                                       "stacks=all,regions"};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        traced_by = ways[i];
        folder_begin(traced_by);
        in_child(a_program_is_in_its_snapshot);
    }
}

static void without_a_trace_there_is_the_state(void)
{
    host_start_with(2, 256 * MIB);
    program();
    const char *path = path_of("state.pickle");
    OK(tarn_snapshot_write(path, NULL));
    is_right(path);
    CHECK(file_has(path, "active_pending_free") && !file_has(path, "free_completed"));
    CHECK(unlink(path) == 0);
    write_chrome(path, TARN_NO_LIMIT);
    CHECK(unlink(path) == 0);
}

static void a_process_that_did_nothing_has_a_snapshot_too(void)
{
    const char *path = path_of("empty.pickle");
    OK(tarn_snapshot_write(path, NULL));
    is_right(path);
    write_chrome(path, TARN_NO_LIMIT);
    is_right_chrome(path);
    CHECK(unlink(path) == 0);
}

static void a_ring_that_wrapped_is_said(void)
{
    start_with("records=1024");
    for (int i = 0; i < 5; i++)
        program();
    uint64_t lost = 0;
    OK(tarn_trace_count_get(NULL, &lost));
    CHECK(lost > 0);
    const char *path = path_of("wrapped.pickle");
    OK(tarn_snapshot_write(path, NULL));
    is_right(path);
    const char *text =
        output_of("python3 -c 'import pickle,sys; s=pickle.load(open(sys.argv[1],\"rb\"));"
                  "print(s[\"tarn\"][\"overwritten\"], s[\"tarn\"][\"exact_from\"][0] <"
                  " len(s[\"device_traces\"][0]))' '%s'",
                  path);
    CHECK(strtoull(text, NULL, 10) >= lost && strstr(text, "True"));
    CHECK(unlink(path) == 0);
}

/* A program's block with the tag of workspaces is its own; one that the library made is one. */
static void a_tag_makes_no_workspace(void)
{
    start_with("on");
    struct own wanted = {0};
    tarn_pool_id pool;
    void *own = NULL, *block = NULL;
    OK(tarn_tag_intern("workspace", &wanted.tag));
    tarn_alloc_options options = {
        sizeof options, TARN_CURRENT_DEVICE, TARN_STREAM_LEGACY, 4096, wanted.tag, NULL, 0};
    OK(tarn_alloc(&options, 5 * MIB, &block));
    OK(stream_find(TARN_STREAM_LEGACY, 0, &wanted.stream));
    OK(memory_alloc_own(&wanted, 3 * MIB, &pool, &own));
    const char *path = path_of("workspaces.pickle");
    OK(tarn_snapshot_write(path, NULL));
    is_right(path);
    const char *sizes = output_of("python3 -c 'import pickle, sys; print([w[\"size\"] for w in "
                                  "pickle.load(open(sys.argv[1], \"rb\"))[\"tarn\"]"
                                  "[\"workspaces\"]])' '%s'",
                                  path);
    CHECK(strcmp(sizes, "[3145728]\n") == 0);
    CHECK(unlink(path) == 0);
    OK(tarn_free(own));
    OK(tarn_free(block));
}

/* Names in any bytes: what is no UTF-8 is replaced, what is stays. */
static void names_in_any_bytes(void)
{
    static const char *const names[] = {
        "a\xffg",           "\xc0\xaf", "caf\xc3\xa9",        "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xe2\x82", "quote\"back\\slash", "line\nbreak\ttab\x01\x7f",
        "\xf0\x9f\x8f\x94", "'; rm"};
    start_with("regions");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tarn_tag tag = 0;
        void *pointer = NULL;
        OK(tarn_tag_intern(names[i], &tag));
        OK(tarn_region_push(names[i]));
        tarn_alloc_options options = {
            sizeof options, TARN_CURRENT_DEVICE, TARN_STREAM_LEGACY, 0, tag, NULL, 0};
        OK(tarn_alloc(&options, 1000, &pointer));
        OK(tarn_region_pop());
        OK(tarn_free(pointer));
    }
    /* Longer than what is kept: no character is cut. */
#define SIX "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
    tarn_tag tag = 0;
    void *pointer = NULL;
    OK(tarn_tag_intern("a" SIX SIX SIX SIX, &tag));
    OK(tarn_region_push(SIX SIX SIX SIX));
    tarn_alloc_options options = {
        sizeof options, TARN_CURRENT_DEVICE, TARN_STREAM_LEGACY, 0, tag, NULL, 0};
    OK(tarn_alloc(&options, 1000, &pointer));
    OK(tarn_region_pop());
    OK(tarn_free(pointer));
    /* So many regions that their names do not fit. */
    for (int i = 0; i < 40; i++)
        OK(tarn_region_push("a region whose name is rather long, but not too long"));
    OK(tarn_free(take(TARN_STREAM_LEGACY, 100)));
    for (int i = 0; i < 40; i++)
        OK(tarn_region_pop());
    const char *path = path_of("names.pickle");
    OK(tarn_snapshot_write(path, NULL));
    is_right(path);
    CHECK(file_has(path, "caf\xc3\xa9/caf\xc3\xa9") && file_has(path, "a?g/a?g") &&
          file_has(path, "\xf0\x9f\x8f\x94") && !file_has(path, "\xac?"));
    write_chrome(path, TARN_NO_LIMIT);
    is_right_chrome(path);
    CHECK(file_has(path, "caf\xc3\xa9/caf\xc3\xa9") && file_has(path, "line\\u000abreak"));
    CHECK(unlink(path) == 0);
}

/* Limits --------------------------------------------------------------------------------------- */

static void with_limit(tarn_snapshot_format format)
{
    const char *path = path_of("limited");
    tarn_snapshot_options options = {sizeof options, format, TARN_NO_LIMIT};
    OK(tarn_snapshot_write(path, &options));
    size_t full = size_of_file(path);
    for (uint64_t part = 4; part > 0; part--) {
        options.max_bytes = full * part / 4;
        tarn_status status = tarn_snapshot_write(path, &options);
        if (status) {
            CHECK(status == TARN_ERROR_INVALID_ARGUMENT && part == 1 &&
                  strstr(tarn_last_error(), "max_bytes"));
            continue;
        }
        size_t size = size_of_file(path);
        /* As much as there is room for */
        CHECK(size <= options.max_bytes && size + 3000 > options.max_bytes);
        if (format == TARN_SNAPSHOT_PICKLE)
            is_right(path);
        else
            (void)output_of("python3 -m json.tool '%s' /dev/null", path);
    }
    options.max_bytes = 0; /* no limit */
    OK(tarn_snapshot_write(path, &options));
    CHECK(size_of_file(path) + 100 > full);
    options.max_bytes = 10;
    GIVES(tarn_snapshot_write(path, &options), TARN_ERROR_INVALID_ARGUMENT);
    unsigned long long least = strtoull(strstr(tarn_last_error(), "needs ") + 6, NULL, 10);
    options.max_bytes = least;
    OK(tarn_snapshot_write(path, &options));
    CHECK(size_of_file(path) <= least);
    options.max_bytes = least - 1;
    GIVES(tarn_snapshot_write(path, &options), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(unlink(path) == 0 && files_in_folder() == 0);
}

static void files_have_a_limit(void)
{
    start_with("on");
    for (int i = 0; i < 20; i++)
        program();
    with_limit(TARN_SNAPSHOT_PICKLE);
    with_limit(TARN_SNAPSHOT_CHROME);
}

/* What goes wrong ------------------------------------------------------------------------------ */

static struct {
    uint64_t bytes;
    unsigned calls, refuse; /* the call from which on it says no; 0: none */
} printed;

static bool print(const void *data, size_t size, void *user)
{
    CHECK(user == &printed && data && size > 0);
    CHECK(!printed.refuse || printed.calls < printed.refuse); /* it is not asked again */
    printed.bytes += size;
    return ++printed.calls != printed.refuse;
}

static void a_function_may_refuse(void)
{
    start_with("on");
    for (int i = 0; i < 10; i++)
        program();
    OK(tarn_snapshot_print(print, &printed, NULL));
    unsigned calls = printed.calls;
    CHECK(calls > 2 && printed.bytes > 0);
    for (unsigned n = 1; n <= calls; n++) {
        printed.calls = 0;
        printed.refuse = n;
        GIVES(tarn_snapshot_print(print, &printed, NULL), TARN_ERROR_SYSTEM);
    }
    GIVES(tarn_snapshot_print(NULL, &printed, NULL), TARN_ERROR_INVALID_ARGUMENT);
    verify(0);
}

static void options_out_of_range(void)
{
    tarn_snapshot_options options = {sizeof options - 1, TARN_SNAPSHOT_PICKLE, TARN_NO_LIMIT};
    const char *path = path_of("never");
    GIVES(tarn_snapshot_write(path, &options), TARN_ERROR_INVALID_ARGUMENT);
    options.size = sizeof options;
    int format = TARN_SNAPSHOT_CHROME + 1;
    memcpy(&options.format, &format, sizeof format);
    GIVES(tarn_snapshot_write(path, &options), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_snapshot_write(NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_snapshot_write("", NULL), TARN_ERROR_INVALID_ARGUMENT);
    char *name = malloc(70000);
    CHECK(name);
    memset(name, 'x', 70000);
    name[69999] = '\0';
    GIVES(tarn_snapshot_write(name, NULL), TARN_ERROR_INVALID_ARGUMENT);
    free(name);
    CHECK(files_in_folder() == 0);
}

static void fails(const char *path, const char *why)
{
    GIVES(tarn_snapshot_write(path, NULL), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), path) && strstr(tarn_last_error(), why));
}

static void places_that_cannot_be_written(void)
{
    start_with("on");
    program();
    const char *there = path_of("there");
    put_file(there, "before");
    fails("/proc/tarn.pickle", "cannot be created");
    fails(path_of("no/such/folder"), "No such file");
    fails(path_of("there/below"), "Not a directory");
    fails(folder, "regular file");
    fails("/dev/null", "regular file");
    fails("/dev/full", "regular file");
    char target[64];
    const char *as_stdout = path_of("stdout");
    int file = open(there, O_RDONLY | O_CLOEXEC);
    snprintf(target, sizeof target, "/proc/self/fd/%d", file);
    CHECK(file >= 0 && symlink(target, as_stdout) == 0);
    fails(as_stdout, "regular file");
    CHECK(close(file) == 0);
    fails(as_stdout, "regular file"); /* it leads to nothing now */
    CHECK(file_is(there, "before") && files_in_folder() == 2);
    CHECK(unlink(there) == 0 && unlink(as_stdout) == 0);
}

static void a_disk_that_is_full(void)
{
    start_with("on");
    for (int i = 0; i < 20; i++)
        program();
    const char *path = path_of("full");
    put_file(path, "before");
    struct rlimit limit = {100000, 100000};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    fails(path, "File too large");
    tarn_snapshot_options options = {sizeof options, TARN_SNAPSHOT_CHROME, TARN_NO_LIMIT};
    GIVES(tarn_snapshot_write(path, &options), TARN_ERROR_SYSTEM);
    CHECK(file_is(path, "before") && files_in_folder() == 1);
    options.max_bytes = 90000; /* the remedy */
    OK(tarn_snapshot_write(path, &options));
    CHECK(size_of_file(path) <= 90000 && files_in_folder() == 1);
    CHECK(unlink(path) == 0);
}

/* A file that is there gives its place to the new one, and nothing else does. */
static void what_was_there_is_replaced(void)
{
    start_with("on");
    const char *path = path_of("again.pickle"), *target = path_of("target");
    put_file(target, "not this");
    CHECK(symlink(target, path) == 0);
    OK(tarn_snapshot_write(path, NULL));
    CHECK(file_is(target, "not this"));
    OK(tarn_snapshot_write(path, NULL));
    is_right(path);
    CHECK(files_in_folder() == 2 && unlink(path) == 0 && unlink(target) == 0);
}

/* As long as a file system has them: that of the temporary file is no longer. */
static void names_of_any_length(void)
{
    char name[NAME_MAX + 1] = "";
    for (int length = 0; length < NAME_MAX; length++) {
        name[length] = 'x';
        const char *path = path_of(name);
        OK(tarn_snapshot_write(path, NULL));
        CHECK(files_in_folder() == 1 && unlink(path) == 0);
    }
}

/* In the middle of other things ---------------------------------------------------------------- */

static bool observe(const tarn_shortage *shortage, void *user)
{
    (void)shortage;
    *(tarn_status *)user = tarn_snapshot_write(path_of("shortage.pickle"), NULL);
    return false;
}

static void when_memory_is_short(void)
{
    start_with("on");
    tarn_status seen = TARN_ERROR_INTERNAL;
    tarn_observer observer = 0;
    tarn_observer_options options = {.size = sizeof options,
                                     .device = TARN_ALL_DEVICES,
                                     .user = &seen,
                                     .out_of_memory = observe};
    OK(tarn_observer_add(&options, &observer));
    too_much();
    OK(tarn_observer_remove(observer));
    CHECK(seen == TARN_OK);
    is_right(path_of("shortage.pickle"));
    CHECK(file_has(path_of("shortage.pickle"), "device_free"));
    CHECK(unlink(path_of("shortage.pickle")) == 0);
}

static void during_a_capture(void)
{
    start_with("on");
    tarn_pool *pool = NULL;
    void *graph = NULL;
    tarn_stream stream = lease(0);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL));
    void *pointer = take(stream, 3000);
    OK(tarn_snapshot_write(path_of("capture.pickle"), NULL));
    is_right(path_of("capture.pickle"));
    CHECK(unlink(path_of("capture.pickle")) == 0);
    OK(tarn_capture_end(stream, &graph)); /* which nothing has ended */
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_free(pointer));
    OK(tarn_pool_release(pool));
}

static void after_a_shutdown(void)
{
    start_with("on");
    OK(tarn_free(take(TARN_STREAM_LEGACY, 100)));
    OK(tarn_shutdown());
    GIVES(tarn_snapshot_write(path_of("never"), NULL), TARN_ERROR_SHUTDOWN);
    CHECK(files_in_folder() == 0);
}

/* Every failure -------------------------------------------------------------------------------- */

static bool swallow(const void *data, size_t size, void *user)
{
    (void)data;
    *(size_t *)user += size;
    return true;
}

static void snapshots_and_allocations(void)
{
    size_t bytes = 0;
    void *pointers[12] = {NULL};
    OK(tarn_region_push("a region")); /* also where there is no room for its name */
    for (size_t i = 0; i < 12; i++)
        if (!TRY(tarn_alloc_on(TARN_STREAM_LEGACY, 1 + i * i * 7000, &pointers[i])))
            pointers[i] = NULL;
    for (int format = 0; format < 2; format++) {
        tarn_snapshot_options options = {sizeof options, (tarn_snapshot_format)format,
                                         format ? TARN_NO_LIMIT : 100000};
        (void)TRY(tarn_snapshot_print(swallow, &bytes, &options));
    }
    (void)TRY(tarn_snapshot_write(path_of("failures.pickle"), NULL));
    for (size_t i = 0; i < 12; i++)
        if (pointers[i])
            OK(tarn_free(pointers[i]));
    OK(tarn_region_pop());
}

static void settle(void)
{
    nothing_is_left(0);
    CHECK(files_in_folder() <= 1);
    OK(tarn_snapshot_write(path_of("failures.pickle"), NULL));
}

static void trace_all(void)
{
    start_with("records=1024,regions");
}

static void every_failure(void)
{
    static const struct scenario scenario = {"snapshots and allocations",
                                             snapshots_and_allocations};
    static const struct scenarios shared = {.set_up = trace_all, .settle = settle};
    each_failure_of(&shared, &scenario, 1);
    is_right(path_of("failures.pickle"));
}

/* The same of what is allocated for stacks, whose look-ups are slow. */
static void every_failure_with_stacks(void)
{
    size_t bytes = 0;
    start_with("records=1024,stacks=alloc");
    OK(tarn_free(take(TARN_STREAM_LEGACY, 100)));
    pages_fail(UINT64_MAX, false);
    OK(tarn_snapshot_print(swallow, &bytes, NULL));
    uint64_t calls = pages_fail_calls();
    for (uint64_t n = 1; n <= calls; n++) {
        pages_fail(n, false);
        tarn_status status = tarn_snapshot_print(swallow, &bytes, NULL);
        CHECK(pages_fail_hits() == 1);
        pages_fail(0, false);
        CHECK(!status || status == TARN_ERROR_OUT_OF_HOST_MEMORY);
    }
    verify(0);
}

#define TEST_LIST(X)                                 \
    X(without_a_trace_there_is_the_state)            \
    X(a_process_that_did_nothing_has_a_snapshot_too) \
    X(a_ring_that_wrapped_is_said)                   \
    X(a_tag_makes_no_workspace)                      \
    X(names_in_any_bytes)                            \
    X(files_have_a_limit)                            \
    X(a_function_may_refuse)                         \
    X(options_out_of_range)                          \
    X(places_that_cannot_be_written)                 \
    X(a_disk_that_is_full)                           \
    X(what_was_there_is_replaced)                    \
    X(names_of_any_length)                           \
    X(when_memory_is_short)                          \
    X(during_a_capture)                              \
    X(after_a_shutdown)                              \
    X(every_failure)                                 \
    X(every_failure_with_stacks)

#define TEST(function)                        \
    static void test_##function(void **state) \
    {                                         \
        (void)state;                          \
        folder_begin(#function);              \
        in_child(function);                   \
    }
TEST_LIST(TEST)

int main(void)
{
#define X(function) cmocka_unit_test(test_##function),
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_program_is_in_its_snapshot),
                                       TEST_LIST(X)};
#undef X
    unsetenv("TARN_TRACE");
    (void)snapshots_folder(); /* of this process, not of a child */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
