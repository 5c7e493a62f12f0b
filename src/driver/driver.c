/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The choice of the driver. Owns `driver`, which changes from NULL once, under a lock; who has seen driver_init()
 * succeed may read it without. */
#include "driver/driver.h"
#include "base/lock.h"
#include "base/process.h"
#include "base/status.h"
#include "driver/host.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const struct driver *driver;

static mutex choice_lock = MUTEX_INITIALIZER;
static atomic_bool chosen;
static bool watches_fork; /* choice_lock */

static tarn_status choose_locked(void)
{
    const char *name = getenv("TARN_DRIVER");
    if (name && (strcmp(name, "cuda") == 0 || strcmp(name, "hip") == 0))
        return failed(TARN_ERROR_NO_DRIVER, "TARN_DRIVER=%s: this version has only the host device (TARN_DRIVER=host)",
                      name);
    if (name && *name && strcmp(name, "auto") != 0 && strcmp(name, "host") != 0)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_DRIVER=%s: the values are auto, host, cuda and hip", name);

    tarn_status status = host_start();
    if (status)
        return status;
    if (!watches_fork)
        process_watch_fork();
    watches_fork = true;
    driver = &driver_host;
    atomic_store_explicit(&chosen, true, memory_order_release);
    return TARN_OK;
}

tarn_status driver_init(void)
{
    if (atomic_load_explicit(&chosen, memory_order_acquire))
        return TARN_OK;
    mutex_lock(&choice_lock);
    tarn_status status = atomic_load(&chosen) ? TARN_OK : choose_locked();
    mutex_unlock(&choice_lock);
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
