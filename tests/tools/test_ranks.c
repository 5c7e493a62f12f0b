/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranks: processes that do the same on simulated devices of their own leave a snapshot each, and
 * what is said of them is true: which of them differ and by what, and which is the first whose
 * memory runs out. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "analysis/ranks.h"

enum { RANKS = 5 };

static char folder[64];
static int number;          /* of the rank that runs */
static size_t extra[RANKS]; /* MiB that a rank has besides what all have */
static bool fails[RANKS];   /* whether it asks for too much */
static const struct report_rules rules = {.folding = {.depth = 1}};

static void *tagged(const char *text, size_t size)
{
    tarn_alloc_options options = {.size = sizeof options, .device = TARN_CURRENT_DEVICE};
    void *block = NULL;
    OK(tarn_tag_intern(text, &options.tag));
    OK(tarn_alloc(&options, size, &block));
    return block;
}

static void run_rank(void)
{
    char path[128];
    void *refused = NULL;
    const tarn_alloc_options options = {.size = sizeof options, .device = TARN_CURRENT_DEVICE};
    host_start_with(1, 256 * MIB);
    OK(tarn_trace_start(NULL));
    void *weights = tagged("weights", 40 * MIB),
         *more = extra[number] ? tagged("experts", extra[number] * MIB) : NULL;
    void *step = tagged("activations", 20 * MIB);
    if (fails[number])
        GIVES(tarn_alloc(&options, 300 * MIB, &refused), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(step));
    snprintf(path, sizeof path, "%s/rank%d.pickle", folder, number);
    OK(tarn_snapshot_write(path, NULL));
    OK(tarn_free(more));
    OK(tarn_free(weights));
}

/* Records all ranks, in this order, and reads their files in another. */
static void record(const int order[RANKS], struct report_file files[RANKS], char paths[RANKS][128])
{
    strcpy(folder, "/tmp/tarn-ranks-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < RANKS; i++) {
        number = order[i];
        in_child(run_rank);
    }
    for (int i = 0; i < RANKS; i++) {
        snprintf(paths[i], 128, "%s/rank%d.pickle", folder, RANKS - 1 - i);
        assert_true(report_file_open("report", paths[i], -1, &rules, &files[i]));
    }
}

static void forget(struct report_file files[RANKS], char paths[RANKS][128])
{
    for (int i = 0; i < RANKS; i++) {
        report_file_finish(&files[i]);
        unlink(paths[i]);
    }
    rmdir(folder);
}

static bool says(const struct ranks *ranks, size_t sentence, const char *text)
{
    return sentence < ranks->sentence_count && strstr(ranks->sentences[sentence], text);
}

static void who_differs_and_runs_out_first(void **state)
{
    (void)state;
    struct report_file files[RANKS];
    char paths[RANKS][128];
    struct ranks ranks;
    memset(extra, 0, sizeof extra);
    memset(fails, 0, sizeof fails);
    extra[2] = 24;
    fails[1] = fails[3] = true;
    record((const int[RANKS]){0, 3, 2, 1, 4}, files, paths);
    assert_true(ranks_make(files, RANKS, &ranks));
    assert_int_equal(ranks.count, RANKS);
    for (size_t i = 0; i < RANKS; i++) { /* by their numbers, whatever the order of the files */
        char name[16];
        snprintf(name, sizeof name, "rank %zu", i);
        assert_string_equal(ranks.items[i].name, name);
        assert_int_equal(ranks.items[i].analysis->oom_count, fails[i] ? 1 : 0);
        assert_int_equal(ranks.items[i].analysis->at_peak.allocated, (60 + extra[i]) * MIB);
    }
    assert_int_equal(ranks.median, 60 * MIB);
    assert_int_equal(ranks.sentence_count, 2);
    assert_true(says(&ranks, 0, "Rank 3 runs out of memory first, at a request of 300 MiB"));
    assert_true(says(&ranks, 0, " before rank 1 by the clocks") && says(&ranks, 0, "2 of 5 ranks"));
    assert_true(
        says(&ranks, 1, "Rank 2 has 84.0 MiB at its peak, 24.0 MiB (40 %) more than the median"));
    assert_true(says(&ranks, 1, "\"experts\" alone has 24.0 MiB more"));

    size_t count;
    struct rank_difference *differences = ranks_differences(&ranks, ANALYSIS_BY_TAG, &count);
    assert_non_null(differences);
    assert_int_equal(count, 1);
    assert_string_equal(differences[0].label, "experts");
    assert_int_equal(differences[0].least, 0);
    assert_int_equal(differences[0].median, 0);
    assert_int_equal(differences[0].most, 24 * MIB);
    assert_int_equal(differences[0].highest, 2);
    free(differences);

    const struct report_options options = {.rows = 8, .width = 100};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_true(ranks_text_write(out, &ranks, &options));
    fclose(out);
    assert_non_null(strstr(text, "5 ranks\n"));
    assert_non_null(strstr(text, "\nrank 2            84.0 MiB    +24.0 MiB"));
    assert_non_null(strstr(text, "       0 B         0 B    24.0 MiB  rank 2          experts\n"));
    free(text);

    json_t *value = ranks_json(&ranks, 1U << ANALYSIS_BY_TAG, 8);
    assert_non_null(value);
    assert_int_equal(json_integer_value(json_object_get(
                         json_array_get(json_object_get(value, "ranks"), 2), "allocated")),
                     84 * MIB);
    assert_int_equal(json_integer_value(json_object_get(
                         json_array_get(json_object_get(value, "ranks"), 2), "capacity")),
                     256 * MIB);
    assert_int_equal(json_object_size(json_object_get(value, "differences")), 1);
    json_decref(value);
    ranks_finish(&ranks);
    forget(files, paths);
}

/* Where none ran out, the one that has least left of its device is the first that would; none
 * differs by a trifle. */
static void all_alike(void **state)
{
    (void)state;
    struct report_file files[RANKS];
    char paths[RANKS][128];
    struct ranks ranks;
    memset(extra, 0, sizeof extra);
    memset(fails, 0, sizeof fails);
    extra[4] = 2;
    record((const int[RANKS]){0, 1, 2, 3, 4}, files, paths);
    assert_true(ranks_make(files, RANKS, &ranks));
    assert_int_equal(ranks.sentence_count, 2);
    assert_true(says(&ranks, 0, "No rank ran out of memory. Rank 4 comes closest: it reserves "));
    assert_true(says(&ranks, 0, " of 256 MiB, which leaves "));
    assert_true(says(
        &ranks, 1, "All 5 ranks are alike: their peaks are within 3.3 % of the median, 60.0 MiB."));
    ranks_finish(&ranks);
    forget(files, paths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_differs_and_runs_out_first),
        cmocka_unit_test(all_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
