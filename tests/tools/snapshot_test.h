/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of the reader of snapshots share: files read as a whole, a walk over all that a
 * snapshot has, and pickles written from literals. Included first: by the one source file of each
 * program. */
#ifndef TESTS_TOOLS_SNAPSHOT_TEST_H
#define TESTS_TOOLS_SNAPSHOT_TEST_H

#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>
#include <zstd.h>

#include "input/snapshot.h"

struct bytes {
    unsigned char *data;
    size_t size;
};

static inline const char *test_data(const char *name)
{
    static char path[4096];
    const char *folder = getenv("TARN_TEST_DATA");
    if (!folder)
        fail_msg("TARN_TEST_DATA must name the folder that make_snapshots.py filled");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline struct bytes load(const char *path)
{
    struct bytes bytes = {0};
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    bytes.size = (size_t)ftell(file);
    rewind(file);
    bytes.data = malloc(bytes.size + 1);
    assert_non_null(bytes.data);
    assert_int_equal(fread(bytes.data, 1, bytes.size, file), bytes.size);
    fclose(file);
    return bytes;
}

/* What a replay would touch: every index and pointer must be good. */
static inline uint64_t walk(const struct snapshot *snapshot)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct snapshot_segment *segment = &snapshot->segments[i];
        assert_true(segment->first_block + segment->block_count <= snapshot->block_count);
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct snapshot_block *block = &snapshot->blocks[segment->first_block + j];
            assert_true(block->address >= segment->address);
            assert_true(block->address - segment->address <= segment->total_size);
            assert_true(block->size <= segment->total_size - (block->address - segment->address));
            assert_true(block->requested_size <= block->size);
            sum += block->size;
        }
    }
    for (size_t i = 0; i < snapshot->trace_count; i++)
        for (size_t j = 0; j < snapshot->traces[i].event_count; j++) {
            const struct snapshot_event *event = &snapshot->traces[i].events[j];
            assert_true(event->stream < snapshot->stream_count &&
                        event->pool < snapshot->pool_count &&
                        event->stack < snapshot->stack_count && event->tag < snapshot->text_count);
            sum += event->size + event->action + strlen(snapshot_text(snapshot, event->tag));
        }
    for (size_t i = 1; i < snapshot->stack_count; i++) {
        assert_true(snapshot->stacks[i].caller < i &&
                    snapshot->stacks[i].frame < snapshot->frame_count);
        sum += snapshot->frames[snapshot->stacks[i].frame].line;
    }
    for (size_t i = 0; i < snapshot->tarn.mark_count; i++) {
        const struct snapshot_mark *mark = &snapshot->tarn.marks[i];
        assert_true(mark->stream < snapshot->stream_count && mark->other < snapshot->stream_count &&
                    mark->pool < snapshot->pool_count && mark->text < snapshot->text_count);
    }
    return sum;
}

static inline bool read_bytes(const void *data, size_t size, struct snapshot_error *error)
{
    struct snapshot snapshot;
    bool done = snapshot_read_buffer(data, size, &snapshot, error);
    if (done)
        walk(&snapshot);
    else
        assert_true(!strncmp(error->text, "byte ", 5) && !snapshot.segments && !snapshot.traces &&
                    !snapshot.events);
    snapshot_finish(&snapshot);
    return done;
}

/* A pickle written piece by piece, protocol 2. */
struct writer {
    unsigned char data[1 << 16];
    size_t size;
};

static inline void put(struct writer *writer, const char *data, size_t size)
{
    assert_true(writer->size + size <= sizeof writer->data);
    memcpy(writer->data + writer->size, data, size);
    writer->size += size;
}

/* Python's notation, as far as needed: { } [ ] 'text' numbers None True ( , ). Everything else is
 * passed over. */
static inline void write_literal(struct writer *writer, const char *text)
{
    for (const char *at = text; *at;) {
        if (*at == '{') {
            put(writer, "}(", 2);
        } else if (*at == '[') {
            put(writer, "](", 2);
        } else if (*at == '(') {
            put(writer, "(", 1);
        } else if (*at == '}') {
            put(writer, "u", 1);
        } else if (*at == ']') {
            put(writer, "e", 1);
        } else if (*at == ')') {
            put(writer, "t", 1);
        } else if (*at == 'N' || *at == 'T') {
            put(writer, *at == 'N' ? "N" : "\x88", 1);
            at += 3;
        } else if (*at == '\'') {
            const char *end = strchr(++at, '\'');
            char head[2] = {'U', (char)(end - at)};
            put(writer, head, 2);
            put(writer, at, (size_t)(end - at));
            at = end;
        } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
            size_t length = strspn(at, "-0123456789");
            put(writer, "L", 1);
            put(writer, at, length);
            put(writer, "\n", 1);
            at += length - 1;
        }
        at++;
    }
}

#endif
