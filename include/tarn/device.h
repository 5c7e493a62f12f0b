/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices, and each thread's current device.
 *
 * A device is a number from 0 to tarn_device_count_get() - 1. Each thread has a current device, initially 0. tarn
 * keeps this value itself: no driver context is created on a device before the device is used. All functions are
 * thread-safe. Every function may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY, and
 * TARN_ERROR_INVALID_ARGUMENT for a NULL out-parameter.
 *
 * The driver is chosen once, by TARN_DRIVER:
 *   auto   a GPU's driver if a GPU answers, otherwise the embedded host device; this is the default
 *   cuda   only the driver's own libcuda.so.1. It uses primary contexts. Each call leaves the caller's current context
 *          as it was, except tarn_device_set() and what is built on it
 *   hip    libamdhip64.so.7, .6 or .5, whichever the process loaded first. Each call leaves the caller's device as it
 *          was. Virtual memory (ROCm 6.1 and later) is untested on hardware and is used only with TARN_HIP_VMM=1
 *   host   the host device (tarn/host.h)
 * The host device reads TARN_HOST_DEVICES (1), TARN_HOST_MEMORY (bytes per device, with an optional K, M, G or T; 16G),
 * TARN_HOST_MAPS and TARN_HOST_PEERS (all or none: which devices reach each other). */
#ifndef TARN_DEVICE_H
#define TARN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most devices that tarn serves in one process. It ignores any further devices. */
#define TARN_MAX_DEVICES 64

/* What a device is. */
typedef struct tarn_device_properties {
    size_t size;           /* sizeof(tarn_device_properties), set by the caller */
    char name[64];         /* NUL-terminated */
    char driver[16];       /* "cuda", "hip" or "host" */
    size_t memory;         /* bytes of physical memory */
    size_t granule;        /* bytes: the unit of physical memory; 0 without virtual memory */
    int least_priority;    /* of streams: the numerically highest, 0 */
    int greatest_priority; /* the numerically lowest */
    bool virtual_memory;   /* physical memory can be mapped at reserved addresses */
    bool alias;            /* physical memory can be mapped at two addresses at once */
    int capability_major;  /* compute capability, first number; 0 on the host device */
    int capability_minor;  /* compute capability, second number */
    bool exportable;       /* memory can be exported to other processes: tarn/share.h */
} tarn_device_properties;

/* Returns the number of devices. They are counted once per process.
 *   TARN_ERROR_NO_DRIVER   no driver answers */
TARN_API tarn_status tarn_device_count_get(int *count);

/* Returns the properties of a device.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `properties` is NULL, or its `size` is unknown */
TARN_API tarn_status tarn_device_properties_get(int device, tarn_device_properties *properties);

/* Return or change the calling thread's current device. `set` also makes the device's context current in the driver.
 * `exchange` does the same and returns the previous device.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_get(int *device);
TARN_API tarn_status tarn_device_set(int device);
TARN_API tarn_status tarn_device_exchange(int device, int *previous);

/* Adopts the device that is current in the driver, and returns it. For a thread that switched devices through another
 * API. */
TARN_API tarn_status tarn_device_adopt(int *device);

/* Returns the free and the total bytes of a device, as the driver reports them now. Memory that tarn keeps in reserve
 * is not free.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_memory_get(int device, size_t *free_bytes, size_t *total_bytes);

/* Waits for all work on the device.
 *   TARN_ERROR_CAPTURE          a known capture is open on the device; the capture survives
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_synchronize(int device);

/* `get` returns whether `device` can access the memory of `peer`. `enable` gives it that access, for plain memory and
 * for all tarn memory on `peer`, present and future. Enabling twice is TARN_OK.
 *   TARN_ERROR_NOT_SUPPORTED    `enable`: the hardware cannot do it
 *   TARN_ERROR_INVALID_DEVICE   there is no device with one of these numbers */
TARN_API tarn_status tarn_device_peer_get(int device, int peer, bool *possible);
TARN_API tarn_status tarn_device_peer_enable(int device, int peer);

/* A guard changes the current device and remembers the previous one; restore puts it back. Restore creates no context
 * on a device that has none. The thread that set a guard must restore it, and guards must nest. Restoring a guard
 * twice, or one whose set failed, does nothing and returns TARN_OK. The structure never grows; this holds for every
 * guard.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
typedef struct tarn_device_guard {
    int previous; /* the previous device */
    bool active;  /* set, and not restored yet */
} tarn_device_guard;
TARN_API tarn_status tarn_device_guard_set(tarn_device_guard *guard, int device);
TARN_API tarn_status tarn_device_guard_restore(tarn_device_guard *guard);

/* Shuts tarn down: waits for all work and returns everything that tarn holds to the driver. Later calls return
 * TARN_ERROR_SHUTDOWN; a second shutdown returns TARN_OK. Live blocks keep their memory until the process ends. Handles
 * that other threads hold, or that are on lease, are not destroyed.
 *
 * Only calls that get library handles may run in other threads meanwhile: such a call ends before the shutdown
 * continues, or fails. tarn never calls this itself at process exit, where the driver may be gone
 * (pytorch/pytorch#17658, #36408).
 *   TARN_ERROR_CAPTURE   a known capture is open; nothing was done */
TARN_API tarn_status tarn_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif
