/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools: memory of a device that outlives processes, so that no page of a process shows it. */
#include "base/text.h"
#include "keep/keep.h"
#include "top/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 500 };

struct taker {
    struct fleet *fleet;
    bool failed;
};

static void take(void *argument, const struct keep_message *pool)
{
    struct taker *taker = argument;
    struct fleet *fleet = taker->fleet;
    struct fleet_kept *kept = realloc(fleet->kept, (fleet->kept_count + 1) * sizeof *kept);
    if (!kept) {
        taker->failed = true;
        return;
    }
    fleet->kept = kept;
    kept += fleet->kept_count++;
    *kept = (struct fleet_kept){.bytes = pool->bytes,
                                .blocks = pool->blocks,
                                .lingering = pool->from,
                                .ended = pool->to != 0,
                                .process = pool->process};
    memcpy(kept->name, pool->name, sizeof kept->name);
    memcpy(kept->device, pool->device, sizeof kept->device);
    snprintf(kept->group, sizeof kept->group, "%.63s", pool->text);
    text_make_plain(kept->name);
    text_make_plain(kept->device);
    text_make_plain(kept->group);
}

bool fleet_ask_owner(struct fleet *fleet)
{
    struct taker taker = {.fleet = fleet};
    const char *path = getenv("TARN_KEEP");
    if (!path || !*path)
        return true;
    wire_patience_ms = PATIENCE_MS;
    int owner = wire_connect(path);
    if (owner < 0)
        return true;
    (void)keep_each(owner, take, &taker);
    close(owner);
    return !taker.failed;
}
