/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds the first record from which a snapshot fits into a limit, by writing it without output.
 * Owns nothing; no lock is held. */
#include "report/snapshot/fit.h"
#include "base/pages.h"
#include "base/status.h"

static uint64_t length_from(fit_writer write, void *argument, struct sink *nowhere, size_t first)
{
    sink_to_nowhere(nowhere);
    write(argument, nowhere, first);
    return sink_length(nowhere);
}

tarn_status fit(fit_writer write, void *argument, size_t count, uint64_t most, size_t *first)
{
    size_t low = 0, high = count;
    *first = 0;
    if (most == TARN_NO_LIMIT)
        return TARN_OK;
    struct sink *nowhere = pages_alloc(sizeof *nowhere);
    if (!nowhere)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to measure a snapshot");
    uint64_t least = length_from(write, argument, nowhere, count);
    while (least <= most && low < high) {
        size_t middle = low + (high - low) / 2;
        if (length_from(write, argument, nowhere, middle) <= most)
            high = middle;
        else
            low = middle + 1;
    }
    pages_free(nowhere, sizeof *nowhere);
    *first = high;
    if (least > most)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "a snapshot without any record needs %llu bytes, but max_bytes is %llu",
                      (unsigned long long)least, (unsigned long long)most);
    return TARN_OK;
}
