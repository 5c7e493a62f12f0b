/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statistics on standard error when the program ends, or at tarn_shutdown() where that comes first:
 * what TARN_STATS=1 asks for. Owns whether they are wanted and were printed. The last survey is
 * made by the thread that ends the process, with no lock held. */
#include "base/bytes_text.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "base/variable.h"
#include "report/start.h"
#include "report/survey.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/host.h>

static atomic_bool wanted, printed, registered;

static struct bytes_text peak_of(const tarn_stat *stat)
{
    return bytes_text(stat->peak > 0 ? (uint64_t)stat->peak : 0);
}

static void say_class(const tarn_stats *stats, tarn_stat_class class, const char *name)
{
    const tarn_stat *blocks = &stats->allocation[class];
    if (blocks->allocated)
        log_say("stats:   %s: %lld allocated, %lld freed; at most %lld and %s at once", name,
                (long long)blocks->allocated, (long long)blocks->freed, (long long)blocks->peak,
                peak_of(&stats->allocated_bytes[class]).text);
}

/* The calls of the host device by kind; other drivers count none. */
static void say_calls(int device)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    char text[1024] = "";
    size_t length = 0;
    if (tarn_host_ledger_get(device, &ledger))
        return;
    for (int kind = 0; tarn_host_call_name(kind); kind++)
        if (ledger.calls[kind] && length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s %llu",
                                       length ? ", " : "", tarn_host_call_name(kind),
                                       (unsigned long long)ledger.calls[kind]);
    if (length)
        log_say("stats:   calls of the driver: %s", text);
}

static void say_pools(const struct survey *survey, int device)
{
    for (uint32_t i = 0; i < survey->pool_count.here; i++) {
        const struct survey_pool *pool = &survey->pools[i];
        if (pool->device == device)
            log_say("stats:   pool (%llu, %llu): reserved %s, allocated %s, waiting %s%s%s",
                    (unsigned long long)pool->id[0], (unsigned long long)pool->id[1],
                    bytes_text(pool->reserved).text, bytes_text(pool->allocated).text,
                    bytes_text(pool->waiting).text,
                    pool->flags & SURVEY_POOL_OF_GRAPHS ? ", held by graphs only"
                    : pool->flags & SURVEY_POOL_HELD    ? ", held by a graph"
                                                        : "",
                    pool->flags & SURVEY_POOL_SUSPENDED ? ", suspended" : "");
    }
}

#define POOLS_SAID 16 /* of a graph */
#define POOL_ID_TEXT sizeof "(18446744073709551615, 18446744073709551615), "

/* A sum of the rows of one graph. */
struct graph_sum {
    struct survey_graph all;
    char pools[POOLS_SAID * POOL_ID_TEXT + 32]; /* with blocks that are not gone */
    size_t length;
    unsigned pool_count;
};

static void add_row(struct graph_sum *sum, const struct survey_graph *row)
{
    sum->all.addresses += row->addresses;
    sum->all.blocks += row->blocks;
    sum->all.bytes += row->bytes;
    sum->all.gone += row->gone;
    sum->all.gone_bytes += row->gone_bytes;
    if (row->blocks > row->gone && sum->pool_count++ < POOLS_SAID)
        sum->length +=
            (size_t)snprintf(sum->pools + sum->length, sizeof sum->pools - sum->length,
                             "%s(%llu, %llu)", sum->length ? ", " : "",
                             (unsigned long long)row->pool[0], (unsigned long long)row->pool[1]);
}

/* Of graphs that are remembered (tarn/graph.h): the rows of one graph follow each other. */
static void say_graphs(const struct survey *survey)
{
    struct graph_sum sum = {.length = 0};
    for (uint32_t i = 0; i < survey->graph_count.here; i++) {
        const struct survey_graph *graph = &survey->graphs[i];
        add_row(&sum, graph);
        if (i + 1 < survey->graph_count.here && graph[1].number == graph->number)
            continue;
        if (sum.pool_count > POOLS_SAID)
            snprintf(sum.pools + sum.length, sizeof sum.pools - sum.length, " and %u more",
                     sum.pool_count - POOLS_SAID);
        log_say("stats: graph %llu: %u addresses in %llu blocks of %s, of which %llu of %s are "
                "gone; the others are of the pools %s",
                (unsigned long long)graph->number, sum.all.addresses,
                (unsigned long long)sum.all.blocks, bytes_text(sum.all.bytes).text,
                (unsigned long long)sum.all.gone, bytes_text(sum.all.gone_bytes).text,
                sum.length ? sum.pools : "none");
        sum = (struct graph_sum){.length = 0};
    }
    if (survey->graph_count.there > survey->graph_count.here)
        log_say("stats: of graphs and the pools that they refer to, the oldest %u are left out",
                survey->graph_count.there - survey->graph_count.here);
}

static void say_device(const struct survey *survey, const struct survey_device *device)
{
    const tarn_stats *stats = &device->stats;
    uint64_t reserved = (uint64_t)stats->reserved_bytes[TARN_STAT_ALL].current;
    uint64_t unused = device->spans + device->cached;
    log_say("stats: device %d (%s): peaks: requested %s, allocated %s, active %s, reserved %s",
            device->number, device->name, peak_of(&stats->requested_bytes[TARN_STAT_ALL]).text,
            peak_of(&stats->allocated_bytes[TARN_STAT_ALL]).text,
            peak_of(&stats->active_bytes[TARN_STAT_ALL]).text,
            peak_of(&stats->reserved_bytes[TARN_STAT_ALL]).text);
    log_say("stats:   now: %lld blocks of %s, reserved %s, of which %s is free (%.1f %%), the "
            "longest run %s",
            (long long)stats->allocation[TARN_STAT_ALL].current,
            bytes_text((uint64_t)stats->requested_bytes[TARN_STAT_ALL].current).text,
            bytes_text(reserved).text, bytes_text(unused).text,
            reserved ? 100 * (double)unused / (double)reserved : 0.0,
            bytes_text(device->largest_span).text);
    say_class(stats, TARN_STAT_SMALL_POOL, "blocks to 1 MiB");
    say_class(stats, TARN_STAT_LARGE_POOL, "blocks above 1 MiB");
    log_say("stats:   memory came from the driver %lld times and went back %lld times; %lld "
            "requests searched again, %lld "
            "failed",
            (long long)stats->num_device_alloc, (long long)stats->num_device_free,
            (long long)stats->num_alloc_retries, (long long)stats->num_ooms);
    say_calls(device->number);
    say_pools(survey, device->number);
    for (uint32_t i = 0; i < survey->handle_count.here; i++)
        if (survey->handles[i].device == device->number && survey->handles[i].created)
            log_say("stats:   handles of %s: %llu created, at most %llu in use",
                    survey->handles[i].name, (unsigned long long)survey->handles[i].created,
                    (unsigned long long)survey->handles[i].peak_in_use);
}

static void print(void)
{
    struct error_before before;
    if (!atomic_load(&wanted) || atomic_exchange(&printed, true))
        return;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    error_attempt_begin(&before);
    struct surveyor *surveyor = pages_map(sizeof *surveyor);
    uint32_t used = 0;
    if (surveyor) {
        survey_take(surveyor);
        const struct survey *survey = &surveyor->survey;
        for (uint32_t i = 0; i < survey->device_count.here; i++)
            if (survey->devices[i].used) {
                say_device(survey, &survey->devices[i]);
                used++;
            }
        say_graphs(survey);
        log_say("stats: the library's own host memory: %s%s",
                bytes_text((uint64_t)survey->metadata).text,
                used ? "" : "; no device's memory was used");
        pages_unmap(surveyor, sizeof *surveyor);
    }
    error_attempt_end(&before, TARN_OK);
}

static void at_exit(void)
{
    if (atomic_load(&process_state) == PROCESS_RUNS) /* a child of fork() has nothing to tell */
        print();
}

tarn_status exit_stats_begin(void)
{
    const char *text = variable_get("TARN_STATS");
    bool yes = text && strcmp(text, "1") == 0;
    if (text && !yes && strcmp(text, "0") != 0)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_STATS=%.64s must be 0 or 1", text);
    atomic_store(&printed, false);
    atomic_store(&wanted, yes);
    if (yes && !atomic_exchange(&registered, true))
        (void)atexit(at_exit); /* after the driver's own, so before them */
    return TARN_OK;
}

void exit_stats_end(void)
{
    print();
}
