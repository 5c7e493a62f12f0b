/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Not a part of the model's other files, whose names clash with those of heap.h. */
#include "memory/plan/plan.h"

uint64_t requests_planned(void);

uint64_t requests_planned(void)
{
    return plan_counts().planned;
}
