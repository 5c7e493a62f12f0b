/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random phases of a program: each fills gibibytes with blocks of about one size, and frees all. A
 * later phase, whatever its sizes, uses what an earlier one left, so that little more is reserved
 * than the largest phase requests. TARN_SEED chooses the phases. Nothing of the memory is
 * touched. */
#include "support/host.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define GIB (1024 * MIB)
#define MEMORY (80 * GIB)
#define BLOCKS ((size_t)65536)
#define ROUNDS 6
/* So many phases move less memory than the bound on moving allows (growth.c). */
#define PHASES 3

static tarn_stream own;
static void *blocks[BLOCKS];
static uint64_t state_of_random;

static uint64_t below(uint64_t n)
{
    return random_next(&state_of_random) % n;
}

/* Frees in random order: of blocks in their order, each free span would be the last one. */
static void empty(size_t count)
{
    while (count) {
        size_t i = below(count);
        OK(tarn_free(blocks[i]));
        blocks[i] = blocks[--count];
    }
}

/* Returns the bytes that the phase requested. Some of its work may end after its frees. */
static size_t phase(void)
{
    size_t total = (8 + below(4)) * GIB, most = (size_t)256 * 1024 << below(8), filled = 0;
    size_t count = 0;
    while (filled < total && count < BLOCKS) {
        size_t size = most / 2 + below(most / 2) + 1;
        blocks[count] = alloc_on(own, size);
        if (below(16) == 0)
            work_on(own, blocks[count], size, 1000);
        filled += size;
        count++;
    }
    empty(count);
    if (below(2))
        time_pass(1000);
    return filled;
}

static void a_phase_uses_what_other_phases_left(void **state)
{
    (void)state;
    const char *seed = getenv("TARN_SEED");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1;
    double worst = 0;
    for (uint64_t round = 0; round < (seed ? 1 : ROUNDS); round++) {
        size_t most = 0;
        state_of_random = (first + round) * 0x9e3779b97f4a7c15u + 1;
        for (int i = 0; i < PHASES; i++) {
            size_t filled = phase();
            most = filled > most ? filled : most;
            double part = (double)ledger_of(0).created / (double)most;
            worst = part > worst ? part : worst;
            if (part > 1.05)
                printf("seed %" PRIu64 ", phase %d: %.3f\n", first + round, i, part);
        }
        time_pass(1000);
        nothing_is_left(0);
    }
    printf("reserved at most %.3f of the largest phase\n", worst);
    CHECK(worst <= 1.05);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_phase_uses_what_other_phases_left)};
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
