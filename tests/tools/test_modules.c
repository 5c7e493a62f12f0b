/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Modules of stacks: which frames tell of one, and what they are called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"

#define LIBRARY "/opt/site-packages/torch/"
#define MODULES LIBRARY "nn/modules/"

enum { MOST = 8 };

struct call {
    const char *name, *file;
    uint32_t line;
};

/* What the module of a stack is called; its calls begin with the outermost, and end with one
 * without a name. */
static void expect_module(const struct call *calls, const char *wanted)
{
    char bytes[1024] = "";
    size_t starts[2 * MOST + 2] = {0}, texts = 1, at = 1, count = 0;
    struct snapshot_frame frames[MOST] = {{0, 0, 0}};
    struct snapshot_stack stacks[MOST + 1] = {{0, 0}};
    for (; calls[count].name; count++) {
        const char *const parts[] = {calls[count].name, calls[count].file};
        for (size_t i = 0; i < 2; i++) {
            starts[texts++] = at;
            size_t size = strlen(parts[i]) + 1;
            assert_true(at + size <= sizeof bytes);
            memcpy(bytes + at, parts[i], size);
            at += size;
        }
        frames[count] =
            (struct snapshot_frame){(uint32_t)texts - 2, (uint32_t)texts - 1, calls[count].line};
        stacks[count + 1] = (struct snapshot_stack){(uint32_t)count, (uint32_t)count};
    }
    starts[texts] = at;
    const struct snapshot snapshot = {.frames = frames,
                                      .frame_count = count,
                                      .stacks = stacks,
                                      .stack_count = count + 1,
                                      .text_bytes = bytes,
                                      .text_starts = starts,
                                      .text_count = texts};
    struct analysis analysis = {.snapshot = &snapshot};
    char label[400];
    assert_true(analysis_modules_make(&analysis));
    assert_int_equal(analysis.modules[0], 0);
    assert_string_equal(
        analysis_label(&analysis, ANALYSIS_BY_MODULE, analysis.modules[count], label, sizeof label),
        wanted);
    free(analysis.modules);
    free(analysis.module_paths);
}

#define EXPECT(wanted, ...)                                       \
    do {                                                          \
        static const struct call calls[] = {__VA_ARGS__, {NULL}}; \
        expect_module(calls, wanted);                             \
    } while (0)

static void forwards(void **state)
{
    (void)state;
    EXPECT("no module", {"main", "/srv/a.py", 3}, {"train", "/srv/a.py", 9});
    EXPECT("torch.nn linear < forward  a.py:7 < forward  a.py:5", {"train", "/srv/a.py", 9},
           {"_call_impl", MODULES "module.py", 1}, {"forward", "/srv/a.py", 5},
           {"forward", MODULES "container.py", 250}, {"forward", "/srv/a.py", 7},
           {"_call_impl", MODULES "module.py", 1}, {"forward", MODULES "linear.py", 134});
    /* The line of the innermost one says nothing, and what it calls is still its. */
    EXPECT("forward  a.py < forward  a.py:5", {"forward", "/srv/a.py", 5},
           {"forward", "/srv/a.py", 8}, {"gelu", LIBRARY "nn/functional.py", 30},
           {"at::gelu", "??", 0});
    /* Names with their class, of a later Python; the library of another is as good as the
     * program. */
    EXPECT("Block < Net  a.py:5", {"Net.forward", "/srv/a.py", 5},
           {"Block.forward", "/opt/site-packages/models/b.py", 8});
    /* What is no module: an operation's forward(), another's wrapper, and a program that is not
     * Python. */
    EXPECT("forward  a.py", {"forward", "/srv/a.py", 5},
           {"apply", LIBRARY "autograd/function.py", 575}, {"forward", "/srv/ops.py", 8});
    EXPECT("no module", {"forward", LIBRARY "nn/parallel/distributed.py", 5});
    EXPECT("no module", {"forward", "/srv/forward.c", 5});
}

static void makers(void **state)
{
    (void)state;
    EXPECT("torch.nn linear < __init__  a.py:12 < __init__  a.py:20", {"main", "/srv/a.py", 3},
           {"__init__", "/srv/a.py", 20}, {"__init__", "/srv/a.py", 12},
           {"__init__", MODULES "linear.py", 100});
    /* Of anything */
    EXPECT("no module", {"main", "/srv/a.py", 3}, {"__init__", "/srv/cache.py", 20});
}

/* A program's folder may be called "torch" too. */
static void folders(void **state)
{
    (void)state;
    EXPECT("torch.nn linear < forward  a.py:7 < forward  a.py:5",
           {"forward", "/home/me/torch/a.py", 5}, {"_call_impl", MODULES "module.py", 1},
           {"forward", "/home/me/torch/a.py", 7}, {"forward", "torch/nn/modules/linear.py", 134});
    EXPECT("forward  linear.py", {"forward", "/home/me/mytorch/nn/modules/linear.py", 5});
    EXPECT("forward  module.py", {"forward", "/home/me/nn/modules/module.py", 5});
    EXPECT("no module", {"forward", "/home/me/torch/site-packages/torch/nn/functional.py", 5});
}

static void names(void **state)
{
    (void)state;
    EXPECT("layers.0 (Block)", {"step 3", "torch", 0},
           {"layers.0 (Block)", "record-torch.py", 124});
    EXPECT("layers.0.attention (Attention)", {"layers.0 (Block)", "record-torch.py", 124},
           {"layers.0.attention (Attention)", "record-torch.py", 86});
    EXPECT("no module", {"operator() (int)", "/srv/a.cpp", 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forwards),
        cmocka_unit_test(makers),
        cmocka_unit_test(folders),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
