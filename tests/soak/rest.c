/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the process has while nothing is in use, and whether that grows. */
#include "chores.h"

#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRACED_THREADS 65535
#define TRACED_THREAD_BYTES 32

static int64_t count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    int64_t lines = 0;
    for (int c; file && (c = getc(file)) != EOF;)
        lines += c == '\n';
    if (file)
        fclose(file);
    return lines;
}

static int64_t count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int64_t entries = 0;
    while (folder && readdir(folder))
        entries++;
    if (folder)
        closedir(folder);
    return entries;
}

static int64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    char line[128] = "", *second = NULL;
    if (file && fgets(line, sizeof line, file))
        second = strchr(line, ' '); /* the first is all that is mapped */
    if (file)
        fclose(file);
    return second ? (int64_t)strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
}

static void demand(const char *what, tarn_status status)
{
    if (status)
        wrong("%s, while nothing is in use: %s", what, tarn_last_error());
}

struct rest rest_look(void)
{
    struct rest rest = {0};
#ifdef __GLIBC__
    malloc_trim(0); /* who looks up symbols leaves some MiB behind in an arena of the C library */
#endif
    for (int device = 0; device < DEVICES; device++) {
        demand("tarn_device_synchronize", tarn_device_synchronize(device));
        demand("tarn_device_trim", tarn_device_trim(device, 0));
    }
    demand("tarn_pinned_trim", tarn_pinned_trim(0));
    for (int device = 0; device < DEVICES; device++) {
        tarn_host_ledger ledger = {.size = sizeof ledger};
        tarn_stats stats = {.size = sizeof stats};
        demand("tarn_host_ledger_get", tarn_host_ledger_get(device, &ledger));
        demand("tarn_device_stats_get", tarn_device_stats_get(device, &stats));
        rest.metadata = stats.metadata_bytes;
        rest.reserved += (int64_t)ledger.created + stats.reserved_bytes[TARN_STAT_ALL].current;
        rest.mapped += (int64_t)ledger.mappings + stats.active[TARN_STAT_ALL].current;
        rest.pinned += (int64_t)ledger.pinned_bytes;
        rest.events += (int64_t)ledger.events;
        rest.streams += (int64_t)ledger.streams;
        rest.graphs = (int64_t)ledger.graphs;
    }
    kinds_look(&rest.kinds);
    rest.pages = kinds_find(&rest.kinds, "page").bytes;
    rest.leaves = kinds_find(&rest.kinds, "leaf of the page map").bytes;
    rest.mappings = count_lines("/proc/self/maps");
    rest.files = count_entries("/proc/self/fd");
    rest.resident = resident_bytes();
    return rest;
}

void rest_check(const struct rest *rest)
{
    kinds_check(&rest->kinds, rest->graphs);
    if (rest->reserved || rest->mapped || rest->pinned || rest->graphs > graphs_orphaned())
        wrong("all was freed and trimmed, and there are %" PRId64 " bytes reserved, %" PRId64
              " mappings or active blocks, %" PRId64 " bytes pinned and %" PRId64 " graphs",
              rest->reserved, rest->mapped, rest->pinned, rest->graphs);
    if (rest->pinned) {
        tarn_pinned_stats stats = {.size = sizeof stats};
        (void)tarn_pinned_stats_get(&stats);
        wrong("of the pinned bytes tarn has %" PRId64 ", %" PRId64 " of them active, %" PRId64
              " pending, %" PRId64 " kept",
              stats.allocated_bytes.current, stats.active_bytes.current, stats.pending_bytes,
              stats.graph_bytes);
    }
    handles_check();
    if (segments_of_allocators() != 0)
        wrong("%" PRId64 " segments were not given back to the allocator of their pool",
              segments_of_allocators());
}

/* X(field, bound): what may be there beside a sixteenth more than after the first windows.
 *   metadata   what is kept of each kind is the most that there ever was, between two looks too;
 *              kinds_check() finds a leak
 *   pages      tables of heaps by thread and by pool, which double; chunks of 64 KiB of the trace's
 *              names of stacks and regions
 *   leaves     one for each 2 GiB of addresses, and which those are the system says
 *   resident   the C library keeps stacks of threads that ended */
#define REST_LIST(X)                                         \
    X(metadata, first->metadata / 2)                         \
    X(pages, 512 * 1024 + 16 * 1024 * worker_count)          \
    X(leaves, 8 * 256 * 1024)                                \
    X(resident, 8 * 1024 * 1024 + 256 * 1024 * worker_count) \
    X(mappings, 64 + 4 * worker_count)                       \
    X(files, 4)                                              \
    X(events, 256)                                           \
    X(streams, 16)

void rest_most(struct rest *most, const struct rest *rest)
{
#define MOST(field, bound)         \
    if (rest->field > most->field) \
        most->field = rest->field;
    REST_LIST(MOST)
#undef MOST
    most->kinds = rest->kinds;
}

void rest_compare(const struct rest *first, struct rest last, uint64_t threads)
{
    /* The names of threads that were in a trace are kept, as far as those have numbers. */
    last.pages -=
        (int64_t)(threads < TRACED_THREADS ? threads : TRACED_THREADS) * TRACED_THREAD_BYTES;
#define COMPARE(field, bound)                                                                    \
    if (last.field > first->field + first->field / 16 + (bound))                                 \
        wrong(#field " grew from %" PRId64 " after the first windows to %" PRId64, first->field, \
              last.field);
    REST_LIST(COMPARE)
#undef COMPARE
}
