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

/* Made for each kind of peer, touched and untouched, so that the loop decides nothing but what the
 * sequence says. */
static inline __attribute__((always_inline)) void steps_run(const struct peer *peer,
                                                            const struct sequence *sequence,
                                                            void **slots, bool touch, bool checked)
{
    void *(*alloc)(size_t size) = peer->alloc;
    void (*plain)(void *block) = peer->free;
    tarn_status (*free_checked)(void *block) = peer->free_checked;
    const struct step *end = sequence->steps + sequence->count;
    for (const struct step *step = sequence->steps; step < end; step++) {
        void **slot = &slots[step->slot], *block = *slot;
        if (block) {
            *slot = NULL;
            if (!checked)
                plain(block);
            else if (free_checked(block) != TARN_OK)
                die(peer->name, "a free failed");
            continue;
        }
        *slot = block = alloc(step->size);
        if (!block)
            die(peer->name, "no memory");
        if (touch)
            memset(block, 1, step->size < TOUCHED ? step->size : TOUCHED);
    }
}

double sequence_run(const struct peer *peer, const struct sequence *sequence, void **slots,
                    bool touch, clockid_t clock)
{
    double start = clock_ns(clock);
    if (peer->free_checked && touch)
        steps_run(peer, sequence, slots, true, true);
    else if (peer->free_checked)
        steps_run(peer, sequence, slots, false, true);
    else if (touch)
        steps_run(peer, sequence, slots, true, false);
    else
        steps_run(peer, sequence, slots, false, false);
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
