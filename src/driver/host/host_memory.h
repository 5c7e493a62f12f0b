/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the host device's memory share. host_address.c owns address space, the budget
 * of mappings and plain allocations; host_memory.c pieces and where they are mapped; host_pinned.c
 * pinned host memory. All of it is under host_memory_lock, which comes first in the order of locks
 * and is held over system calls. All functions here require it. */
#ifndef TARN_DRIVER_HOST_MEMORY_H
#define TARN_DRIVER_HOST_MEMORY_H

#include "base/thread/lock.h"
#include "base/tree.h"
#include "driver/host/host.h"

struct host_mapping {
    struct host_mapping *next_of_piece, *next_leaving;
    struct host_region *region;
    struct host_piece *piece;
    uintptr_t address;
    uint64_t accessible; /* one bit per device that may read and write here */
    bool leaving;
};

/* A slot for a piece. The piece's handle is the slot + 1 in the low half, and the number of earlier
 * pieces of the slot in the high half. So no handle is used twice. */
struct host_piece {
    uint64_t handle;
    struct host_device *device;
    size_t size;
    uint64_t offset; /* in the device's file, or 0 in its own */
    int file;        /* its own memfd, or -1 */
    bool live;       /* created and not released */
    bool outside;    /* imported, or host memory: not memory of the device */
    bool imported;
    bool exists; /* live, or released but still mapped */
    struct host_mapping *mappings;
    struct host_piece *next_free;
};

/* A reserved range, or a plain allocation, which has no `granules`. */
struct host_region {
    struct tree_node node;
    struct host_device *device;
    uintptr_t address;
    size_t size;
    struct host_mapping **granules; /* range: the mapping that covers each granule, or NULL */
    uint64_t mappings;              /* including those that are leaving */
    uint64_t plain;                 /* plain allocation: its handle as a piece */

    /* Plain allocation that was freed in the order of a stream: the free takes effect when the
     * stream has done `freed_at`. */
    struct host_region *next_freed;
    struct host_stream *freed_on;
    uint64_t freed_at;
    bool reported; /* work that uses it at that time was reported */
};

extern mutex host_memory_lock;

/* The region that contains `address`, or NULL. */
struct host_region *host_region_at(uintptr_t address);
/* The range that contains all of [address, address + size), or NULL. */
struct host_region *host_range_around(const struct host_device *device, uintptr_t address,
                                      size_t size);

/* The index entry of the granule at `address`. */
static inline struct host_mapping **host_granule_of(const struct host_region *range,
                                                    uintptr_t address)
{
    return &range->granules[(address - range->address) / HOST_GRANULE];
}

static inline bool host_off_granule(uintptr_t address, size_t size)
{
    return size == 0 || (address | size) % HOST_GRANULE;
}

/* Whether a mapping of the range at [address, end), whose granules are empty, fits into the budget.
 * TARN_ERROR_MAPPING_LIMIT: it does not. */
tarn_status host_budget_check(const struct host_region *range, uintptr_t address, uintptr_t end);
/* Counts such a mapping in the budget. */
void host_budget_add(const struct host_region *range, uintptr_t address, uintptr_t end);
/* Takes it out again. */
void host_budget_remove(const struct host_region *range, uintptr_t address, uintptr_t end);

/* The same for a mapping in no range. */
tarn_status host_budget_take(const char *call);
void host_budget_give(void);

/* Makes a part of a reserved range PROT_NONE address space, whatever was mapped there, even at the
 * kernel's limit of mappings. */
tarn_status host_place_nothing(uintptr_t address, size_t size);

/* An errno of the kernel as a status. */
tarn_status host_system_failed(const char *call, const char *function) __attribute__((cold));
/* Fails because the device has no room for `size` more bytes. */
tarn_status host_refuse_full(const char *call, const struct host_device *device, size_t size)
    __attribute__((cold));
/* Counts `size` bytes as created in the ledger. */
void host_ledger_created(struct host_device *device, size_t size);
/* A number that no piece ever has. */
uint64_t host_piece_number(void);
/* Whether an unmap in the range waits for work to end; `address` is where. */
bool host_range_leaves(const struct host_region *range, uintptr_t *address);
/* Forgets all mappings of the range, without a system call. */
void host_range_clear(struct host_region *range);
/* Ends the frees whose streams have reached them. */
void host_freed_sweep(void);
/* Frees all regions. */
void host_regions_finish(void);
/* Frees all pinned memory. Called before host_regions_finish(), which ends the budget. */
void host_pinned_finish(void);

#endif
