/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Advice: for each kind a recording that earns it, with the sentence; the same a little changed,
 * with the sentence changed or gone; and recordings that look alike and are well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/advice.h"
#include "analysis/leak.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

/* --- recordings --- */

enum { TEXT_NONE, KEEP, FILE_PY, WORK, TAG, TEXTS };
static char text_bytes[64];
static size_t text_starts[TEXTS + 1];
static uint64_t streams[] = {0}, pools[][2] = {{0, 0}};
static struct snapshot_frame frames[] = {{KEEP, FILE_PY, 7}, {WORK, FILE_PY, 9}};
static struct snapshot_stack stacks[] = {{0, 0}, {0, 0}, {0, 1}};
enum { STACK_NONE, STACK_KEEP, STACK_WORK };

struct recording {
    struct snapshot snapshot;
    struct snapshot_trace trace;
    struct snapshot_event events[8192];
    uint64_t next; /* address */
};

static struct recording *record(void)
{
    static const char *const texts[TEXTS] = {"", "keep", "/srv/a.py", "work", "cache"};
    static struct recording recording;
    size_t at = 0;
    for (size_t i = 0; i < TEXTS; i++) {
        text_starts[i] = at;
        strcpy(text_bytes + at, texts[i]);
        at += strlen(texts[i]) + 1;
    }
    text_starts[TEXTS] = at;
    recording.trace = (struct snapshot_trace){.events = recording.events};
    recording.next = UINT64_C(1) << 40;
    recording.snapshot = (struct snapshot){.traces = &recording.trace,
                                           .trace_count = 1,
                                           .streams = streams,
                                           .stream_count = 1,
                                           .pools = pools,
                                           .pool_count = 1,
                                           .frames = frames,
                                           .frame_count = 2,
                                           .stacks = stacks,
                                           .stack_count = 3,
                                           .text_bytes = text_bytes,
                                           .text_starts = text_starts,
                                           .text_count = TEXTS};
    return &recording;
}

static void put(struct recording *recording, enum snapshot_action action, uint64_t address,
                uint64_t size, uint32_t stack, uint32_t tag)
{
    assert_true(recording->trace.event_count <
                sizeof recording->events / sizeof *recording->events);
    recording->events[recording->trace.event_count] = (struct snapshot_event){
        .action = (uint8_t)action,
        .address = address,
        .size = size,
        .stack = stack,
        .tag = tag,
        .time_us = (int64_t)recording->trace.event_count * 1000,
    };
    recording->trace.event_count++;
}

static uint64_t take(struct recording *recording, uint64_t size, uint32_t stack, uint32_t tag)
{
    uint64_t address = recording->next;
    recording->next += (size + 511) / 512 * 512;
    put(recording, SNAPSHOT_ALLOC, address, size, stack, tag);
    return address;
}

static void give(struct recording *recording, uint64_t address, uint64_t size)
{
    put(recording, SNAPSHOT_FREE_REQUESTED, address, size, 0, 0);
    put(recording, SNAPSHOT_FREE_COMPLETED, address, size, 0, 0);
}

/* Work that leaves nothing behind. */
static void work(struct recording *recording, size_t times, uint64_t size)
{
    for (size_t i = 0; i < times; i++)
        give(recording, take(recording, size, STACK_WORK, 0), size);
}

static const struct advice_replay *replayed; /* what the next advice is made with */

/* The sentences, one per line; the caller frees them. */
static char *advice_of(struct recording *recording)
{
    struct analysis analysis;
    struct advice_list list;
    assert_true(analysis_build(&recording->snapshot, 0, &analysis));
    assert_true(advice_make(&analysis, replayed, &list));
    char *text = calloc(ADVICE_MOST + 1, sizeof list.items[0].text);
    assert_non_null(text);
    for (size_t i = 0; i < list.count; i++) {
        assert_true(list.items[i].moment <= analysis.event_count && list.items[i].bytes);
        strcat(text, list.items[i].text);
        strcat(text, "\n");
    }
    analysis_finish(&analysis);
    return text;
}

static void expect_advice(struct recording *recording, const char *wanted)
{
    char *text = advice_of(recording);
    assert_string_equal(text, wanted);
    free(text);
}

static void expect_part(struct recording *recording, const char *wanted)
{
    char *text = advice_of(recording);
    if (!strstr(text, wanted))
        fail_msg("\"%s\" does not say \"%s\"", text, wanted);
    free(text);
}

/* --- leaks --- */

static void rounds(struct recording *recording, size_t count, size_t blocks, uint64_t size,
                   uint32_t stack, uint32_t tag)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < blocks; j++) {
            take(recording, size, stack, tag);
            work(recording, 1, 8 * MIB);
        }
        work(recording, 20, 8 * MIB);
    }
}

static void a_leak_is_found_by_its_rhythm(void **state)
{
    (void)state;
    struct recording *recording = record();
    rounds(recording, 10, 1, 4 * MIB, STACK_KEEP, 0);
    expect_advice(recording, "keep a.py:7 keeps about 4.00 MiB more in each round and frees none "
                             "of it: 40.0 MiB in 10 rounds, "
                             "83 % of the peak. Look for what still refers to the memory, such as "
                             "a list or a cache without a bound.\n");
    recording = record();
    rounds(recording, 10, 3, 2 * MIB, STACK_KEEP, 0); /* three a round: the long gaps divide */
    expect_part(
        recording,
        "keeps about 6.00 MiB more in each round and frees none of it: 60.0 MiB in 10 rounds, ");
    recording = record();
    rounds(recording, 10, 1, 4 * MIB, STACK_KEEP, TAG);
    expect_part(recording, "cache (keep a.py:7) keeps about 4.00 MiB");
    recording = record();
    rounds(recording, 10, 1, 4 * MIB, STACK_NONE, TAG);
    expect_part(recording, "cache keeps about 4.00 MiB");
    recording = record();
    rounds(recording, 10, 1, 4 * MIB, STACK_NONE, 0);
    expect_part(recording, "A caller of unknown name that requests 4.00 MiB keeps about 4.00 MiB");
}

static void only_kept_memory_counts(void **state)
{
    (void)state;
    struct recording *recording = record();
    for (size_t i = 0; i < 20; i++) {
        uint64_t address = take(recording, 4 * MIB, STACK_KEEP, 0);
        if (i % 2)
            give(recording, address, 4 * MIB);
        work(recording, 10, 8 * MIB);
    }
    expect_part(
        recording,
        "keeps about 4.00 MiB more in each round and frees none of it: 40.0 MiB in 10 rounds, ");
}

static void several_leaks_are_one_sentence(void **state)
{
    (void)state;
    struct recording *recording = record();
    for (size_t i = 0; i < 10; i++) {
        take(recording, MIB, STACK_KEEP, TAG);
        take(recording, 4 * MIB, STACK_KEEP, 0);
        work(recording, 20, 8 * MIB);
    }
    expect_part(recording, "keep a.py:7 keeps about 4.00 MiB more in each round and frees none of "
                           "it: 40.0 MiB in 10 rounds, 69 % of "
                           "the peak (1 other grows in the same way, by 10.0 MiB). Look");
}

static void what_only_looks_like_a_leak(void **state)
{
    (void)state;
    struct recording *recording = record();
    rounds(recording, 4, 1, 4 * MIB, STACK_KEEP, 0); /* too few to tell */
    expect_advice(recording, "");

    recording = record(); /* a cache that is full before the trace is over */
    rounds(recording, 10, 1, 4 * MIB, STACK_KEEP, 0);
    work(recording, 400, 8 * MIB);
    expect_advice(recording, "");

    recording = record(); /* what is prepared at the beginning, and one straggler */
    for (size_t i = 0; i < 20; i++)
        take(recording, 4 * MIB, STACK_KEEP, 0);
    work(recording, 200, 8 * MIB);
    take(recording, 4 * MIB, STACK_KEEP, 0);
    expect_advice(recording, "");

    recording = record(); /* a forward pass whose backward pass was not recorded: little is freed
                             between */
    for (size_t i = 0; i < 24; i++) {
        take(recording, 4 * MIB, STACK_KEEP, 0);
        work(recording, 1, 4 * MIB);
    }
    expect_advice(recording, "");

    recording = record(); /* one grows, and another shrinks by as much: gradients for activations */
    uint64_t others[20];
    for (size_t i = 0; i < 20; i++)
        others[i] = take(recording, 4 * MIB, STACK_WORK, 0);
    for (size_t i = 0; i < 20; i++) {
        take(recording, 4 * MIB, STACK_KEEP, 0);
        give(recording, others[i], 4 * MIB);
        work(recording, 10, 8 * MIB);
    }
    expect_advice(recording, "");

    recording = record(); /* a cache that grows by being copied */
    uint64_t cache = take(recording, MIB, STACK_KEEP, 0);
    for (size_t i = 1; i < 20; i++) {
        uint64_t next = take(recording, (i + 1) * MIB, STACK_KEEP, 0);
        give(recording, cache, i * MIB);
        cache = next;
        work(recording, 10, 8 * MIB);
    }
    expect_advice(recording, "");

    recording = record(); /* a hundredth of the peak is nothing to speak of */
    take(recording, 5000 * MIB, STACK_WORK, 0);
    rounds(recording, 10, 1, 4 * MIB, STACK_KEEP, 0);
    expect_advice(recording, "");
}

/* --- memory that nobody has --- */

/* Segments of 100 MiB with a block in each that stays, of `size` bytes. */
static void segments(struct recording *recording, size_t count, uint64_t size, bool expandable)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t address = (UINT64_C(1) << 40) + i * 200 * MIB;
        put(recording, expandable ? SNAPSHOT_SEGMENT_MAP : SNAPSHOT_SEGMENT_ALLOC, address,
            100 * MIB, 0, 0);
        put(recording, SNAPSHOT_ALLOC, address, size, STACK_WORK, 0);
    }
    recording->next = UINT64_C(1) << 42;
}

static void holes(void **state)
{
    (void)state;
    struct recording *recording = record();
    segments(recording, 10, 88 * MIB, false);
    expect_advice(recording, "At the peak of reserved memory, 120 MiB of 0.98 GiB (12.0 %) are "
                             "free, in 10 holes of at most 12.0 MiB. "
                             "The program never has more than 880 MiB allocated. What may join "
                             "such holes: expandable segments "
                             "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or tarn (python "
                             "-m tarn.torch SCRIPT); `tarn replay` says "
                             "what would be reserved.\n");
    recording = record(); /* PyTorch 2.0 has no such setting */
    recording->snapshot.before_expandable = true;
    segments(recording, 10, 88 * MIB, false);
    expect_part(
        recording,
        "What may join such holes: tarn (python -m tarn.torch SCRIPT, with PyTorch 2.6 or later), "
        "which moves smaller pieces;");
    recording = record(); /* and RMM has none */
    recording->snapshot.rmm = true;
    segments(recording, 10, 88 * MIB, false);
    expect_part(recording,
                "What may join such holes: tarn (tarn.use(rmm=True)), which moves smaller pieces;");
    recording = record();
    segments(recording, 10, 80 * MIB, true);
    expect_part(recording,
                "200 MiB of 0.98 GiB (20.0 %) are free, in 10 holes of at most 20.0 MiB.");
    expect_part(recording, "Expandable segments are on already. What may join such holes: tarn "
                           "(python -m tarn.torch SCRIPT), "
                           "which moves smaller pieces;");
    recording = record();
    recording->snapshot.tarn.there = true;
    segments(recording, 10, 80 * MIB, true);
    expect_part(recording, "A plan of the run (tarn plan) may leave fewer;");

    recording = record(); /* what a replay found: only what needs less is advised */
    segments(recording, 10, 88 * MIB, false);
    replayed =
        &(const struct advice_replay){.expandable = {true, 900 * MIB}, .tarn = {true, 880 * MIB}};
    expect_advice(recording, "At the peak of reserved memory, 120 MiB of 0.98 GiB (12.0 %) are "
                             "free, in 10 holes of at most 12.0 MiB. "
                             "The program never has more than 880 MiB allocated. A replay of the "
                             "trace reserves 900 MiB with expandable "
                             "segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), and 880 "
                             "MiB with tarn (python -m tarn.torch "
                             "SCRIPT).\n");
    recording = record();
    segments(recording, 10, 88 * MIB, false);
    replayed =
        &(const struct advice_replay){.expandable = {true, 1000 * MIB}, .tarn = {true, 900 * MIB}};
    expect_part(recording,
                " A replay of the trace reserves 900 MiB with tarn (python -m tarn.torch SCRIPT); "
                "expandable segments do not help (0.98 GiB).");
    recording = record();
    segments(recording, 10, 88 * MIB, false);
    replayed =
        &(const struct advice_replay){.expandable = {true, 1000 * MIB}, .tarn = {true, 990 * MIB}};
    expect_part(recording, " Neither expandable segments nor tarn would reserve much less");
    /* nothing is said of an allocator that did not run to its end, or is not there to use */
    replayed = &(const struct advice_replay){.expandable = {true, 1000 * MIB}, .tarn = {true}};
    expect_part(recording, " In a replay, expandable segments would not reserve much less;");
    replayed =
        &(const struct advice_replay){.expandable = {true, 900 * MIB}, .tarn = {true, 990 * MIB}};
    recording->snapshot.rmm = true;
    expect_part(recording, " In a replay, tarn would not reserve much less;");
    replayed = &(const struct advice_replay){.expandable = {true, 900 * MIB}, .tarn = {true}};
    expect_part(recording, " What may join such holes: tarn (tarn.use(rmm=True))");
    recording = record(); /* the recorded settings do with less, too */
    segments(recording, 10, 88 * MIB, false);
    replayed = &(const struct advice_replay){
        .native = {true, 901 * MIB}, .expandable = {true, 900 * MIB}, .tarn = {true, 880 * MIB}};
    expect_part(recording, "SCRIPT). It reserves 901 MiB with PyTorch's default settings, too, so "
                           "it does not show why more was reserved.");
    replayed = NULL;

    recording = record(); /* less than a tenth */
    segments(recording, 10, 91 * MIB, false);
    expect_advice(recording, "");
    recording = record(); /* less than 64 MiB */
    segments(recording, 3, 80 * MIB, false);
    expect_advice(recording, "");
    recording = record(); /* it is free then, but was needed before: no allocator does with less */
    segments(recording, 10, 100 * MIB, false);
    give(recording, UINT64_C(1) << 40, 100 * MIB);
    put(recording, SNAPSHOT_SEGMENT_ALLOC, UINT64_C(1) << 43, MIB, 0, 0);
    expect_advice(recording, "");
}

static void memory_that_waits(void **state)
{
    (void)state;
    struct recording *recording = record();
    segments(recording, 10, 95 * MIB, false);
    work(recording, 1, MIB);
    for (size_t i = 0; i < 2; i++)
        put(recording, SNAPSHOT_FREE_REQUESTED, (UINT64_C(1) << 40) + i * 200 * MIB, 95 * MIB, 0,
            0);
    put(recording, SNAPSHOT_SEGMENT_ALLOC, UINT64_C(1) << 43, MIB, 0, 0);
    expect_advice(recording, "At the peak of reserved memory, 190 MiB of 0.98 GiB (19.0 %) wait "
                             "for another stream: 2 blocks freed, but "
                             "not reusable yet. Wait for that stream sooner, or allocate on the "
                             "stream that uses the memory last.\n");
    put(recording, SNAPSHOT_FREE_COMPLETED, UINT64_C(1) << 40, 95 * MIB, 0, 0);
    put(recording, SNAPSHOT_SEGMENT_ALLOC, UINT64_C(1) << 44, MIB, 0, 0);
    expect_part(recording, ""); /* the peak is the last one now, and less than a tenth waits */
    char *text = advice_of(recording);
    assert_null(strstr(text, "another stream"));
    free(text);
}

static void memory_that_goes_and_comes_back(void **state)
{
    (void)state;
    struct recording *recording = record();
    for (size_t i = 0; i < 10; i++) {
        put(recording, SNAPSHOT_SEGMENT_ALLOC, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB, 0,
            0);
        put(recording, SNAPSHOT_ALLOC, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB, STACK_WORK,
            0);
        give(recording, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB);
        put(recording, SNAPSHOT_SEGMENT_FREE, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB, 0, 0);
    }
    expect_advice(recording, "0.98 GiB were returned to the driver in 10 pieces from 4.00 ms to "
                             "49.0 ms, and 900 MiB were taken again "
                             "afterwards. Each return is a driver call, and the program waits for "
                             "the device. Leave out calls of "
                             "empty_cache(), or leave more memory free on the device.\n");
    /* What pools served went nowhere */
    for (uint64_t pooled = 50 * MIB; pooled <= 100 * MIB; pooled += 50 * MIB) {
        recording = record();
        recording->snapshot.of_driver = true;
        recording->snapshot.pooled = pooled;
        for (size_t i = 0; i < 10; i++) {
            put(recording, SNAPSHOT_SEGMENT_ALLOC, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB,
                0, 0);
            put(recording, SNAPSHOT_ALLOC, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB,
                STACK_WORK, 0);
            give(recording, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB);
            put(recording, SNAPSHOT_SEGMENT_FREE, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB, 0,
                0);
        }
        if (pooled < 100 * MIB)
            expect_part(recording,
                        "or run the program with a larger SIZE of tarn run --pool=SIZE.");
        else
            expect_advice(recording, "");
    }
    recording = record(); /* little of it */
    segments(recording, 10, 100 * MIB, false);
    give(recording, UINT64_C(1) << 40, 100 * MIB);
    put(recording, SNAPSHOT_SEGMENT_FREE, UINT64_C(1) << 40, 100 * MIB, 0, 0);
    put(recording, SNAPSHOT_SEGMENT_ALLOC, UINT64_C(1) << 40, 100 * MIB, 0, 0);
    take(recording, 100 * MIB, STACK_WORK, 0);
    expect_advice(recording, "");
    recording = record(); /* small parts of one mapping, for good */
    put(recording, SNAPSHOT_SEGMENT_MAP, UINT64_C(1) << 40, 2000 * MIB, 0, 0);
    for (size_t i = 0; i < 10; i++)
        put(recording, SNAPSHOT_ALLOC, (UINT64_C(1) << 40) + i * 200 * MIB, 185 * MIB, STACK_WORK,
            0);
    for (size_t i = 0; i < 9; i++)
        put(recording, SNAPSHOT_SEGMENT_UNMAP, (UINT64_C(1) << 40) + (i * 200 + 185) * MIB,
            15 * MIB, 0, 0);
    expect_advice(recording, "");
    recording = record(); /* given back for good */
    segments(recording, 10, 100 * MIB, false);
    for (size_t i = 0; i < 10; i++) {
        give(recording, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB);
        put(recording, SNAPSHOT_SEGMENT_FREE, (UINT64_C(1) << 40) + i * 200 * MIB, 100 * MIB, 0, 0);
    }
    expect_advice(recording, "");
}

static void out_of_memory(void **state)
{
    (void)state;
    struct recording *recording = record();
    segments(recording, 10, 95 * MIB, false);
    put(recording, SNAPSHOT_OOM, 20 * MIB, 60 * MIB, STACK_WORK, 0);
    expect_advice(recording, "Memory ran out. The request that failed was for 60.0 MiB, by work "
                             "a.py:9. The device had 20.0 MiB free, and "
                             "50.0 MiB of the 0.98 GiB reserved were free: enough together, but "
                             "the largest hole was 5.00 MiB. This "
                             "is fragmentation. What may join such holes: expandable segments "
                             "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or tarn (python "
                             "-m tarn.torch SCRIPT).\n");
    put(recording, SNAPSHOT_OOM, 20 * MIB, 100 * MIB, STACK_WORK, 0);
    expect_advice(recording, "Memory ran out 2 times. The last request that failed was for 100 "
                             "MiB, by work a.py:9. The device had 20.0 MiB "
                             "free, and 50.0 MiB of the 0.98 GiB reserved were free. Even in one "
                             "piece that was 30.0 MiB too little: 950 "
                             "MiB "
                             "were in use, of which work a.py:9 has 950 MiB (100 %).\n");
    put(recording, SNAPSHOT_FREE_REQUESTED, UINT64_C(1) << 40, 95 * MIB, 0, 0);
    work(recording, 1, MIB);
    put(recording, SNAPSHOT_OOM, 20 * MIB, 100 * MIB, STACK_WORK, 0);
    expect_part(recording, "were free. 95.0 MiB more were freed but waited for another stream: "
                           "synchronize or free earlier.\n");

    recording = record(); /* a log that says nothing of reserved memory */
    take(recording, 5 * MIB, STACK_NONE, 0);
    put(recording, SNAPSHOT_OOM, 0, 60 * MIB, STACK_NONE, 0);
    expect_advice(recording, "Memory ran out. The request that failed was for 60.0 MiB. 5.00 MiB "
                             "were allocated. The recording does "
                             "not show how much was reserved or how large the device is, so it "
                             "does not show whether holes or too "
                             "little memory were the cause.\n");
    replayed = &(const struct advice_replay){.native = {true, .least = 80 * MIB},
                                             .expandable = {true, .least = 70 * MIB},
                                             .tarn = {true, .least = 66 * MIB}};
    expect_part(recording, "were the cause. In a replay, all of it with what failed fits on a "
                           "device of 80.0 MiB with PyTorch's "
                           "default settings, of 70.0 MiB with expandable segments "
                           "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:"
                           "True), of 66.0 MiB with tarn (python -m tarn.torch SCRIPT). The device "
                           "had 5.00 MiB at least; whether "
                           "it had that much is not known.\n");
    recording->snapshot.rmm = true;
    expect_part(recording, "on a device of 66.0 MiB with tarn (tarn.use(rmm=True)). The device had "
                           "5.00 MiB at least;");
    /* It had more at another time */
    give(recording, take(recording, 61 * MIB, STACK_NONE, 0), 61 * MIB);
    expect_part(recording, "The device had 66.0 MiB at least, so tarn serves it there.\n");
    recording = record(); /* the same by what was free */
    take(recording, 50 * MIB, STACK_NONE, 0);
    put(recording, SNAPSHOT_OOM, 16 * MIB, 40 * MIB, STACK_NONE, 0);
    expect_part(recording, "was for 40.0 MiB. The device had 16.0 MiB free. 50.0 MiB were "
                           "allocated. The recording does "
                           "not show how much was reserved, so it does not show whether holes or "
                           "too little memory were "
                           "the cause. In a replay");
    expect_part(recording, "The device had 66.0 MiB at least, so tarn serves it there.\n");
    put(recording, SNAPSHOT_OOM, 90 * MIB, 40 * MIB, STACK_NONE, 0);
    replayed = NULL;
    expect_part(
        recording,
        ", and the device had 90.0 MiB free: a limit refused it, such as "
        "torch.cuda.set_per_process_"
        "memory_fraction() or tarn_device_limit_set() sets. 50.0 MiB were allocated. The recording "
        "does not show how much was reserved, so it does not show whether the request would have "
        "fit "
        "into what was free of it.\n");
}

/* Who serves what failed is said where it was replayed on a device of that size. */
static void who_serves_what_failed(void **state)
{
    (void)state;
    const struct {
        struct advice_replay replay;
        const char *part;
    } cases[] = {
        {{.tried = 1, .native = {true}, .expandable = {true, MIB}, .tarn = {true, MIB}},
         "This is fragmentation. In a replay on a device of that size, expandable segments "
         "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) and tarn (python -m tarn.torch "
         "SCRIPT) serve it; "
         "PyTorch's "
         "default settings do not.\n"},
        {{.tried = 2, .native = {true}, .expandable = {true}, .tarn = {true, MIB}},
         "tarn (python -m tarn.torch SCRIPT) serves all that failed; PyTorch's default settings "
         "and expandable "
         "segments do "
         "not.\n"},
        {{.tried = 1, .native = {true}, .expandable = {true}, .tarn = {true}},
         "PyTorch's default settings, expandable segments and tarn do not serve it.\n"},
        {{.tried = 1, .native = {true}, .tarn = {true}},
         "PyTorch's default settings and tarn do not serve it.\n"},
        {{.tried = 1, .native = {true, MIB}, .expandable = {true, MIB}, .tarn = {true}},
         "serve it; tarn does not. The recorded settings serve it there too, so the replay does "
         "not show what "
         "helps.\n"},
        {{.native = {true, MIB}, .expandable = {true, MIB}, .tarn = {true, MIB}},
         "What may join such holes: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct recording *recording = record();
        segments(recording, 10, 95 * MIB, false);
        put(recording, SNAPSHOT_OOM, 20 * MIB, 60 * MIB, STACK_WORK, 0);
        replayed = &cases[i].replay;
        expect_part(recording, cases[i].part);
    }
    replayed = NULL;
}

/* What was there before the recording began has its cause there, and the rest is said of the
 * recording alone. */
static void what_was_reserved_before(void **state)
{
    (void)state;
    struct recording *recording = record();
    struct snapshot_segment segment = {
        .address = UINT64_C(1) << 43, .total_size = 1000 * MIB, .block_count = 1};
    struct snapshot_block block = {
        .address = UINT64_C(1) << 43, .size = 1000 * MIB, .state = SNAPSHOT_INACTIVE};
    recording->snapshot.segments = &segment;
    recording->snapshot.blocks = &block;
    recording->snapshot.segment_count = recording->snapshot.block_count = 1;
    segments(recording, 9, 100 * MIB, false);
    replayed =
        &(const struct advice_replay){.expandable = {true, 900 * MIB}, .tarn = {true, 880 * MIB}};
    expect_advice(recording, "At the peak of reserved memory, 0.98 GiB of 1.86 GiB (52.6 %) are "
                             "free, in 1 hole of at most 0.98 "
                             "GiB. Most of it was reserved before the recording began, so the "
                             "recording does not show why. "
                             "Record from the start of the program.\n");
    recording = record();
    segment.total_size = block.size = 100 * MIB;
    block.requested_size = block.size;
    block.state = SNAPSHOT_ACTIVE_ALLOCATED;
    recording->snapshot.segments = &segment;
    recording->snapshot.blocks = &block;
    recording->snapshot.segment_count = recording->snapshot.block_count = 1;
    segments(recording, 10, 88 * MIB, false);
    expect_part(
        recording,
        "While it was recorded, the program never had more than 980 MiB allocated. A replay");
    /* What was given back before the peak is not reserved there */
    recording = record();
    segment.address = block.address = UINT64_C(1) << 44;
    put(recording, SNAPSHOT_SEGMENT_FREE, UINT64_C(1) << 43, 900 * MIB, 0, 0);
    segments(recording, 10, 88 * MIB, false);
    expect_part(recording, " A replay of the trace reserves ");
    replayed = NULL;
}

/* A device with room enough did not refuse the request: a limit did. What rounding may ask for
 * besides is no room. */
static void out_of_a_limit(void **state)
{
    (void)state;
    struct recording *recording = record();
    segments(recording, 10, 95 * MIB, false);
    put(recording, SNAPSHOT_OOM, 300 * MIB, 60 * MIB, STACK_WORK, TAG);
    expect_advice(recording,
                  "Memory ran out. The request that failed was for 60.0 MiB, by cache (work "
                  "a.py:9), and the device had 300 MiB "
                  "free: a limit refused it, such as torch.cuda.set_per_process_memory_fraction() "
                  "or tarn_device_limit_set() "
                  "sets. 50.0 MiB of the 0.98 GiB reserved were free; 950 MiB were in use, of "
                  "which work a.py:9 has 950 MiB "
                  "(100 %).\n");
    recording = record();
    segments(recording, 10, 95 * MIB, false);
    put(recording, SNAPSHOT_OOM, 61 * MIB, 60 * MIB, STACK_WORK, 0);
    char *text = advice_of(recording);
    assert_null(strstr(text, "a limit refused"));
    free(text);
}

/* Each hole of a segment with blocks counts, those between its blocks too. */
static void holes_beside_blocks_are_counted(void **state)
{
    (void)state;
    struct recording *recording = record();
    struct snapshot_segment segment_of_a_state[2] = {
        {.address = 4096, .total_size = 1000 * MIB, .block_count = 6},
        {.address = UINT64_C(1) << 40, .total_size = 70 * MIB}};
    struct snapshot_block blocks[6];
    const uint64_t sizes[6] = {100 * MIB, 50 * MIB, 100 * MIB, 300 * MIB, 400 * MIB, 50 * MIB};
    for (size_t i = 0, at = 4096; i < 6; at += sizes[i++])
        blocks[i] =
            (struct snapshot_block){.address = at,
                                    .size = sizes[i],
                                    .state = i % 2 ? SNAPSHOT_INACTIVE : SNAPSHOT_ACTIVE_ALLOCATED};
    recording->snapshot.segments = segment_of_a_state;
    recording->snapshot.segment_count = 2;
    recording->snapshot.blocks = blocks;
    recording->snapshot.block_count = 6;
    expect_part(recording, "70.0 MiB (6.5 %) are in 1 segment without a block, and 400 MiB (37.4 "
                           "%) are free in 3 holes "
                           "beside blocks, of at most 300 MiB.");
}

static void a_snapshot_of_a_state_has_no_trace(void **state)
{
    (void)state;
    struct recording *recording = record();
    struct snapshot_segment segment_of_a_state[2] = {
        {.address = 4096, .total_size = 1000 * MIB, .block_count = 2}};
    struct snapshot_block blocks[] = {
        {.address = 4096,
         .size = 400 * MIB,
         .requested_size = 400 * MIB,
         .state = SNAPSHOT_ACTIVE_ALLOCATED},
        {.address = 4096 + 400 * MIB, .size = 600 * MIB, .state = SNAPSHOT_INACTIVE},
        {.address = UINT64_C(1) << 40, .size = 100 * MIB, .state = SNAPSHOT_INACTIVE}};
    recording->snapshot.segments = segment_of_a_state;
    recording->snapshot.segment_count = 1;
    recording->snapshot.blocks = blocks;
    recording->snapshot.block_count = 2;
    expect_advice(recording,
                  "Of the 0.98 GiB reserved, 600 MiB (60.0 %) are free in 1 hole beside blocks, of "
                  "at most 600 MiB. What may "
                  "join "
                  "such holes: expandable segments "
                  "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or tarn (python -m "
                  "tarn.torch SCRIPT).\n");
    segment_of_a_state[1] = (struct snapshot_segment){
        .address = UINT64_C(1) << 40, .total_size = 100 * MIB, .first_block = 2, .block_count = 1};
    recording->snapshot.segment_count = 2;
    recording->snapshot.block_count = 3;
    expect_part(recording,
                "Of the 1.07 GiB reserved, 100 MiB (9.1 %) are in 1 segment without a block, and "
                "600 MiB (54.5 %) "
                "are free in 1 hole beside blocks, of at most 600 MiB. Segments without a block "
                "return to the "
                "device with empty_cache(), or when memory runs short. What may join such holes: ");
    blocks[1].state = SNAPSHOT_ACTIVE_ALLOCATED; /* nothing is torn */
    segment_of_a_state[1].total_size = blocks[2].size = 500 * MIB;
    expect_advice(recording,
                  "Of the 1.46 GiB reserved, 500 MiB (33.3 %) are in 1 segment without a block. "
                  "Segments without a "
                  "block return to the device with empty_cache(), or when memory runs short.\n");
    recording->snapshot.tarn.there = true;
    expect_part(recording,
                "return to the device with tarn_device_trim(), or when memory runs short.");
    recording->snapshot.tarn.there = false;
    blocks[1].state = SNAPSHOT_INACTIVE;
    recording->snapshot.segment_count = 1;
    segment_of_a_state[0].block_count = 1;
    segment_of_a_state[0].total_size = 400 * MIB;
    expect_advice(recording, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leak_is_found_by_its_rhythm),
        cmocka_unit_test(only_kept_memory_counts),
        cmocka_unit_test(several_leaks_are_one_sentence),
        cmocka_unit_test(what_only_looks_like_a_leak),
        cmocka_unit_test(holes),
        cmocka_unit_test(memory_that_waits),
        cmocka_unit_test(memory_that_goes_and_comes_back),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(who_serves_what_failed),
        cmocka_unit_test(what_was_reserved_before),
        cmocka_unit_test(out_of_a_limit),
        cmocka_unit_test(holes_beside_blocks_are_counted),
        cmocka_unit_test(a_snapshot_of_a_state_has_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
