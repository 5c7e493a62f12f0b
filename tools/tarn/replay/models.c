/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The models of PyTorch's policies beside a replay: their settings, and the cost of their driver
 * calls by the tables that also apply to tarn. Owns nothing. */
#include "replay/replay.h"

#include <stdio.h>
#include <string.h>
#include <tarn/host.h>

static int call_kind(enum c10_call call)
{
    int kind = 0;
    while (tarn_host_call_name(kind) && strcmp(tarn_host_call_name(kind), c10_call_name(call)) != 0)
        kind++;
    return kind;
}

/* The cost of all calls of a kind by a table. It is linear in calls, bytes and pieces. */
static bool charge(char table, enum c10_call call, const struct c10_cost *cost, uint64_t *time)
{
    int kind = call_kind(call);
    uint64_t each, whole;
    if (tarn_host_cost_get(table, kind, 0, 0, &each) ||
        tarn_host_cost_get(table, kind, cost->bytes, cost->pieces, &whole))
        return false;
    *time += cost->calls * each + (whole - each);
    return true;
}

bool replay_run_model(const struct replay_options *options, const struct workload *workload,
                      uint64_t memory, enum replay_policy policy, struct replay_result *result)
{
    struct replay_model *model = &result->models[policy];
    const struct c10_policy settings = replay_policy_settings(options, policy);
    if (!c10_run(workload, &settings, memory, &model->run)) {
        snprintf(result->error, sizeof result->error, "out of host memory");
        return false;
    }
    model->time_a_ns = model->time_b_ns = model->time_c_ns = 0;
    result->has_table_c = true;
    for (int call = 0; call < C10_CALLS; call++) {
        const struct c10_cost *cost = &model->run.cost[call];
        (void)charge('A', (enum c10_call)call, cost, &model->time_a_ns);
        (void)charge('B', (enum c10_call)call, cost, &model->time_b_ns);
        result->has_table_c =
            charge('C', (enum c10_call)call, cost, &model->time_c_ns) && result->has_table_c;
    }
    return true;
}

bool replay_run_alone(const struct replay_options *options, const struct workload *workload,
                      uint64_t memory, struct replay_result *result)
{
    replay_describe(options, workload, result);
    if (!replay_run_model(options, workload, memory, options->policy, result))
        return false;
    const struct c10_result *run = &result->models[options->policy].run;
    result->peak_reserved = run->peak_reserved;
    result->wasted = run->wasted;
    result->ooms_tried = run->tried;
    result->ooms_here = run->denied;
    result->shortage = (struct replay_shortage){.there = run->ooms || run->denied,
                                                .before = run->first_oom == UINT32_MAX,
                                                .event = run->first_oom,
                                                .size = run->first_oom_size};
    return true;
}
