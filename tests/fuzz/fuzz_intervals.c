/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into the reader of blocks with known lifetimes: clang
 * -fsanitize=fuzzer,address,undefined. Seeds: corpus/intervals. What does not begin with the header
 * gets one, so that the lines are met. Whatever is read must be within the bounds of the header;
 * whatever is not must name its line.
 *
 * Reader: tools/tarn/input/intervals.c fail fail_field next_line cut read_header parse read_field
 * add read_block intervals_read
 */
#include "input/intervals.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char header[] = "id,lower,upper,size\n";

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void check(const struct intervals *intervals)
{
    uint64_t sum = 0;
    demand(intervals->count > 0 && intervals->count <= intervals->capacity);
    for (size_t i = 0; i < intervals->count; i++) {
        const struct interval *interval = &intervals->items[i];
        demand(interval->lower < interval->upper && interval->size > 0);
        demand(interval->id[0] && memchr(interval->id, 0, sizeof interval->id));
        demand(!__builtin_add_overflow(sum, interval->size, &sum) && sum < UINT64_C(1) << 62);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct intervals intervals;
    char error[256];
    size_t prefix = size && (data[0] == 'i' || data[0] == 's') ? 0 : sizeof header - 1;
    char *text = malloc(prefix + size + 1);
    if (!text)
        return 0;
    memcpy(text, header, prefix);
    if (size)
        memcpy(text + prefix, data, size);
    FILE *file = prefix + size ? fmemopen(text, prefix + size, "r") : NULL;
    if (file) {
        if (intervals_read(file, &intervals, error, sizeof error))
            check(&intervals);
        else
            demand(strncmp(error, "line ", 5) == 0);
        intervals_finish(&intervals);
        fclose(file);
    }
    free(text);
    return 0;
}
