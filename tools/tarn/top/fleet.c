/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Joins the surveys of processes by device. Nothing that a page says is trusted: sizes are added
 * without a wrap, and a device that two processes describe differently is as the newest reading
 * says. */
#include "top/fleet.h"

#include <stdlib.h>
#include <string.h>

const struct fleet_order_name fleet_orders[FLEET_ORDERS] = {
    [FLEET_BY_RESERVED] = {"reserved", 'r'}, [FLEET_BY_ALLOCATED] = {"allocated", 'a'},
    [FLEET_BY_PEAK] = {"peak", 'k'},         [FLEET_BY_RATE] = {"rate", 't'},
    [FLEET_BY_NAME] = {"name", 'n'},         [FLEET_BY_PROCESS] = {"process", 'p'},
    [FLEET_BY_AGE] = {"age", 'g'},
};

static uint64_t positive(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Devices -------------------------------------------------------------------------------------- */

static struct fleet_device *device_find(struct fleet *fleet, const struct survey_device *of)
{
    for (size_t i = 0; i < fleet->device_count && of->uuid[0]; i++)
        if (strcmp(fleet->devices[i].uuid, of->uuid) == 0)
            return &fleet->devices[i];
    struct fleet_device *devices =
        realloc(fleet->devices, (fleet->device_count + 1) * sizeof *devices);
    if (!devices)
        return NULL;
    fleet->devices = devices;
    struct fleet_device *device = &devices[fleet->device_count++];
    *device =
        (struct fleet_device){.used = SURVEY_UNKNOWN, .rest = SURVEY_UNKNOWN, .total = of->total};
    memcpy(device->uuid, of->uuid, sizeof device->uuid);
    memcpy(device->pci, of->pci, sizeof device->pci);
    memcpy(device->name, of->name, sizeof device->name);
    return device;
}

/* What the newest reading says is free. */
static void device_learn(struct fleet_device *device, const struct survey_device *of,
                         uint64_t taken_ns)
{
    if (of->free == SURVEY_UNKNOWN || taken_ns < device->said_ns)
        return;
    device->said_ns = taken_ns;
    device->total = of->total;
    device->used = of->total > of->free ? of->total - of->free : 0;
}

/* The bytes that the listed processes have by NVML, less what tarn has for them. If NVML knows a
 * process by another number, because it is in another PID namespace, its bytes count as those of
 * others. */
static uint64_t rest_of(const struct fleet *fleet, size_t device,
                        const struct fleet_monitor *monitor)
{
    uint64_t rest = 0;
    bool known = false;
    for (size_t i = 0; i < fleet->share_count; i++) {
        const struct fleet_share *share = &fleet->shares[i];
        if (!share->of || share->device != device)
            continue;
        for (size_t j = 0; j < monitor->count; j++) {
            if (monitor->processes[j].number != fleet->list->entries[share->entry].head.pid ||
                monitor->processes[j].bytes == SURVEY_UNKNOWN)
                continue;
            known = true;
            if (monitor->processes[j].bytes > share->reserved)
                rest = sum(rest, monitor->processes[j].bytes - share->reserved);
        }
    }
    return known ? rest : SURVEY_UNKNOWN;
}

static void devices_ask_monitor(struct fleet *fleet, struct fleet_monitor *monitor)
{
    for (size_t i = 0; i < fleet->device_count; i++) {
        struct fleet_device *device = &fleet->devices[i];
        if (!fleet_monitor_read(device->uuid, device->pci, monitor))
            continue;
        device->monitored = true;
        device->total = monitor->total;
        device->used = monitor->used;
        device->rest = rest_of(fleet, i, monitor);
    }
}

/* Shares --------------------------------------------------------------------------------------- */

static struct fleet_share *share_add(struct fleet *fleet, size_t entry)
{
    struct fleet_share *shares = realloc(fleet->shares, (fleet->share_count + 1) * sizeof *shares);
    if (!shares)
        return NULL;
    fleet->shares = shares;
    shares[fleet->share_count] = (struct fleet_share){.entry = entry, .rate = -1};
    return &shares[fleet->share_count++];
}

/* The same process's share of the same device when it was looked at before. */
static const struct fleet_share *share_before(const struct fleet *before,
                                              const struct top_entry *entry,
                                              const struct survey_device *of)
{
    for (size_t i = 0; before && i < before->share_count; i++) {
        const struct fleet_share *share = &before->shares[i];
        const struct top_entry *old = &before->list->entries[share->entry];
        if (share->of && share->of->number == of->number && strcmp(old->path, entry->path) == 0 &&
            old->head.started == entry->head.started && old->head.pid == entry->head.pid)
            return share;
    }
    return NULL;
}

static void share_continue(const struct fleet *before, const struct top_entry *entry,
                           struct fleet_share *share)
{
    enum { MOST = sizeof share->history / sizeof *share->history };
    const struct fleet_share *old = share_before(before, entry, share->of);
    if (old) {
        int from = old->samples == MOST;
        share->samples = old->samples - from;
        memcpy(share->history, old->history + from,
               (size_t)share->samples * sizeof *share->history);
        struct top_rates rates =
            top_rates_of(before->list->entries[old->entry].reading, entry->reading, share->of);
        share->rate = rates.known ? rates.allocations : old->rate;
    }
    share->history[share->samples++] = share->reserved;
}

static bool take_device(struct fleet *fleet, size_t entry, const struct survey_device *of,
                        const struct fleet *before)
{
    const struct top_entry *process = &fleet->list->entries[entry];
    struct fleet_device *device = device_find(fleet, of);
    struct fleet_share *share = device ? share_add(fleet, entry) : NULL;
    if (!share)
        return false;
    share->of = of;
    share->device = (size_t)(device - fleet->devices);
    share->reserved = positive(of->stats.reserved_bytes[TARN_STAT_ALL].current);
    share->allocated = positive(of->stats.allocated_bytes[TARN_STAT_ALL].current);
    share->peak = positive(of->stats.reserved_bytes[TARN_STAT_ALL].peak);
    device->reserved = sum(device->reserved, share->reserved);
    device_learn(device, of, process->reading->survey.taken_ns);
    share_continue(before, process, share);
    return true;
}

static bool take_entry(struct fleet *fleet, size_t number, const struct fleet *before)
{
    const struct top_entry *entry = &fleet->list->entries[number];
    bool done = true, any = false;
    if (entry->foreign)
        return true;
    for (uint32_t i = 0; entry->reading && i < entry->reading->survey.device_count.here && done;
         i++) {
        if (!entry->reading->survey.devices[i].used)
            continue;
        done = take_device(fleet, number, &entry->reading->survey.devices[i], before);
        any = true;
    }
    return done && (any || share_add(fleet, number));
}

/* Order ---------------------------------------------------------------------------------------- */

struct order {
    const struct fleet *fleet;
    enum fleet_order by;
};

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_shares(const void *a, const void *b, void *argument)
{
    const struct order *order = argument;
    const struct fleet_share *x = a, *y = b;
    const struct top_entry *of_x = &order->fleet->list->entries[x->entry],
                           *of_y = &order->fleet->list->entries[y->entry];
    int result = 0;
    switch (order->by) {
    case FLEET_BY_RESERVED:
        result = compare(y->reserved, x->reserved);
        break;
    case FLEET_BY_ALLOCATED:
        result = compare(y->allocated, x->allocated);
        break;
    case FLEET_BY_PEAK:
        result = compare(y->peak, x->peak);
        break;
    case FLEET_BY_RATE:
        result = (y->rate > x->rate) - (y->rate < x->rate);
        break;
    case FLEET_BY_NAME:
        result = strcmp(of_x->head.name, of_y->head.name);
        break;
    case FLEET_BY_AGE:
        result = compare(of_x->head.started, of_y->head.started);
        break;
    case FLEET_BY_PROCESS:
    case FLEET_ORDERS:
        break;
    }
    result = result ? result : compare(of_x->head.pid, of_y->head.pid);
    result = result ? result : compare(x->entry, y->entry);
    return result ? result : compare(x->device, y->device);
}

bool fleet_make(const struct top_list *list, const struct fleet *before, enum fleet_order order,
                struct fleet *fleet)
{
    struct fleet_monitor *monitor = malloc(sizeof *monitor);
    *fleet = (struct fleet){.list = list};
    bool done = monitor != NULL;
    for (size_t i = 0; i < list->count && done; i++)
        done = take_entry(fleet, i, before);
    if (done)
        devices_ask_monitor(fleet, monitor);
    done = done && fleet_ask_owner(fleet);
    if (done && fleet->share_count)
        qsort_r(fleet->shares, fleet->share_count, sizeof *fleet->shares, compare_shares,
                &(struct order){.fleet = fleet, .by = order});
    free(monitor);
    return done;
}

void fleet_finish(struct fleet *fleet)
{
    free(fleet->devices);
    free(fleet->shares);
    free(fleet->kept);
    *fleet = (struct fleet){0};
}

double fleet_part(const struct fleet *fleet, const struct fleet_share *share)
{
    if (!share->of || !fleet->devices[share->device].total)
        return 0;
    double part = (double)share->reserved / (double)fleet->devices[share->device].total;
    return part < 1 ? part : 1;
}

const char *fleet_device_name(const struct fleet_device *device)
{
    if (device->pci[0] && strncmp(device->uuid, "MIG", 3) != 0)
        return device->pci;
    return device->uuid[0] ? device->uuid : device->name;
}
