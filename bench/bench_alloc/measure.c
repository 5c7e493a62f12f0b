/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "measure.h"

#include <stdlib.h>
#include <string.h>

void **slots_make(const struct sequence *sequence)
{
    void **slots = calloc(sequence->slots + 1, sizeof *slots);
    if (!slots)
        die("calloc", "no memory for slots");
    return slots;
}

double sequence_run(const struct peer *peer, const struct sequence *sequence, void **slots, bool touch, clockid_t clock)
{
    const struct peer callee = *peer; /* in registers, not loaded anew for each call */
    double start = clock_ns(clock);
    for (size_t i = 0; i < sequence->count; i++) {
        const struct step *step = &sequence->steps[i];
        void **slot = &slots[step->slot];
        if (*slot) {
            peer_free(&callee, *slot);
            *slot = NULL;
            continue;
        }
        *slot = callee.alloc(step->size);
        if (!*slot)
            die(peer->name, "no memory");
        if (touch)
            memset(*slot, 1, step->size < TOUCHED ? step->size : TOUCHED);
    }
    double end = clock_ns(clock);
    for (size_t i = 0; i < sequence->slots; i++) {
        if (slots[i])
            peer_free(peer, slots[i]);
        slots[i] = NULL;
    }
    return 2 * (end - start) / (double)sequence->count;
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

void sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
}

double median(double *values, size_t count)
{
    sort(values, count);
    return values[count / 2];
}

double percentile(const double *sorted, size_t count, double part)
{
    size_t place = (size_t)(part * (double)count);
    return sorted[place < count ? place : count - 1];
}
