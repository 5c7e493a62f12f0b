/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Chooses the driver. Owns `driver`, which changes from NULL once, under `choice_lock`, and
 * `driver_counting`, which is set before it. Code that has seen driver_init() succeed reads them
 * without a lock. Vendors' drivers are searched for with no lock held, by each thread that finds
 * none chosen: the loader runs one dlopen() at a time, with constructors, and a constructor may use
 * tarn. */
#include "driver/driver.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/lock.h"
#include "base/thread/process.h"
#include "base/variable.h"
#include "driver/cuda/cuda.h"
#include "driver/hip/hip.h"
#include "driver/host/host.h"
#include "driver/loader.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct driver *driver;
struct driver_counting driver_counting;

static mutex choice_lock = MUTEX_INITIALIZER(LOCK_CHOICE);
static atomic_bool chosen;
static char reason[1024]; /* under choice_lock until chosen */

/* What one thread has found, before it becomes the process's choice. */
struct choice {
    const struct driver *driver;
    char reason[sizeof reason];
    union found {
        struct cuda cuda;
        struct hip hip;
    } found;
};

static tarn_status probe_cuda(union found *found, char *why, size_t size)
{
    return cuda_probe(&found->cuda, why, size);
}

/* Looks up the functions of run/kept.c in a vendor's driver. All are NULL unless it has all of
 * them: then it is the shim. */
static void find_counting(const struct loaded *library)
{
    struct driver_counting *found = &driver_counting;
    loader_store(&found->takes_over, loader_symbol(library, "tarn_run_takes_over"));
    loader_store(&found->has_taken_over, loader_symbol(library, "tarn_run_has_taken_over"));
    loader_store(&found->slot, loader_symbol(library, "tarn_run_slot"));
    if (!found->takes_over || !found->has_taken_over || !found->slot)
        *found = (struct driver_counting){NULL, NULL, NULL};
}

static void take_cuda(const union found *found)
{
    cuda = found->cuda;
    loader_store(&machine_simulated, loader_symbol(&cuda.library, "tarn_sim_machine_memory"));
    find_counting(&cuda.library);
}

static tarn_status probe_hip(union found *found, char *why, size_t size)
{
    return hip_probe(&found->hip, why, size);
}

static void take_hip(const union found *found)
{
    hip = found->hip;
    find_counting(&hip.library);
}

/* The vendors, in the order in which `auto` tries them. */
static const struct vendor {
    const char *name;
    const struct driver *driver;
    tarn_status (*probe)(union found *found, char *why, size_t size);
    void (*take)(const union found *found);
} vendors[] = {
    {"cuda", &driver_cuda, probe_cuda, take_cuda},
    {"hip", &driver_hip, probe_hip, take_hip},
};
enum { VENDORS = sizeof vendors / sizeof *vendors };

/* The name in TARN_DRIVER; NULL: auto. */
static tarn_status read_wish(const char **wish)
{
    const char *name = variable_get("TARN_DRIVER");
    *wish = NULL;
    if (host_configured()) {
        *wish = "host";
        return TARN_OK;
    }
    if (!name || strcmp(name, "auto") == 0)
        return TARN_OK;
    bool known = strcmp(name, "host") == 0;
    for (int i = 0; i < VENDORS && !known; i++)
        known = strcmp(name, vendors[i].name) == 0;
    if (!known)
        return failed(TARN_ERROR_CONFIGURATION,
                      "TARN_DRIVER=%s: the values are auto, host, cuda and hip", name);
    *wish = name;
    return TARN_OK;
}

/* Finds a vendor's driver that is wanted and answers. TARN_ERROR_NO_DRIVER if there is none, with
 * the reasons in `why`. */
static tarn_status choose_vendor(const char *wish, struct choice *choice, char *why, size_t size)
{
    tarn_status status = TARN_ERROR_NO_DRIVER;
    for (int i = 0; i < VENDORS; i++) {
        char answer[512] = "";
        if (wish && strcmp(wish, vendors[i].name) != 0)
            continue;
        status = vendors[i].probe(&choice->found, answer, sizeof answer);
        if (status == TARN_OK) {
            choice->driver = vendors[i].driver;
            why[0] = '\0';
            loader_say(why, size, "%s", answer);
            return TARN_OK;
        }
        loader_say(why, size, "%s%s", why[0] && answer[0] ? "; " : "", answer);
        if (status == TARN_ERROR_CONFIGURATION)
            return status; /* the driver is there, but a setting for it is malformed */
    }
    return status;
}

static tarn_status choose(struct choice *choice)
{
    const char *wish = NULL;
    char why[sizeof choice->reason - 16] = "";
    choice->driver = NULL;
    choice->reason[0] = '\0';
    tarn_status status = read_wish(&wish);
    if (status)
        return status;
    if (!wish || strcmp(wish, "host") != 0)
        status = choose_vendor(wish, choice, why, sizeof why);
    else
        loader_say(why, sizeof why, "asked for");
    if (status && wish)
        return failed(status, "TARN_DRIVER=%s: %s", wish, why);
    if (status == TARN_ERROR_CONFIGURATION)
        return failed(status, "%s", why);
    if (!choice->driver)
        choice->driver = &driver_host;
    loader_say(choice->reason, sizeof choice->reason, "%s: %s", choice->driver->name, why);
    return TARN_OK;
}

/* Makes a thread's choice that of the process. */
static tarn_status take_locked(const struct choice *choice)
{
    tarn_status status = choice->driver == &driver_host ? host_start() : TARN_OK;
    if (status)
        return status;
    for (int i = 0; i < VENDORS; i++)
        if (choice->driver == vendors[i].driver)
            vendors[i].take(&choice->found);
    driver = choice->driver;
    memcpy(reason, choice->reason, sizeof reason);
    log_write(LOG_INFO, "driver %s", reason);
    atomic_store_explicit(&chosen, true, memory_order_release);
    return TARN_OK;
}

const char *driver_reason(void)
{
    return atomic_load_explicit(&chosen, memory_order_acquire) ? reason : "";
}

tarn_status driver_init(void)
{
    struct choice choice;
    if (atomic_load_explicit(&chosen, memory_order_acquire))
        return TARN_OK;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    process_use_begin();
    tarn_status status = choose(&choice);
    mutex_lock(&choice_lock);
    /* Another thread was faster; what this one found is dropped, and its libraries stay open. */
    if (atomic_load(&chosen))
        status = TARN_OK;
    else if (!status)
        status = take_locked(&choice);
    mutex_unlock(&choice_lock);
    if (status)
        process_use_failed();
    return status;
}

void driver_finish(void)
{
    mutex_lock(&choice_lock);
    if (atomic_load(&chosen)) {
        driver->finish();
        driver = NULL;
        driver_counting = (struct driver_counting){NULL, NULL, NULL};
        atomic_store(&chosen, false);
    }
    mutex_unlock(&choice_lock);
}

size_t driver_machine_free_bytes(size_t reported, size_t total)
{
    struct machine_memory memory;
    if (!machine_memory_get(&memory))
        return reported;
    return memory.available < total ? memory.available : total;
}

void driver_uuid_print(struct driver_identity *identity, const char *prefix,
                       const unsigned char bytes[16])
{
    char *text = identity->uuid;
    size_t size = sizeof identity->uuid, at = (size_t)snprintf(text, size, "%s", prefix);
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%02x",
                               i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "", bytes[i]);
}

const char *driver_call_name(int call)
{
    static const char *const names[DRIVER_CALLS] = {
#define X(call, parameters) [DRIVER_CALL_##call] = #call,
        DRIVER_CALL_LIST(X)
#undef X
    };
    return call >= 0 && call < DRIVER_CALLS ? names[call] : NULL;
}

tarn_status driver_refuse_captured(const char *call, int device, tarn_status answer,
                                   const struct driver_capture *capture)
{
    if (answer == TARN_OK && capture->state == DRIVER_CAPTURE_NONE)
        return TARN_OK;
    if (answer && answer != TARN_ERROR_CAPTURE)
        return failed(answer,
                      "%s on device %d: the driver does not say whether the stream captures", call,
                      device);
    return failed(TARN_ERROR_CAPTURE,
                  "%s on device %d: the stream captures, so the memory would belong to the graph: "
                  "allocate from a tarn "
                  "pool during a capture",
                  call, device);
}
