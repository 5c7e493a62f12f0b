/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The host device's configuration, its devices, the way into a call, and the failures that tests
 * ask for. Owns `host`, whose configuration changes only under `configuration.lock` while no device
 * is started. */
#include "driver/host/host.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/lock.h"
#include "base/thread/process.h"
#include "base/variable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_MEMORY ((size_t)16 << 30)
#define DEFAULT_MAP_COUNT 65530 /* Linux's default, if vm.max_map_count cannot be read */
#define MAPS_RESERVE 4096 /* mappings for the rest of the process, and for giving memory back */

_Static_assert((int)DRIVER_CALLS <= TARN_HOST_MAX_KINDS,
               "the ledger has a counter for each kind of call");

struct host host;

static struct {
    mutex lock;
    tarn_host_configuration wanted; /* zero: the environment decides */
} configuration = {.lock = MUTEX_INITIALIZER(LOCK_HOST_CONFIGURATION)};

static struct {
    mutex lock;
    int kind; /* -1: any kind */
    uint64_t left;
    bool forever;
    tarn_status status;
    uint64_t calls, hits;
    struct {
        int kind;
        unsigned one_in; /* 0: no failures */
        uint64_t state;
        tarn_status status;
    } random;
} injection = {.lock = MUTEX_INITIALIZER(LOCK_LEAF)};

/* ---- Configuration ---- */

/* A number above 0, with an optional K, M, G or T if `units`. False: malformed, or too large. */
static bool parse_number(const char *text, bool units, size_t *number)
{
    size_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (size_t)(*at - '0'), &value))
            return false;
    if (at == text || value == 0)
        return false;
    if (units && *at) {
        static const char names[] = "KMGT";
        const char *unit = strchr(names, *at);
        if (!unit)
            return false;
        size_t factor = (size_t)1 << (10 * (unit - names + 1));
        if (__builtin_mul_overflow(value, factor, &value))
            return false;
        at++;
    }
    if (*at)
        return false;
    *number = value;
    return true;
}

/* The number in a variable that is set and not empty; otherwise `*number` stays. */
static tarn_status read_variable(const char *name, bool units, size_t *number)
{
    const char *text = variable_get(name);
    if (!text || parse_number(text, units, number))
        return TARN_OK;
    return failed(TARN_ERROR_CONFIGURATION, "%s=%s is not a number above 0%s", name, text,
                  units ? " of bytes, with an optional K, M, G or T" : "");
}

static size_t max_map_count(void)
{
    char text[32] = "";
    int file = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t got = read(file, text, sizeof text - 1);
        text[got > 0 ? got : 0] = '\0';
        close(file);
    }
    size_t count = (size_t)strtoull(text, NULL, 10);
    return count ? count : DEFAULT_MAP_COUNT;
}

static tarn_status choose_devices(size_t *devices)
{
    *devices = (size_t)configuration.wanted.devices;
    if (*devices)
        return TARN_OK;
    *devices = 1;
    tarn_status status = read_variable("TARN_HOST_DEVICES", false, devices);
    if (!status && *devices > TARN_MAX_DEVICES)
        status = failed(TARN_ERROR_CONFIGURATION, "TARN_HOST_DEVICES=%s is more than %d",
                        variable_get("TARN_HOST_DEVICES"), TARN_MAX_DEVICES);
    return status;
}

static tarn_status choose_memory(size_t *memory)
{
    *memory = configuration.wanted.memory;
    if (*memory)
        return TARN_OK;
    *memory = DEFAULT_MEMORY;
    tarn_status status = read_variable("TARN_HOST_MEMORY", true, memory);
    if (!status && (*memory % HOST_GRANULE || *memory > SIZE_MAX / 4))
        status = failed(TARN_ERROR_CONFIGURATION,
                        "TARN_HOST_MEMORY=%s is not a multiple of 2 MiB that a device can have",
                        variable_get("TARN_HOST_MEMORY"));
    return status;
}

static tarn_status choose_maps(size_t *maps, const char **from)
{
    *maps = configuration.wanted.maps;
    *from = "tarn_host_configuration_set()";
    if (*maps)
        return TARN_OK;
    *from = "TARN_HOST_MAPS";
    tarn_status status = read_variable("TARN_HOST_MAPS", false, maps);
    if (status || *maps)
        return status;
    size_t count = max_map_count();
    *from = "vm.max_map_count, less 4096 that are kept for the rest of the process";
    *maps = count > 2 * MAPS_RESERVE ? count - MAPS_RESERVE : count / 2;
    return TARN_OK;
}

static tarn_status start_locked(void)
{
    size_t devices = 0, memory = 0, maps = 0;
    const char *maps_from = NULL;
    tarn_status status = choose_devices(&devices);
    if (!status)
        status = choose_memory(&memory);
    if (!status)
        status = choose_maps(&maps, &maps_from);
    if (!status)
        status = host_peers_start();
    if (!status)
        status = host_costs_start();
    if (status)
        return status;

    memset(host.device, 0, sizeof host.device);
    for (size_t i = 0; i < devices; i++) {
        struct host_device *device = &host.device[i];
        device->number = (int)i;
        device->memory = memory;
        device->file = -1;
    }
    host.maps = maps;
    host.maps_from = maps_from;
    status = host_streams_start();
    if (!status)
        atomic_store(&host.devices, (int)devices);
    return status;
}

tarn_status host_start(void)
{
    mutex_lock(&configuration.lock);
    tarn_status status = atomic_load(&host.devices) ? TARN_OK : start_locked();
    mutex_unlock(&configuration.lock);
    return status;
}

bool host_configured(void)
{
    mutex_lock(&configuration.lock);
    bool asked = configuration.wanted.size != 0;
    mutex_unlock(&configuration.lock);
    return asked;
}

/* From the number alone: processes that simulate equally many devices shall have the same ones. */
void host_identity(int device, struct driver_identity *identity)
{
    *identity = (struct driver_identity){.uuid = ""};
    snprintf(identity->uuid, sizeof identity->uuid, "HOST-%d", device);
}

void host_finish(void)
{
    mutex_lock(&configuration.lock);
    if (atomic_load(&host.devices)) {
        host_streams_drain();
        host_workers_finish();
        host_settle();
        host_check_finish();
        host_streams_finish();
        host_settle();
        host_memory_finish();
        tarn_host_fail_set(-1, 0, false, TARN_OK);
        configuration.wanted = (tarn_host_configuration){0};
        atomic_store(&host.devices, 0);
    }
    mutex_unlock(&configuration.lock);
}

/* A child of fork() has neither the workers nor the owners of the locks. */
static bool is_forked(void)
{
    return atomic_load(&process_state) == PROCESS_IS_FORKED;
}

tarn_status tarn_host_configuration_set(const tarn_host_configuration *given)
{
    tarn_host_configuration read, *config = &read;
    tarn_status status = sized_read("tarn_host_configuration", given, config, sizeof *config);
    if (status)
        return status;
    if (is_forked())
        return process_refuse();
    if (config->devices < 0 || config->devices > TARN_MAX_DEVICES)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "tarn_host_configuration_set: %d devices; 1 to %d are possible",
                      config->devices, TARN_MAX_DEVICES);
    if (config->memory % HOST_GRANULE || config->memory > SIZE_MAX / 4)
        return failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "tarn_host_configuration_set: %zu bytes per device are not a multiple of 2 MiB",
            config->memory);

    mutex_lock(&configuration.lock);
    if (atomic_load(&host.devices))
        status = failed(TARN_ERROR_BUSY,
                        "tarn_host_configuration_set: the host device is in use already");
    else if (driver_reason()[0]) /* a wish has no effect any more */
        status = failed(TARN_ERROR_BUSY,
                        "tarn_host_configuration_set: the driver was chosen already (%s)",
                        driver_reason());
    else
        configuration.wanted = *config;
    mutex_unlock(&configuration.lock);
    return status;
}

/* ---- The way into a call ---- */

tarn_status host_no_device(enum driver_call call, int device)
{
    return failed(TARN_ERROR_INVALID_DEVICE, "host %s: there is no device %d, only %d in all",
                  driver_call_name((int)call), device, atomic_load(&host.devices));
}

static bool fails_randomly_locked(enum driver_call call)
{
    if (!injection.random.one_in || injection.random.kind != (int)call)
        return false;
    injection.random.state ^= injection.random.state << 13; /* xorshift64 */
    injection.random.state ^= injection.random.state >> 7;
    injection.random.state ^= injection.random.state << 17;
    return injection.random.state % injection.random.one_in == 0;
}

tarn_status host_inject(enum driver_call call)
{
    tarn_status status = TARN_OK;
    uint64_t number = 0;
    mutex_lock(&injection.lock);
    const char *kind = injection.kind < 0 ? "any" : driver_call_name(injection.kind);
    if (injection.left && (injection.kind < 0 || injection.kind == (int)call)) {
        number = ++injection.calls;
        if (injection.left > 1) {
            injection.left--;
        } else {
            status = injection.status;
            injection.hits++;
            if (!injection.forever) {
                injection.left = 0;
                atomic_store(&host.injecting, injection.random.one_in != 0);
            }
        }
    }
    if (!status && fails_randomly_locked(call))
        status = injection.random.status;
    mutex_unlock(&injection.lock);
    if (!status)
        return TARN_OK;
    if (status == TARN_ERROR_NOT_READY)
        return status;
    return failed(status, "host %s: injected failure of call %" PRIu64 " of kind %s",
                  driver_call_name((int)call), number, kind);
}

tarn_status tarn_host_fail_set(int kind, uint64_t nth, bool forever, tarn_status status)
{
    if (kind < -1 || kind >= DRIVER_CALLS)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "tarn_host_fail_set: there is no kind %d of driver call", kind);
    if (nth && status == TARN_OK)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "tarn_host_fail_set: a call cannot fail with TARN_OK");
    if (is_forked())
        return process_refuse();
    mutex_lock(&injection.lock);
    injection.kind = kind;
    injection.left = nth;
    injection.forever = forever;
    injection.status = status;
    injection.calls = injection.hits = 0;
    atomic_store(&host.injecting, nth != 0 || injection.random.one_in != 0);
    mutex_unlock(&injection.lock);
    return TARN_OK;
}

void host_fail_randomly(int kind, uint64_t seed, unsigned one_in, tarn_status status)
{
    mutex_lock(&injection.lock);
    injection.random.kind = kind;
    injection.random.one_in = one_in;
    injection.random.state = seed ? seed : 1;
    injection.random.status = status;
    atomic_store(&host.injecting, injection.left != 0 || one_in != 0);
    mutex_unlock(&injection.lock);
}

uint64_t host_fail_hits(void)
{
    mutex_lock(&injection.lock);
    uint64_t hits = injection.hits;
    mutex_unlock(&injection.lock);
    return hits;
}

uint64_t host_fail_calls(void)
{
    mutex_lock(&injection.lock);
    uint64_t calls = injection.calls;
    mutex_unlock(&injection.lock);
    return calls;
}

tarn_status host_use(int device, struct host_device **found)
{
    if (is_forked())
        return process_refuse();
    tarn_status status = driver_init();
    if (status)
        return status;
    if (driver->device_count !=
        driver_host.device_count) /* a simulated library has its own table of these calls */
        return failed(TARN_ERROR_NOT_SUPPORTED, "the driver is %s, not the host device",
                      driver->name);
    if (device < 0 || device >= atomic_load(&host.devices))
        return failed(TARN_ERROR_INVALID_DEVICE, "there is no device %d, only %d in all", device,
                      atomic_load(&host.devices));
    *found = &host.device[device];
    return TARN_OK;
}

/* Does everything that calls have left to be done: what a call has caused has happened when it
 * returns, whichever thread does it. `unsettled` stays true until all is done, so a thread that
 * finds it true waits here. */
void host_settle_now(void)
{
    static mutex settle_lock = MUTEX_INITIALIZER(LOCK_HOST_SETTLE);
    mutex_lock(&settle_lock);
    while (atomic_load(&host.unsettled)) {
        if (atomic_exchange(&host.sweeps, false))
            host_memory_sweep();
        host_check_deliver();
        host_graphs_settle();
        host_streams_lock();
        if (!atomic_load(&host.sweeps) && host_check_delivered_locked() &&
            host_graphs_settled_locked())
            atomic_store(&host.unsettled, false);
        host_streams_unlock();
    }
    mutex_unlock(&settle_lock);
}

/* ---- Calls about devices ---- */

static _Thread_local int current_device;

tarn_status host_device_count(int *count)
{
    struct host_device *first;
    tarn_status status = host_enter(DRIVER_CALL_device_count, 0, &first);
    if (status)
        return status;
    host_charge(first, DRIVER_CALL_device_count, 0, 0);
    *count = atomic_load(&host.devices);
    return TARN_OK;
}

tarn_status host_device_properties(int number, struct driver_properties *properties)
{
    struct host_device *device = NULL;
    tarn_status status = host_enter(DRIVER_CALL_device_properties, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_device_properties, 0, 0);
    *properties = (struct driver_properties){
        .name = "tarn host device",
        .memory = device->memory,
        .granule = HOST_GRANULE,
        /* Different from the granule, so that mistaking one for the other is found. */
        .recommended = 2 * HOST_GRANULE,
        .address_limit = host_addresses(device),
        .least_priority = 0,
        .greatest_priority = 1 - HOST_PRIORITIES,
        .virtual_memory = true,
        .alias = true,
        .exportable = true,
    };
    return TARN_OK;
}

tarn_status host_activate(int number)
{
    struct host_device *device = NULL;
    tarn_status status = host_enter(DRIVER_CALL_activate, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_activate, 0, 0);
    current_device = number;
    return TARN_OK;
}

tarn_status host_current(int *number)
{
    struct host_device *first;
    tarn_status status = host_enter(DRIVER_CALL_current, 0, &first);
    if (status)
        return status;
    host_charge(first, DRIVER_CALL_current, 0, 0);
    *number = current_device;
    return TARN_OK;
}

tarn_status host_context_get(driver_context *context)
{
    struct host_device *first;
    tarn_status status = host_enter(DRIVER_CALL_context_get, 0, &first);
    if (status)
        return status;
    host_charge(first, DRIVER_CALL_context_get, 0, 0);
    *context = (driver_context)((uintptr_t)current_device + 1);
    return TARN_OK;
}

tarn_status host_context_set(driver_context context)
{
    struct host_device *device = NULL;
    int number = context ? (int)((uintptr_t)context - 1) : current_device;
    tarn_status status = host_enter(DRIVER_CALL_context_set, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_context_set, 0, 0);
    current_device = number;
    return TARN_OK;
}

/* ---- The ledger ---- */

const char *tarn_host_call_name(int kind)
{
    return driver_call_name(kind);
}

tarn_status tarn_host_ledger_get(int number, tarn_host_ledger *result)
{
    struct host_device *device = NULL;
    tarn_status status = sized_check("tarn_host_ledger", result, sizeof *result);
    if (!status)
        status = host_use(number, &device);
    if (status)
        return status;
    tarn_host_ledger ledger = {.size = sizeof ledger};
    host_memory_ledger(device, &ledger);
    host_streams_ledger(device, &ledger);
    ledger.graphs = host_graph_count();
    ledger.time_a_ns = atomic_load(&device->time[0]);
    ledger.time_b_ns = atomic_load(&device->time[1]);
    ledger.time_c_ns = atomic_load(&device->time[2]);
    ledger.waited_ns = atomic_load(&device->waited);
    ledger.reports = atomic_load(&device->reports);
    ledger.failed = host_fail_hits();
    for (int call = 0; call < DRIVER_CALLS; call++)
        ledger.calls[call] = atomic_load(&device->calls[call]);
    sized_write(result, &ledger, sizeof ledger);
    return TARN_OK;
}

tarn_status tarn_host_ledger_reset(int number)
{
    struct host_device *device = NULL;
    tarn_status status = host_use(number, &device);
    if (status)
        return status;
    host_memory_ledger_reset(device);
    for (int table = 0; table < HOST_TABLES; table++)
        atomic_store(&device->time[table], 0);
    atomic_store(&device->waited, 0);
    atomic_store(&device->reports, 0);
    for (int call = 0; call < DRIVER_CALLS; call++)
        atomic_store(&device->calls[call], 0);
    return TARN_OK;
}

bool host_checking(void)
{
    return atomic_load_explicit(&host.checking, memory_order_relaxed);
}
