/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the host device's memory share: host_address.c owns address space, the budget
 * of mappings and plain allocations; host_memory.c pieces and what is mapped where; host_pinned.c
 * pinned memory of the host. All of it is under one lock, the first in the order of locks; system
 * calls are made with it. Functions here assume that it is held. */
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
    uint64_t accessible; /* a bit for each device that may read and write here */
    bool leaving;
};

/* A slot. Its handle is slot + 1 below, and above the number of pieces that the slot held before,
 * so that none comes twice. */
struct host_piece {
    uint64_t handle;
    struct host_device *device;
    size_t size;
    uint64_t offset; /* in the device's file, or 0 in its own */
    int file;        /* its own memfd, or -1 */
    bool live;       /* created and not released */
    bool outside;    /* in its own memfd, which came from elsewhere or is of the host: no memory of
                        the device's */
    bool exists;     /* live, or released and still mapped */
    struct host_mapping *mappings;
    struct host_piece *next_free;
};

/* A reserved range, or a plain allocation, which has no index. */
struct host_region {
    struct tree_node node;
    struct host_device *device;
    uintptr_t address;
    size_t size;
    struct host_mapping **granules; /* of a range: the mapping that covers each granule, or NULL */
    uint64_t mappings;              /* leaving ones among them */
    uint64_t plain;                 /* of a plain allocation: its handle as a piece */

    /* Of one that was freed in the order of a stream: when that is done with `freed_at` the free
     * takes effect. */
    struct host_region *next_freed;
    struct host_stream *freed_on;
    uint64_t freed_at;
    bool reported; /* work that uses it then */
};

extern mutex host_memory_lock;

/* The region that holds `address`, or NULL. */
struct host_region *host_region_at(uintptr_t address);
/* The range that holds all of [address, address + size), or NULL. */
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

/* Counts a mapping at [address, end) of the range, whose granules are empty, in the budget, and out
 * of it again. TARN_ERROR_MAPPING_LIMIT where it does not fit. */
tarn_status host_budget_check(const struct host_region *range, uintptr_t address, uintptr_t end);
void host_budget_add(const struct host_region *range, uintptr_t address, uintptr_t end);
void host_budget_remove(const struct host_region *range, uintptr_t address, uintptr_t end);

/* The same for one mapping that is in no range. */
tarn_status host_budget_take(const char *call);
void host_budget_give(void);

/* Makes a stretch of a reserved range PROT_NONE address space again, whatever was mapped there;
 * also at the kernel's limit of mappings. */
tarn_status host_place_nothing(uintptr_t address, size_t size);

/* What the kernel refused by errno, as a status. */
tarn_status host_system_failed(const char *call, const char *function) __attribute__((cold));
/* The device has no room for `size` more bytes. */
tarn_status host_refuse_full(const char *call, const struct host_device *device, size_t size)
    __attribute__((cold));
/* Enters `size` bytes as created. */
void host_ledger_created(struct host_device *device, size_t size);
/* A number that no piece has or will have. */
uint64_t host_piece_number(void);
/* Whether an unmap in the range waits for work to end; then where. */
bool host_range_leaves(const struct host_region *range, uintptr_t *address);
/* Forgets all mappings of the range, without a system call. */
void host_range_clear(struct host_region *range);
void host_pieces_finish(void);
/* Ends frees whose stream has come so far. */
void host_freed_sweep(void);
/* Gives up all regions. */
void host_regions_finish(void);
/* Gives up all pinned memory. Before the regions: the budget ends with those. */
void host_pinned_finish(void);

#endif
