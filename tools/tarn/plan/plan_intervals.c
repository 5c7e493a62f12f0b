/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plans files of blocks with known lifetimes. */
#include "plan/plan_intervals.h"
#include "input/intervals.h"
#include "json_print.h"
#include "name.h"
#include "plain_output.h"
#include "plan/packing.h"
#include "report/sink.h"
#include "units.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EFFORT UINT64_C(100000000) /* steps of the first placement: a part of a second */

struct instance {
    const struct plan_intervals_options *options;
    struct intervals intervals;
    struct packing_block *blocks; /* by rising start */
    uint32_t *places;             /* by interval: its block */
    struct packing_result result;
    double seconds;
};

static bool complain(const struct instance *instance, const char *error)
{
    fprintf(stderr, "tarn plan: %s: %s\n", instance->options->path, error);
    return false;
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static uint32_t moment_of(const uint64_t *moments, size_t count, uint64_t value)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (moments[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* Sorts by start, stably, and numbers the moments that matter. `begins` has room for one more than
 * there are moments. */
static void number_moments(struct instance *instance, uint64_t *moments, uint32_t *begins)
{
    const struct intervals *intervals = &instance->intervals;
    size_t count = 0, sorted = 2 * intervals->count;
    for (size_t i = 0; i < intervals->count; i++) {
        moments[2 * i] = intervals->items[i].lower;
        moments[2 * i + 1] = intervals->items[i].upper;
    }
    qsort(moments, sorted, sizeof *moments, by_value);
    for (size_t i = 0; i < sorted; i++)
        if (!count || moments[count - 1] != moments[i])
            moments[count++] = moments[i];
    for (size_t i = 0; i < intervals->count; i++)
        begins[moment_of(moments, count, intervals->items[i].lower) + 1]++;
    for (size_t i = 0; i < count; i++)
        begins[i + 1] += begins[i];
    for (size_t i = 0; i < intervals->count; i++) {
        const struct interval *interval = &intervals->items[i];
        uint32_t start = moment_of(moments, count, interval->lower);
        instance->places[i] = begins[start]++;
        instance->blocks[instance->places[i]] =
            (struct packing_block){.size = interval->size,
                                   .start = start,
                                   .end = moment_of(moments, count, interval->upper)};
    }
}

static bool solve(struct instance *instance)
{
    const struct plan_intervals_options *options = instance->options;
    size_t count = instance->intervals.count;
    uint64_t *moments = calloc(2 * count, sizeof *moments);
    uint32_t *begins = calloc(2 * count + 1, sizeof *begins);
    instance->blocks = calloc(count, sizeof *instance->blocks);
    instance->places = calloc(count, sizeof *instance->places);
    bool done = moments && begins && instance->blocks && instance->places;
    const struct packing_limits limits = {
        .steps = options->steps, .seconds = options->seconds, .show = plain_output_moves()};
    clock_t begun = clock();
    if (done) {
        number_moments(instance, moments, begins);
        done = packing_solve(instance->blocks, count, EFFORT, &instance->result) &&
               packing_improve(instance->blocks, count, &limits, &instance->result);
    }
    instance->seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    free(moments);
    free(begins);
    return done || complain(instance, "there is not enough host memory");
}

static bool write_output(const struct instance *instance)
{
    struct sink sink;
    tarn_status status = sink_to_file(&sink, instance->options->output, 0666);
    if (!status) {
        sink_print(&sink, "id,lower,upper,size,offset\n");
        for (size_t i = 0; i < instance->intervals.count; i++) {
            const struct interval *interval = &instance->intervals.items[i];
            sink_print(&sink, "%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", interval->id,
                       interval->lower, interval->upper, interval->size,
                       instance->blocks[instance->places[i]].offset);
        }
        status = sink_end(&sink, false);
    }
    return !status || complain(instance, tarn_last_error());
}

static bool print_json(const struct instance *instance)
{
    const struct packing_result *result = &instance->result;
    const char *output = instance->options->output;
    const struct name_text written = name_valid(output ? output : "");
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s?}", "file",
                  name_valid(instance->options->path).text, "blocks",
                  (json_int_t)instance->intervals.count, "bound", (json_int_t)result->bound,
                  "proved", (json_int_t)result->proved, "height", (json_int_t)result->height,
                  "tries", (json_int_t)result->tries, "steps", (json_int_t)result->steps, "seconds",
                  instance->seconds, "output", output ? written.text : NULL);
    bool done = json_print(object, stdout);
    json_decref(object);
    return done || complain(instance, "the result could not be written");
}

static bool print_table(const struct instance *instance)
{
    const struct packing_result *result = &instance->result;
    const char *path = instance->options->path, *slash = strrchr(path, '/');
    printf("%s: %s block%s\n", slash ? slash + 1 : path,
           units_count(instance->intervals.count).text, instance->intervals.count == 1 ? "" : "s");
    printf("  height      %22s  %.4f of the bound%s\n", units_count(result->height).text,
           (double)result->height / (double)result->bound,
           result->height <= result->proved ? "; no placement is lower" : "");
    printf("  lower bound %22s  the most that lives at one moment\n",
           units_count(result->bound).text);
    if (result->proved > result->bound)
        printf("  proved      %22s  no placement is lower\n", units_count(result->proved).text);
    printf("  %s tries, %s steps, %.2f s of processor time\n", units_count(result->tries).text,
           units_count(result->steps).text, instance->seconds);
    if (instance->options->output)
        printf("  written: %s\n", instance->options->output);
    return !ferror(stdout);
}

bool plan_intervals(const struct plan_intervals_options *options)
{
    struct instance instance = {.options = options};
    char error[256];
    FILE *file = intervals_open(options->path);
    bool done = file && intervals_read(file, &instance.intervals, error, sizeof error);
    if (!done)
        complain(&instance, file ? error : strerror(errno));
    if (file)
        fclose(file);
    done = done && solve(&instance) && (!options->output || write_output(&instance));
    done = done && (options->json ? print_json(&instance) : print_table(&instance));
    free(instance.blocks);
    free(instance.places);
    intervals_finish(&instance.intervals);
    return done;
}
