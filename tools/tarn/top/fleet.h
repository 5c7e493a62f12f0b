/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* All processes of a machine that publish, and the machine's devices. For each device: what each
 * process has by tarn; what these processes have besides (contexts, modules, allocations of
 * libraries); and what other processes have. A device is identified by its UUID, because processes
 * may number it differently. */
#ifndef TOOLS_TOP_FLEET_H
#define TOOLS_TOP_FLEET_H

#include "top/top.h"

#include <tarn/keep.h>

/* A device of the machine that a process publishes. An empty UUID: the driver has none, and the
 * device counts as that process's own. */
struct fleet_device {
    char uuid[48], pci[24], name[64];
    uint64_t total, used; /* bytes; used: by anybody, SURVEY_UNKNOWN where nobody says */
    uint64_t reserved;    /* by all processes of the list */
    /* Bytes that these processes have besides, by NVML; SURVEY_UNKNOWN: NVML does not say. */
    uint64_t rest;
    bool monitored;   /* total and used are NVML's figures, not a process's */
    uint64_t said_ns; /* otherwise the time at which that process took the figures */
};

/* What a process has of a device. */
struct fleet_share {
    size_t entry, device; /* in the list; in the devices */
    const struct survey_device *of;
    uint64_t reserved, allocated, peak; /* bytes */
    double rate;                        /* blocks handed out a second; negative: not known */
    uint64_t history[16];               /* of reserved, the oldest first */
    int samples;
};

/* A kept pool of the owner that TARN_KEEP names: its memory belongs to a process, or waits for
 * one. */
struct fleet_kept {
    char name[TARN_KEEP_NAME_BYTES], device[52];
    char group[64];         /* of `tarn run`, in which it counts; empty: none */
    uint64_t bytes, blocks; /* of its segments; sealed ones */
    uint64_t lingering;     /* bytes that it has given up, and its readers have */
    bool ended;             /* it has nothing else any more */
    int64_t process;        /* 0: none has it */
};

struct fleet {
    const struct top_list *list;
    struct fleet_kept *kept;
    size_t kept_count;
    struct fleet_device *devices;
    /* One for each process and device in use; for a process that uses none, one whose `of` is
     * NULL. */
    struct fleet_share *shares;
    size_t device_count, share_count;
};

enum fleet_order {
    FLEET_BY_RESERVED,
    FLEET_BY_ALLOCATED,
    FLEET_BY_PEAK,
    FLEET_BY_RATE,
    FLEET_BY_NAME,
    FLEET_BY_PROCESS,
    FLEET_BY_AGE,
    FLEET_ORDERS
};

/* An order's name, and the key that chooses it on a screen. */
struct fleet_order_name {
    const char *name;
    char key;
};
extern const struct fleet_order_name fleet_orders[FLEET_ORDERS];

/* Makes the fleet of a list. The list must outlive the fleet. Rates and history are computed from
 * `before`, the previous fleet, or NULL for the first. False if memory is short. */
bool fleet_make(const struct top_list *list, const struct fleet *before, enum fleet_order order,
                struct fleet *fleet);
void fleet_finish(struct fleet *fleet);

/* The part of a device that it is, from 0 to 1. */
double fleet_part(const struct fleet *fleet, const struct fleet_share *share);

/* The name of a device in a line: its PCI address. A slice, or a device without an address, has its
 * UUID. */
const char *fleet_device_name(const struct fleet_device *device);

/* fleet_kept.c: asks the owner of kept pools, if TARN_KEEP names one that answers soon. False where
 * memory is short. */
bool fleet_ask_owner(struct fleet *fleet);

/* Tables of processes, of devices and of kept pools. `look->device` counts for nothing here. */
void fleet_frame(struct top_frame *frame, const struct fleet *fleet, const struct top_look *look);

/* fleet_nvml.c: what the vendor's monitor says of a device. */
struct fleet_process {
    uint64_t number; /* as this program sees processes */
    uint64_t bytes;  /* SURVEY_UNKNOWN: not told */
};
struct fleet_monitor {
    uint64_t total, used; /* bytes */
    struct fleet_process processes[256];
    size_t count;
};
/* False where there is no NVML, or it does not know the device. */
bool fleet_monitor_read(const char *uuid, const char *pci, struct fleet_monitor *monitor);

#endif
