/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the sums of workspaces, by device. */
#include "base/sized.h"
#include "base/status.h"
#include "handle/handle.h"
#include "memory/settings/config.h"

static mutex stats_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static tarn_workspace_stats stats[TARN_MAX_DEVICES]; /* stats_lock */

void workspace_count_made(const struct workspace *workspace)
{
    mutex_lock(&stats_lock);
    tarn_workspace_stats *of = &stats[workspace->device];
    of->count++;
    of->allocations++;
    of->bytes += workspace->size;
    if (of->bytes > of->peak_bytes)
        of->peak_bytes = of->bytes;
    if (workspace->capture) {
        of->captured_count++;
        of->captured_bytes += workspace->size;
    }
    if (of->bytes - of->captured_bytes > memory_config()->idle_workspaces)
        workspaces_may_exceed(workspace->device);
    mutex_unlock(&stats_lock);
}

void workspace_count_gone(const struct workspace *workspace, bool leaked)
{
    mutex_lock(&stats_lock);
    tarn_workspace_stats *of = &stats[workspace->device];
    of->count--;
    of->bytes -= workspace->size;
    if (workspace->capture) {
        of->captured_count--;
        of->captured_bytes -= workspace->size;
    }
    if (workspace->cleared)
        of->deferred_bytes -= workspace->size;
    if (leaked)
        of->leaked_bytes += workspace->size;
    mutex_unlock(&stats_lock);
}

void workspace_count_deferred(const struct workspace *workspace)
{
    mutex_lock(&stats_lock);
    stats[workspace->device].deferred_bytes += workspace->size;
    mutex_unlock(&stats_lock);
}

bool workspaces_any_captured(void)
{
    uint64_t count = 0;
    mutex_lock(&stats_lock);
    for (int device = 0; device < device_count(); device++)
        count += stats[device].captured_count;
    mutex_unlock(&stats_lock);
    return count != 0;
}

void workspaces_sum(int device, size_t *bytes, size_t *captured)
{
    mutex_lock(&stats_lock);
    *bytes = stats[device].bytes;
    *captured = stats[device].captured_bytes;
    mutex_unlock(&stats_lock);
}

tarn_status tarn_workspace_stats_get(int device, tarn_workspace_stats *result)
{
    struct device *found = NULL;
    tarn_status status = sized_check("tarn_workspace_stats", result, sizeof *result);
    if (!status)
        status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;
    (void)workspaces_collect();
    mutex_lock(&stats_lock);
    tarn_workspace_stats now = stats[device];
    mutex_unlock(&stats_lock);
    sized_write(result, &now, sizeof now);
    return TARN_OK;
}
