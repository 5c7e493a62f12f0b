/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices, and each thread's current device.
 *
 * A device is a number from 0 to tarn_device_count_get() - 1. Each thread has a current device,
 * initially 0, whatever the current device of the thread that created it. tarn keeps this value
 * itself: no driver context is created on a device before the device is used. Setting a device,
 * waiting for it, asking for its free memory and enabling a peer are such uses; the other functions
 * here are not. All functions are thread-safe, and allowed during a capture unless they say
 * otherwise. Every function may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN,
 * TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION,
 * TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_INVALID_ARGUMENT for a NULL out-parameter.
 *
 * The driver is chosen once, by TARN_DRIVER:
 *   auto   a GPU's driver if a GPU answers, otherwise the embedded host device; this is the default
 *   cuda   only the driver's own libcuda.so.1. It uses primary contexts. Each call leaves the
 *          caller's current context as it was, except tarn_device_set() and what is built on it
 *   hip    libamdhip64.so.7, .6 or .5, whichever the process loaded first. Each call leaves the
 *          caller's device as it was. Virtual memory (ROCm 6.1 and later) is untested on hardware
 *          and is used only with TARN_HIP_VMM=1
 *   host   the host device (tarn/host.h)
 * The host device reads TARN_HOST_DEVICES (1), TARN_HOST_MEMORY (bytes per device, with an optional
 * K, M, G or T; 16G), TARN_HOST_MAPS and TARN_HOST_PEERS (all or none: which devices reach each
 * other). */
#ifndef TARN_DEVICE_H
#define TARN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/core.h>

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

    /* The device's memory is the machine's, as on Jetson, GB10 and AMD's APUs. With CUDA the
     * default limit of device and pinned memory together is then what the kernel and the control
     * groups say is available, less a thirty-second part of the whole; it is read again at each
     * growth. A limit that the program or the settings give takes its place. HIP has a limit of its
     * own. */
    bool integrated;

    bool coherent; /* it reads the processor's page tables, as on GH200, GB10 and Jetson Thor */
    bool slice;    /* it is a MIG instance, a part of a GPU */
    bool mps;      /* its processes share it by NVIDIA's Multi-Process Service */

    /* The system pages its memory out instead of refusing a request, as WSL2 does. Then the default
     * limit is what the driver says is free, asked at each growth. A limit that the program or the
     * settings give takes its place. */
    bool paged;
    /* The process's addresses have so many bits, by the kernel and `ulimit -v`: 47 or 48, or fewer;
     * 0: unknown. */
    int address_bits;
} tarn_device_properties;

/* Returns the number of devices, at least 1 and at most TARN_MAX_DEVICES. They are counted once per
 * process.
 *   TARN_ERROR_NO_DRIVER   no driver answers */
TARN_API tarn_status tarn_device_count_get(int *count);

/* Returns the properties of a device.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `properties` is NULL, or its `size` is unknown */
TARN_API tarn_status tarn_device_properties_get(int device, tarn_device_properties *properties);

/* Return or change the calling thread's current device. `set` also makes the device's context
 * current in the driver, and creates it if there is none. A guard (below) keeps the previous
 * device.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_get(int *device);
TARN_API tarn_status tarn_device_set(int device);

/* Makes the device that is current in the driver the thread's current device for tarn too, and
 * returns it. For a thread that switched devices through another API. If the driver has no current
 * context in this thread, that is device 0.
 *   TARN_ERROR_INVALID_DEVICE   the driver's device is not one that tarn serves */
TARN_API tarn_status tarn_device_adopt(int *device);

/* Returns the free and the total bytes of a device, as the driver reports them now for all
 * processes. Of an integrated device of CUDA, the free bytes are those that the machine has
 * available.
 * Memory that tarn has reserved is not free, even where no block lies in it.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_memory_get(int device, size_t *free_bytes, size_t *total_bytes);

/* Waits for all work on the device. This ends a capture there that is not known and does not show
 * (stream.h).
 *   TARN_ERROR_CAPTURE          a capture on the device is known or shows; it survives
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_synchronize(int device);

/* Gives `device` access to the memory of `peer`: to plain memory and to all tarn memory there,
 * present and future. It does not give `peer` access to the memory of `device`. Enabling twice is
 * TARN_OK. A device can always access its own memory. An access that was given is never taken
 * back.
 *   TARN_ERROR_NOT_SUPPORTED    the devices do not reach each other
 *   TARN_ERROR_INVALID_DEVICE   there is no device with one of these numbers */
TARN_API tarn_status tarn_device_peer_enable(int device, int peer);

/* What was current before a guard. The structure never grows. */
typedef struct tarn_guard {
    tarn_stream previous_stream; /* the previous stream on `device`, if there is one */
    int device;          /* whose stream the guard changed; -1: it changed the device only */
    int previous_device; /* the previous device */
    bool active;         /* set, and not restored yet */
} tarn_guard;

/* Makes `device` current, and remembers the previous one in `guard`. For a stream
 * together with its device there is tarn_stream_guard_set() (stream.h). Each guard must be
 * restored in the thread that set it, the newest one first.
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_device_guard_set(tarn_guard *guard, int device);

/* Puts back what was current before a guard, whatever is current by now. It creates no context on a
 * device that has none. Restoring a guard twice, or one whose set failed, does nothing and returns
 * TARN_OK. */
TARN_API tarn_status tarn_guard_restore(tarn_guard *guard);

/* Shuts tarn down for the rest of the process: waits for all work and returns everything that tarn
 * holds to the driver. Later calls return TARN_ERROR_SHUTDOWN; a second shutdown returns TARN_OK.
 * Live blocks keep their memory until the process ends, and can no longer be freed. Handles that
 * other threads hold, or that are on lease, are not destroyed. A failure of the driver does not
 * stop the shutdown. It ends captures that are not known (stream.h), on its own streams for
 * certain. Before the first use of tarn it only refuses later calls.
 *
 * Only calls that get library handles may run in other threads meanwhile: such a call ends before
 * the shutdown continues, or fails. tarn never calls this itself at process exit, where the driver
 * may be gone (pytorch/pytorch#17658, #36408).
 *   TARN_ERROR_CAPTURE   a known capture is open on any device; nothing was done
 *   TARN_ERROR_BUSY      in a callback, that is in code of the program that a call of tarn runs;
 *                        nothing was done
 *   TARN_ERROR_FORKED    in a child of fork() */
TARN_API tarn_status tarn_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif
