/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Snapshots of any size are read in little memory: 48 bytes per event, 8 bytes per memo entry, and
 * no more than 1 GiB besides for 10 GB. One process writes what PyTorch's pickler would, another
 * reads it from a pipe, and the most memory that it had is compared. Here the file has 60 MB, and
 * what may be there besides is as much smaller; TARN_LARGE_SNAPSHOT=10G is the whole. */
#include "input/snapshot.h"
#include "support/host.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* the sanitizer's own memory is not what is measured */
#else
#define SANITIZED 0
#endif
#define GIB (UINT64_C(1) << 30)
#define WHOLE UINT64_C(10000000000) /* bytes, for which 1 GiB is allowed */
#define FIXED (24 * MIB)            /* bytes that the program has whatever it reads */
#define FRAMES 200                  /* places in the program */

/* A pickle as it is written: protocol 4, as torch.cuda.memory._dump_snapshot() has it, without
 * frames, which mean nothing. */
struct writer {
    FILE *file;
    uint64_t bytes, events, memo; /* written so far */
};

static void put(struct writer *writer, const void *data, size_t size)
{
    if (fwrite(data, 1, size, writer->file) != size)
        _exit(3);
    writer->bytes += size;
}

static void put_code(struct writer *writer, const char *codes)
{
    put(writer, codes, strlen(codes));
}

static uint64_t memoize(struct writer *writer)
{
    put_code(writer, "\x94");
    return writer->memo++;
}

static uint64_t put_text(struct writer *writer, const char *text)
{
    unsigned char head[2] = {0x8c, (unsigned char)strlen(text)};
    put(writer, head, 2);
    put(writer, text, head[1]);
    return memoize(writer);
}

static void put_again(struct writer *writer, uint64_t entry)
{
    unsigned char code[5] = {entry < 256 ? 'h' : 'j', (unsigned char)entry,
                             (unsigned char)(entry >> 8), (unsigned char)(entry >> 16),
                             (unsigned char)(entry >> 24)};
    put(writer, code, entry < 256 ? 2 : 5);
}

static void put_number(struct writer *writer, uint64_t number)
{
    unsigned char code[10] = {0x8a, 8};
    memcpy(code + 2, &number, 8);
    if (number < 256) {
        code[0] = 'K';
        code[1] = (unsigned char)number;
        put(writer, code, 2);
    } else {
        put(writer, code, 10);
    }
}

enum key { ACTION, ADDR, SIZE, STREAM, TIME, CONTEXT, METADATA, FRAME_LIST, KEYS };
static const char *const key_names[KEYS] = {
    "action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "frames"};

/* What was written once and is referred to. */
struct memo {
    uint64_t keys[KEYS], alloc, requested, completed, not_available, empty, frames[FRAMES];
};

static void put_frame(struct writer *writer, struct memo *memo, unsigned number)
{
    char name[32];
    put_code(writer, "}");
    memo->frames[number] = memoize(writer);
    put_code(writer, "(");
    put_text(writer, "name");
    snprintf(name, sizeof name, "step_%u", number);
    put_text(writer, name);
    put_text(writer, "filename");
    put_text(writer, "/srv/train/model.py");
    put_text(writer, "line");
    put_number(writer, number);
    put_code(writer, "u");
}

/* A dict whose texts come first in a list of their own, so that all later ones refer to them: a
 * pickler that met them in the first event would do the same from the second on. */
static void put_memo(struct writer *writer, struct memo *memo)
{
    put_text(writer, "texts");
    put_code(writer, "]");
    memoize(writer);
    put_code(writer, "(");
    for (int i = 0; i < KEYS; i++)
        memo->keys[i] = put_text(writer, key_names[i]);
    memo->alloc = put_text(writer, "alloc");
    memo->requested = put_text(writer, "free_requested");
    memo->completed = put_text(writer, "free_completed");
    memo->not_available = put_text(writer, "N/A");
    memo->empty = put_text(writer, "");
    for (unsigned i = 0; i < FRAMES; i++)
        put_frame(writer, memo, i);
    put_code(writer, "e");
}

static void put_entry(struct writer *writer, const struct memo *memo, enum key key, uint64_t number)
{
    put_again(writer, memo->keys[key]);
    put_number(writer, number);
}

static void put_event(struct writer *writer, const struct memo *memo, bool with_frames)
{
    uint64_t number = writer->events++, what[] = {memo->alloc, memo->requested, memo->completed};
    put_code(writer, "}");
    memoize(writer);
    put_code(writer, "(");
    put_again(writer, memo->keys[ACTION]);
    put_again(writer, what[number % 3]);
    put_entry(writer, memo, ADDR, UINT64_C(0x7f0000000000) + number / 3 % 100000 * 4096);
    put_entry(writer, memo, SIZE, 4096);
    put_entry(writer, memo, STREAM, 0);
    if (with_frames) {
        put_entry(writer, memo, TIME, UINT64_C(1750000000000000) + number);
        put_again(writer, memo->keys[CONTEXT]);
        put_again(writer, memo->not_available);
        put_again(writer, memo->keys[METADATA]);
        put_again(writer, memo->empty);
        put_again(writer, memo->keys[FRAME_LIST]);
        put_code(writer, "]");
        memoize(writer);
        put_code(writer, "(");
        for (uint64_t i = 0; i < 6; i++)
            put_again(writer, memo->frames[(number / 3 % 32 + i * 31) % FRAMES]);
        put_code(writer, "e");
    }
    put_code(writer, "u");
}

/* Writes a snapshot of at least `size` bytes. */
static void write_snapshot(struct writer *writer, uint64_t size, bool with_frames)
{
    struct memo memo;
    put(writer, "\x80\x04}", 3);
    memoize(writer);
    put_code(writer, "(");
    put_memo(writer, &memo);
    put_text(writer, "segments");
    put_code(writer, "]");
    memoize(writer);
    put_text(writer, "device_traces");
    put_code(writer, "]");
    memoize(writer);
    put_code(writer, "(]");
    memoize(writer);
    while (writer->bytes < size) {
        put_code(writer, "("); /* a pickler stores a thousand at a time */
        for (int i = 0; i < 1000; i++)
            put_event(writer, &memo, with_frames);
        put_code(writer, "e");
    }
    put_code(writer, "eu.");
}

static uint64_t size_wanted(void)
{
    const char *text = getenv("TARN_LARGE_SNAPSHOT");
    if (!text)
        return SANITIZED ? UINT64_C(10000000) : UINT64_C(60000000);
    char *unit = NULL;
    uint64_t size = strtoull(text, &unit, 10);
    return *unit == 'G' ? size * 1000000000 : *unit == 'M' ? size * 1000000 : size;
}

/* What the writing process tells at its end. */
struct told {
    uint64_t bytes, events, memo;
};

static pid_t start_writer(const char *path, bool with_frames, int tell)
{
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child)
        return child;
    struct writer writer = {.file = fopen(path, "w")};
    static char buffer[1 << 20];
    if (!writer.file || setvbuf(writer.file, buffer, _IOFBF, sizeof buffer) != 0)
        _exit(2);
    write_snapshot(&writer, size_wanted(), with_frames);
    struct told told = {writer.bytes, writer.events, writer.memo};
    _exit(fclose(writer.file) == 0 && write(tell, &told, sizeof told) == (ssize_t)sizeof told ? 0
                                                                                              : 1);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool with_frames;

static void read_and_measure(void)
{
    char folder[] = "/tmp/tarn-large-XXXXXX", path[64];
    int pipes[2] = {-1, -1}, status = 1;
    struct told told = {0};
    CHECK(mkdtemp(folder) && pipe(pipes) == 0);
    snprintf(path, sizeof path, "%s/snapshot", folder);
    CHECK(mkfifo(path, 0600) == 0);
    pid_t child = start_writer(path, with_frames, pipes[1]);
    struct snapshot snapshot;
    struct snapshot_error error;
    double began = seconds_now();
    bool done = snapshot_read_file(path, &snapshot, &error);
    double took = seconds_now() - began;
    (void)unlink(path);
    (void)rmdir(folder);
    if (!done)
        fprintf(stderr, "%s\n", error.text);
    CHECK(done);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(read(pipes[0], &told, sizeof told) == (ssize_t)sizeof told);
    CHECK(snapshot.trace_count == 1 && snapshot.traces[0].event_count == told.events);
    const struct snapshot_event *last = &snapshot.traces[0].events[told.events - 1];
    CHECK(last->address == UINT64_C(0x7f0000000000) + (told.events - 1) / 3 % 100000 * 4096 &&
          last->size == 4096);
    CHECK((last->stack != 0) == with_frames);

    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    uint64_t peak = (uint64_t)usage.ru_maxrss * 1024;
    uint64_t besides =
        told.bytes >= WHOLE ? GIB : FIXED + (GIB - FIXED) / 1000 * (told.bytes / (WHOLE / 1000));
    uint64_t most = besides + 48 * told.events + 8 * told.memo;
    printf("%" PRIu64 " bytes, %" PRIu64 " events, %" PRIu64 " memo entries: %.1f s, %" PRIu64
           " bytes at most, %" PRIu64 " allowed\n",
           told.bytes, told.events, told.memo, took, peak, most);
    snapshot_finish(&snapshot);
    CHECK(SANITIZED || peak <= most);
}

/* Each in a process of its own, whose peak is its own. No limit of time, which the test as a whole
 * has. */
static void measured(bool frames)
{
    fflush(NULL);
    with_frames = frames;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        read_and_measure();
        fflush(stdout);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_events_with_stacks(void **state)
{
    (void)state;
    measured(true);
}

static void test_events_that_are_as_short_as_can_be(void **state)
{
    (void)state;
    measured(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_with_stacks),
        cmocka_unit_test(test_events_that_are_as_short_as_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
