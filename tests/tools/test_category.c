/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Categories, held to recordings whose tags are the truth: tests/tools/recordings/README.md. The
 * tags are taken away before anything is told from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/advice.h"
#include "analysis/category.h"

static struct snapshot snapshot;
static struct analysis analysis;

static void open_recording(const char *name)
{
    char path[4096];
    struct snapshot_error error;
    const char *source = getenv("TARN_SOURCE");
    if (!source)
        fail_msg("TARN_SOURCE must name the source folder");
    snprintf(path, sizeof path, "%s/tests/tools/recordings/%s.pickle.zst", source, name);
    if (!snapshot_read_file(path, &snapshot, &error))
        fail_msg("%s: %s", path, error.text);
    assert_true(analysis_build(&snapshot, 0, &analysis));
}

static void close_recording(void)
{
    analysis_finish(&analysis);
    snapshot_finish(&snapshot);
}

static uint64_t bytes_of(enum category category, uint32_t moment)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < analysis.block_count; i++)
        if (analysis.categories[i] == category && analysis_lives(&analysis.blocks[i], moment))
            bytes += analysis.blocks[i].size;
    return bytes;
}

/* Of what lives at a moment the share in percent whose category is what its tag says. */
static double right_at(uint32_t moment, const uint32_t *tags)
{
    uint64_t right = 0, all = 0;
    for (size_t i = 0; i < analysis.block_count; i++) {
        const struct analysis_block *block = &analysis.blocks[i];
        if (!analysis_lives(block, moment))
            continue;
        all += block->size;
        right +=
            strcmp(snapshot_text(&snapshot, tags[i]), category_name(analysis.categories[i])) == 0
                ? block->size
                : 0;
    }
    return all ? 100 * (double)right / (double)all : 100;
}

static void what_the_tags_say(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-adamw",    "gpt-amp",  "gpt-check",
                                        "gpt-generate", "cnn-sgd",  "gpt-adapters",
                                        "lstm-rmsprop", "unet-ema", "gpt-serve"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        open_recording(names[i]);
        uint32_t *tags = calloc(analysis.block_count + 1, sizeof *tags);
        for (size_t j = 0; j < analysis.block_count; j++) {
            tags[j] = analysis.blocks[j].tag;
            analysis.blocks[j].tag = 0;
        }
        assert_true(categories_make(&analysis, NULL, 0));
        double at_peak = right_at(analysis.peak, tags), sum = 0;
        for (uint32_t j = 1; j <= 20; j++)
            sum += right_at((uint32_t)((uint64_t)analysis.event_count * j / 20), tags);
        print_message("%s: %.1f %% of the bytes at the peak are right, %.1f %% over time\n",
                      names[i], at_peak, sum / 20);
        assert_true(at_peak >= 95);
        assert_true(sum / 20 >= 90);
        free(tags);
        close_recording();
    }
}

/* Whether a stack has a frame of the autograd engine. */
static bool of_engine(uint32_t stack)
{
    for (; stack; stack = snapshot.stacks[stack].caller)
        if (strstr(snapshot_text(&snapshot, snapshot.frames[snapshot.stacks[stack].frame].name),
                   "autograd::Engine::"))
            return true;
    return false;
}

/* With Python's stacks alone a backward pass, which is another thread's, has none. */
static void stacks_of_python_alone(void **state)
{
    (void)state;
    open_recording("gpt-adamw");
    analysis_finish(&analysis);
    struct snapshot_trace *trace = &snapshot.traces[0];
    for (size_t i = 0; i < trace->event_count; i++)
        trace->events[i].stack = of_engine(trace->events[i].stack) ? 0 : trace->events[i].stack;
    for (size_t i = 0; i < snapshot.frame_count; i++)
        if (strstr(snapshot_text(&snapshot, snapshot.frames[i].name), "::"))
            snapshot.frames[i].name = 0;
    assert_true(analysis_build(&snapshot, 0, &analysis));
    uint64_t right = 0, all = 0;
    for (size_t i = 0; i < analysis.block_count; i++) {
        const struct analysis_block *block = &analysis.blocks[i];
        const char *truth = snapshot_text(&snapshot, block->tag);
        /* Those only C++ tells */
        if (!analysis_lives(block, analysis.peak) || strcmp(truth, "workspaces") == 0)
            continue;
        all += block->size;
        right += strcmp(truth, category_name(analysis.categories[i])) == 0 ? block->size : 0;
    }
    assert_true(right >= all / 100 * 95);
    close_recording();
}

/* A forward pass whose backward pass was not recorded: what many call sites keep is no cache. */
static void forward_alone(void **state)
{
    (void)state;
    open_recording("gpt-adamw");
    analysis_finish(&analysis);
    struct snapshot_trace *trace = &snapshot.traces[0];
    size_t end = 0;
    while (!of_engine(trace->events[end].stack))
        end++;
    trace->event_count = end;
    assert_true(analysis_build(&snapshot, 0, &analysis));
    assert_int_equal(bytes_of(CATEGORY_CACHES, analysis.event_count), 0);
    uint64_t kept = 0, activations = 0;
    for (size_t i = 0; i < analysis.block_count; i++)
        if (strcmp(snapshot_text(&snapshot, analysis.blocks[i].tag), "activations") == 0 &&
            analysis_lives(&analysis.blocks[i], analysis.event_count)) {
            kept += analysis.blocks[i].size;
            activations +=
                analysis.categories[i] == CATEGORY_ACTIVATIONS ? analysis.blocks[i].size : 0;
        }
    assert_true(kept && activations >= kept / 10 * 6); /* what a site keeps once or twice cannot be
                                                          told */
    close_recording();
}

/* --- by hand --- */

enum {
    NOWHERE,
    FORWARD,
    BACKWARD,
    OPTIMIZER,
    AGAIN
}; /* stacks; AGAIN: a forward pass within a
      backward pass */

struct step {
    char what; /* '+' or '-' */
    uint32_t block, stack;
    const char *category; /* of '+' */
    uint64_t mib;
};

static const char *wanted_advice; /* the first sentence; NULL: any */

/* Builds an analysis of these steps, and compares. Blocks that are freed without having been
 * allocated were there before. */
static void expect_steps(const struct step *steps, size_t count, const char *before)
{
    static char bytes[] =
        "\0forward\0/srv/m.py\0torch::autograd::Engine::run\0engine.cpp\0step\0/srv/optim/a.py";
    static size_t starts[] = {0, 1, 9, 19, 48, 59, 64, sizeof bytes};
    static struct snapshot_frame frames[] = {{1, 2, 1}, {3, 4, 1}, {5, 6, 1}};
    static struct snapshot_stack stacks[] = {{0, 0}, {0, 0}, {0, 1}, {0, 2}, {BACKWARD, 0}};
    static uint64_t streams[] = {0}, pools[][2] = {{0, 0}};
    struct snapshot_event events[128];
    struct snapshot_trace trace = {.events = events};
    for (size_t i = 0; i < count; i++) {
        struct snapshot_event event = {.address = (uint64_t)(steps[i].block + 1) << 30,
                                       .size = steps[i].mib << 20,
                                       .stack = steps[i].stack,
                                       .action = SNAPSHOT_ALLOC};
        if (steps[i].what == '-') {
            event.stack = 0;
            event.action = SNAPSHOT_FREE_REQUESTED;
            events[trace.event_count++] = event;
            event.action = SNAPSHOT_FREE_COMPLETED;
        }
        events[trace.event_count++] = event;
    }
    snapshot = (struct snapshot){.traces = &trace,
                                 .trace_count = 1,
                                 .streams = streams,
                                 .stream_count = 1,
                                 .pools = pools,
                                 .pool_count = 1,
                                 .frames = frames,
                                 .frame_count = 3,
                                 .stacks = stacks,
                                 .stack_count = 5,
                                 .text_bytes = bytes,
                                 .text_starts = starts,
                                 .text_count = 7};
    assert_true(analysis_build(&snapshot, 0, &analysis));
    size_t at = 0;
    for (; at < analysis.block_count && !analysis.blocks[at].begin; at++)
        assert_string_equal(category_name(analysis.categories[at]), before);
    for (size_t i = 0; i < count; i++)
        if (steps[i].what == '+' &&
            strcmp(steps[i].category, category_name(analysis.categories[at++])) != 0)
            fail_msg("step %zu is %s, not %s", i, category_name(analysis.categories[at - 1]),
                     steps[i].category);
    struct advice_list list;
    assert_true(!wanted_advice || (advice_make(&analysis, NULL, &list) && list.count));
    if (wanted_advice)
        assert_string_equal(list.items[0].text, wanted_advice);
    analysis_finish(&analysis);
}

#define TAKE(block, stack, category, mib) \
    {                                     \
        '+', block, stack, category, mib  \
    }
#define GIVE(block)                  \
    {                                \
        '-', block, NOWHERE, NULL, 1 \
    }
#define EXPECT_STEPS(before, ...)                                  \
    do {                                                           \
        static const struct step steps[] = {__VA_ARGS__};          \
        expect_steps(steps, sizeof steps / sizeof *steps, before); \
    } while (0)

static void small_programs(void **state)
{
    (void)state;
    /* What a forward pass keeps for good is a cache, what a backward pass meets an activation. */
    EXPECT_STEPS("", TAKE(9, NOWHERE, "weights", 1), TAKE(0, FORWARD, "caches", 1),
                 TAKE(1, FORWARD, "activations", 1), TAKE(2, FORWARD, "temporaries", 1), GIVE(2),
                 TAKE(3, BACKWARD, "gradients", 1), GIVE(1), TAKE(4, BACKWARD, "temporaries", 1),
                 GIVE(4), TAKE(5, BACKWARD, "gradients", 1), TAKE(6, FORWARD, "activations", 1),
                 TAKE(4, BACKWARD, "temporaries", 1), GIVE(4), TAKE(7, BACKWARD, "gradients", 1),
                 GIVE(6), TAKE(6, FORWARD, "temporaries", 1), GIVE(6));
    /* Memory runs out within a backward pass: what is there and no weight's size is no gradient. */
    EXPECT_STEPS("", TAKE(9, NOWHERE, "weights", 1), TAKE(1, BACKWARD, "gradients", 1),
                 TAKE(2, BACKWARD, "temporaries", 3));
    /* State that each step makes anew, of before the recording too. */
    EXPECT_STEPS("optimizer", TAKE(9, NOWHERE, "weights", 1), TAKE(1, FORWARD, "activations", 1),
                 TAKE(2, BACKWARD, "gradients", 1), GIVE(1), TAKE(3, OPTIMIZER, "optimizer", 1),
                 GIVE(0), TAKE(4, OPTIMIZER, "temporaries", 1), GIVE(4),
                 TAKE(1, FORWARD, "activations", 1), TAKE(5, BACKWARD, "gradients", 1), GIVE(1),
                 TAKE(6, OPTIMIZER, "optimizer", 1), GIVE(3), TAKE(7, OPTIMIZER, "optimizer", 1));
    /* What is computed of the forward pass again: kept for the backward pass that follows, or for
     * the next line. */
    EXPECT_STEPS("", TAKE(9, NOWHERE, "weights", 1), TAKE(1, BACKWARD, "gradients", 1),
                 TAKE(2, AGAIN, "activations", 1), TAKE(3, AGAIN, "temporaries", 1),
                 TAKE(4, AGAIN, "activations", 1), GIVE(3), TAKE(5, BACKWARD, "gradients", 1),
                 GIVE(2), GIVE(4), TAKE(6, BACKWARD, "gradients", 1));
}

/* The reader's rules come first, the nearest frame's before those of its callers. */
static void rules_of_the_reader(void **state)
{
    (void)state;
    static const struct category_rule rules[] = {{CATEGORY_CACHES, "layer_norm"},
                                                 {CATEGORY_WEIGHTS, "train.py"}};
    open_recording("gpt-adamw");
    assert_int_equal(bytes_of(CATEGORY_CACHES, analysis.peak), 0);
    assert_true(categories_make(&analysis, rules, 2));
    uint64_t weights = bytes_of(CATEGORY_WEIGHTS, analysis.peak),
             caches = bytes_of(CATEGORY_CACHES, analysis.peak);
    assert_true(caches > 0 && weights > caches);
    /* All of them are of train.py */
    assert_int_equal(bytes_of(CATEGORY_ACTIVATIONS, analysis.peak), 0);
    assert_true(categories_make(&analysis, NULL, 0));
    assert_int_equal(bytes_of(CATEGORY_CACHES, analysis.peak), 0);
    close_recording();
}

/* A recording that begins in the middle of training does not show what is state and what are
 * weights, and does not guess. */
static void from_the_middle(void **state)
{
    (void)state;
    open_recording("gpt-adamw");
    uint64_t weights = bytes_of(CATEGORY_WEIGHTS, analysis.event_count),
             made = bytes_of(CATEGORY_OPTIMIZER, analysis.event_count),
             workspaces = bytes_of(CATEGORY_WORKSPACES, analysis.event_count);
    assert_int_equal(bytes_of(CATEGORY_BEFORE, analysis.event_count), 0);
    analysis_finish(&analysis);
    struct snapshot_trace *trace = &snapshot.traces[0];
    size_t half = trace->event_count / 2; /* in the second of three steps */
    trace->events += half;
    trace->event_count -= half;
    assert_true(analysis_build(&snapshot, 0, &analysis));
    assert_int_equal(bytes_of(CATEGORY_WEIGHTS, 0), 0);
    assert_int_equal(bytes_of(CATEGORY_BEFORE, analysis.event_count) >> 20,
                     (weights + made + workspaces) >> 20);
    close_recording();
}

/* Without stacks that tell of PyTorch nothing is known, whatever the functions of another program
 * are called. */
static void of_other_programs(void **state)
{
    (void)state;
    open_recording("cnn-sgd");
    for (size_t i = 0; i < snapshot.frame_count; i++)
        snapshot.frames[i] = (struct snapshot_frame){0};
    assert_true(categories_make(&analysis, NULL, 0));
    for (size_t i = 0; i < analysis.block_count; i++)
        assert_int_equal(analysis.categories[i], CATEGORY_UNKNOWN);
    static char bytes[] = "\0forward\0/srv/server.c\0get_workspace\0/srv/optimizer.c";
    static size_t starts[] = {0, 1, 9, 23, 37, sizeof bytes};
    free(snapshot.text_bytes);
    free(snapshot.text_starts);
    snapshot.text_bytes = bytes;
    snapshot.text_starts = starts;
    snapshot.text_count = 5;
    for (size_t i = 0; i < snapshot.frame_count; i++)
        snapshot.frames[i] =
            i % 2 ? (struct snapshot_frame){1, 2, 7} : (struct snapshot_frame){3, 4, 9};
    assert_true(categories_make(&analysis, NULL, 0));
    for (size_t i = 0; i < analysis.block_count; i++)
        assert_int_equal(analysis.categories[i], CATEGORY_UNKNOWN);
    snapshot.text_bytes = NULL;
    snapshot.text_starts = NULL;
    close_recording();
}

/* The advice on an optimizer: where its state is a third of the peak, and only there. */
static void advice(void **state)
{
    (void)state;
    struct advice_list list;
    open_recording("gpt-check");
    assert_true(advice_make(&analysis, NULL, &list));
    size_t at = 0;
    while (at < list.count && list.items[at].kind != ADVICE_OPTIMIZER)
        at++;
    assert_true(at < list.count);
    assert_string_equal(list.items[at].text,
                        "The optimizer's state has 418 MiB: 40 % of the peak, and 2.0 times the "
                        "weights (209 MiB). An optimizer with "
                        "8-bit or factored state needs less; so does state that is sharded over "
                        "devices or kept on the host.");
    close_recording();
    open_recording("gpt-adamw");
    assert_true(advice_make(&analysis, NULL, &list));
    for (size_t i = 0; i < list.count; i++)
        assert_int_not_equal(list.items[i].kind, ADVICE_OPTIMIZER);
    close_recording();
}

#define NEEDS_LESS                                                                               \
    " An optimizer with 8-bit or factored state needs less; so does state that is sharded over " \
    "devices or kept on "                                                                        \
    "the "                                                                                       \
    "host."

/* Where each step frees what the one before has made, and makes as much again, that may be the
 * weights too. */
static void advice_on_what_is_made_anew(void **state)
{
    (void)state;
    wanted_advice = "The optimizer's state has 102 MiB: 63 % of the peak, and 1.7 times the "
                    "weights (60.0 MiB)." NEEDS_LESS;
    EXPECT_STEPS("", TAKE(9, NOWHERE, "weights", 60), TAKE(3, OPTIMIZER, "optimizer", 50),
                 TAKE(4, OPTIMIZER, "optimizer", 50), TAKE(5, OPTIMIZER, "optimizer", 2));
    wanted_advice = "What the optimizer makes anew in each step has 106 MiB, 64 % of the peak: its "
                    "state, and perhaps the "
                    "weights, if it replaces them." NEEDS_LESS;
    EXPECT_STEPS("temporaries", TAKE(3, OPTIMIZER, "optimizer", 50), {'-', 0, NOWHERE, NULL, 20},
                 TAKE(4, OPTIMIZER, "optimizer", 50), {'-', 1, NOWHERE, NULL, 20},
                 TAKE(5, OPTIMIZER, "optimizer", 2), TAKE(9, NOWHERE, "weights", 60),
                 TAKE(10, OPTIMIZER, "optimizer", 1), TAKE(11, OPTIMIZER, "optimizer", 1),
                 TAKE(12, OPTIMIZER, "optimizer", 1), TAKE(13, OPTIMIZER, "optimizer", 1));
    wanted_advice = NULL;
}

static void names(void **state)
{
    (void)state;
    assert_int_equal(category_of_name("caches", 6), CATEGORY_CACHES);
    assert_int_equal(category_of_name("caches", 5), CATEGORY_COUNT);
    assert_int_equal(category_of_name("unknown", 7), CATEGORY_COUNT);
    for (enum category i = CATEGORY_WEIGHTS; i < CATEGORY_BEFORE; i++)
        assert_int_equal(category_of_name(category_name(i), strlen(category_name(i))), i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_tags_say),
        cmocka_unit_test(stacks_of_python_alone),
        cmocka_unit_test(forward_alone),
        cmocka_unit_test(small_programs),
        cmocka_unit_test(rules_of_the_reader),
        cmocka_unit_test(from_the_middle),
        cmocka_unit_test(of_other_programs),
        cmocka_unit_test(advice),
        cmocka_unit_test(advice_on_what_is_made_anew),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
