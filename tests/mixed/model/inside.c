/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is only known, or done, inside of the library. Not a part of the model's other files, whose
 * names clash with those of heap.h. */
#include "memory/plan/plan.h"
#include "memory/pressure/release.h"

uint64_t requests_planned(void);
void idle_pass(uint64_t ns);

uint64_t requests_planned(void)
{
    return plan_counts().planned;
}

/* One of the thread of idle_release, so much later than the one before. */
void idle_pass(uint64_t ns)
{
    static uint64_t time = UINT64_C(1) << 62;
    release_pass(time += ns);
}
