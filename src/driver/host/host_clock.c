/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The virtual clock of driver time: what each call costs; nothing sleeps. This file owns the cost
 * tables. There are two, because published figures for CUDA disagree, and a third that is read from
 * a file of measurements. A charges physical memory per MiB, as a first touch of zeroed pages
 * costs, and access per call. B makes physical memory nearly independent of its size, and charges
 * access per piece. A call that a table does not name costs nothing.
 *
 * Sources: map, set_access, unmap, create of 2 MiB and reserve: kvcached's bench_vmm on an A100;
 * event record: RMM issue 448. Estimates: pinned memory, whose pages are zeroed and locked at about
 * 4 GiB/s, and only locked at 10 GiB/s; 1 us for memory from the driver's own pool and back.
 *
 * Table C is written once, before the device starts. The sums are atomic fields of the device. */
#include "base/status.h"
#include "base/variable.h"
#include "driver/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COSTS_ROOM 16384 /* bytes of a file of costs */
#define COSTS_FIELDS 4   /* kind, base, per MiB, per piece */

#define EACH(ns) .call_ns = (ns)
#define PER_MIB(ns) .mib_ns = (ns)
#define PER_PIECE(ns) .piece_ns = (ns)

/* What costs the same by both tables. */
#define COSTS_ALIKE                                                                    \
    [DRIVER_CALL_host_alloc] = {EACH(160000), PER_MIB(250000)},                        \
    [DRIVER_CALL_host_register] = {EACH(160000), PER_MIB(100000)},                     \
    [DRIVER_CALL_host_free] = {EACH(50000), PER_MIB(50000)},                           \
    [DRIVER_CALL_host_unregister] = {EACH(50000), PER_MIB(50000)},                     \
    [DRIVER_CALL_map] = {PER_PIECE(1500)}, [DRIVER_CALL_unmap] = {PER_PIECE(26000)},   \
    [DRIVER_CALL_release] = {EACH(50000)}, [DRIVER_CALL_free] = {EACH(50000)},         \
    [DRIVER_CALL_alloc_async] = {EACH(1000)}, [DRIVER_CALL_free_async] = {EACH(1000)}, \
    [DRIVER_CALL_reserve] = {EACH(19000)}, [DRIVER_CALL_event_record] = {EACH(500)},   \
    [DRIVER_CALL_event_query] = {EACH(300)}

struct host_cost host_costs[HOST_TABLES][DRIVER_CALLS] = {
    {
        [DRIVER_CALL_alloc] = {EACH(160000), PER_MIB(16000)},
        [DRIVER_CALL_create] = {EACH(160000), PER_MIB(16000)},
        [DRIVER_CALL_set_access] = {EACH(36000)},
        COSTS_ALIKE,
    },
    {
        [DRIVER_CALL_alloc] = {EACH(160000), PER_MIB(800)},
        [DRIVER_CALL_create] = {EACH(160000), PER_MIB(800)},
        [DRIVER_CALL_set_access] = {PER_PIECE(36000)},
        COSTS_ALIKE,
    },
};

/* ---- Table C ---- */

static bool costs_given; /* written before the device starts */

static tarn_status costs_wrong(const char *path, int line, const char *what, const char *text)
{
    return failed(TARN_ERROR_CONFIGURATION, "TARN_HOST_COSTS=%s: line %d: %s%s%s", path, line, what,
                  text ? ": " : "", text ? text : "");
}

static bool cost_read(const char *text, uint32_t *ns)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || value > UINT32_MAX)
        return false;
    *ns = (uint32_t)value;
    return true;
}

static int kind_named(const char *name)
{
    for (int call = 0; call < DRIVER_CALLS; call++)
        if (strcmp(driver_call_name(call), name) == 0)
            return call;
    return -1;
}

/* Parses one line, which it cuts into words. */
static tarn_status costs_read_line(const char *path, int number, char *line,
                                   struct host_cost *costs, bool *seen)
{
    char *word[COSTS_FIELDS], *rest = NULL;
    int words = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *at = strtok_r(line, " \t\r", &rest); at; at = strtok_r(NULL, " \t\r", &rest)) {
        if (words == COSTS_FIELDS)
            return costs_wrong(path, number, "more than kind, base_ns, ns_per_mib and ns_per_piece",
                               NULL);
        word[words++] = at;
    }
    if (words == 0)
        return TARN_OK;
    int call = kind_named(word[0]);
    if (call < 0)
        return costs_wrong(path, number, "there is no such kind of driver call", word[0]);
    if (words < 3)
        return costs_wrong(path, number, "kind, base_ns and ns_per_mib are needed", NULL);
    if (seen[call])
        return costs_wrong(path, number, "this kind was given before", word[0]);
    seen[call] = true;
    uint32_t *const value[COSTS_FIELDS] = {NULL, &costs[call].call_ns, &costs[call].mib_ns,
                                           &costs[call].piece_ns};
    for (int i = 1; i < words; i++)
        if (!cost_read(word[i], value[i]))
            return costs_wrong(path, number, "not a whole number of ns below 2^32", word[i]);
    return TARN_OK;
}

static tarn_status costs_read(const char *path, char *text, size_t length, struct host_cost *costs)
{
    bool seen[DRIVER_CALLS] = {false};
    int number = 1;
    if (memchr(text, '\0', length))
        return failed(TARN_ERROR_CONFIGURATION, "TARN_HOST_COSTS=%s is not a text file", path);
    for (char *line = text, *end; line; line = end, number++) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        tarn_status status = costs_read_line(path, number, line, costs, seen);
        if (status)
            return status;
    }
    return TARN_OK;
}

tarn_status host_costs_start(void)
{
    static char text[COSTS_ROOM + 1]; /* the caller holds a lock */
    const char *path = variable_get("TARN_HOST_COSTS");
    costs_given = false;
    if (!path)
        return TARN_OK;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = -1;
    while (file >= 0 && length < sizeof text &&
           (got = read(file, text + length, sizeof text - length)) > 0)
        length += (size_t)got;
    int error = errno;
    if (file >= 0)
        close(file);
    if (got < 0)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_HOST_COSTS=%s cannot be read: %s", path,
                      strerror(error));
    if (length > COSTS_ROOM)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_HOST_COSTS=%s is longer than %d bytes", path,
                      COSTS_ROOM);
    text[length] = '\0';
    struct host_cost costs[DRIVER_CALLS] = {{0}};
    tarn_status status = costs_read(path, text, length, costs);
    if (status)
        return status;
    memcpy(host_costs[2], costs, sizeof costs);
    costs_given = true;
    return TARN_OK;
}

tarn_status tarn_host_cost_get(char table, int kind, size_t bytes, uint64_t pieces, uint64_t *ns)
{
    struct host_device *device;
    if (table < 'A' || table > 'C' || kind < 0 || kind >= DRIVER_CALLS || !ns)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "tarn_host_cost_get: no such table or kind, or ns is NULL");
    tarn_status status = host_use(0, &device);
    if (status)
        return status;
    if (table == 'C' && !costs_given)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "there is no cost table C: TARN_HOST_COSTS names no file");
    *ns = host_cost(table - 'A', (enum driver_call)kind, bytes, pieces);
    return TARN_OK;
}

void host_charge_wait(struct host_device *device, uint64_t ns)
{
    if (ns == 0)
        return;
    for (int table = 0; table < HOST_TABLES; table++)
        atomic_fetch_add_explicit(&device->time[table], ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&device->waited, ns, memory_order_relaxed);
}
