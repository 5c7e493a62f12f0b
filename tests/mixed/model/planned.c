/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Apart from the model, whose names for things are those of heap.h too. */
#include "memory/plan/plan.h"

uint64_t requests_planned(void);

uint64_t requests_planned(void)
{
    return plan_counts().planned;
}
