/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices, and the current device of a thread.
 *
 * A device is a number from 0 to tarn_device_count_get() - 1. Each thread has a current device, 0 at first, which is tarn's
 * own value: no driver context is made on a device before it is used. All functions are thread-safe. Every function may
 * also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER and TARN_ERROR_OUT_OF_HOST_MEMORY.
 *
 * The driver is chosen once, by TARN_DRIVER (auto, cuda, hip, host); auto takes a GPU if one answers, else the embedded
 * host device. CUDA needs nothing but the driver's own libcuda.so.1, and uses primary contexts only: the caller's current
 * context is as it was after each call but tarn_device_set() and what is built on it. HIP is libamdhip64.so.7, .6 or .5,
 * the one that the process has loaded first; the caller's device is as it was after each call. HIP's virtual memory, from
 * ROCm 6.1, has not been tried on hardware and is used only with TARN_HIP_VMM=1. The host device reads
 * TARN_HOST_DEVICES (1), TARN_HOST_MEMORY (bytes a device, with an optional K, M, G or T; 16G), TARN_HOST_MAPS and
 * TARN_HOST_PEERS (all, none: which devices reach each other); see tarn/host.h. */
#ifndef TARN_DEVICE_H
#define TARN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The highest number of devices that tarn serves in one process; a driver's further ones are not seen. */
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
    bool alias;            /* ... and at two addresses at once */
    int capability_major;  /* compute capability; 0 on the host device */
    int capability_minor;  /* ... the second number of it */
    bool exportable;       /* other processes can be given its memory: tarn/share.h */
} tarn_device_properties;

/* The number of devices; counted once. TARN_ERROR_NO_DRIVER where no driver answers. */
TARN_API tarn_status tarn_device_count_get(int *count);

/* TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_ARGUMENT for a NULL or a `size` that is unknown. */
TARN_API tarn_status tarn_device_properties_get(int device, tarn_device_properties *properties);

/* The calling thread's current device. `set` also makes the device's context current in the driver; `exchange` gives
 * the previous one. TARN_ERROR_INVALID_DEVICE. */
TARN_API tarn_status tarn_device_get(int *device);
TARN_API tarn_status tarn_device_set(int device);
TARN_API tarn_status tarn_device_exchange(int device, int *previous);

/* Takes over the device that is current in the driver: for a thread that switched it by another API. Gives the device. */
TARN_API tarn_status tarn_device_adopt(int *device);

/* Free and total bytes, as the driver reports them now. Free counts what tarn keeps in reserve as used. */
TARN_API tarn_status tarn_device_memory_get(int device, size_t *free_bytes, size_t *total_bytes);

/* Waits for all work on the device. TARN_ERROR_CAPTURE while a known capture is open on it; the capture survives. */
TARN_API tarn_status tarn_device_synchronize(int device);

/* Whether `device` can reach the memory of `peer`, and the reaching itself, for plain memory and for all of tarn's on `peer`, now and
 * later. Enabling twice is TARN_OK. TARN_ERROR_NOT_SUPPORTED where the hardware cannot. */
TARN_API tarn_status tarn_device_peer_get(int device, int peer, bool *possible);
TARN_API tarn_status tarn_device_peer_enable(int device, int peer);

/* A guard sets a device and remembers the one before; restore puts that back, and makes no context on a device that has
 * none. A guard is restored by the thread that set it; guards nest like brackets. Restoring twice, or a guard whose set
 * failed, does nothing and is TARN_OK. The structure does not grow, as no guard's does. */
typedef struct tarn_device_guard {
    int previous; /* the device before */
    bool active;  /* set, and not restored yet */
} tarn_device_guard;
TARN_API tarn_status tarn_device_guard_set(tarn_device_guard *guard, int device);
TARN_API tarn_status tarn_device_guard_restore(tarn_device_guard *guard);

/* Gives everything that tarn holds back to the driver. Waits for all work. TARN_ERROR_CAPTURE, and nothing has happened,
 * while a known capture is open. Later calls give TARN_ERROR_SHUTDOWN, a second shutdown TARN_OK. Blocks that are still
 * live keep their memory until the process ends. Other threads may be asking for library handles meanwhile: such a call
 * ends before the shutdown goes on, or fails; handles that other threads still have, or that are on lease, are not
 * destroyed. No other call of tarn may run at the same time. Never called at exit by tarn itself: at exit the driver may
 * be gone (pytorch/pytorch#17658, #36408). */
TARN_API tarn_status tarn_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif
