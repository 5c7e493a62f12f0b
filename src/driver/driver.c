/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The choice of the driver. Owns `driver`, which changes from NULL once, under a lock; who has seen driver_init()
 * succeed may read it without. */
#include "driver/driver.h"
#include "base/cancel.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status.h"
#include "driver/host.h"
#include "driver/loader.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const struct driver *driver;

static mutex choice_lock = MUTEX_INITIALIZER(LOCK_CHOICE);
static atomic_bool chosen;
static char reason[1024]; /* choice_lock until chosen */

/* The vendors, in the order in which `auto` asks them. */
static const struct {
    const char *name;
    tarn_status (*probe)(char *why, size_t size);
    const struct driver *driver;
} vendors[] = {
    {"cuda", driver_cuda_probe, &driver_cuda},
    {"hip", driver_hip_probe, &driver_hip},
};
enum { VENDORS = sizeof vendors / sizeof *vendors };

/* The driver that is asked for by name; NULL for auto. */
static tarn_status read_wish(const char **wish)
{
    const char *name = secure_getenv("TARN_DRIVER");
    *wish = NULL;
    if (host_configured()) {
        *wish = "host";
        return TARN_OK;
    }
    if (!name || !*name || strcmp(name, "auto") == 0)
        return TARN_OK;
    bool known = strcmp(name, "host") == 0;
    for (int i = 0; i < VENDORS && !known; i++)
        known = strcmp(name, vendors[i].name) == 0;
    if (!known)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_DRIVER=%s: the values are auto, host, cuda and hip", name);
    *wish = name;
    return TARN_OK;
}

/* Finds a vendor's driver that is wanted and answers; TARN_ERROR_NO_DRIVER where none does, with the reasons in `why`. */
static tarn_status choose_vendor(const char *wish, const struct driver **found, char *why, size_t size)
{
    tarn_status status = TARN_ERROR_NO_DRIVER;
    for (int i = 0; i < VENDORS; i++) {
        char answer[512] = "";
        if (wish && strcmp(wish, vendors[i].name) != 0)
            continue;
        status = vendors[i].probe(answer, sizeof answer);
        if (status == TARN_OK) {
            *found = vendors[i].driver;
            why[0] = '\0';
            loader_say(why, size, "%s", answer);
            return TARN_OK;
        }
        loader_say(why, size, "%s%s", why[0] && answer[0] ? "; " : "", answer);
        if (status == TARN_ERROR_CONFIGURATION)
            return status; /* the vendor's driver is there, and a wish of the user's about it makes no sense */
    }
    return status;
}

static tarn_status choose_locked(void)
{
    const char *wish = NULL;
    char why[sizeof reason - 16] = "";
    const struct driver *found = NULL;
    tarn_status status = read_wish(&wish);
    if (status)
        return status;
    if (!wish || strcmp(wish, "host") != 0)
        status = choose_vendor(wish, &found, why, sizeof why);
    else
        loader_say(why, sizeof why, "asked for");
    if (status && wish)
        return failed(status, "TARN_DRIVER=%s: %s", wish, why);
    if (status == TARN_ERROR_CONFIGURATION)
        return failed(status, "%s", why);
    if (!found && (status = host_start()))
        return status;

    driver = found ? found : &driver_host;
    reason[0] = '\0';
    loader_say(reason, sizeof reason, "%s: %s", driver->name, why);
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
    if (atomic_load_explicit(&chosen, memory_order_acquire))
        return TARN_OK;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    process_use_begin();
    mutex_lock(&choice_lock);
    tarn_status status = atomic_load(&chosen) ? TARN_OK : choose_locked();
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
        atomic_store(&chosen, false);
    }
    mutex_unlock(&choice_lock);
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
        return failed(answer, "%s on device %d: the driver does not say whether the stream captures", call, device);
    return failed(TARN_ERROR_CAPTURE,
                  "%s on device %d: the stream captures, and the memory would become the graph's: allocate from a pool "
                  "of tarn's during a capture",
                  call, device);
}
