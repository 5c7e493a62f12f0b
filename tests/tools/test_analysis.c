/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The analysis of snapshots: one written by hand, of which every number is known; generated ones
 * against what their generator counted; and on all of them sums against a count that looks at each
 * block and each byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"
#include "analysis/analysis_diff.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define KIB UINT64_C(1024)

/* --- by hand --- */

/* Texts by number: the empty one, then what the traces below need. */
enum { NONE, STEP_A, STEP_B, OTHER, INNER, FILE_OWN, LIBRARY, FILE_LIBRARY, STEPS, TEXTS };
static char text_bytes[256];
static size_t text_starts[TEXTS + 1];

static void make_texts(void)
{
    static const char *const texts[TEXTS] = {"",       "step/a",  "step/b",           "other",
                                             "inner",  "/a/b.py", "c10::Allocator()", "x.cpp",
                                             "steps/a"};
    size_t at = 0;
    for (size_t i = 0; i < TEXTS; i++) {
        text_starts[i] = at;
        strcpy(text_bytes + at, texts[i]);
        at += strlen(texts[i]) + 1;
    }
    text_starts[TEXTS] = at;
}

static uint64_t streams[] = {0, 0x77}, pools[][2] = {{0, 0}, {3, 4}};
static struct snapshot_frame frames[] = {{INNER, FILE_OWN, 7}, {LIBRARY, FILE_LIBRARY, 0}};
/* 1: the program; 2: the library, called by it; 3: the library alone. */
static struct snapshot_stack stacks[] = {{0, 0}, {0, 0}, {1, 1}, {0, 1}};

#define ADDRESS 0x100000
#define BLOCK(action_, at_, size_, ...)                                                            \
    {                                                                                              \
        .action = SNAPSHOT_##action_, .address = ADDRESS + (at_)*KIB, .size = (size_), __VA_ARGS__ \
    }

/* Two segments of 64 KiB were there; a third comes and goes. In KiB from ADDRESS: 0-64, 64-128,
 * 256-320. */
static struct snapshot_event events[] = {
    BLOCK(ALLOC, 0, 8 * KIB - 100, .tag = STEP_A, .stack = 2, .thread = 1, .time_us = 10),
    BLOCK(SEGMENT_ALLOC, 256, 64 * KIB, .time_us = 20),
    BLOCK(ALLOC, 256, 64 * KIB, .tag = STEP_B, .stack = 3, .stream = 1, .pool = 1, .time_us = 30),
    BLOCK(FREE_REQUESTED, 0, 8 * KIB - 100, .time_us = 40), /* completes later */
    BLOCK(ALLOC, 16, 4 * KIB, .tag = OTHER, .time_us = 50),
    BLOCK(FREE_COMPLETED, 0, 8 * KIB - 100, .time_us = 60),
    {.action = SNAPSHOT_OOM,
     .address = 5 * KIB,
     .size = 900 * KIB,
     .tag = STEPS,
     .stack = 1,
     .time_us = 70},
    BLOCK(FREE_REQUESTED, 256, 64 * KIB, .time_us = 80),
    BLOCK(FREE_COMPLETED, 256, 64 * KIB, .time_us = 80),
    BLOCK(SEGMENT_FREE, 256, 64 * KIB, .time_us = 90),
    BLOCK(ALLOC, 128 - 32, 16 * KIB, .tag = STEPS, .time_us = 100),
    BLOCK(SEGMENT_FREE, 512, 32 * KIB, .time_us = 110), /* was there before the trace, and is
                                                           gone */
};
static struct snapshot_block blocks[] = {
    {.address = ADDRESS, .size = 16 * KIB, .state = SNAPSHOT_INACTIVE},
    {.address = ADDRESS + 16 * KIB,
     .size = 8 * KIB,
     .requested_size = 4 * KIB,
     .state = SNAPSHOT_ACTIVE_ALLOCATED},
    {.address = ADDRESS + 24 * KIB, .size = 40 * KIB, .state = SNAPSHOT_INACTIVE},
    {.address = ADDRESS + 64 * KIB,
     .size = 32 * KIB,
     .requested_size = 31 * KIB,
     .state = SNAPSHOT_ACTIVE_ALLOCATED,
     .tag = STEP_B},
    {.address = ADDRESS + 96 * KIB,
     .size = 16 * KIB,
     .requested_size = 16 * KIB,
     .state = SNAPSHOT_ACTIVE_ALLOCATED},
    {.address = ADDRESS + 112 * KIB, .size = 16 * KIB, .state = SNAPSHOT_INACTIVE},
};
static struct snapshot_segment segments[] = {
    {.address = ADDRESS, .total_size = 64 * KIB, .first_block = 0, .block_count = 3},
    {.address = ADDRESS + 64 * KIB,
     .total_size = 64 * KIB,
     .stream_place = 1,
     .pool_place = 1,
     .first_block = 3,
     .block_count = 3},
};
static struct snapshot_trace trace = {.events = events, .event_count = COUNT(events)};

static struct snapshot by_hand(void)
{
    make_texts();
    return (struct snapshot){.segments = segments,
                             .segment_count = COUNT(segments),
                             .blocks = blocks,
                             .block_count = COUNT(blocks),
                             .traces = &trace,
                             .trace_count = 1,
                             .streams = streams,
                             .stream_count = COUNT(streams),
                             .pools = pools,
                             .pool_count = COUNT(pools),
                             .frames = frames,
                             .frame_count = COUNT(frames),
                             .stacks = stacks,
                             .stack_count = COUNT(stacks),
                             .text_bytes = text_bytes,
                             .text_starts = text_starts,
                             .text_count = TEXTS};
}

static void every_moment(void **state)
{
    (void)state;
    struct snapshot snapshot = by_hand();
    struct analysis analysis;
    assert_true(analysis_build(&snapshot, 0, &analysis));
    /* In KiB except for the 100 bytes; the last two: free in all, and the largest hole. Two plain
     * segments that touch do not join. */
    static const struct {
        uint64_t allocated, waiting, reserved, unused, largest;
        size_t blocks, waiting_blocks, holes;
    } wanted[] = {
        {31 * KIB, 0, 160, 128, 64, 1, 0, 3},
        {39 * KIB - 100, 0, 160, 120, 56, 2, 0, 3},
        {39 * KIB - 100, 0, 224, 184, 64, 2, 0, 4},
        {103 * KIB - 100, 0, 224, 120, 56, 3, 0, 3},
        {95 * KIB, 8 * KIB - 100, 224, 120, 56, 2, 1, 3},
        {99 * KIB, 8 * KIB - 100, 224, 112, 40, 3, 1, 4},
        {99 * KIB, 0, 224, 120, 40, 3, 0, 4},
        {99 * KIB, 0, 224, 120, 40, 3, 0, 4},
        {35 * KIB, 64 * KIB, 224, 120, 40, 2, 1, 4},
        {35 * KIB, 0, 224, 184, 64, 2, 0, 5},
        {35 * KIB, 0, 160, 120, 40, 2, 0, 4},
        {51 * KIB, 0, 160, 104, 40, 3, 0, 4},
        {51 * KIB, 0, 128, 72, 40, 3, 0, 3},
    };
    uint32_t moments[COUNT(wanted)];
    struct analysis_state states[COUNT(wanted)];
    assert_int_equal(analysis.event_count + 1, COUNT(wanted));
    for (uint32_t i = 0; i < COUNT(wanted); i++)
        moments[i] = i;
    assert_true(analysis_states(&analysis, moments, COUNT(wanted), states));
    for (size_t i = 0; i < COUNT(wanted); i++) {
        struct analysis_state alone;
        if (states[i].allocated != wanted[i].allocated || states[i].waiting != wanted[i].waiting ||
            states[i].reserved != wanted[i].reserved * KIB ||
            states[i].unused != wanted[i].unused * KIB ||
            states[i].largest_free != wanted[i].largest * KIB ||
            states[i].blocks != wanted[i].blocks ||
            states[i].waiting_blocks != wanted[i].waiting_blocks ||
            states[i].holes != wanted[i].holes)
            fail_msg("moment %zu: allocated %" PRIu64 ", waiting %" PRIu64 ", reserved %" PRIu64
                     ", free %" PRIu64 ", largest %" PRIu64 " in %zu, %zu, %zu",
                     i, states[i].allocated, states[i].waiting, states[i].reserved / KIB,
                     states[i].unused / KIB, states[i].largest_free / KIB, states[i].blocks,
                     states[i].waiting_blocks, states[i].holes);
        assert_true(analysis_states(&analysis, &moments[i], 1, &alone));
        assert_memory_equal(&alone, &states[i], sizeof alone);
    }
    assert_int_equal(analysis.peak, 3);
    assert_int_equal(analysis.at_peak.allocated, 103 * KIB - 100);
    assert_int_equal(analysis.peak_reserved, 3);
    assert_int_equal(analysis.at_peak_reserved.reserved, 224 * KIB);
    assert_int_equal(analysis.oom_count, 1);
    assert_true(analysis.ooms[0].event == 6 && analysis.ooms[0].asked == 900 * KIB &&
                analysis.ooms[0].device_free == 5 * KIB && analysis.ooms[0].tag == STEPS);
    assert_true(analysis.has_times && analysis.times[0] == 0 && analysis.times[1] == 0 &&
                analysis.times[12] == 100 * 1000);

    size_t count;
    uint32_t *alive = analysis_alive(&analysis, 3, &count);
    assert_int_equal(count, 3);
    static const uint64_t sizes[] = {64 * KIB, 31 * KIB, 8 * KIB - 100};
    for (size_t i = 0; i < count; i++)
        assert_int_equal(analysis.blocks[alive[i]].size, sizes[i]);
    const struct analysis_block *before = &analysis.blocks[alive[1]];
    assert_true(before->begin == 0 && before->tag == STEP_B && before->stream == 1 &&
                before->pool == 1 && before->freed == ANALYSIS_NEVER && before->room == 32 * KIB);
    assert_true(analysis.blocks[alive[2]].freed == 4 && analysis.blocks[alive[2]].end == 6 &&
                analysis.blocks[alive[2]].thread == 1);
    free(alive);
    analysis_finish(&analysis);
    assert_null(analysis.blocks);
}

static void expect_group(const struct analysis *analysis, enum analysis_by by, uint32_t moment,
                         size_t place, const char *name, uint64_t bytes, size_t groups)
{
    size_t count;
    char label[100];
    struct analysis_group *found = analysis_groups(analysis, by, moment, &count);
    assert_non_null(found);
    assert_int_equal(count, groups);
    assert_string_equal(analysis_label(analysis, by, found[place].key, label, sizeof label), name);
    assert_int_equal(found[place].bytes, bytes);
    free(found);
}

static void groups_and_labels(void **state)
{
    (void)state;
    struct snapshot snapshot = by_hand();
    struct snapshot_thread thread = {1, OTHER};
    struct analysis analysis;
    snapshot.tarn.threads = &thread;
    snapshot.tarn.thread_count = 1;
    assert_true(analysis_build(&snapshot, 0, &analysis));
    expect_group(&analysis, ANALYSIS_BY_TAG, 3, 0, "step/b", 95 * KIB, 2);
    expect_group(&analysis, ANALYSIS_BY_TAG, 3, 1, "step/a", 8 * KIB - 100, 2);
    expect_group(&analysis, ANALYSIS_BY_TOP, 3, 0, "step", 103 * KIB - 100, 1);
    expect_group(&analysis, ANALYSIS_BY_TOP, 11, 1, "steps", 16 * KIB,
                 3); /* "steps/a" begins like "step/a" */
    expect_group(&analysis, ANALYSIS_BY_SITE, 3, 0, "c10::Allocator  x.cpp", 64 * KIB, 3);
    expect_group(&analysis, ANALYSIS_BY_SITE, 3, 1, "from before the recording", 31 * KIB, 3);
    expect_group(&analysis, ANALYSIS_BY_SITE, 5, 2, "no stack", 4 * KIB, 3);
    expect_group(&analysis, ANALYSIS_BY_SITE, 3, 2, "inner  b.py:7", 8 * KIB - 100,
                 3); /* not the library that it calls */
    expect_group(&analysis, ANALYSIS_BY_STREAM, 3, 0, "stream 0x77", 95 * KIB, 2);
    expect_group(&analysis, ANALYSIS_BY_STREAM, 3, 1, "default stream", 8 * KIB - 100, 2);
    expect_group(&analysis, ANALYSIS_BY_POOL, 3, 0, "pool (3, 4)", 95 * KIB, 2);
    expect_group(&analysis, ANALYSIS_BY_POOL, 3, 1, "default pool", 8 * KIB - 100, 2);
    expect_group(&analysis, ANALYSIS_BY_THREAD, 3, 0, "unknown thread", 95 * KIB, 2);
    expect_group(&analysis, ANALYSIS_BY_THREAD, 3, 1, "thread 1 other", 8 * KIB - 100, 2);

    size_t count;
    struct analysis_change *changes =
        analysis_diff(&analysis, 3, &analysis, 11, ANALYSIS_BY_TAG, &count);
    assert_int_equal(count, 4);
    assert_string_equal(changes[0].label, "step/b");
    assert_true(changes[0].before == 95 * KIB && changes[0].after == 31 * KIB &&
                changes[0].blocks_before == 2 && changes[0].blocks_after == 1);
    assert_string_equal(changes[1].label, "steps/a");
    assert_true(changes[1].before == 0 && changes[1].after == 16 * KIB);
    assert_string_equal(changes[2].label, "step/a");
    assert_string_equal(changes[3].label, "other");
    free(changes);
    analysis_finish(&analysis);
}

/* The label of a block's call site, of a stack of functions with the outermost first, ending in
 * NULL; "/" begins a library's, and what follows an "@" is the file. */
static void expect_site(const struct analysis_folding *folding, const char *const *functions,
                        const char *wanted)
{
    enum { MOST = 8 };
    char bytes[512] = "";
    size_t starts[2 * MOST + 2] = {0}, texts = 1, at = 1, count = 0;
    struct snapshot_frame list[MOST];
    struct snapshot_stack tree[MOST + 1] = {{0, 0}};
    for (; functions[count]; count++) {
        const char *name = functions[count] + (*functions[count] == '/'), *file = strchr(name, '@');
        int length = file ? (int)(file - name) : (int)strlen(name);
        starts[texts++] = at;
        at += (size_t)snprintf(bytes + at, sizeof bytes - at, "%.*s", length, name) + 1;
        starts[texts++] = at;
        at += (size_t)snprintf(bytes + at, sizeof bytes - at, "%s",
                               file ? file + 1
                               : *functions[count] == '/'
                                   ? "/usr/lib/python3/site-packages/torch/x.py"
                                   : "/home/a.py") +
              1;
        list[count] =
            (struct snapshot_frame){(uint32_t)texts - 2, (uint32_t)texts - 1, (uint32_t)count + 1};
        tree[count + 1] = (struct snapshot_stack){(uint32_t)count, (uint32_t)count};
    }
    starts[texts] = at;
    struct snapshot snapshot = by_hand();
    snapshot.frames = list;
    snapshot.frame_count = count;
    snapshot.stacks = tree;
    snapshot.stack_count = count + 1;
    snapshot.text_bytes = bytes;
    snapshot.text_starts = starts;
    snapshot.text_count = texts;
    struct analysis analysis = {.snapshot = &snapshot};
    char label[200];
    assert_true(analysis_fold(&analysis, folding));
    assert_string_equal(
        analysis_label(&analysis, ANALYSIS_BY_SITE, analysis.sites[count], label, sizeof label),
        wanted);
    free(analysis.sites);
    free(analysis.paths);
}

static void call_sites_are_folded(void **state)
{
    (void)state;
    struct analysis_folding folding = {.depth = 1};
    static const char *const plain[] = {"main", "serve", "/_call_impl", "keep", "/empty", NULL};
    expect_site(&folding, plain, "keep  a.py:4");
    folding.depth = 2;
    /* A caller is of the program, too */
    expect_site(&folding, plain, "keep  a.py:4 < serve  a.py:2");
    folding.depth = 9;
    expect_site(&folding, plain, "keep  a.py:4 < serve  a.py:2 < main  a.py:1");

    folding.depth = 0; /* all of them */
    expect_site(&folding, plain, "keep  a.py:4 < serve  a.py:2 < main  a.py:1");

    folding.depth = 1; /* what only hands on what it allocates */
    static const char *const wrappers[] = {"keep", "xmalloc", NULL}, *const methods[] = {
                                                                         "keep",
                                                                         "Buffer::allocate(long)",
                                                                         NULL};
    static const char *const near[] = {"keep", "allocate_cache", NULL}, *const tail[] = {
                                                                            "keep", "device_alloc",
                                                                            NULL};
    static const char *const alone[] = {"/run", "allocate", "/empty", NULL};
    expect_site(&folding, wrappers, "xmalloc  a.py:2"); /* one cannot know every name */
    expect_site(&folding, methods, "keep  a.py:1");
    expect_site(&folding, tail, "keep  a.py:1");
    expect_site(&folding, near, "allocate_cache  a.py:2");
    expect_site(&folding, alone, "allocate  a.py:2");
    const char *const folds[] = {"nothing", "xmal"};
    folding = (struct analysis_folding){.depth = 1, .folds = folds, .fold_count = 2};
    expect_site(&folding, wrappers, "keep  a.py:1");
    const char *const files[] = {"home/"}; /* all of it: then the nearest */
    folding = (struct analysis_folding){.depth = 1, .folds = files, .fold_count = 1};
    expect_site(&folding, plain, "keep  a.py:4");
}

/* PyTorch's files are found in a tree of its sources and where paths begin with its package; a
 * program's folder may have its name. */
static void files_of_pytorch(void **state)
{
    (void)state;
    const struct analysis_folding folding = {.depth = 2};
    static const char *const shortened[] = {
        "step@torch/model.py", "_call_impl@torch/nn/modules/module.py",
        "linear@torch/functional.py", "__torch_function__@torch/utils/_device.py", NULL};
    static const char *const sources[] = {"step@/home/me/torch/model.py",
                                          "forward@/src/pytorch/torch/nn/modules/linear.py",
                                          "wrap@/src/pytorch/torch/_dynamo/eval_frame.py", NULL};
    static const char *const other[] = {"step@/home/me/a.py", "keep@/home/me/mytorch/nn/layer.py",
                                        NULL};
    expect_site(&folding, shortened, "step  model.py:1");
    expect_site(&folding, sources, "step  model.py:1");
    expect_site(&folding, other, "keep  layer.py:2 < step  a.py:1");
}

/* CPython's sources lie in folders whose names a program's may have. */
static void files_of_python(void **state)
{
    (void)state;
    const struct analysis_folding folding = {.depth = 2};
    static const char *const sources[] = {"step@/home/me/a.py",
                                          "do_call@/usr/src/python-3.12.3/Objects/call.c",
                                          "run_mod@Python/pythonrun.c",
                                          "partial_call@/build/Modules/_functoolsmodule.c",
                                          "wrap@/opt/lib/python3.12/contextlib.py",
                                          NULL};
    static const char *const python[] = {"step@/home/me/Python/a.py", "keep@/home/me/Python/b.py",
                                         NULL};
    static const char *const modules[] = {"step@/home/me/Modules/a.py", "keep@/me/Modules/b.py",
                                          NULL};
    static const char *const objects[] = {"step@/home/me/Objects/a.py",
                                          "keep@/home/me/lib/python/b.py", NULL};
    expect_site(&folding, sources, "step  a.py:1");
    expect_site(&folding, python, "keep  b.py:2 < step  a.py:1");
    expect_site(&folding, modules, "keep  b.py:2 < step  a.py:1");
    expect_site(&folding, objects, "keep  b.py:2 < step  a.py:1");
}

/* A label is cut to its room, at a whole character. */
static void labels_are_cut_whole(void **state)
{
    (void)state;
    char bytes[] = "\0a\303\251\342\202\254z", label[16];
    size_t starts[] = {0, 1, sizeof bytes};
    struct snapshot snapshot = {.text_bytes = bytes, .text_starts = starts, .text_count = 2};
    struct analysis analysis = {.snapshot = &snapshot};
    static const char *const wanted[] = {NULL,
                                         "",
                                         "a",
                                         "a",
                                         "a\303\251",
                                         "a\303\251",
                                         "a\303\251",
                                         "a\303\251\342\202\254",
                                         "a\303\251\342\202\254z"};
    for (size_t size = 1; size < COUNT(wanted); size++)
        assert_string_equal(analysis_label(&analysis, ANALYSIS_BY_TAG, 1, label, size),
                            wanted[size]);
}

static void spans(void **state)
{
    (void)state;
    struct snapshot snapshot = by_hand();
    struct analysis analysis;
    struct analysis_span spans[5];
    assert_true(analysis_build(&snapshot, 0, &analysis));
    assert_true(analysis_spans(&analysis, spans, 5)); /* 20 us each */
    assert_int_equal(spans[0].allocated, 39 * KIB - 100);
    assert_int_equal(spans[0].highest, 1);
    assert_int_equal(spans[0].reserved, 224 * KIB);
    assert_int_equal(spans[1].allocated, 103 * KIB - 100);
    assert_int_equal(spans[1].highest, 3);
    assert_int_equal(spans[2].allocated, 99 * KIB);
    assert_int_equal(spans[3].allocated, 99 * KIB);
    assert_int_equal(spans[4].allocated, 51 * KIB);
    assert_int_equal(spans[4].highest, 11);
    assert_int_equal(spans[4].reserved, 224 * KIB); /* as it was when the span began */
    analysis_finish(&analysis);
}

/* Without a trace there is one moment. */
static void state_only(void **state)
{
    (void)state;
    struct snapshot snapshot = by_hand();
    struct analysis analysis;
    snapshot.trace_count = 0;
    assert_true(analysis_exists(&snapshot, 0) && !analysis_exists(&snapshot, 1));
    assert_true(analysis_build(&snapshot, 0, &analysis));
    assert_false(analysis.has_trace);
    assert_int_equal(analysis.event_count, 0);
    assert_int_equal(analysis.at_peak.allocated, 51 * KIB);
    assert_int_equal(analysis.at_peak.reserved, 128 * KIB);
    assert_int_equal(analysis.at_peak.unused, 72 * KIB);
    assert_int_equal(analysis.at_peak.largest_free, 40 * KIB);
    expect_group(&analysis, ANALYSIS_BY_TAG, 0, 0, "step/b", 31 * KIB, 2);
    analysis_finish(&analysis);
}

/* Mapped memory comes and goes in parts, and what the recording lost is put right. */
static void expandable_parts(void **state)
{
    (void)state;
    struct snapshot_event mapping[] = {
        BLOCK(SEGMENT_MAP, 0, 32 * KIB, .tag = NONE),
        BLOCK(SEGMENT_MAP, 32, 32 * KIB, .tag = NONE),
        BLOCK(SEGMENT_UNMAP, 16, 32 * KIB, .tag = NONE),
        BLOCK(SEGMENT_MAP, 16, 16 * KIB, .tag = NONE),
        BLOCK(SEGMENT_UNMAP, 64, 64 * KIB, .tag = NONE), /* was there before */
        BLOCK(SEGMENT_MAP, 0, 16 * KIB, .tag = NONE),    /* again: an unmap is missing */
        BLOCK(ALLOC, 200, 512, .tag = NONE),
    };
    static const struct {
        uint64_t reserved, largest;
        size_t holes;
    } wanted[] = {{64, 64, 1},  {96, 64, 2}, {128, 128, 1}, {96, 80, 2},
                  {112, 80, 2}, {48, 32, 2}, {48, 32, 2}};
    struct snapshot snapshot = by_hand();
    struct snapshot_trace parts = {.events = mapping, .event_count = COUNT(mapping)};
    struct analysis analysis;
    snapshot.segment_count = snapshot.block_count = 0;
    snapshot.traces = &parts;
    assert_true(analysis_build(&snapshot, 0, &analysis));
    for (uint32_t i = 0; i < COUNT(wanted); i++) {
        struct analysis_state now;
        assert_true(analysis_states(&analysis, &i, 1, &now));
        if (now.reserved != wanted[i].reserved * KIB ||
            now.largest_free != wanted[i].largest * KIB || now.holes != wanted[i].holes)
            fail_msg("moment %" PRIu32 ": reserved %" PRIu64 ", largest %" PRIu64 ", %zu holes", i,
                     now.reserved / KIB, now.largest_free / KIB, now.holes);
    }
    analysis_finish(&analysis);
}

/* Free memory of two ranges that touch is one hole where they are expandable, of one stream and one
 * pool; else two. */
static void what_joins(void **state)
{
    (void)state;
    static const struct {
        bool expandable[2];
        uint32_t stream, pool;
        size_t holes;
    } cases[] = {{{true, true}, 0, 0, 1},  {{false, false}, 0, 0, 2}, {{true, false}, 0, 0, 2},
                 {{false, true}, 0, 0, 2}, {{true, true}, 1, 0, 2},   {{true, true}, 0, 1, 2}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct snapshot_segment touching[] = {
            {.address = ADDRESS, .total_size = 64 * KIB, .expandable = cases[i].expandable[0]},
            {.address = ADDRESS + 64 * KIB,
             .total_size = 64 * KIB,
             .expandable = cases[i].expandable[1],
             .stream_place = cases[i].stream,
             .pool_place = cases[i].pool},
        };
        struct snapshot snapshot = by_hand();
        struct analysis analysis;
        snapshot.segments = touching;
        snapshot.trace_count = snapshot.block_count = 0;
        assert_true(analysis_build(&snapshot, 0, &analysis));
        assert_int_equal(analysis.at_peak.holes, cases[i].holes);
        assert_int_equal(analysis.at_peak.largest_free, 128 * KIB / cases[i].holes);
        analysis_finish(&analysis);
    }
}

/* --- generated and recorded ones --- */

/* Whether a block is freed at a moment and cannot be used again yet. */
static bool waits(const struct analysis_block *block, uint32_t moment)
{
    return block->freed <= moment && moment < block->end;
}

/* What a moment says, counted from each block and range. */
static void check_moment(const struct analysis *analysis, uint32_t moment,
                         const struct analysis_state *state)
{
    uint64_t allocated = 0, waiting = 0, reserved = 0;
    size_t living = 0, late = 0;
    for (size_t i = 0; i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        assert_true(block->begin <= block->freed && block->freed <= block->end);
        assert_true(i == 0 || analysis->blocks[i - 1].begin <= block->begin);
        allocated += analysis_lives(block, moment) ? block->size : 0;
        waiting += waits(block, moment) ? block->size : 0;
        living += analysis_lives(block, moment);
        late += waits(block, moment);
    }
    for (size_t i = 0; i < analysis->range_count; i++)
        if (analysis->ranges[i].begin <= moment && moment < analysis->ranges[i].end)
            reserved += analysis->ranges[i].size;
    assert_int_equal(state->allocated, allocated);
    assert_int_equal(state->waiting, waiting);
    assert_int_equal(state->reserved, reserved);
    assert_int_equal(state->blocks, living);
    assert_int_equal(state->waiting_blocks, late);
    assert_true(state->largest_free <= state->unused && state->unused <= reserved);
    assert_true(moment == analysis->peak ? allocated == analysis->at_peak.allocated
                                         : allocated <= analysis->at_peak.allocated);
    assert_true(reserved <= analysis->at_peak_reserved.reserved);
}

/* The end is the state that the file shows. */
static void check_end(const struct snapshot *snapshot, const struct analysis *analysis)
{
    uint64_t reserved = 0, allocated = 0, unused = 0, largest = 0;
    struct analysis_state end;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct snapshot_segment *segment = &snapshot->segments[i];
        if (segment->device != analysis->device)
            continue;
        reserved += segment->total_size;
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct snapshot_block *block = &snapshot->blocks[segment->first_block + j];
            allocated += block->state == SNAPSHOT_ACTIVE_ALLOCATED ? block->requested_size : 0;
            unused += block->state == SNAPSHOT_INACTIVE ? block->size : 0;
            if (block->state == SNAPSHOT_INACTIVE && block->size > largest)
                largest = block->size;
        }
    }
    assert_true(analysis_states(analysis, &analysis->event_count, 1, &end));
    assert_int_equal(end.reserved, reserved);
    assert_int_equal(end.allocated, allocated);
    assert_int_equal(end.unused, unused);
    assert_int_equal(end.largest_free, largest);
}

static void check_file(const char *path, bool whole)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    if (!snapshot_read_file(path, &snapshot, &error))
        fail_msg("%s: %s", path, error.text);
    for (int device = 0; device < analysis_devices(&snapshot); device++) {
        struct analysis analysis;
        uint32_t moments[20];
        struct analysis_state states[COUNT(moments)];
        if (!analysis_exists(&snapshot, device))
            continue;
        assert_true(analysis_build(&snapshot, device, &analysis));
        for (uint32_t i = 0; i < COUNT(moments); i++)
            moments[i] = (uint32_t)((uint64_t)analysis.event_count * i / (COUNT(moments) - 1));
        assert_true(analysis_states(&analysis, moments, COUNT(moments), states));
        for (size_t i = 0; i < COUNT(moments); i++)
            check_moment(&analysis, moments[i], &states[i]);
        check_moment(&analysis, analysis.peak, &analysis.at_peak);
        check_moment(&analysis, analysis.peak_reserved, &analysis.at_peak_reserved);
        check_moment(&analysis, analysis.emptiest, &analysis.at_emptiest);
        if (analysis.has_trace)
            assert_int_equal(analysis.at_peak.allocated, analysis.workload.peak_requested);
        if (whole)
            check_end(&snapshot, &analysis);
        for (enum analysis_by by = 0; by < ANALYSIS_BY_COUNT; by++) {
            size_t count;
            uint64_t sum = 0;
            char label[100];
            struct analysis_group *groups = analysis_groups(&analysis, by, analysis.peak, &count);
            for (size_t i = 0; i < count; i++) {
                sum += groups[i].bytes;
                assert_true(*analysis_label(&analysis, by, groups[i].key, label, sizeof label));
            }
            assert_int_equal(sum, analysis.at_peak.allocated);
            free(groups);
        }
        analysis_finish(&analysis);
    }
    snapshot_finish(&snapshot);
}

/* Looks for the extremes moment by moment. */
static void check_extremes(const struct analysis *analysis)
{
    size_t count = (size_t)analysis->event_count + 1, fullest = 0, emptiest = 0;
    uint32_t *moments = calloc(count, sizeof *moments);
    struct analysis_state *states = calloc(count, sizeof *states);
    assert_true(moments && states);
    for (size_t i = 0; i < count; i++)
        moments[i] = (uint32_t)i;
    assert_true(analysis_states(analysis, moments, count, states));
    for (size_t i = 0; i < count; i++) {
        const struct analysis_state *here = &states[i], *best = &states[fullest];
        if (here->reserved > best->reserved ||
            (here->reserved == best->reserved && here->allocated > best->allocated))
            fullest = i;
        emptiest = here->unused > states[emptiest].unused ? i : emptiest;
    }
    assert_int_equal(analysis->peak_reserved, fullest);
    assert_int_equal(analysis->at_emptiest.unused, states[emptiest].unused);
    assert_int_equal(analysis->emptiest, emptiest);
    free(moments);
    free(states);
}

static void generated(void **state)
{
    (void)state;
    const char *folder = getenv("TARN_TEST_DATA");
    if (!folder)
        fail_msg("TARN_TEST_DATA must name the folder that make_snapshots.py filled");
    char path[4096], line[256], name[64];
    int device;
    uint64_t peak, reserved_then, peak_reserved;
    uint32_t moment;
    size_t lines = 0;
    snprintf(path, sizeof path, "%s/peaks.txt", folder);
    FILE *peaks = fopen(path, "r");
    assert_non_null(peaks);
    while (fgets(line, sizeof line, peaks)) {
        if (*line == '#')
            continue;
        assert_int_equal(sscanf(line, "%63s %d %" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu64, name,
                                &device, &peak, &moment, &reserved_then, &peak_reserved),
                         6);
        struct snapshot snapshot;
        struct snapshot_error error;
        struct analysis analysis;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        check_file(path, true);
        assert_true(snapshot_read_file(path, &snapshot, &error));
        assert_true(analysis_build(&snapshot, device, &analysis));
        assert_int_equal(analysis.peak, moment);
        assert_int_equal(analysis.at_peak.allocated, peak);
        assert_int_equal(analysis.at_peak.reserved, reserved_then);
        assert_int_equal(analysis.at_peak_reserved.reserved, peak_reserved);
        check_extremes(&analysis);
        analysis_finish(&analysis);
        snapshot_finish(&snapshot);
        lines++;
    }
    fclose(peaks);
    assert_true(lines >= 8);
    static const char *const others[] = {"wrapped.pickle", "state.pickle", "old.pickle"};
    for (size_t i = 0; i < COUNT(others); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, others[i]);
        check_file(path, true);
    }
}

static void recorded(void **state)
{
    (void)state;
    const char *list = getenv("TARN_TRACES");
    char *folders = strdup(list ? list : "examples/traces"), *rest = NULL;
    for (char *folder = strtok_r(folders, ":", &rest); folder;
         folder = strtok_r(NULL, ":", &rest)) {
        DIR *open = opendir(folder);
        for (struct dirent *entry; open && (entry = readdir(open));) {
            const char *end = strrchr(entry->d_name, '.');
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            if (end && (strcmp(end, ".pickle") == 0 || strcmp(end, ".zst") == 0))
                check_file(path, false);
        }
        if (open)
            closedir(open);
    }
    free(folders);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_moment),
        cmocka_unit_test(groups_and_labels),
        cmocka_unit_test(call_sites_are_folded),
        cmocka_unit_test(files_of_pytorch),
        cmocka_unit_test(files_of_python),
        cmocka_unit_test(labels_are_cut_whole),
        cmocka_unit_test(spans),
        cmocka_unit_test(state_only),
        cmocka_unit_test(expandable_parts),
        cmocka_unit_test(what_joins),
        cmocka_unit_test(generated),
        cmocka_unit_test(recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
